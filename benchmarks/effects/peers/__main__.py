"""Runs the episodes on other frameworks, and prints the tables: `make -C benchmarks effects-peers`.

With `--keep` the rows become some of those of `docs/proof.md`. `--rows` runs the episodes of some
rows, or of all, and `--kills` kills the processes of some, or of all; without either, both are run.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from benchmarks.effects.__main__ import OUT, PROCESSES, merged
from benchmarks.effects.kills import MOMENTS
from benchmarks.effects.peers import killed
from benchmarks.effects.peers.rows import PACKAGES, ROWS, behaviours_of, ends, measured
from benchmarks.effects.rows import by_behaviour, by_mode
from benchmarks.run import versions, write
from perdure.worker.dev.server import DevServer
from tests.support.docs.measured import EFFECTS, effect_tables


async def run(rows: Sequence[str], kills: Sequence[str]) -> dict[str, Any]:
    """Measure, and return the figures.

    Args:
        rows: The rows whose episodes are run, some at once.
        kills: The rows whose processes are killed, one after the other.
    """
    dated = {"date": time.strftime("%Y-%m-%d"), "versions": versions(*PACKAGES)}
    found: dict[str, Any] = {"rows": {}, "modes": {}, "ends": {}, "kills": {}}
    async with DevServer(folder=None, port=0, ui=False) as server:
        address = server.address.address
        if rows:
            found |= {**await _episodes(rows, address), "peers": dated}
        if kills:
            found |= {"kills": await _kills(kills, address), "peers killed": dated}
    return found


async def _episodes(rows: Sequence[str], address: str) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(
        PROCESSES, mp_context=get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        found = await asyncio.gather(
            *(
                loop.run_in_executor(pool, measured, row, behaviours_of(row), address)
                for row in rows
            )
        )
    measures = dict(zip(rows, found, strict=True))
    return {
        "rows": {name: by_behaviour(one, behaviours_of(name)) for name, one in measures.items()},
        "modes": {name: by_mode(one, behaviours_of(name)) for name, one in measures.items()},
        "ends": {name: ends(one, behaviours_of(name)) for name, one in measures.items()},
    }


async def _kills(rows: Sequence[str], address: str) -> dict[str, dict[str, list[int]]]:
    found = {}
    for row in rows:
        outcomes = await asyncio.gather(*(killed.run(row, each, address) for each in MOMENTS))
        for moment, jobs in zip(MOMENTS, outcomes, strict=True):
            name = f"{row}, {moment}"
            found[name] = killed.figures(jobs, behaviours_of(row))
            print(name, found[name], file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Measure, print the tables and write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.effects.peers", description=__doc__)
    parser.add_argument("--rows", nargs="*", choices=[*ROWS], metavar="ROW")
    parser.add_argument("--kills", nargs="*", choices=[*ROWS], metavar="ROW")
    parser.add_argument("--keep", action="store_true", help="write the rows of docs/proof.md")
    options = parser.parse_args()
    began = time.monotonic()
    figures = asyncio.run(run(*_chosen(options.rows, options.kills)))
    print("".join(effect_tables(figures)), figures["ends"])
    print(figures.get("peers"), figures.get("peers killed"))
    file = EFFECTS if options.keep else OUT
    write(file, merged(figures, file))
    print(f"{time.monotonic() - began:.0f} s")


def _chosen(
    rows: Sequence[str] | None, kills: Sequence[str] | None
) -> tuple[Sequence[str], Sequence[str]]:
    """The rows of both: an option without rows means all, and without either, all of both."""
    if rows is None and kills is None:
        return [*ROWS], [*ROWS]
    chosen, killing = ([] if one is None else one or [*ROWS] for one in (rows, kills))
    return chosen, killing


if __name__ == "__main__":
    main()
