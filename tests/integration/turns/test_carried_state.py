"""What comes in while a run takes over the state of the run before, and what goes wrong then."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import RespondActivityTaskCompletedByIdRequest
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import Worker

from perdure import Budget, Outcome, errors
from perdure.batch.wire import BatchProgress, BatchRequest
from perdure.clients import AgentClient, Turn
from perdure.delivery.push import PushCall
from perdure.delivery.webhook import WebhookCall
from perdure.errors import PerdureError
from perdure.session.wire import Queued, SessionRequest, SessionSnapshot
from perdure.temporal import start_request
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.temporal.names import (
    ADD_BUDGET,
    BATCH,
    CALL_MODEL,
    CARRY,
    CHILD_NEWS,
    PUSH,
    SESSION,
    TURN,
    WEBHOOK,
)
from perdure.temporal.payloads import pack, unpack
from perdure.testing import ScriptedModel, says
from perdure.turn.continuation import Continuation
from perdure.turn.facts import PartCarried, WaitBegan
from perdure.turn.ledger import Ledger
from perdure.turn.snapshot import VERSION
from perdure.turn.wire import ChildNews, Origin
from perdure.values.budgets import BudgetUpdate, Remaining
from perdure.values.messages import UserMessage
from perdure.values.reports import AgentReport
from perdure.worker import PerdurePlugin

from ...conftest import RecordingClient, Runtime, impatient
from ...support.carrying import clerk, continued, letters, sent, with_model
from ...support.long_turns import (
    Carries,
    begin,
    delete,
    filling,
    holding,
    looks,
    reader,
    runs_of,
    until_run,
)
from ...support.resets import reset, task_ends
from ...support.spending import SOON_S, Queue, app, ended, queue, until, usage


async def fill(turn: Turn, updates: int = 60, is_full: asyncio.Event | None = None) -> int:
    """Add to the limit of iterations, at most until `is_full`; returns how much was added."""
    free = asyncio.Semaphore(4)
    added = 0

    async def add() -> None:
        nonlocal added
        async with free:
            if is_full is None or not is_full.is_set():
                with contextlib.suppress(errors.TurnOverError):  # sent again, and late
                    await turn.add_budget(iterations=1)
                    added += 1

    await asyncio.gather(*(add() for _ in range(updates)))
    return added


@contextlib.asynccontextmanager
async def taking_over(
    server: str,
    script: ScriptedModel,
    *,
    fills: bool = True,
    before: Callable[[Turn], Awaitable[object]] | None = None,
    **given: Any,
) -> AsyncIterator[tuple[Queue, Turn, Carries]]:
    """A turn whose second run is taking over the state of the first, in which `before` happened."""
    carries = Carries()
    worker = app(clerk(on_exhausted="pause"))
    async with queue(server) as work, holding(work, with_model(worker, script), carries):
        turn = await begin(work.client, **given)
        if fills:
            await until(turn, WaitBegan)
            if before is not None:
                await before(turn)
            filling_up = asyncio.create_task(fill(turn, is_full=carries.begun))
        await carries.begun.wait()
        await until_run(work.client, turn, 2)
        yield work, turn, carries
        carries.let_go.set()
        if fills:
            carries.added = await filling_up


async def tried(coroutine: Any) -> Any:
    """What a call returns, or its error."""
    try:
        return await coroutine
    except PerdureError as error:
        return type(error)


@pytest.mark.slow
@pytest.mark.accepts("Y50")
async def test_messages_that_are_unread_go_on_in_a_new_run(perdure_server: str) -> None:
    """Also one that comes while the state is taken over; the same id is one message in both runs.
    A reader that begins with the new run names what each model call reads.
    """
    sent.clear()
    model = letters()

    async def before(turn: Turn) -> None:
        await turn.steer("before", id="a")

    async with taking_over(perdure_server, model, before=before) as (work, turn, carries):
        during = asyncio.create_task(turn.steer("during", id="b"))
        again = asyncio.create_task(turn.steer("before", id="a"))
        await asyncio.sleep(0.5)
        carries.let_go.set()
        await during
        await again
        await turn.steer("after", id="c", deny_pending=True)
        report = await turn.result()
        events = [event async for event in work.client.turn(turn.id).events()]

    said = [part.text for part in model.requests[-1].messages if isinstance(part, UserMessage)]
    assert said[1:] == ["before", "during", "after"]
    assert (report.output, report.unread, sent) == ("done", (), [])
    assert [event.read for event in events if event.read] == [("a", "b", "c")]


@pytest.mark.slow
@pytest.mark.accepts("Y28", "Y30")
async def test_updates_of_a_turn_that_waits_are_answered_while_it_goes_on_in_a_new_run(
    perdure_server: str,
) -> None:
    """Each counts once: by handles of before, with the approval's own expiry and token. What the
    run before would have refused is refused.
    """
    sent.clear()
    model = letters()
    async with taking_over(perdure_server, model) as (_, turn, carries):
        status = await turn.status()
        first, second = await turn.pending_approvals()
        wrong = first.model_copy(update={"digest": second.digest})
        asked = [
            asyncio.create_task(tried(one))
            for one in (
                turn.approve(wrong),
                turn.approve(first, by="Eve"),
                turn.approve(first, by="Dan"),
                turn.deny(second, "no"),
                turn.resume(),
                turn.add_budget(iterations=5),
            )
        ]
        await asyncio.sleep(0.5)
        carries.let_go.set()
        answers = await asyncio.gather(*asked)
        report = await turn.result()
        last = await turn.status()

    assert (status.waits[0].kind, status.steps, status.state) == ("approval", 1, "waiting")
    assert (answers[0], answers[3]) == (errors.ApprovalConflictError, None)
    assert sorted(answers[1:3], key=str) == [errors.ApprovalConflictError, None]
    assert answers[4] is errors.InvalidRequestError
    assert isinstance(answers[5], Remaining)
    assert last.max_iterations == 9 + carries.added + 5
    assert answers[5].iterations is not None
    assert sent == ["Ann"]
    assert [one.approve for one in report.steps[1].decisions].count(True) == 1
    assert [result.is_error for result in report.steps[1].results] == [False, True]


@pytest.mark.slow
@pytest.mark.accepts("Y30")
async def test_wait_is_carried_with_its_expiry_and_its_token(runtime: Runtime) -> None:
    """As often as many updates make it necessary; observers, memo and list show one wait."""
    sent.clear()
    async with runtime(app(clerk(on_exhausted="pause")), model=letters()) as client:
        turn = await begin(client)
        await until(turn, WaitBegan)
        before = await turn.pending_approvals()
        added = 0
        while len(await runs_of(client, turn)) < 4:
            added += await fill(turn, 20)
        after = await turn.pending_approvals()
        runs = await runs_of(client, turn)
        entries = [entry async for entry in client.turns(state="waiting") if entry.id == turn.id]
        await client.turn(turn.id).approve("a", token=before[0].token)
        await delete(client, turn.id, runs[0])
        again = RecordingClient(client.temporal, client.task_queue).turn(turn.id)
        [left] = await again.pending_approvals()
        await again.deny(left)
        report = await again.result()
        last = await again.status()
        client.recorded.clear()  # its first run is gone

    assert before == after
    assert left == after[1]
    assert [(entry.waits_for, entry.state) for entry in entries] == [("approval", "waiting")]
    assert last.max_iterations == 9 + added
    assert (sent, report.outcome) == (["Ann"], Outcome.COMPLETED)


@pytest.mark.slow
@pytest.mark.accepts("Y30")
async def test_wait_is_seen_in_a_run_that_has_recorded_nothing_else(runtime: Runtime) -> None:
    """A run that only waits has what it took over, and no event of its own. This one begins with
    the input of the turn's second run.
    """
    sent.clear()
    async with runtime(app(clerk(on_exhausted="pause")), model=letters()) as client:
        turn = await begin(client)
        await until(turn, WaitBegan)
        before = await turn.pending_approvals()
        while len(await runs_of(client, turn)) == 1:
            await fill(turn, 20)
        second = (await runs_of(client, turn))[1]
        started = (await client.history_of(turn.id, second)).events[0]
        payloads = started.workflow_execution_started_event_attributes.input.payloads
        handle = await continued(client, f"{turn.id}-again", RawValue(payloads[0]))
        again = unrecorded(client).turn(handle.id)
        await takes_over(client, handle)
        after = await again.pending_approvals()
        status = await again.wait(SOON_S)
        await turn.cancel("only the other one goes on")
        for one in after:
            await again.approve(one)
        report = await again.result()

    assert [(one.call_id, one.arguments) for one in after] == [
        (one.call_id, one.arguments) for one in before
    ]
    assert [(wait.kind, wait.call) for wait in status.waits] == [("approval", one) for one in after]
    assert (status.agent, report.output) == ("reader", "done")


async def takes_over(client: RecordingClient, run: WorkflowHandle[Any, Any]) -> None:
    """Wait until a later run has taken over everything."""
    async with asyncio.timeout(SOON_S):
        while True:
            reader = HistoryReader(client.temporal.data_converter)
            history = await run.fetch_history()
            facts = [fact for event in history.events for fact in await reader.facts(event)]
            if any(isinstance(fact, PartCarried) for fact in facts):
                return
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.accepts("Y31")
@pytest.mark.parametrize("how", ["cancel", "terminate"])
async def test_report_of_a_turn_that_ends_while_it_goes_on_in_a_new_run_is_whole(
    perdure_server: str, how: str
) -> None:
    """Steps, messages, spending and reason are there, in the memo of a cancelled turn as well."""
    script = ScriptedModel(*filling(2, usage=usage(300)), says("never"))
    async with taking_over(perdure_server, script, fills=False) as (work, turn, carries):
        handle = work.client.temporal.get_workflow_handle(turn.id)
        if how == "cancel":
            await turn.cancel("enough")
            carries.let_go.set()
        else:
            await handle.terminate(reason="enough")
        end = await ended(turn)
        other = RecordingClient(work.client.temporal, work.client.task_queue).turn(turn.id)
        status = await other.status()
        memo = await (await handle.describe()).memo_value("perdure")

    assert isinstance(end, errors.TurnCancelledError | errors.TurnTerminatedError)
    assert "enough" in end.message
    assert end.report is not None
    assert (len(end.report.steps), len(end.report.messages)) == (2, 5)
    assert status.spent.model_calls == end.report.spent.model_calls == 2
    assert status.spent.usd == end.report.cost
    if how == "cancel":
        assert (memo["outcome"], memo["steps"], memo["cost"]) == ("cancelled", 2, "$0.6")


def unrecorded(client: RecordingClient) -> AgentClient:
    """A client whose turns are not checked at the end, as their first run is none of a turn."""
    return AgentClient.from_temporal(client.temporal, task_queue=client.task_queue)


@pytest.mark.accepts("Y31", "E128")
async def test_cancelled_turn_does_not_wait_for_a_state_that_cannot_be_read(
    runtime: Runtime,
) -> None:
    """A part that cannot be read is tried again for minutes, but not after a cancel.

    A turn that is started with the input of a later run is refused.
    """
    async with runtime(reader(), model=ScriptedModel(says("done"))) as client:
        turn = await client.start("reader", "go")
        await turn.result()
        request = start_request.turn_request("reader", "go")
        given = Continuation(
            continues=Origin(
                turn_id=turn.id, run_id=await turn.first_run(), steps=1, digest="0" * 64
            ),
            request=request,
            request_digest=request.digest(),
            first_run=await turn.first_run(),
            ledger=Ledger(),
            began=datetime.now(UTC),
        )
        refused = await client.temporal.start_workflow(
            TURN, pack(given), id=f"{turn.id}-raw", task_queue=client.task_queue
        )
        with pytest.raises(errors.InvalidRequestError, match="which only the run before may give"):
            await client.turn(refused.id).result()
        batch = BatchRequest(
            agent="reader",
            digest="0" * 64,
            items=1,
            parts=1,
            at_once=1,
            progress=BatchProgress(began=datetime.now(UTC)),
        )
        with pytest.raises(WorkflowFailureError) as other:
            await client.temporal.execute_workflow(
                BATCH, pack(batch), id=f"{turn.id}-batch", task_queue=client.task_queue
            )
        handle = await continued(client, f"{turn.id}-again", pack(given))
        async with asyncio.timeout(SOON_S):
            await until_failed(handle)
            await handle.cancel()
            with pytest.raises(WorkflowFailureError) as caught:
                await handle.result()

    assert isinstance(other.value.cause, ApplicationError)
    assert other.value.cause.type == "INVALID_REQUEST"
    assert isinstance(caught.value.cause, CancelledError)


@pytest.mark.slow
@pytest.mark.accepts("H132")
async def test_workflow_with_a_made_up_input_ends_at_once(runtime: Runtime) -> None:
    """A batch of parts without end, a turn with followers without end, a webhook of a run that
    cannot be, a session without an agent, one with the input of a later run, and a push
    notification with that: each is refused typed, and nothing is tried again.
    """
    ends: dict[str, str | None] = {}
    async with runtime(reader(), model=ScriptedModel(says("done"))) as client:
        turn = await client.start("reader", "go")
        await turn.result()
        request = start_request.turn_request("reader", "go")
        session = SessionRequest(agent="reader")
        waits = (Queued(id="1", text="go"),)
        given: dict[str, tuple[str, Any]] = {
            "turn": (
                TURN,
                Continuation(
                    continues=Origin(
                        turn_id=turn.id, run_id=await turn.first_run(), steps=1, digest="0" * 64
                    ),
                    request=request,
                    request_digest=request.digest(),
                    first_run=await turn.first_run(),
                    ledger=Ledger(),
                    began=datetime(9999, 1, 1, tzinfo=UTC),
                    followers=tuple(f"follower-{number}" for number in range(20_000)),
                ),
            ),
            "batch": (
                BATCH,
                BatchRequest.model_construct(
                    agent="reader", digest="0" * 64, items=10**9, parts=10**9, at_once=1
                ),
            ),
            "webhook": (
                WEBHOOK,
                WebhookCall(
                    id="made-up", url="https://x.example/", turn_id=turn.id, run_id="no run"
                ),
            ),
            "session": (SESSION, SessionRequest.model_construct(agent="")),
            "timed session": (
                SESSION,
                SessionRequest(agent="reader", budget=Budget(time=timedelta(minutes=1))),
            ),
            "later session": (SESSION, SessionSnapshot(session=session, count=0, queue=waits)),
            "push": (PUSH, PushCall(id="1", url="https://x.example/", told="9")),
        }
        for name, (kind, value) in given.items():
            handle = await client.temporal.start_workflow(
                kind, pack(value), id=f"{turn.id}-{name}", task_queue=client.task_queue
            )
            async with asyncio.timeout(60):
                with pytest.raises(WorkflowFailureError) as caught:
                    await handle.result()
            assert isinstance(caught.value.cause, ApplicationError)
            ends[name] = caught.value.cause.type

    assert ends == {
        "turn": "INVALID_REQUEST",
        "batch": "INVALID_REQUEST",
        "webhook": "TURN_NOT_FOUND",
        "session": "INVALID_REQUEST",
        "timed session": "INVALID_REQUEST",
        "later session": "INVALID_REQUEST",
        "push": "INVALID_REQUEST",
    }


async def until_failed(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until an activity of the run has failed."""
    async for event in handle.fetch_history_events(wait_new_event=True):
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
            return


