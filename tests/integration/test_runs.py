"""A turn whose history has become long goes on in a new run, as if nothing had happened."""

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from perdure import (
    Budget,
    Logger,
    Middleware,
    Timeout,
    ToolContext,
    tool,
)
from perdure.agents.observers import Observer
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.reports import AgentReport, Step
from perdure.values.tasks import Task, TurnInfo

from ..conftest import Runtime
from .long_turns import (
    LONG_TASK,
    SHORT_TASK,
    begin,
    events_of,
    reader,
    runs_of,
)
from .spending import app, usage

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
        entries = [
            entry
            async for entry in client.list(agent="reader", labels={"team": "maths"})
            if entry.id == turn.id
        ]
        status = await turn.status()
        events = await events_of(turn)
        described = await client.temporal.get_workflow_handle(turn.id).describe()
    [entry] = entries
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
