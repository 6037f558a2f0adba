"""Sessions that go on in new runs of their workflows, and whose activities lose their workers."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio import activity
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Worker,
)

from perdure.session.wire import Queued, SessionRequest, SessionSnapshot
from perdure.temporal.histories.runs import describe, runs_up_to
from perdure.temporal.names import RECORD_TURN, SESSION
from perdure.temporal.payloads import pack
from perdure.testing import ScriptedModel, says
from perdure.testing.runtime import local_runtime
from perdure.worker import AgentWorker, PerdurePlugin

from ...support.carrying import continued, with_model
from ...support.conversing import Paced, session_of, texts, until_recorded
from ...support.session_runs import short_runs
from ...support.session_updates import until_sent
from ...support.spending import Queue, app, queue


@pytest.mark.accepts("E115", "Y51")
@pytest.mark.slow
async def test_session_goes_on_in_a_new_run_although_messages_wait() -> None:
    """The first run is full when its turn ends, so the message that waits is read in the next."""
    model = Paced(says("one"), says("two"))
    async with (
        short_runs() as address,
        local_runtime(app(), model=model, address=address) as client,
    ):
        session = client.session(f"chat-{secrets.token_hex(4)}", "spender")
        await session.say("first")
        await model.begun.acquire()
        second = await session.say("second", id="2")
        model.let_go(2)
        await second.result()
        found = await describe(client.temporal, second.turn_id)
        runs = await runs_up_to(client.temporal, await describe(client.temporal, session.id))

    assert found.workflow_execution_info.parent_execution.run_id == runs[1]
    assert texts(model.requests[1].messages) == ["first", "one", "second"]


@pytest.mark.slow
@pytest.mark.accepts("E115")
async def test_message_at_the_beginning_of_a_run_comes_before_its_turn(perdure_server: str) -> None:
    """The run and its readers agree on what the turn was given, and on what waits."""
    snapshot = SessionSnapshot(
        session=SessionRequest(agent="spender"), count=0, queue=(Queued(id="1", text="first"),)
    )
    model = ScriptedModel(says("one"))
    async with queue(perdure_server) as work:
        session = session_of(work.client)
        await continued(work.client, session.id, pack(snapshot), kind=SESSION)
        saying = asyncio.create_task(session.say("second", id="2"))
        await until_sent(work.client.temporal, session, "2")
        async with work.worker(app(), model):
            sent = await saying
            messages = await until_recorded(session, 1)
            [turn] = await session.turns()

    assert sent.turn_id == turn.turn_id
    assert turn.messages == ("1", "2")
    assert texts(messages) == [*texts(model.requests[0].messages), "one"]


@contextlib.asynccontextmanager
async def intercepted(
    work: Queue, worker: AgentWorker, model: ScriptedModel, interceptor: Interceptor
) -> AsyncIterator[None]:
    """A worker with an interceptor, during the block."""
    async with Worker(
        work.client.temporal,
        task_queue=work.client.task_queue,
        plugins=[PerdurePlugin(with_model(worker, model))],
        interceptors=[interceptor],
    ):
        yield


class Losing(Interceptor):
    """Loses the first attempt of an activity, as a worker that is killed does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.attempts: list[int] = []

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - Temporal's name
        """What is around an activity."""
        return _Lost(next, self)


class _Lost(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, losing: Losing) -> None:
        super().__init__(inner)
        self._losing = losing

    # Temporal calls the parameter `input`
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        if activity.info().activity_type == self._losing.name:
            self._losing.attempts.append(activity.info().attempt)
            if activity.info().attempt == 1:
                raise ConnectionError("the worker is lost")
        return await super().execute_activity(input)


@pytest.mark.accepts("Y51")
@pytest.mark.slow
async def test_turn_is_recorded_when_the_worker_that_records_it_is_lost(
    perdure_server: str,
) -> None:
    """Another attempt reads the turn; the session goes on."""
    losing, model = Losing(RECORD_TURN), ScriptedModel(says("one"), says("two"))
    async with queue(perdure_server) as work:
        session = session_of(work.client)
        async with intercepted(work, app(), model, losing):
            for text in ("first", "second"):
                await (await session.say(text)).result()
            await until_recorded(session, 2)

    assert losing.attempts == [1, 2, 1, 2]
    assert texts(model.requests[1].messages) == ["first", "one", "second"]