class Reads(Interceptor):
    """Notes which activities of a worker read the history of which runs."""

    def __init__(self) -> None:
        self.by = set[tuple[str, str | None]]()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - Temporal's name
        """What is around the requests of a client."""
        return _Reading(next, self.by)


class _Reading(OutboundInterceptor):
    def __init__(self, inner: OutboundInterceptor, by: set[tuple[str, str | None]]) -> None:
        super().__init__(inner)
        self._by = by

    # Temporal calls the parameter `input`
    def fetch_workflow_history_events(self, input: Any) -> Any:  # noqa: A002
        self._by.add((activity.info().activity_type, input.run_id))
        return super().fetch_workflow_history_events(input)


@pytest.mark.accepts("Y163")
async def test_worker_of_the_run_before_takes_over_without_its_history(perdure_server: str) -> None:
    """It has the state in memory, also for what its models are sent in the new run."""
    reads = Reads()
    script = ScriptedModel(*filling(2), says("done"))
    async with queue(perdure_server) as work:
        config = work.client.temporal.config()
        config["interceptors"] = [reads]
        client = Client(**config)
        plugin = PerdurePlugin(impatient(with_model(app(clerk()), script)))
        async with Worker(client, task_queue=work.client.task_queue, plugins=[plugin]):
            turn = await begin(work.client)
            end = await ended(turn)
            [first, second] = await runs_of(work.client, turn)

    assert isinstance(end, AgentReport)
    assert end.output == "done"
    assert (CARRY, first) not in reads.by
    assert (CALL_MODEL, second) not in reads.by


