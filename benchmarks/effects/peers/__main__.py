"""Runs the episodes on other frameworks, and prints the tables: `make -C benchmarks effects-peers`.

With `--keep` the rows become some of those of `docs/proof.md`. `--rows` chooses some.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from benchmarks.effects.__main__ import OUT, PROCESSES, merged
from benchmarks.effects.peers.rows import PACKAGES, ROWS, behaviours_of, ends, measured
from benchmarks.effects.rows import by_behaviour, by_mode
from benchmarks.run import versions, write
from perdure.worker.dev.server import DevServer
from tests.support.docs.measured import EFFECTS, effect_tables


async def run(rows: Sequence[str]) -> dict[str, Any]:
    """Measure, and return the figures."""
    loop = asyncio.get_running_loop()
    async with DevServer(folder=None, port=0, ui=False) as server:
        address = server.address.address
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
        "kills": {},
        "ends": {name: ends(one, behaviours_of(name)) for name, one in measures.items()},
        "peers": {"date": time.strftime("%Y-%m-%d"), "versions": versions(*PACKAGES)},
    }


def main() -> None:
    """Measure, print the tables and write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.effects.peers", description=__doc__)
    parser.add_argument("--rows", nargs="*", default=[*ROWS], choices=[*ROWS])
    parser.add_argument("--keep", action="store_true", help="write the rows of docs/proof.md")
    options = parser.parse_args()
    began = time.monotonic()
    figures = asyncio.run(run(options.rows))
    print("".join(effect_tables(figures)), figures["ends"], figures["peers"])
    file = EFFECTS if options.keep else OUT
    write(file, merged(figures, file))
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
