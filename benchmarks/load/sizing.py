"""The size of a cluster, from measured loads: `python -m benchmarks.load.sizing`.

What a turn needs is a sum: a part for the turn, one for each step, each tool call and each
heartbeat. A message of a session adds one, and so does each tool call of its turn. Three loads of
turns that differ in steps and in tool calls give three equations for the first three parts. Two
loads of sessions give those of a message and of its tool calls, and the load with the most open
turns that of a heartbeat.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure import limits
from perdure.temporal.liveness import INTERVAL

MEASURED = Path(__file__).parents[2] / "tests/support/measured/load.json"
SHORT, LONG, TOOLS = "short-turns", "long-turns", "many-tools"
MESSAGES, LONG_MESSAGES = "messages", "long-messages"
OPEN_FEW, OPEN_MANY = "10-open", "1000-open"
CHECK, CHECK_BUSY = "check", "check-busy"
BUSY = 0.6
"""The part of its core, and of its slots, that a worker may use, so that it can take over from
another one."""
CACHE = 1_000
"""Workflows that a worker has in its cache."""
QUANTITIES = ("events", "bytes", "actions", "worker CPU", "server CPU")
HISTORY = QUANTITIES[:2]
"""What heartbeats leave nothing of."""

Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """What turns do, in any time.

    Attributes:
        messages: The turns that answer messages of sessions.
        message_tools: The tool calls of these turns.
    """

    turns: float
    steps: float
    tools: float
    heartbeats: float = 0
    messages: float = 0
    message_tools: float = 0


@dataclass(frozen=True)
class Cost:
    """How much of something the parts of a turn need; messages need theirs in addition."""

    turn: float
    step: float
    tool: float
    heartbeat: float = 0
    message: float = 0
    message_tool: float = 0

    def of(self, work: Work) -> float:
        """How much some work needs."""
        return (
            self.turn * work.turns
            + self.step * work.steps
            + self.tool * work.tools
            + self.heartbeat * work.heartbeats
            + self.message * work.messages
            + self.message_tool * work.message_tools
        )


@dataclass(frozen=True)
class Costs:
    """What is known of a cluster.

    Attributes:
        each: The cost of each of `QUANTITIES`. CPU is in milliseconds.
        worker_mb: The memory of a worker with few turns.
        open_kb: What an open turn adds to it.
        start_ms, step_ms: Medians of the times that are not the model's.
    """

    each: Mapping[str, Cost]
    worker_mb: float
    open_kb: float
    start_ms: float
    step_ms: float


def heartbeats(seconds: float) -> int:
    """The heartbeats of a call of this time."""
    return max(0, math.ceil(seconds / INTERVAL.total_seconds()) - 1)


def work_of(point: Figures) -> Work:
    """What all turns of a load have done."""
    total, job = point["total"], point["load"]["job"]
    return Work(
        total["turns"],
        total["steps"],
        total["tools"],
        total["steps"] * heartbeats(job["seconds"]),
        total["messages"],
        total["message_tools"],
    )


def needed(point: Figures) -> dict[str, float]:
    """What all turns of a load needed. Events and bytes are those of some histories.

    The search attribute by which the SDK records a patch is not billed: one a turn or session.
    """
    total, histories = point["total"], point["histories"]
    turns, messages = total["turns"], total["messages"]
    of_all = {
        name: histories[name] * (turns - messages) + histories[f"message_{name}"] * messages
        for name in HISTORY
    }
    return {
        **of_all,
        "actions": sum(total["actions"].values()) - turns - point["load"]["sessions"],
        "worker CPU": 1000 * total["workers_cpu"],
        "server CPU": 1000 * total["server_cpu"],
    }


def solve(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Solve linear equations, by Cramer's rule for three unknowns."""
    of_all = _determinant(rows)
    return [
        _determinant(
            [[*row[:n], value, *row[n + 1 :]] for row, value in zip(rows, values, strict=True)]
        )
        / of_all
        for n in range(3)
    ]


def _determinant(rows: Sequence[Sequence[float]]) -> float:
    (a, b, c), (d, e, f), (g, h, i) = rows
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def costs(points: Mapping[str, Figures]) -> Costs:
    """The costs by all loads but `CHECK` and `CHECK_BUSY`."""
    each = {quantity: _cost(points, quantity) for quantity in QUANTITIES}
    few, many = points[OPEN_FEW], points[OPEN_MANY]
    low, high = few["memory"]["worker"]["peak"], many["memory"]["worker"]["peak"]
    more = (many["load"]["turns"] - few["load"]["turns"]) / many["load"]["workers"]
    return Costs(each, low, 1024 * (high - low) / more, few["start"]["p50"], few["step"]["p50"])