@pytest.mark.slow
@pytest.mark.accepts("Y32")
async def test_turn_whose_earlier_run_was_deleted_meanwhile_ends_typed(
    perdure_server: str,
) -> None:
    """Another worker has to read it. Nothing is sent, and what the turn spent is told."""
    script = ScriptedModel(*filling(2, usage=usage(300)), says("never"))
    worker, carries = with_model(app(clerk(on_exhausted="pause")), script), Carries()
    async with queue(perdure_server) as work:
        async with holding(work, worker, carries):
            turn = await begin(work.client)
            await carries.begun.wait()
            await until_run(work.client, turn, 2)
            [first, _] = await runs_of(work.client, turn)
            await delete(work.client, turn.id, first)
        async with holding(work, worker, Carries(held=False)):
            other = RecordingClient(work.client.temporal, work.client.task_queue).turn(turn.id)
            end = await ended(other)
            work.client.recorded.clear()  # its first run is gone

    assert isinstance(end, errors.TurnNotFoundError)
    assert end.report is not None
    assert (end.report.outcome, end.report.cost) == (Outcome.FAILED, None)
    assert end.report.spent.model_calls == 2
    assert end.report.messages_from == 3
    assert script.call_count == 2


@pytest.mark.slow
@pytest.mark.accepts("Y33")
async def test_state_of_a_later_version_waits_for_its_release(perdure_server: str) -> None:
    """The workflow task fails with what is to be done, and the turn does not end. Reset to before,
    it takes over the state by this release.
    """
    script = ScriptedModel(*filling(2), says("done"))
    async with taking_over(perdure_server, script, fills=False) as (work, turn, carries):
        run_id = await carried_by_a_later_release(work.client, turn)
        failure = await task_failure(work.client, turn.id, run_id)
        with pytest.raises(errors.UnknownVersionError):
            await turn.result()
        carries.let_go.set()
        history = await work.client.history_of(turn.id, run_id)
        latest = work.client._turn(turn.id, (run_id,))
        again = await reset(work.client, latest, task_ends(history)[0])
        other = RecordingClient(work.client.temporal, work.client.task_queue).turn(again.id)
        report = await other.result()
        work.client.recorded.clear()  # a workflow task of it has failed

    assert f"of version {VERSION + 1}" in failure
    assert "run the turn with the release that recorded it" in failure
    assert (report.output, len(report.steps)) == ("done", 3)


