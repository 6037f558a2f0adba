"""Perdure, a hand-written loop and four others, interleaved: `make -C benchmarks peers`.

It takes half an hour.

Two agent frameworks run on the embedded Temporal server, as Perdure does. LangGraph and DBOS each
have a database, SQLite or a PostgreSQL that is started here if it is installed. The results, and
the output of the scripts in `STORIES`, are in `benchmarks/out/peers.json`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHistory

from benchmarks import measures
from benchmarks.bench import HANDWRITTEN, PERDURE, Bench, Kind, opened
from benchmarks.measures import Figures, medians, ratio, size
from benchmarks.peers.libraries import Library, Mixed, cpu_s_below, mixed, present
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

LANGGRAPH = Library("langgraph", "benchmarks.peers.with_langgraph:sync:postgres", "postgres")
DBOS = Library("dbos", "benchmarks.peers.with_dbos:job:postgres", "postgres")
ON_SQLITE = (
    Library("langgraph, sqlite", "benchmarks.peers.with_langgraph:sync:sqlite", "sqlite"),
    Library("dbos, sqlite", "benchmarks.peers.with_dbos:job:sqlite", "sqlite"),
)
DELTA = Library("langgraph, delta", "benchmarks.peers.with_langgraph:delta:postgres", "postgres")
LIBRARIES = (
    LANGGRAPH,
    DBOS,
    *ON_SQLITE,
    Library("langgraph, async", "benchmarks.peers.with_langgraph:async:postgres", "postgres"),
    DELTA,
    Library("dbos, plain", "benchmarks.peers.with_dbos:plain:postgres", "postgres"),
)
"""Where there is no PostgreSQL, only those on SQLite run."""

PACKAGES = (
    "pydantic-ai-slim",
    "openai-agents",
    "temporalio-openai-agents",
    "langchain",
    "langgraph",
    "langgraph-checkpoint-postgres",
    "langgraph-checkpoint-sqlite",
    "dbos",
)
STORIES = ("kills", "trees", "trees_libraries", "waits")
LONG, LONGEST = 250, 500


async def alone(bench: Mixed) -> dict[str, Any]:
    """One turn at a time."""
    took, used = await measures.alone(bench, (*KINDS, *UNSANDBOXED, *present(bench, LIBRARIES)))
    return {
        "ms_per_step": medians(took),
        "ms_per_step_over_perdure": by_perdure(took),
        "worker_cpu_ms_per_step": medians(used),
        "worker_cpu_over_perdure": by_perdure(used),
    }


async def together(bench: Mixed) -> dict[str, Any]:
    """Many concurrent turns."""
    rates = await measures.together(bench, (*KINDS, *present(bench, LIBRARIES)))
    return {"steps_per_s": medians(rates), "steps_per_s_over_perdure": by_perdure(rates)}


async def weight(bench: Mixed) -> dict[str, Any]:
    """The size of a history, or of a library's data in its database, and the time of a replay."""
    histories: dict[str, WorkflowHistory] = {}
    weights: dict[str, dict[str, int]] = {f"history_bytes_{steps}": {} for steps in (10, 50, 100)}
    for kind in (*KINDS, BY_INSTRUCTIONS):
        for steps in (10, 50, 100):
            if steps == 100 and kind is BY_INSTRUCTIONS:
                continue
            _, histories[kind.name] = await bench.turn(kind, steps)
            weights[f"history_bytes_{steps}"][kind.name] = size(histories[kind.name])
    for kind in present(bench, LIBRARIES):
        for steps in (10, 50, 100):
            weights[f"history_bytes_{steps}"][kind.name] = await bench.stored(kind, steps)
    replay = {
        kind.name: round(await measures.replay_ms(kind, histories[kind.name]) / 100, 1)
        for kind in KINDS
    }
    return {**weights, "replay_ms_per_step": replay}


