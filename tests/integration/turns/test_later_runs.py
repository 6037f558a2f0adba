"""A turn whose history has become long goes on in a new run, as if nothing had happened."""

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from perdure import (
    AssistantMessage,
    Budget,
    Logger,
    Middleware,
    ModelProfile,
    Outcome,
    Text,
    Thinking,
    Timeout,
    ToolContext,
    Usage,
    errors,
    tool,
)
from perdure.agents.observers import Observer
from perdure.clients import Event
from perdure.testing import ScriptedModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.values.answers import ModelAnswer
from perdure.values.reports import AgentReport, Step, StopReason
from perdure.values.states import State
from perdure.values.tasks import Task, TurnInfo
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime
from ...support.listing import entry_of
from ...support.long_turns import (
    LONG_TASK,
    SHORT_TASK,
    begin,
    compared,
    delete,
    events_of,
    filling,
    looks,
    reader,
    runs_of,
)
from ...support.spending import PRICE, SHORT, app, ended, usage

STEPS = 34


@dataclass(frozen=True)
class Noting(Middleware):
    """Notes when it is called."""

    notes: list[str]

    async def before(self, task: Task) -> None:
        self.notes.append(f"before {task.text}")

    async def after(self, report: AgentReport) -> None:
        self.notes.append(f"after {report.output}, {report.usage.input_tokens} tokens")


@dataclass(frozen=True)
class Watching(Observer):
    """Notes what it sees."""

    notes: list[str] = field(default_factory=list)

    async def on_step(self, turn: TurnInfo, step: Step) -> None:
        self.notes.append(f"step {step.number}: {[result.content for result in step.results]}")

    async def on_wait(self, turn: TurnInfo, kind: str, reason: str) -> None:
        self.notes.append(f"waits for {kind}")

    async def on_end(self, turn: TurnInfo, report: AgentReport) -> None:
        self.notes.append(f"{report.outcome.value} after {report.usage.input_tokens} tokens")


async def lived(
    runtime: Runtime, timeout: timedelta, caplog: pytest.LogCaptureFixture
) -> dict[str, Any]:
    """All that a turn of many steps tells of itself, but for its times."""
    notes, seen, keys, told = list[str](), list[str](), list[str](), list[Step]()

    @tool
    def act(ctx: ToolContext[None], number: int) -> str:
        keys.append(ctx.idempotency_key)
        return f"done {number}"

    agent = reader(
        tools=[act],
        middleware=[Logger(), Timeout(timedelta(minutes=5)), Noting(notes)],
        observers=[Watching(seen)],
        max_iterations=STEPS + 5,
    )
    model = ScriptedModel(
        *[
            calls(call("act", number=number), text=f"text {number}", usage=usage(300))
            for number in range(STEPS)
        ],
        says("done", thinking="hm", usage=usage(300)),
    )
    caplog.clear()
    async with runtime(app(agent), model=model) as client:
        given: dict[str, Any] = {
            "labels": {"team": "maths"},
            "budget": Budget(usd="50", time=timedelta(minutes=5)),
        }
        turn = await begin(client, timeout=timeout, priority=2, **given)
        report = await turn.result(on_step=told.append)
        runs = await runs_of(client, turn)
        entry = await entry_of(
            client, turn.id, in_state=State.ENDED, agent="reader", labels={"team": "maths"}
        )
        status = await turn.status()
        events = await events_of(turn)
        described = await client.temporal.get_workflow_handle(turn.id).describe()
    spent = status.spent.model_copy(update={"time": timedelta()})
    assert entry.started_at == status.started_at == events[0].at
    assert entry.ended_at == status.ended_at == events[-1].at
    assert report.duration == events[-1].at - events[0].at
    assert len(keys) == len(set(keys))
    logged = [record.message.split()[0] for record in caplog.records if "_" in record.message]
    return {
        "runs": len(runs),
        "report": report.model_copy(update={"turn_id": "", "duration": timedelta()}),
        "requests": [request.messages for request in model.requests],
        "left": [request.budget.usd for request in model.requests if request.budget],
        "steps": [step.number for step in told],
        "told": told == list(report.steps),
        "notes": notes,
        "seen": seen,
        "kinds": [event.kind for event in events],
        "texts": [(event.step, event.text) for event in events if event.text],
        "entry": (entry.labels, entry.task, entry.outcome, entry.spent, entry.steps),
        "status": (status.steps, spent, status.max_iterations, status.last_text),
        "priority": described.raw_description.workflow_execution_info.priority.priority_key,
        "logged": logged,
    }