@pytest.mark.slow
@pytest.mark.accepts("Y33")
async def test_cancelled_turn_with_a_deadline_waits_for_that_release_as_well(
    perdure_server: str,
) -> None:
    """Neither the cancel nor the deadline ends it with a state that this release cannot read."""
    script, deadline = ScriptedModel(*filling(2), says("done")), timedelta(hours=1)
    async with taking_over(perdure_server, script, fills=False, deadline=deadline) as (
        work,
        turn,
        carries,
    ):
        await turn.cancel("enough")
        run_id = await carried_by_a_later_release(work.client, turn)
        failure = await task_failure(work.client, turn.id, run_id)
        status = (await work.client.temporal.get_workflow_handle(turn.id).describe()).status
        await work.client.temporal.get_workflow_handle(turn.id).terminate()
        carries.let_go.set()
        work.client.recorded.clear()  # a workflow task of it has failed

    assert f"of version {VERSION + 1}" in failure
    assert status == WorkflowExecutionStatus.RUNNING


async def carried_by_a_later_release(client: RecordingClient, turn: Turn) -> str:
    """Complete the takeover of the second run with a state of a later version; return that run."""
    run_id = (await runs_of(client, turn))[1]
    [payload] = await DataConverter.default.encode([{"version": VERSION + 1, "parts": "new"}])
    await client.temporal.workflow_service.respond_activity_task_completed_by_id(
        RespondActivityTaskCompletedByIdRequest(
            namespace=client.temporal.namespace,
            workflow_id=turn.id,
            run_id=run_id,
            activity_id="carry-1",
            result=Payloads(payloads=[payload]),
        )
    )
    return run_id


