"""Updates that come without a pause: the run ends all the same, and each of them counts once."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError
from temporalio.worker import Replayer

from perdure import Budget, errors
from perdure.clients import Session
from perdure.session.wire import SessionRequest
from perdure.temporal.data_converter import chosen
from perdure.temporal.failures import RUN_ENDS
from perdure.temporal.names import RESUME, SESSION
from perdure.temporal.payloads import NOTHING, pack
from perdure.testing import FunctionModel
from perdure.turn.facts import WaitBegan
from perdure.values.messages import UserMessage
from perdure.workflows.session.agent_session import AgentSession
from perdure.workflows.single_input import OneInput

from ...conftest import RecordingClient, Runtime
from ...support.carrying import clerk, letters
from ...support.conversing import until_idle
from ...support.long_turns import SHORT_TASK, begin, runs_of
from ...support.spending import SOON_S, app, until

if TYPE_CHECKING:
    from temporalio.exceptions import ApplicationError

CLIENTS = 3
RUNS = 2


async def streaming(
    over: Callable[[], Awaitable[bool]], *clients: Callable[[], Awaitable[object]]
) -> None:
    """Let each of the clients ask without a pause, until it is `over`."""
    is_over = asyncio.Event()

    async def asking(ask: Callable[[], Awaitable[object]]) -> None:
        while not is_over.is_set():
            await ask()

    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        for ask in clients:
            tasks.create_task(asking(ask))
        while not await over():  # noqa: ASYNC110 - read from the server
            await asyncio.sleep(0.02)
        is_over.set()


@pytest.mark.accepts("Y59", "Y61")
@pytest.mark.slow
async def test_turn_goes_on_in_new_runs_under_a_stream_of_updates(runtime: Runtime) -> None:
    """A caller without Perdure's client is told to send its update again."""
    added, refusals = 0, dict[str | None, str]()
    async with runtime(app(clerk(on_exhausted="pause")), model=letters()) as client:
        turn = await begin(client)
        await until(turn, WaitBegan)
        handle = client.temporal.get_workflow_handle(turn.id)

        async def add() -> None:
            nonlocal added
            await turn.add_budget(iterations=1)
            added += 1

        async def resume() -> None:
            """Ask for what a turn that waits for approval always refuses."""
            try:
                await handle.execute_update(RESUME, NOTHING)
            except WorkflowUpdateFailedError as error:
                cause = cast("ApplicationError", error.cause)
                refusals[cause.type] = cause.message
            except RPCError:
                pass  # between two runs

        async def over() -> bool:
            return len(await runs_of(client, turn)) >= RUNS and RUN_ENDS in refusals

        await streaming(over, *[add] * CLIENTS, resume)
        status = await turn.status()
        await turn.cancel("seen enough")

    assert status.max_iterations == 9 + added
    assert refusals.keys() == {RUN_ENDS, errors.InvalidRequestError.code}
    assert "send the update again" in refusals[RUN_ENDS]


@pytest.mark.accepts("Y60")
async def test_session_goes_on_in_new_runs_under_a_stream_of_updates(runtime: Runtime) -> None:
    """Of messages, so that a turn follows on the other, and of additions to its budget. Each
    message that was accepted is read once.
    """
    budget, said, number = 1_000, list[str](), 0
    async with runtime(app(), model=FunctionModel(lambda _: "ok")) as client:
        session = await short_session(client, Budget(model_calls=budget))
        handle = client.temporal.get_workflow_handle(session.id)
        runs = set[str | None]()

        async def add() -> None:
            nonlocal budget
            await session.add_budget(Budget(model_calls=1))
            budget += 1

        async def say() -> None:
            nonlocal number
            number += 1
            text = f"message {number}"
            try:
                await session.say(text)
            except errors.SessionBusyError:
                await asyncio.sleep(0.05)  # twenty messages wait
            else:
                said.append(text)

        async def over() -> bool:
            runs.add((await handle.describe()).run_id)
            return len(runs) >= RUNS

        await streaming(over, *[add, say] * CLIENTS)
        await until_idle(session)
        status = await session.status()
        read = [one.text for one in await session.messages() if isinstance(one, UserMessage)]
        await session.close()
        histories = [
            await client.temporal.get_workflow_handle(session.id, run_id=run).fetch_history()
            for run in runs
        ]

    replayer = Replayer(
        data_converter=chosen(), workflows=[AgentSession], interceptors=[OneInput()]
    )
    for history in histories:
        await replayer.replay_workflow(history)
    assert status.budget == Budget(model_calls=budget)
    assert sorted(read) == sorted(said)


async def short_session(client: RecordingClient, budget: Budget) -> Session:
    """Begin a session as the client does, but with runs of some 300 events."""
    request = SessionRequest(agent="spender", budget=budget)
    handle: Any = await client.temporal.start_workflow(
        SESSION,
        pack(request),
        id=f"chat-{secrets.token_hex(4)}",
        task_queue=client.task_queue,
        task_timeout=SHORT_TASK,
    )
    return client.session(handle.id)
