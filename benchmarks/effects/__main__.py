"""Runs all episodes and kills, prints the tables, and writes them: `make bench-effects`.

With `--keep` they become those of `docs/proof.md`. `--rows` and `--behaviours` choose some, and
`--without-kills` leaves the kills out.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.effects.behaviours import Behaviour
from benchmarks.effects.kills import MOMENTS
from benchmarks.effects.rows import KILLED, ROWS, by_behaviour, by_mode, killed, measured
from benchmarks.effects.templates import TEMPLATES, cases
from benchmarks.run import versions, write
from perdure.worker.dev.server import DevServer
from tests.support.docs.measured import EFFECTS, effect_tables

OUT = Path(__file__).parents[1] / "out" / "effects.json"
PROCESSES = 2


async def run(
    rows: Sequence[str], behaviours: Sequence[Behaviour], *, kill: bool
) -> dict[str, Any]:
    """Measure, and return the figures."""
    loop = asyncio.get_running_loop()
    killing = [(one, moment) for one in KILLED for moment in MOMENTS] if kill else []
    async with DevServer(folder=None, port=0, ui=False) as server:
        address = server.address.address
        with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
            by_row = [
                loop.run_in_executor(pool, measured, system, one.name, behaviours, address)
                for system, one in (ROWS[name] for name in rows)
            ]
            by_kill = [
                loop.run_in_executor(pool, killed, one.name, moment, behaviours, address)
                for one, moment in killing
            ]
            found = await asyncio.gather(*by_row)
            after_kills = await asyncio.gather(*by_kill)
    return {
        "behaviours": [*behaviours],
        "episodes": len([*cases()]),
        "templates": len(TEMPLATES),
        "rows": {
            name: by_behaviour(one, behaviours) for name, one in zip(rows, found, strict=True)
        },
        "modes": {name: by_mode(one, behaviours) for name, one in zip(rows, found, strict=True)},
        "kills": {
            f"{one.name}, {moment}": by_behaviour(row, behaviours)
            for (one, moment), row in zip(killing, after_kills, strict=True)
        },
    }


def main() -> None:
    """Measure, print the tables and write them."""
    logging.getLogger("perdure").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.effects", description=__doc__)
    parser.add_argument("--rows", nargs="+", default=[*ROWS], choices=[*ROWS])
    parser.add_argument("--behaviours", nargs="+", default=[*Behaviour], choices=[*Behaviour])
    parser.add_argument("--without-kills", action="store_true")
    parser.add_argument("--keep", action="store_true", help="write the tables of docs/proof.md")
    options = parser.parse_args()
    behaviours = [Behaviour(one) for one in options.behaviours]
    began = time.monotonic()
    found = asyncio.run(run(options.rows, behaviours, kill=not options.without_kills))
    figures = {"date": time.strftime("%Y-%m-%d"), "versions": versions("httpx"), **found}
    write(EFFECTS if options.keep else OUT, figures)
    print("".join(effect_tables(figures)))
    print(f"{figures['date']}, {time.monotonic() - began:.0f} s, {figures['versions']}")


if __name__ == "__main__":
    main()
