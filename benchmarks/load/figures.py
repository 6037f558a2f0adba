"""The figures of a run."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.attacks import p50, p99
from benchmarks.load.app import BY_KEY, ONCE
from benchmarks.load.judging import Line, judge
from benchmarks.load.traffic import Run

Figures = dict[str, Any]


def figures(run: Run) -> Figures:
    """All figures of a run, as JSON.

    Times are in milliseconds and have `p50`, `p99` and the number of `samples`; CPU is in seconds,
    memory in megabytes. `window` is about the measured time, in which all places are open, and
    `total` about all turns, each from its start to its end.
    """
    verdict = judge(run.turns, run.lines)
    window = (run.began, run.began + run.window.at)
    ended = [turn for turn in run.turns if _is_in(turn.ended, window)]
    steps = sum(line["kind"] == "answered" and _is_in(line["at"], window) for line in run.lines)
    return {
        "load": dataclasses.asdict(run.load),
        "steps_per_s": round(steps / run.window.at, 1),
        "turns_per_minute": round(60 * len(ended) / run.window.at, 1),
        "start": _times(starts(run, window, in_sessions=False)),
        "message": _times(starts(run, window, in_sessions=True)),
        "step": _times(between_calls(run.lines, window)),
        "event": _times([late for at, late in run.late if _is_in(at, window)]),
        "window": {"steps": steps, "turns": len(ended), **_cpu(run.window)},
        "total": _total(run),
        "memory": {
            "server": _steady_and_peak(run.memory.server),
            "worker": _steady_and_peak(run.memory.worker),
        },
        "histories": dataclasses.asdict(run.histories),
        "kills": run.kills,
        "lost": list(verdict.lost),
        "duplicates": list(verdict.duplicates),
        "unknown": verdict.unknown,
        "repeated": verdict.repeated,
        "lost_tasks": run.lost_tasks,
        "errors": dict(run.errors),
    }


def _is_in(at: float, window: tuple[float, float]) -> bool:
    return window[0] <= at < window[1]


def _cpu(used: Any) -> dict[str, float]:
    return {
        "seconds": round(used.at, 1),
        "server_cpu": round(used.server, 2),
        "workers_cpu": round(used.workers, 2),
        "client_cpu": round(used.client, 2),
    }


def _total(run: Run) -> dict[str, Any]:
    """What all turns have done and used; a step or a call that was made again counts once."""
    names = {turn.name for turn in run.turns}
    messages = {turn.name for turn in run.turns if turn.session}
    done = defaultdict[str, set[tuple[str, str]]](set)
    for line in run.lines:
        if line["turn"] in names:
            done[line["kind"]].add((line["turn"], line["call"]))
    calls = done[BY_KEY] | done[ONCE]
    return {
        "turns": len(run.turns),
        "messages": len(messages),
        "steps": len(done["answered"]),
        "tools": len(calls),
        "message_tools": sum(turn in messages for turn, _ in calls),
        "actions": dict(run.actions),
        **_cpu(run.total),
    }


def starts(run: Run, window: tuple[float, float], *, in_sessions: bool) -> list[float]:
    """The milliseconds from the start of a turn, or a message, to its first model call."""
    first: dict[str, float] = {}
    for line in run.lines:
        if line["kind"] == "asked" and line["call"] == "1":
            first.setdefault(line["turn"], line["at"])
    return [
        1000 * (first[turn.name] - turn.began)
        for turn in run.turns
        if turn.name in first and bool(turn.session) == in_sessions and _is_in(turn.began, window)
    ]


def between_calls(lines: Iterable[Line], window: tuple[float, float]) -> list[float]:
    """The milliseconds from an answer of the model to the next request, the tool calls between."""
    answered: dict[tuple[str, int], float] = {}
    asked: dict[tuple[str, int], float] = {}
    for line in lines:
        if line["kind"] == "answered":
            answered[line["turn"], int(line["call"])] = line["at"]
        elif line["kind"] == "asked":
            asked.setdefault((line["turn"], int(line["call"])), line["at"])
    return [
        1000 * (at - answered[turn, step - 1])
        for (turn, step), at in asked.items()
        if _is_in(at, window) and (turn, step - 1) in answered
    ]


def _times(ms: Sequence[float]) -> dict[str, float] | None:
    if not ms:
        return None
    return {"p50": round(p50([*ms])), "p99": round(p99([*ms])), "samples": len(ms)}


def _steady_and_peak(megabytes: Sequence[float]) -> dict[str, int]:
    return {"steady": round(statistics.median(megabytes)), "peak": round(max(megabytes))}