async def length(bench: Mixed) -> dict[str, Any]:
    """The step after which the server terminates a turn of 250; and the growth of a turn of 500
    where there is no such limit.
    """
    figures: dict[str, dict[str, Any]] = {f"terminated_of_{LONG}": {}}
    for kind in (*KINDS, BY_INSTRUCTIONS):
        figures[f"terminated_of_{LONG}"][kind.name] = await measures.last_step(bench, kind, LONG)
    for steps in (LONG, LONGEST):
        figures |= {
            f"ms_per_step_of_{steps}": {},
            f"last_100_over_first_of_{steps}": {},
            f"stored_bytes_{steps}": {},
        }
        for kind in (PERDURE, *(present(bench, (LANGGRAPH, DBOS, DELTA)) or ON_SQLITE)):
            seconds, stored, asked = await bench.followed(kind, steps)
            figures[f"ms_per_step_of_{steps}"][kind.name] = round(1000 * seconds / steps, 1)
            figures[f"last_100_over_first_of_{steps}"][kind.name] = round(
                (asked[-1] - asked[-101]) / (asked[101] - asked[1]), 2
            )
            figures[f"stored_bytes_{steps}"][kind.name] = stored
    return figures


async def servers(bench: Mixed) -> dict[str, Any]:
    """The CPU time of the servers: Temporal's for an implementation on it, PostgreSQL's for a
    library.
    """
    used: Figures = {}
    for _ in range(3):
        for kind in (*KINDS, *present(bench, (LANGGRAPH, DBOS))):
            before = server_cpu_s(kind)
            await bench.turn(kind, measures.STEPS)
            used.setdefault(kind.name, []).append(
                1000 * (server_cpu_s(kind) - before) / measures.STEPS
            )
    return {"server_cpu_ms_per_step": medians(used)}


def server_cpu_s(kind: Kind) -> float:
    return cpu_s_below("postgres" if isinstance(kind, Library) else "temporal")


async def told(story: str) -> list[str]:
    """The output of a script."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"benchmarks.peers.{story}", stdout=asyncio.subprocess.PIPE
    )
    written, _ = await process.communicate()
    return written.decode().splitlines()


async def starts(bench: Bench) -> dict[str, Any]:
    """The time until work starts, after a kill and in a fresh process."""
    recovered = {
        kind.name: round(await measures.recovery_s(bench, kind), 1) for kind in HEARTBEATING
    }
    return {
        "recovery_s": recovered,
        "worker_ready_s": medians(await measures.readiness(bench, KINDS), 2),
    }


def by_perdure(figures: Figures) -> dict[str, float]:
    """The ratios to Perdure."""
    return {name: ratio(figures, name, "perdure") for name in figures}


def table(figures: dict[str, Any]) -> str:
    """A line for each result, a column for each implementation; results of a variant only have
    lines of their own.
    """
    columns = (*KINDS, LANGGRAPH, DBOS)
    lines = [f"{'':26}" + "".join(f"{kind.name:>15}" for kind in columns)]
    for name, measured in figures.items():
        if name not in ("date", "versions", "stories"):
            lines.append(
                f"{name:26}" + "".join(f"{measured.get(kind.name, '')!s:>15}" for kind in columns)
            )
            lines += [
                f"    {variant}: {figure}" for variant, figure in measured.items() if "," in variant
            ]
    stories = [
        line for story, printed in figures["stories"].items() for line in ("", story, *printed)
    ]
    return "\n".join([*lines, f"{figures['date']}  {figures['versions']}", *stories])


MEASURES = (alone, together, servers, weight, length, starts)


async def main() -> None:
    """Measure everything and write the results."""
    figures: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "versions": versions(*PACKAGES)}
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        on_temporal = await stack.enter_async_context(
            opened((*KINDS, *UNSANDBOXED, BY_INSTRUCTIONS))
        )
        bench = await stack.enter_async_context(mixed(on_temporal, LIBRARIES, folder))
        for measure in MEASURES:
            figures |= await measure(bench)
            write(OUT, figures)
            print(f"{measure.__name__} …", file=sys.stderr)
    figures["stories"] = {story: await told(story) for story in STORIES}
    write(OUT, figures)
    print(table(figures))


if __name__ == "__main__":
    asyncio.run(main())
