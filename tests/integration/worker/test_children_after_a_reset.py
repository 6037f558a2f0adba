"""A cancel after a reset: it reaches the children that had begun before the point of the reset."""

import asyncio
import contextlib
import secrets

import pytest

from perdure import Agent, errors, tool
from perdure.clients import Turn
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.reports import Outcome
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime
from ...support.resets import reset_to, task_ends
from ...support.spending import SOON_S

ASKS = calls(call("send", to="Ann"))


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


HELPER = Agent(name="helper", model="scripted:m", tools=[send])
BOSS = Agent(name="boss", model="scripted:m", delegates=[HELPER])


async def until_it_waits(turn: Turn) -> None:
    """Wait until a call of a turn waits for a decision."""
    async with asyncio.timeout(SOON_S):
        while True:
            with contextlib.suppress(errors.TurnNotFoundError):  # it has not begun
                if await turn.pending_approvals():
                    return
            await asyncio.sleep(0.05)


async def end_of(turn: Turn) -> Outcome | None:
    """How a turn has ended."""
    async with asyncio.timeout(SOON_S):
        with contextlib.suppress(errors.PerdureError):
            await turn.result()
        return (await turn.status()).outcome


async def reset_last(client: RecordingClient, workflow_id: str) -> None:
    """Reset a workflow to the last of its tasks: its children have begun before."""
    history = await client.temporal.get_workflow_handle(workflow_id).fetch_history()
    await reset_to(client.temporal, workflow_id, history.run_id, task_ends(history)[-1])


@pytest.mark.accepts("S103")
async def test_cancel_of_a_turn_that_was_reset_reaches_its_delegate(runtime: Runtime) -> None:
    """The delegate waits for a person, and ends; the turn would wait for it for ever."""
    model = ScriptedModel(calls(call("delegate_to_agent", agent="helper", task="Help.")), ASKS)
    async with runtime(AgentWorker([BOSS, HELPER]), model=model) as client:
        turn = await client.start("boss", "go")
        delegate = client.turn(f"{turn.id}/helper-1")
        await until_it_waits(delegate)
        await reset_last(client, turn.id)
        again = client.turn(turn.id)
        await again.cancel("not needed")
        ends = [await end_of(one) for one in (delegate, again)]

    assert ends == [Outcome.CANCELLED, Outcome.CANCELLED]


@pytest.mark.accepts("S103")
@pytest.mark.parametrize("how", ["interrupt", "cancel", "message"])
async def test_interrupt_of_a_session_that_was_reset_reaches_its_turn(
    runtime: Runtime, how: str
) -> None:
    """By a person, by a cancel of the session, and by a message that does not wait."""
    worker = AgentWorker([HELPER])
    async with runtime(worker, model=ScriptedModel(ASKS, says("hello"))) as client:
        session = client.session(f"chat-{secrets.token_hex(4)}", "helper")
        turn = await (await session.say("Write to Ann.")).turn()
        await until_it_waits(turn)
        await reset_last(client, session.id)
        match how:
            case "interrupt":
                await session.interrupt("wrong person")
            case "cancel":
                await session.cancel("wrong person")
            case _:
                await session.say("Say hello.", if_busy="interrupt")
        end = await end_of(turn)

    assert end == Outcome.CANCELLED


@pytest.mark.accepts("S103")
async def test_cancel_of_a_part_that_was_reset_reaches_its_turns(runtime: Runtime) -> None:
    """The point of the reset is after their start."""
    batch_id = f"batch-{secrets.token_hex(4)}"
    async with runtime(AgentWorker([HELPER]), model=ScriptedModel(ASKS, ASKS)) as client:
        batch = await client.start_batch(batch_id, "helper", ["one", "two"], at_once=2)
        turns = [client.turn(f"{batch_id}/{number}") for number in (1, 2)]
        for turn in turns:
            await until_it_waits(turn)
        [part] = [
            one.id
            async for one in client.temporal.list_workflows(
                f"WorkflowType = 'AgentBatchPart' AND WorkflowId STARTS_WITH '{batch_id}'"
            )
        ]
        await reset_last(client, part)
        await batch.cancel("wrong prompt")
        async with asyncio.timeout(SOON_S):
            status = await batch.wait()
        ends = [await end_of(turn) for turn in turns]

    assert ends == [Outcome.CANCELLED, Outcome.CANCELLED]
    assert status.failed == 2
