"""The arithmetic of the load: what is lost and done twice, times, and the size of a cluster."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from benchmarks.load import sizing
from benchmarks.load.app import BY_KEY, ONCE, Job, read
from benchmarks.load.cluster import Memory, Used
from benchmarks.load.figures import figures
from benchmarks.load.judging import Ended, Line, Verdict, judge
from benchmarks.load.series import LOADS
from benchmarks.load.sizing import Cost, Costs, Demand, Work
from benchmarks.load.traffic import Histories, Load, Run
from tests.support.docs import sizing as page

JOB = Job(steps=3, tools=1, seconds=1)
KINDS = dict(JOB.calls())
DONE = {"1.1": True, "2.1": True}


def turn(claims: dict[str, bool] | None = None, **more: Any) -> Ended:
    """A turn with an answer; None is a turn that did not end."""
    answer = json.dumps(claims) if claims is not None else None
    return Ended("t", "t", JOB, began=0, ended=10, answer=answer, **more)


def line(kind: str, call: str, at: float = 0, key: str = "k") -> Line:
    return {"kind": kind, "turn": "t", "call": call, "at": at, "key": key}


EFFECTS = [line(kind, call) for call, kind in KINDS.items()]


def test_task_is_read_as_it_was_written() -> None:
    """The last step calls no tool, and tools alternate."""
    assert read(JOB.task("a")) == ("a", JOB)
    assert KINDS == {"1.1": BY_KEY, "2.1": ONCE}


@pytest.mark.accepts("O38")
@pytest.mark.parametrize(
    ("claims", "lines", "verdict"),
    [
        pytest.param(DONE, EFFECTS, Verdict(), id="complete"),
        pytest.param(None, EFFECTS, Verdict(lost=("t",)), id="no end"),
        pytest.param({"1.1": True}, EFFECTS, Verdict(lost=("t",)), id="a call is missing"),
        pytest.param(DONE, EFFECTS[:1], Verdict(lost=("t 2.1",)), id="said, not done"),
        pytest.param(DONE, EFFECTS[1:], Verdict(lost=("t 1.1",)), id="by key, not done"),
        pytest.param(
            {"1.1": True, "2.1": False}, EFFECTS[:1], Verdict(unknown=1), id="outcome unknown"
        ),
        pytest.param(DONE, [*EFFECTS, EFFECTS[0]], Verdict(), id="again with its key"),
        pytest.param(
            DONE,
            [*EFFECTS, line(BY_KEY, "1.1", key="other")],
            Verdict(duplicates=("t 1.1",)),
            id="with another key",
        ),
        pytest.param(DONE, [*EFFECTS, EFFECTS[1]], Verdict(duplicates=("t 2.1",)), id="twice"),
        pytest.param(
            DONE, [*EFFECTS, *[line("asked", "1")] * 2], Verdict(repeated=1), id="model call again"
        ),
    ],
)
def test_judge_sees_what_is_lost_and_what_is_done_twice(
    claims: dict[str, bool] | None, lines: list[Line], verdict: Verdict
) -> None:
    """Reports are compared with effects outside."""
    assert judge([turn(claims)], lines) == verdict


@pytest.mark.accepts("O37")
def test_figures_are_those_of_the_measured_time() -> None:
    """Of three steps, one was answered before it; a repeated call counts once in the total."""
    lines = [
        line("asked", "1", 0.2),
        line("answered", "1", 1.2),
        *[line(BY_KEY, "1.1", 1.3)] * 2,
        line("asked", "2", 1.5),
        line("answered", "2", 2.5),
        line(ONCE, "2.1", 2.5),
        line("asked", "3", 2.9),
        line("answered", "3", 3.9),
    ]
    run = Run(
        load=Load(turns=1, seconds=4, job=JOB),
        turns=[turn(DONE)],
        errors=Counter(),
        late=[(1.0, 5.0), (2.5, 7.0)],
        lines=lines,
        began=2.0,
        window=Used(at=4, server=1, workers=2, client=3),
        total=Used(at=8, server=4, workers=5, client=6),
        actions=Counter(start=3),
        memory=Memory([10, 20, 90], [5, 6, 7]),
        histories=Histories(30, 3000, 0, 0),
        kills=0,
        lost_tasks=0,
    )

    found = figures(run)

    assert found["window"] == {
        "steps": 2,
        "turns": 0,
        "seconds": 4,
        "server_cpu": 1,
        "workers_cpu": 2,
        "client_cpu": 3,
    }
    assert found["steps_per_s"] == 0.5
    assert found["step"] == {"p50": 400, "p99": 400, "samples": 1}
    assert found["event"] == {"p50": 7, "p99": 7, "samples": 1}
    assert found["start"] is None
    assert found["memory"]["server"] == {"steady": 20, "peak": 90}
    total = {name: found["total"][name] for name in ("turns", "steps", "tools", "actions")}
    assert total == {"turns": 1, "steps": 3, "tools": 2, "actions": {"start": 3}}


TRUE = {
    "events": Cost(18, 5, 3, message=12),
    "bytes": Cost(5000, 1000, 1500, message=4000, message_tool=1000),
    "actions": Cost(5, 1, 1, 1, 4),
    "worker CPU": Cost(20, 5, 4, 0.5, 15, 2),
    "server CPU": Cost(40, 8, 6, 1, 30, 3),
}
"""What a made-up cluster costs."""


def measured(load: Load) -> dict[str, Any]:
    """The figures of a load in which 100 turns cost exactly that."""
    turns, job = 100, load.job
    messages = turns if load.sessions else 0
    steps, tools = turns * job.steps, turns * (job.steps - 1) * job.tools
    work = Work(
        turns,
        steps,
        tools,
        steps * sizing.heartbeats(job.seconds),
        messages,
        tools * messages / turns,
    )
    needed = {name: cost.of(work) for name, cost in TRUE.items()}
    return {
        "load": {
            "workers": load.workers,
            "turns": load.turns,
            "sessions": load.sessions,
            "job": {"steps": job.steps, "tools": job.tools, "seconds": job.seconds},
        },
        "total": {
            "turns": turns,
            "messages": messages,
            "message_tools": tools * messages / turns,
            "steps": steps,
            "tools": tools,
            "actions": {"all": needed["actions"] + turns + load.sessions},
            "workers_cpu": needed["worker CPU"] / 1000,
            "server_cpu": needed["server CPU"] / 1000,
        },
        "histories": {
            f"{whose}{name}": needed[name] / turns
            for whose in ("", "message_")
            for name in sizing.HISTORY
        },
        "memory": {"worker": {"peak": 100 + 0.25 * (load.turns + load.sessions) / load.workers}},
        "start": {"p50": 50},
        "step": {"p50": 100},
        "turns_per_minute": 60 * (load.turns + load.sessions) / (job.steps * job.seconds),
    }


POINTS = {name: measured(load) for name, load in LOADS.items()}


@pytest.mark.accepts("O39")
def test_costs_are_found_again_from_loads_that_have_them() -> None:
    """Also those of heartbeats and messages, and the memory of an open turn."""
    known = sizing.costs(POINTS)

    for name, cost in TRUE.items():
        for part in ("turn", "step", "tool", "heartbeat", "message", "message_tool"):
            assert getattr(known.each[name], part) == pytest.approx(getattr(cost, part), abs=1e-6)
    assert known.open_kb == pytest.approx(256)


@pytest.mark.accepts("O39")
def test_prediction_for_another_load_is_compared_with_it() -> None:
    """It has a row for each quantity, the turns a minute and the memory, without an error here."""
    known = sizing.costs(POINTS)
    errors = {name: error for name, _, _, error in page.checked(known, POINTS[sizing.CHECK])}

    assert len(errors) == len(TRUE) + 2
    assert {error for name, error in errors.items() if name != "turns a minute"} <= {
        "+0 %",
        "-0 %",
        "+1 %",
    }


@pytest.mark.accepts("O39")
def test_plan_has_workers_for_the_cpu_and_for_the_open_calls() -> None:
    """At least two; then what CPU needs at 60 % of a core, or 60 % of the slots of model calls."""
    cost = dict.fromkeys(sizing.QUANTITIES, Cost(0, 10, 0))
    known = Costs(cost, worker_mb=100, open_kb=512, start_ms=0, step_ms=0)

    small = sizing.plan(known, Demand(60, steps=1, tools=0, seconds=1))
    busy = sizing.plan(known, Demand(24_000, steps=1, tools=0, seconds=0))
    patient = sizing.plan(known, Demand(3_000, steps=1, tools=0, seconds=60))

    assert (small.workers, small.open_turns, small.cores) == (2, 1, 0.01)
    assert (busy.workers, busy.cores) == (7, 4)
    assert (patient.workers, patient.open_calls) == (10, 3_000)
    assert patient.worker_mb == 100 + 300 / 2


def test_heartbeats_begin_after_three_seconds() -> None:
    """As the server counts them for calls of 0, 5 and 60 s."""
    assert [sizing.heartbeats(seconds) for seconds in (0, 3, 5, 60)] == [0, 0, 1, 19]


@pytest.mark.accepts("O41")
def test_page_is_that_of_the_measurement() -> None:
    """`python -m tests.support.docs.sizing` writes it."""
    assert page.PAGE.read_text(encoding="utf-8") == page.page()


@pytest.mark.accepts("O40")
def test_load_that_is_missing_leaves_out_its_section() -> None:
    """A load that failed loses no other table."""
    found = json.loads(sizing.MEASURED.read_text(encoding="utf-8"))
    lacking = {**found, "idle": None, "points": {**found["points"]}}
    del lacking["points"]["kills"], lacking["points"][sizing.MESSAGES]

    text = "".join(page.sections(lacking))

    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "## One, two and four workers",
        "## Ten, a hundred and a thousand open turns",
    ]
