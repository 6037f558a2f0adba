"""Deadlines: a turn ends then at the latest, whatever it does or waits for."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import Agent, Budget, ModelRetryPolicy, Observer, Outcome, TurnInfo, errors, tool
from perdure.clients import Turn
from perdure.errors import PerdureError
from perdure.temporal.names import TURN
from perdure.testing import ScriptedModel, call, calls, fails, says, skip_time
from perdure.testing.scripted import Reply
from perdure.turn.facts import TurnStarted, WaitBegan
from perdure.values.reports import AgentReport
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime, eventually
from ...support.delegating import FREE, delegate
from ...support.long_turns import SHORT_TASK, begin, looks, reader, runs_of
from ...support.spending import SHORT, app, ended, look, spender, until
from ...support.web_ui import card_of

HOUR = timedelta(hours=1)
PROMPTLY = timedelta(seconds=40)
DOWN = fails(errors.LLMUnavailableError("overloaded", context={"status": 503}))
WAITS = ModelRetryPolicy(initial_interval=timedelta(hours=9), maximum_interval=timedelta(hours=9))


@tool(requires_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def timed_out(end: AgentReport | PerdureError) -> AgentReport:
    """The report of a turn that ended at its deadline."""
    assert isinstance(end, errors.TurnTimeoutError), end
    assert end.report is not None
    assert end.report.outcome == Outcome.TIMED_OUT
    return end.report


class Sees(Observer):
    """Records the end of a turn."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    async def on_end(self, turn: TurnInfo, report: AgentReport) -> None:
        self.ends.append(report.outcome)


@pytest.mark.slow
@pytest.mark.accepts("E93")
async def test_tool_in_flight_is_stopped_at_the_deadline(runtime: Runtime) -> None:
    """The turn ends within a second, with a typed error and a report; status and card show the
    deadline before.
    """
    stopped, seen = threading.Event(), Sees()

    @tool(timeout=timedelta(minutes=5))
    async def slow() -> str:
        """Be slow."""
        try:
            await asyncio.sleep(90)
        finally:
            stopped.set()
        return "late"

    model = ScriptedModel(calls(call("look")), calls(call("slow")))
    async with runtime(app(spender(tools=[look, slow], observers=[seen])), model=model) as client:
        turn = await client.start("spender", "go", deadline=SHORT)
        await eventually(lambda: model.call_count == 2, "the second step")
        status, card = await turn.status(), await card_of(client.temporal, turn.id)
        end = await ended(turn)
        await eventually(stopped.is_set, "the tool is stopped")
        after = await turn.status()
        entry = [one async for one in client.turns(limit=50) if one.id == turn.id]

    report = timed_out(end)
    assert status.started_at is not None
    assert status.deadline is not None
    assert status.deadline == after.deadline == status.started_at + SHORT
    moment = f"{status.deadline:%Y-%m-%d %H:%M:%S} UTC"
    assert f"Ends at {moment} at the latest" in card
    assert isinstance(end, PerdureError)
    assert end.message == (
        f"the deadline of the turn, {moment}, has passed; go on after the end with turn.resume()"
    )
    assert end.context == {"deadline": status.deadline.isoformat()}
    assert SHORT <= report.duration < PROMPTLY
    assert [result.content for step in report.steps for result in step.results] == [
        "seen 1",
        (
            "slow: stopped because the turn was cancelled or its time was up; whether it took"
            " effect is unknown"
        ),
    ]
    assert [one.outcome for one in entry] == ["timed_out"]
    assert seen.ends == ["timed_out"]


@pytest.mark.slow
@pytest.mark.accepts("E93")
async def test_tool_that_cannot_be_stopped_gets_a_second_and_is_named(runtime: Runtime) -> None:
    """As at the end of the time budget, and not the ten seconds of a cancel."""
    let_go = threading.Event()

    @tool(timeout=timedelta(minutes=5))
    def hang() -> str:
        """Hang."""
        let_go.wait(90)
        return "late"

    async with runtime(app(tools=[hang]), model=ScriptedModel(calls(call("hang")))) as client:
        turn = await client.start("spender", "go", deadline=SHORT)
        try:
            report = timed_out(await ended(turn))
        finally:
            let_go.set()
        graces = [
            event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
            for event in (await client.history(turn)).events
            if event.HasField("timer_started_event_attributes")
        ]

    assert report.unstopped == ("step-1.call-1",)
    assert graces[-1] == timedelta(seconds=1)


FULL = fails(errors.LLMRateLimitError("used up", context={"retry_after_s": 9 * 3600}))
WAITING: dict[str, tuple[dict[str, Any], dict[str, Any], list[Reply]]] = {
    "approval": ({"tools": [pay]}, {}, [calls(call("pay"))]),
    "budget": (
        {"on_exhausted": "pause"},
        {"budget": Budget(model_calls=1)},
        [calls(call("look"))],
    ),
    "iterations": (
        {"on_exhausted": "pause", "max_iterations": 1},
        {},
        [calls(call("look"))],
    ),
    "limit": ({"model_retry": ModelRetryPolicy(on_limit="wait")}, {}, [FULL]),
    "resume": (
        {
            "model_retry": ModelRetryPolicy(
                initial_interval=9 * HOUR, maximum_interval=9 * HOUR, on_exhausted="pause"
            )
        },
        {},
        [DOWN],
    ),
}


