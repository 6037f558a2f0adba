"""Runs all episodes and kills, prints the tables, and writes them: `make bench-effects`.

With `--keep` they become those of `docs/proof.md`. `--rows` chooses some rows, and `--kills` the
configurations whose workers are killed; what is not measured is left in the file as it was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.effects.behaviours import Behaviour
from benchmarks.effects.kills import MOMENTS
from benchmarks.effects.peers.rows import ROWS as PEERS
from benchmarks.effects.rows import KILL_ROWS, KILLED, ROWS, by_behaviour, by_mode, killed, measured
from benchmarks.effects.templates import TEMPLATES, cases
from benchmarks.run import versions, write
from perdure.worker.dev.server import DevServer
from tests.support.docs.measured import EFFECTS, effect_tables

OUT = Path(__file__).parents[1] / "out" / "effects.json"
PROCESSES = 2


async def run(rows: Sequence[str], kills: Sequence[str]) -> dict[str, Any]:
    """Measure, and return the figures."""
    loop = asyncio.get_running_loop()
    killing = [(name, moment) for name in kills for moment in MOMENTS]
    async with DevServer(folder=None, port=0, ui=False) as server:
        address = server.address.address
        with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
            by_row = [loop.run_in_executor(pool, measured, row, address) for row in rows]
            by_kill = [
                loop.run_in_executor(pool, killed, row, moment, address) for row, moment in killing
            ]
            found = await asyncio.gather(*by_row)
            after_kills = await asyncio.gather(*by_kill)
    return {
        "behaviours": [*Behaviour],
        "episodes": len([*cases()]),
        "templates": len(TEMPLATES),
        "rows": {name: by_behaviour(one) for name, one in zip(rows, found, strict=True)},
        "modes": {name: by_mode(one) for name, one in zip(rows, found, strict=True)},
        "kills": {
            f"{name}, {moment}": by_behaviour(row)
            for (name, moment), row in zip(killing, after_kills, strict=True)
        },
    }


def merged(figures: dict[str, Any], file: Path) -> dict[str, Any]:
    """The figures, with those of the file for what was not measured, in the order of all rows."""
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    rows = [*ROWS, *PEERS]
    kill_rows = [*KILL_ROWS, *(f"{row}, {moment}" for row in PEERS for moment in MOMENTS)]
    orders = {"rows": rows, "modes": rows, "ends": rows, "kills": kill_rows}
    found = {**before, **figures}
    for table, order in orders.items():
        both = {**before.get(table, {}), **figures.get(table, {})}
        found[table] = {name: both[name] for name in order if name in both}
    return found


def main() -> None:
    """Measure, print the tables and write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.effects", description=__doc__)
    parser.add_argument("--rows", nargs="*", default=[*ROWS], choices=[*ROWS])
    parser.add_argument("--kills", nargs="*", default=[*KILLED], choices=[*KILLED])
    parser.add_argument("--keep", action="store_true", help="write the tables of docs/proof.md")
    options = parser.parse_args()
    began = time.monotonic()
    found = asyncio.run(run(options.rows, options.kills))
    file = EFFECTS if options.keep else OUT
    dated = {"date": time.strftime("%Y-%m-%d"), "versions": versions("httpx"), **found}
    figures = merged(dated, file)
    write(file, figures)
    print("".join(effect_tables(figures)))
    print(f"{figures['date']}, {time.monotonic() - began:.0f} s, {figures['versions']}")


if __name__ == "__main__":
    main()
