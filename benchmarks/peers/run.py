"""Perdure, a hand-written loop and two agent frameworks, interleaved on one embedded server: `make bench-peers`. It takes a quarter of an hour.

`benchmarks/out/peers.json` holds the figures.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHistory

from benchmarks import measures
from benchmarks.bench import HANDWRITTEN, PERDURE, Bench, Kind, opened
from benchmarks.measures import Figures, medians, ratio, size
from benchmarks.run import versions, write

OUT = Path(__file__).parent.parent / "out" / "peers.json"

PYDANTIC_AI = Kind("pydantic-ai", "benchmarks.peers.with_pydantic_ai", "Job")
OPENAI_AGENTS = Kind("openai-agents", "benchmarks.peers.with_openai_agents", "Job")
KINDS = (HANDWRITTEN, PYDANTIC_AI, OPENAI_AGENTS, PERDURE)

UNSANDBOXED = (
    Kind("pydantic-ai, unsandboxed", PYDANTIC_AI.module, "JobUnsandboxed"),
    Kind("openai-agents, unsandboxed", OPENAI_AGENTS.module, "JobUnsandboxed"),
)
BY_INSTRUCTIONS = Kind("pydantic-ai, instructions", PYDANTIC_AI.module, "JobByInstructions")
HEARTBEATING = (PYDANTIC_AI, OPENAI_AGENTS, PERDURE)
"""The hand-written loop waits for its timeout of five minutes."""

PACKAGES = ("pydantic-ai-slim", "openai-agents", "temporalio-openai-agents")
LONG = 250


async def alone(bench: Bench) -> dict[str, Any]:
    """One turn at a time."""
    took, used = await measures.alone(bench, (*KINDS, *UNSANDBOXED))
    return {
        "ms_per_step": medians(took),
        "ms_per_step_over_perdure": by_perdure(took),
        "worker_cpu_ms_per_step": medians(used),
        "worker_cpu_over_perdure": by_perdure(used),
    }


async def together(bench: Bench) -> dict[str, Any]:
    """Many turns at once."""
    rates = await measures.together(bench, KINDS)
    return {"steps_per_s": medians(rates), "steps_per_s_over_perdure": by_perdure(rates)}


async def weight(bench: Bench) -> dict[str, Any]:
    """What history weighs, where the server ends a long turn, and what a replay costs."""
    histories: dict[str, WorkflowHistory] = {}
    weights: dict[str, dict[str, int]] = {f"history_bytes_{steps}": {} for steps in (10, 50, 100)}
    for kind in (*KINDS, BY_INSTRUCTIONS):
        for steps in (10, 50, 100):
            if steps == 100 and kind is BY_INSTRUCTIONS:
                continue
            _, histories[kind.name] = await bench.turn(kind, steps)
            weights[f"history_bytes_{steps}"][kind.name] = size(histories[kind.name])
    replay = {kind.name: round(await measures.replay_ms(kind, histories[kind.name]) / 100, 1) for kind in KINDS}
    return {**weights, "replay_ms_per_step": replay}


async def length(bench: Bench) -> dict[str, Any]:
    """After which step the server terminates a turn of 250."""
    return {f"terminated_of_{LONG}": {kind.name: await measures.last_step(bench, kind, LONG) for kind in (*KINDS, BY_INSTRUCTIONS)}}


async def starts(bench: Bench) -> dict[str, Any]:
    """After a kill, and after nothing."""
    recovered = {kind.name: round(await measures.recovery_s(bench, kind), 1) for kind in HEARTBEATING}
    return {"recovery_s": recovered, "worker_ready_s": medians(await measures.readiness(bench, KINDS), 2)}


def by_perdure(figures: Figures) -> dict[str, float]:
    """Each one's figure by Perdure's."""
    return {name: ratio(figures, name, "perdure") for name in figures}


def table(figures: dict[str, Any]) -> str:
    """A line for each figure, a column for each kind; what only a variant has stands in lines of its own."""
    lines = [f"{'':26}" + "".join(f"{kind.name:>15}" for kind in KINDS)]
    for name, measured in figures.items():
        if name not in ("date", "versions"):
            lines.append(f"{name:26}" + "".join(f"{measured.get(kind.name, '')!s:>15}" for kind in KINDS))
            lines += [f"    {variant}: {figure}" for variant, figure in measured.items() if "," in variant]
    return "\n".join([*lines, f"{figures['date']}  {figures['versions']}"])


async def main() -> None:
    """Measure everything and write it down."""
    figures: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "versions": versions(*PACKAGES)}
    async with opened((*KINDS, *UNSANDBOXED, BY_INSTRUCTIONS)) as bench:
        for measure in (alone, together, weight, length, starts):
            figures |= await measure(bench)
            print(f"{measure.__name__} …", file=sys.stderr)
    write(OUT, figures)
    print(table(figures))


if __name__ == "__main__":
    asyncio.run(main())
