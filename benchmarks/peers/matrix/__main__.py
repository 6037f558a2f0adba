"""The kill matrix of Perdure and four others: `python -m benchmarks.peers.matrix [SYSTEM…]`.

An agent looks and books, charges, looks again and answers: four model calls and four effects. Its
process gets SIGKILL in some of these calls, and just after one; another process has loaded
everything and takes over at once. The witness of `benchmarks.matrix` is model and service, and
judges each job by what it saw. A `charge` may not be repeated, a `book` only with the same key.

Each system runs with its defaults and with its best settings, which its module names: what it
offers, and some lines of code where its documentation shows them. Some systems run at the same
time, each job of a system by itself. The raw lines and all verdicts are kept in `benchmarks/out`.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import importlib.metadata
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.matrix import witness
from benchmarks.peers.matrix import slow_witness
from benchmarks.peers.matrix.kill import MOMENTS, Moment, Record, Run, killed
from benchmarks.peers.matrix.systems import CONTROL, SYSTEMS, System
from benchmarks.run import versions, write
from perdure.worker.dev.server import DevServer
from tests.support.docs.measured import KILLS

OUT = Path(__file__).parents[2] / "out"
AT_ONCE = 4
"""How many systems run at the same time: they mostly wait."""
PACKAGES = (
    "pydantic-ai-slim",
    "openai-agents",
    "temporalio-openai-agents",
    "langchain",
    "langchain-openai",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "dbos",
    "openai",
)


def cells(runs: Sequence[Run]) -> dict[str, Any]:
    """The columns of a system: those of the runs whose kill landed."""
    landed = [run for run in runs if run.verdict.landed]
    verdicts = [run.verdict for run in landed]
    seconds = [one.went_on_s for one in verdicts if one.went_on_s is not None]
    return {
        "system": runs[0].system.name,
        "settings": runs[0].system.variant,
        "kills": len(landed),
        "success": sum(one.success for one in verdicts),
        "exactly once": sum(one.exactly_once for one in verdicts),
        "duplicates": sum(one.duplicates for one in verdicts),
        "overclaims": sum(len(one.overclaims) for one in verdicts),
        "unknown": sum(len(one.unknown) for one in verdicts),
        "paid again": sum(run.paid_again for run in landed),
        "stuck": sum(one.stuck for one in verdicts),
        "goes on, s": round(statistics.median(seconds), 1) if seconds else None,
        "slowest, s": round(max(seconds), 1) if seconds else None,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text."""
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(value.ljust(width) for value, width in zip(line, widths, strict=True))
        for line in lines
    )


def described(moments: Sequence[Moment], runs: Sequence[Sequence[Run]]) -> dict[str, Any]:
    """What is written: when, with what, the rows, and each run."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "versions": versions(*(name for name in PACKAGES if _is_installed(name))),
        "moments": len(moments),
        "rows": [cells(found) for found in runs],
        "runs": [
            {"moment": dataclasses.asdict(run.moment), **dataclasses.asdict(run.verdict)}
            for found in runs
            for run in found
        ],
    }


def _is_installed(package: str) -> bool:
    try:
        return bool(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return False


async def measured(
    systems: Sequence[System], moments: Sequence[Moment], folder: Path
) -> list[list[Run]]:
    """Run the systems, some at the same time, on a server and with a witness of their own."""
    async with (
        DevServer(folder=None, port=0, ui=False) as server,
        witness.running(folder, slow_witness.__name__) as addresses,
    ):
        address, record = server.address.address, Record(folder, addresses)
        places = asyncio.Semaphore(AT_ONCE)

        async def one(system: System) -> list[Run]:
            async with places:
                return await killed(system, address, record, folder, moments)

        return await asyncio.gather(*map(one, systems))


def main(arguments: Sequence[str]) -> None:
    """Run the chosen systems, and write what was seen."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.matrix")
    parser.add_argument("names", nargs="*", help="systems, such as dbos or dbos-best; all without")
    parser.add_argument("--calls", nargs="+", help="the calls in which to kill, such as charge")
    parser.add_argument("--out", type=Path, default=OUT, help="a folder for the results")
    parser.add_argument(
        "--keep", action="store_true", help="the rows become those of docs/proof.md"
    )
    options = parser.parse_args(arguments)
    chosen = [one for one in (*SYSTEMS, CONTROL) if {one.name, one.slug} & set(options.names)]
    moments = [Moment(call) for call in options.calls or ()] or MOMENTS
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        runs = asyncio.run(measured(chosen or SYSTEMS, moments, Path(folder)))
        options.out.mkdir(exist_ok=True)
        shutil.copy(Path(folder) / witness.FILE, options.out / "peers_matrix.jsonl")
    figures = json.loads(json.dumps(described(moments, runs), default=str))
    write(options.out / "peers_matrix.json", figures)
    if options.keep:
        write(KILLS, {name: figures[name] for name in figures if name != "runs"})
    print(table(figures["rows"]))
    print(f"{figures['date']}  {figures['versions']}")


if __name__ == "__main__":
    main(sys.argv[1:])