@pytest.mark.slow
@pytest.mark.accepts("Y24")
async def test_turn_of_several_runs_tells_the_same_as_one_of_a_single_run(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests, bill, steps, middleware, observers, events, log, list, status and priority; and no
    idempotency key twice.
    """
    caplog.set_level(logging.INFO, "perdure.turns")
    several = await lived(runtime, SHORT_TASK, caplog)
    single = await lived(runtime, LONG_TASK, caplog)

    assert (several.pop("runs") > 1, single.pop("runs")) == (True, 1)
    assert several["seen"][-5:] == single["seen"][-5:]
    assert several == single
    assert single["report"].cost == Decimal("0.3") * (STEPS + 1)
    assert single["logged"].count("turn_in") == single["logged"].count("turn_out") == 1


@pytest.mark.slow
@pytest.mark.accepts("E9", "Y26")
async def test_whoever_follows_a_turn_of_several_runs_gets_each_event_once(
    runtime: Runtime,
) -> None:
    """From the beginning, from any cursor, from another client, and live; the report is whole while
    the histories are there, and says from which step it is afterwards.
    """
    model = ScriptedModel(*filling(4), says("done"))
    async with runtime(reader(parallel_tools=True), model=model) as client:
        turn = await begin(client)
        report = await turn.result()
        events = await events_of(turn)
        other = RecordingClient(client.temporal, client.task_queue)
        again = other.turn(turn.id)
        attached = await other.start("reader", "go", id=turn.id)
        runs = await runs_of(client, turn)

        assert len(runs) >= 3
        assert await events_of(again) == await events_of(attached) == events
        assert len({event.cursor for event in events}) == len(events)
        for place in range(0, len(events), 97):
            after = events[place].cursor
            fresh = RecordingClient(client.temporal, client.task_queue).turn(turn.id)
            assert [one async for one in fresh.events(after=after)] == events[place + 1 :]
        live = [one async for one in again.live()]
        assert [one for one in live if isinstance(one, Event)] == events
        with pytest.raises(errors.TurnConflictError):
            await other.start("reader", "another task", id=turn.id)

        await delete(client, turn.id, runs[0])
        late = RecordingClient(client.temporal, client.task_queue).turn(turn.id)
        rest = await late.result()
        client.recorded.clear()  # its first run is gone

    assert [step.number for step in report.steps] == [1, 2, 3, 4, 5]
    assert len(report.messages) == 10
    assert report.messages_from == 1
    assert (rest.output, rest.steps, rest.cost) == (
        "done",
        report.steps[rest.messages_from - 1 :],
        report.cost,
    )
    assert rest.messages == report.messages
    assert events[0].kind == "turn_started"


@pytest.mark.slow
@pytest.mark.accepts("Y27")
@pytest.mark.parametrize("on_exhausted", ["fail", "finish"])
async def test_budget_that_is_spent_in_a_later_run_ends_the_turn_as_in_the_first(
    runtime: Runtime, on_exhausted: str
) -> None:
    """At the same call, with the same report."""
    report, error = await compared(
        runtime,
        lambda: app(reader(parallel_tools=True, on_exhausted=on_exhausted)),
        lambda: [*filling(3, usage=usage(300)), *looks(9, usage(300)), says("so far")],
        budget=Budget(usd="50", model_calls=6),
    )

    assert report.outcome is Outcome.BUDGET_EXHAUSTED
    assert (error is None) == (on_exhausted == "finish")


@pytest.mark.slow
@pytest.mark.accepts("Y27")
async def test_limit_of_iterations_counts_the_steps_of_every_run(runtime: Runtime) -> None:
    """It ends the turn at the same step."""
    report, error = await compared(
        runtime,
        lambda: app(reader(parallel_tools=True, max_iterations=5)),
        lambda: [*filling(3), *looks(3)],
    )

    assert isinstance(error, errors.MaxIterationsError)
    assert len(report.steps) == 5


@pytest.mark.slow
@pytest.mark.accepts("Y27")
async def test_time_budget_and_timeout_count_over_runs(runtime: Runtime) -> None:
    """A turn that hangs in its second run ends when its time is up, counted from its beginning."""
    ends: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"budget": Budget(time=SHORT)}),
        ({"middleware": [Timeout(SHORT)]}, {}),
    ]
    for fields, given in ends:
        model = ScriptedModel(*filling(2), says("never", delay=timedelta(minutes=1)))
        async with runtime(reader(parallel_tools=True, **fields), model=model) as client:
            turn = await begin(client, **given)
            end = await ended(turn)
            assert len(await runs_of(client, turn)) == 2

        assert isinstance(end, errors.TurnBudgetExceededError | errors.TurnTimeoutError)
        assert end.report is not None
        assert SHORT <= end.report.duration < SHORT * 1.7


OBJECTED = [says("five"), says('{"value": "5"}'), says('{"value": 5}')]


class Value(BaseModel):
    """A typed answer."""

    value: int


@pytest.mark.slow
@pytest.mark.accepts("Y24")
@pytest.mark.parametrize(
    ("fields", "replies"),
    [
        pytest.param({"output": Value}, [*filling(3), *OBJECTED], id="objections"),
        pytest.param(
            {"protocol": "react_text"},
            [
                *(
                    says(f'Thought: {n}\nAction: look\nAction Input: {{"number": {n}}}')
                    for n in range(40)
                ),
                says("Final Answer: done"),
            ],
            id="react",
        ),
        pytest.param(
            {},
            [
                *filling(2),
                Reply(
                    answer=ModelAnswer(
                        message=AssistantMessage(
                            parts=(
                                Thinking(text="hm", signature="s"),
                                Text(text="so"),
                                call("look", call_id="x1", number=1000),
                            )
                        ),
                        stop=StopReason.TOOL_CALLS,
                        usage=Usage(input_tokens=5, output_tokens=5),
                        model="scripted",
                    )
                ),
                *filling(1),
                says("done", thinking="hm"),
            ],
            id="thinking",
        ),
        pytest.param(
            {"on_loop": "warn"},
            [
                *filling(2),
                *(calls(call("look", number=1)) for _ in range(4)),
                *filling(1),
                says("done"),
            ],
            id="loop",
        ),
    ],
)
async def test_what_is_sent_and_told_is_the_same_as_in_a_single_run(
    runtime: Runtime, fields: dict[str, Any], replies: list[Reply]
) -> None:
    """Whatever the protocol and the type, and what the model is told between its answers."""
    report, error = await compared(
        runtime, lambda: app(reader(parallel_tools=True, **fields)), lambda: replies
    )

    assert error is None
    assert report.outcome is Outcome.COMPLETED


@pytest.mark.slow
@pytest.mark.accepts("Y29")
async def test_transcript_beyond_the_window_is_cut_as_in_a_single_run(runtime: Runtime) -> None:
    """Only what is still sent is carried over; steps tell all that is left out."""

    def given_app() -> AgentWorker:
        agent = reader(tools=[fetch])
        return AgentWorker(
            agent,
            prices={"scripted:*": PRICE},
            profiles={"scripted:reader": ModelProfile(window=9_000)},
        )

    report, error = await compared(
        runtime,
        given_app,
        lambda: [*(calls(call("fetch", number=number)) for number in range(60)), says("done")],
    )

    assert error is None
    assert report.steps[-1].left_out is not None
    assert report.steps[-1].left_out.results > 50


@tool(read_only=True)
def fetch(number: int) -> str:
    """Fetch so much text."""
    return f"{number:01200}"