def _cost(points: Mapping[str, Figures], quantity: str) -> Cost:
    rows, values = [], []
    for name in (SHORT, LONG, TOOLS):
        work = work_of(points[name])
        rows.append([1, work.steps / work.turns, work.tools / work.turns])
        values.append(needed(points[name])[quantity] / work.turns)
    known = Cost(*solve(rows, values))
    beats, more = work_of(points[OPEN_MANY]).heartbeats, _more(points[OPEN_MANY], quantity, known)
    few, many = points[MESSAGES], points[LONG_MESSAGES]
    by_message = [_more(one, quantity, known) / work_of(one).messages for one in (few, many)]
    tools = [work_of(one).message_tools / work_of(one).messages for one in (few, many)]
    of_tool = (by_message[1] - by_message[0]) / (tools[1] - tools[0])
    return replace(
        known,
        heartbeat=more / beats if quantity not in HISTORY else 0,
        message=by_message[0] - of_tool * tools[0],
        message_tool=of_tool,
    )


def _more(point: Figures, quantity: str, known: Cost) -> float:
    """What a load needed beyond what is known of it."""
    return needed(point)[quantity] - known.of(work_of(point))


@dataclass(frozen=True)
class Demand:
    """What a cluster has to do.

    Attributes:
        tools: Tool calls of a turn.
        seconds: The time of a model call.
        in_sessions: The part of the turns that answer messages of sessions.
    """

    turns_per_minute: float
    steps: float
    tools: float
    seconds: float
    in_sessions: float = 0

    @property
    def work(self) -> Work:
        """The work of a minute."""
        turns = self.turns_per_minute
        return Work(
            turns,
            turns * self.steps,
            turns * self.tools,
            turns * self.steps * heartbeats(self.seconds),
            turns * self.in_sessions,
            turns * self.in_sessions * self.tools,
        )


@dataclass(frozen=True)
class Plan:
    """A cluster.

    Attributes:
        per_minute: How much of each of `QUANTITIES` a minute needs.
        open_turns, open_calls: Turns and model calls that are open at once.
        cores: What the workers use of CPU.
        workers: Worker processes.
        worker_mb: The memory of each.
    """

    per_minute: Mapping[str, float]
    open_turns: float
    open_calls: float
    cores: float
    workers: int
    worker_mb: float


def plan(known: Costs, demand: Demand) -> Plan:
    """The cluster that does so much."""
    per_minute = {name: cost.of(demand.work) for name, cost in known.each.items()}
    per_second = demand.turns_per_minute / 60
    own_s = (known.start_ms + known.step_ms * (demand.steps - 1)) / 1000
    open_turns = per_second * (demand.steps * demand.seconds + own_s)
    open_calls = per_second * demand.steps * demand.seconds
    cores = per_minute["worker CPU"] / 60_000
    slots = open_calls / limits.MODEL_CALLS_AT_ONCE
    workers = max(2, math.ceil(cores / BUSY), math.ceil(slots / BUSY))
    cached = min(CACHE, open_turns / workers)
    memory = known.worker_mb + known.open_kb * cached / 1024
    return Plan(per_minute, open_turns, open_calls, cores, workers, memory)


def main() -> None:
    """Print the plan for a demand."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.sizing")
    parser.add_argument("--turns-per-minute", type=float, default=600)
    parser.add_argument("--steps", type=float, default=6, help="model calls of a turn")
    parser.add_argument("--tools", type=float, default=5, help="tool calls of a turn")
    parser.add_argument("--seconds", type=float, default=5, help="the time of a model call")
    parser.add_argument("--in-sessions", type=float, default=0, help="part of the turns, 0 to 1")
    points = json.loads(MEASURED.read_text(encoding="utf-8"))["points"]
    found = plan(costs(points), Demand(**vars(parser.parse_args())))
    for name, amount in found.per_minute.items():
        print(f"{name + ' a minute':22} {amount:>14,.0f}{' ms' if 'CPU' in name else ''}")
    print(f"{'open turns':22} {found.open_turns:>14,.0f}")
    print(f"{'open model calls':22} {found.open_calls:>14,.0f}")
    print(f"{'cores of the workers':22} {found.cores:>14.1f}")
    print(f"{'worker processes':22} {found.workers:>14}")
    print(f"{'memory of each':22} {found.worker_mb:>14,.0f} MB")


if __name__ == "__main__":
    main()
