"""Puts load on a server and workers, and prints what they did and used: `make bench-load`.

So many turns are open at once, each with a scripted model that takes its time, and so many sessions
get a message as soon as the last one is answered. Workers run under their supervisor, and so many
of them are killed. The exit code is 1 if anything was lost or done twice.

With `--tables`, all loads of docs/sizing.md run, and their tables are printed; with `--keep` too,
they become those of the page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.load import series, sizing
from benchmarks.load.app import Job
from benchmarks.load.figures import figures
from benchmarks.load.traffic import Load, run
from benchmarks.run import versions, write
from tests.support.docs import sizing as page

T = TypeVar("T")
OUT = Path(__file__).parents[1] / "out" / "load.json"


def arguments(words: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    parser.add_argument("--turns", type=int, default=100, help="turns that are open at once")
    parser.add_argument("--sessions", type=int, default=0, help="sessions with messages")
    parser.add_argument("--minutes", type=float, default=1, help="for how long it is measured")
    parser.add_argument("--kills", type=int, default=0, help="kills of a worker in this time")
    parser.add_argument("--steps", type=int, default=4, help="model calls of a turn")
    parser.add_argument("--tools", type=int, default=1, help="tool calls of a step but the last")
    parser.add_argument("--seconds", type=float, default=0.5, help="the time of a model call")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--tables", action="store_true", help="run all loads of docs/sizing.md")
    parser.add_argument("--only", nargs="*", choices=[*series.LOADS], help="... or some of them")
    parser.add_argument(
        "--idle", type=int, default=series.IDLE_SESSIONS, help="idle sessions; 0 measures none"
    )
    parser.add_argument("--keep", action="store_true", help="... and write its tables")
    options = parser.parse_args(words)
    if options.workers < 1 or options.turns + options.sessions < 1:
        parser.error("a load has a worker, and a turn or a session")
    return options


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Run something to its end; SIGTERM ends it with the processes that it has started."""

    async def run_it() -> T:
        this = asyncio.current_task()
        assert this is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
        return await work

    return asyncio.run(run_it())


def one(options: argparse.Namespace) -> int:
    """Run a load and print its figures; return the exit code."""
    load = Load(
        options.workers,
        options.turns,
        options.sessions,
        60 * options.minutes,
        options.kills,
        Job(options.steps, options.tools, options.seconds),
    )
    found = figures(finished(run(load)))
    print(json.dumps(found) if options.json else page.report(found))
    return int(bool(found["lost"] or found["duplicates"]))


def tables(options: argparse.Namespace) -> int:
    """Run all loads or some, print the tables and write them; return the exit code.

    Loads that do not run keep the figures that the file has.
    """
    file = sizing.MEASURED if options.keep else OUT
    is_all = options.only is None
    before = {} if is_all or not file.exists() else json.loads(file.read_text(encoding="utf-8"))
    about = {"date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(), "versions": versions()}

    def with_others(found: dict[str, Any]) -> dict[str, Any]:
        points = {**before.get("points", {}), **found["points"]}
        return {**about, **found, "points": points, "idle": found["idle"] or before.get("idle")}

    loads = {name: series.LOADS[name] for name in (series.LOADS if is_all else options.only)}
    began = time.monotonic()
    found = finished(
        series.measure(loads, options.idle, lambda found: write(file, with_others(found)))
    )
    print("".join(page.sections(with_others(found))))
    print(f"{time.monotonic() - began:.0f} s")
    if options.keep:
        page.write()
    points = found["points"].values()
    return int(bool(found["failed"] or any(one["lost"] or one["duplicates"] for one in points)))


def main() -> int:
    """Run a load or all of them."""
    options = arguments(sys.argv[1:])
    return tables(options) if options.tables or options.only is not None else one(options)


if __name__ == "__main__":
    sys.exit(main())