async def task_failure(client: RecordingClient, turn_id: str, run_id: str) -> str:
    """The message of the first workflow task that fails."""
    kind = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    async with asyncio.timeout(60):
        while True:
            for event in (await client.history_of(turn_id, run_id)).events:
                if event.event_type == kind:
                    return event.workflow_task_failed_event_attributes.failure.message
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.accepts("Y36")
async def test_sixty_updates_and_thirty_signals_over_six_runs_count_once(
    runtime: Runtime,
) -> None:
    """Each update is answered, the sum is right, and one that is sent again to a later run has no
    second effect, for the workflow and for each reader.
    """
    steps = 190
    model = ScriptedModel(*looks(steps), says("done"))
    async with runtime(app(reader(max_iterations=steps + 1)), model=model) as client:
        turn = await begin(client, budget=Budget(tool_calls=steps))
        handle = client.temporal.get_workflow_handle(turn.id)

        async def add(number: int) -> Remaining:
            await asyncio.sleep(number * 0.08)
            return await turn.add_budget(Budget(tool_calls=1), iterations=2)

        async def tell(number: int) -> None:
            await asyncio.sleep(number * 0.16)
            news = ChildNews(key="step-1.call-1.child-1", waits_for="approval", reason=str(number))
            await handle.signal(CHILD_NEWS, pack(news))

        async def repeat() -> list[int | None]:
            update, told = pack(BudgetUpdate(tool_calls=100)), []
            for number in (1, 2, 3):
                await until_run(client, turn, number)
                told.append(
                    unpack(
                        await handle.execute_update(
                            ADD_BUDGET, update, id="same", result_type=type(update)
                        ),
                        Remaining,
                    ).tool_calls
                )
            return told

        answers, _, repeated = await asyncio.gather(
            asyncio.gather(*(add(number) for number in range(60))),
            asyncio.gather(*(tell(number) for number in range(30))),
            repeat(),
        )
        report = await turn.result()
        status = await turn.status()
        runs = await runs_of(client, turn)
        accepted, signals = list[str](), 0
        for run in runs:
            for event in (await client.history_of(turn.id, run)).events:
                update = event.workflow_execution_update_accepted_event_attributes
                if update.protocol_instance_id:
                    accepted.append(update.protocol_instance_id)
                signals += event.HasField("workflow_execution_signaled_event_attributes")

    assert len(runs) >= 6
    assert len(answers) == 60
    assert len(repeated) == 3
    assert status.max_iterations == steps + 1 + 2 * 60
    assert status.budget is not None
    assert status.budget.tool_calls == steps + 60 + 100
    assert len(set(accepted)) == 61
    assert signals == 30
    assert len(report.steps) == steps + 1