@pytest.mark.table(1)
@pytest.mark.accepts("E93")
@pytest.mark.parametrize("kind", WAITING)
async def test_turn_that_waits_ends_at_its_deadline(runtime: Runtime, kind: str) -> None:
    """For a person or for a provider; the deadline is a date."""
    fields, given, replies = WAITING[kind]
    async with runtime(app(spender(**fields)), model=ScriptedModel(*replies)) as client:
        turn = await client.start("spender", "go", deadline=datetime.now(UTC) + 2 * HOUR, **given)
        began = await until(turn, WaitBegan)
        await skip_time(client, turn, 2 * HOUR)
        report = timed_out(await ended(turn))
        memo = dict(await (await client.temporal.get_workflow_handle(turn.id).describe()).memo())

    assert isinstance(began.fact, WaitBegan)
    assert began.fact.kind == ("provider" if kind == "limit" else kind)
    assert report.model_calls == 1
    assert (memo["perdure"]["outcome"], "perdure_waits_for" in memo) == ("timed_out", False)


@pytest.mark.accepts("M47")
@pytest.mark.parametrize("asked_s", [None, 300])
async def test_pause_that_ends_after_the_deadline_is_not_begun(
    runtime: Runtime, asked_s: int | None
) -> None:
    """The turn ends at once, with the error of its provider as the cause."""
    policy = WAITS.model_copy(update={"maximum_elapsed": 99 * HOUR})
    fields: dict[str, Any] = {"model_retry": policy}
    context: dict[str, Any] = {"status": 503}
    if asked_s is not None:
        fields, context = {"model_retry": ModelRetryPolicy()}, {"retry_after_s": asked_s}
    busy = fails(errors.LLMRateLimitError("too many", context=context))
    model = ScriptedModel(busy, busy)
    async with runtime(app(spender(**fields)), model=model) as client:
        turn = await client.start("spender", "go", deadline=timedelta(seconds=100))
        error = await ended(turn)
        report = timed_out(error)

    assert isinstance(error, errors.TurnTimeoutError)
    assert "after the deadline of the turn" in error.message
    assert isinstance(error.__cause__, errors.LLMRateLimitError)
    assert report.duration < timedelta(seconds=60)


@pytest.mark.slow
@pytest.mark.accepts("M47")
async def test_deadline_that_passes_after_a_failure_has_the_failure_as_its_cause(
    runtime: Runtime,
) -> None:
    """The provider failed once and is asked again, and its answer takes too long."""
    again = ModelRetryPolicy(initial_interval=timedelta(milliseconds=10))
    model = ScriptedModel(DOWN, says("late", delay=PROMPTLY))
    async with runtime(app(spender(model_retry=again)), model=model) as client:
        error = await ended(await client.start("spender", "go", deadline=SHORT))

    report = timed_out(error)
    assert isinstance(error, errors.TurnTimeoutError)
    assert isinstance(error.__cause__, errors.LLMUnavailableError)
    assert error.__cause__.message == "overloaded"
    assert "has passed" in error.message
    assert report.duration < PROMPTLY
    assert model.call_count == 2


@pytest.mark.slow
@pytest.mark.accepts("E94", "E97")
async def test_delegates_have_the_deadline_of_the_turn_above_them(runtime: Runtime) -> None:
    """It ends them as well; what they did is in the report, and a fork has no deadline."""
    parent = spender(name="parent", delegates=["helper"])
    helper = spender(name="helper", model="scripted:helper", tools=[pay])
    late = says("alone", delay=timedelta(seconds=3))
    models = {
        # the delegate may end a moment before the parent, which then asks its model in vain
        "parent": ScriptedModel(delegate("helper", "help"), late, late),
        "helper": ScriptedModel(calls(call("pay"))),
    }
    async with runtime(AgentWorker([parent, helper], prices=FREE), model=models) as client:
        turn = await client.start("parent", "go", deadline=SHORT)
        end = await ended(turn)
        child = client.turn(f"{turn.id}/helper-1")
        below = await ended(child)
        [above, beneath] = [await turn.status(), await child.status()]
        resumed = await turn.resume()
        answer = await resumed.result()
        started = [
            event.fact.request
            async for event in resumed.events()
            if isinstance(event.fact, TurnStarted)
        ]

    report = timed_out(end)
    assert above.deadline == beneath.deadline is not None
    assert isinstance(below, errors.TurnTimeoutError | errors.TurnCancelledError)
    assert [one.outcome for one in report.children] in (["timed_out"], ["cancelled"])
    assert (answer.output, [one.deadline for one in started]) == ("alone", [None])