@pytest.mark.slow
@pytest.mark.accepts("Y36")
@pytest.mark.parametrize("is_repeated", [False, True])
async def test_update_in_the_first_task_of_a_run_counts_once(
    runtime: Runtime, is_repeated: bool
) -> None:
    """The SDK runs its handler before the run has its input. One that the run before has answered
    does not count again.
    """
    agent, model = reader(max_iterations=9), ScriptedModel(*filling(1), says("done"))
    async with runtime(app(agent), model=model) as client:
        turn = await begin(client, budget=Budget(tool_calls=500))
        await turn.add_budget(Budget(tool_calls=1))
        await turn.result()
        first, second = await runs_of(client, turn)
        started = (await client.history_of(turn.id, second)).events[0]
        payloads = started.workflow_execution_started_event_attributes.input.payloads
        continuation = unpack(RawValue(payloads[0]), Continuation)
        update_id = continuation.updates[0] if is_repeated else "early"
        later = f"{client.task_queue}-later"
        run = await continued(client, f"{turn.id}-again", RawValue(payloads[0]), later)
        updating = asyncio.create_task(
            run.execute_update(
                ADD_BUDGET, pack(BudgetUpdate(tool_calls=10)), id=update_id, result_type=RawValue
            )
        )
        await asyncio.sleep(0.5)  # so that it is in the first task; a later one counts it as well
        worker = with_model(
            replace(app(agent), task_queue=later), ScriptedModel(says("done again"))
        )
        async with worker.running(client.temporal):
            answer: RawValue = await updating
            again = unrecorded(client).turn(run.id)
            report = await again.result()
            status = await again.status()

    assert report.output == "done again"
    budget = 500 + 1 + (0 if is_repeated else 10)
    assert status.budget is not None
    assert status.budget.tool_calls == budget
    left = unpack(answer, Remaining).tool_calls
    reserved = 1  # the call that the run goes on with
    assert left == budget - continuation.ledger.spent.tool_calls - reserved
    assert first != second