@pytest.mark.slow
@pytest.mark.accepts("E94")
async def test_deadline_of_a_turn_of_several_runs_counts_from_its_start(runtime: Runtime) -> None:
    """A later run has the same one."""

    @tool(read_only=True)
    async def wait(number: int) -> str:
        """Wait."""
        await asyncio.sleep(0.2 if number else 90)
        return "waited"

    agent = reader(tools=[look, wait])
    model = ScriptedModel(*looks(40), calls(call("wait", number=0)))
    async with runtime(AgentWorker(agent, prices=FREE), model=model) as client:
        turn = await begin(client, timeout=SHORT_TASK, deadline=timedelta(seconds=25))
        end = await ended(turn)
        runs = await runs_of(client, turn)
        status = await turn.status()

    report = timed_out(end)
    assert len(runs) > 1
    assert status.started_at is not None
    assert status.deadline == status.started_at + timedelta(seconds=25)
    assert [step.number for step in report.steps] == list(range(1, 42))
    assert timedelta(seconds=25) <= report.duration < timedelta(seconds=60)


NOW = datetime.now(UTC)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"deadline": NOW - HOUR}, "the deadline, "),
    ({"delay": 2 * HOUR, "deadline": 2 * HOUR}, "the deadline, "),
    ({"delay": NOW + 3 * HOUR, "deadline": 2 * HOUR}, "the deadline, "),
    ({"delay": NOW + timedelta(days=4000)}, "the delay ends at "),
    ({"deadline": datetime.max.replace(tzinfo=UTC)}, "the deadline ends at "),
    *(
        ({name: wrong}, f"the turn cannot be started: {name} must be a timedelta")
        for name in ("delay", "deadline")
        for wrong in (
            timedelta(),
            -HOUR,
            timedelta(days=4000),
            datetime(2026, 12, 1),
            "soon",
            5,
            True,
        )
    ),
]


async def by_json(client: RecordingClient, request: dict[str, Any]) -> Turn:
    """A turn that is started without Perdure's client."""
    handle = await client.temporal.start_workflow(
        TURN,
        request,
        id=f"json-{request['task']}-{client.task_queue}",
        task_queue=client.task_queue,
    )
    return client.turn(handle.id)


@pytest.mark.accepts("E95", "E96")
async def test_moments_that_make_no_sense_are_refused_at_once(runtime: Runtime) -> None:
    """By the client before anything is started, and by a turn that another language starts."""
    async with runtime(app(), model=ScriptedModel("done")) as client:
        for given, words in REFUSED:
            with pytest.raises(errors.InvalidRequestError) as caught:
                await client.start("spender", "go", **given)
            assert caught.value.message.startswith(words), given
        assert client.recorded == set()
        late = await by_json(
            client, {"agent": "spender", "task": "late", "deadline": "2026-01-01T00:00:00Z"}
        )
        error = await ended(late)
        fine = await by_json(
            client, {"agent": "spender", "task": "fine", "delay": "PT0.1S", "deadline": "PT5M"}
        )
        report = await fine.result()

    assert isinstance(error, errors.InvalidRequestError)
    assert "the deadline, 2026-01-01 00:00:00 UTC, has passed" in error.message
    assert report.output == "done"


@pytest.mark.slow
@pytest.mark.accepts("E95")
async def test_start_that_is_repeated_after_the_deadline_finds_the_turn(runtime: Runtime) -> None:
    """Another delay or deadline does not make it another turn; a new id is refused."""
    async with runtime(
        app(spender(tools=[pay])), model=ScriptedModel(calls(call("pay")))
    ) as client:
        start: dict[str, Any] = {"deadline": datetime.now(UTC) + timedelta(seconds=1)}
        turn = await client.start("spender", "go", id="once-1", **start)
        timed_out(await ended(turn))
        again = await client.start("spender", "go", id="once-1", **start)
        other = await client.start("spender", "go", id="once-1", deadline=HOUR, delay=HOUR / 2)
        with pytest.raises(errors.TurnConflictError):
            await client.start("spender", "something else", id="once-1", **start)
        refused: list[dict[str, Any]] = [
            {"id": "once-2"},
            {"id": "once-1", "if_exists": "error"},
            {},
        ]
        for wrong in refused:
            with pytest.raises(errors.InvalidRequestError, match="has passed; name a later one"):
                await client.start("spender", "go", **wrong, **start)

    assert (await turn.first_run()) == (await again.first_run()) == await other.first_run()


@pytest.mark.slow
@pytest.mark.accepts("E93")
async def test_cancel_before_the_deadline_is_a_cancel(runtime: Runtime) -> None:
    """And an answer before it is an answer."""
    agent = Agent(name="quick", model="scripted:quick", tools=[pay])
    model = ScriptedModel(calls(call("pay")), says("done"))
    async with runtime(AgentWorker(agent, prices=FREE), model=model) as client:
        turn = await client.start("quick", "go", deadline=HOUR)
        await until(turn, WaitBegan)
        await turn.cancel("enough")
        end = await ended(turn)
        report = await client.run("quick", "go again", deadline=HOUR)

    assert isinstance(end, errors.TurnCancelledError)
    assert report.output == "done"
