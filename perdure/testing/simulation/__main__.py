"""Simulate many turns: `python -m perdure.testing.simulation --seeds 1000`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from perdure.testing.simulation.simulate import Simulation, shrunk, simulate

_CHUNK = 25
_SHOWN = 3
"""So many broken simulations are shrunk and told."""


def main(arguments: list[str] | None = None) -> int:
    """Simulate, print what was found, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m perdure.testing.simulation",
        description="Simulate turns of random agents with everything that may happen to them.",
    )
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--until-broken", action="store_true", help="stop at the first that is")
    parser.add_argument("--story", action="store_true", help="tell the first seed, event by event")
    options = parser.parse_args(arguments)
    if options.story:
        told = simulate(options.first)
        sys.stdout.write(f"{told.story}\n")
        return 1 if told.broken else 0
    if options.until_broken:
        return _until_broken(range(options.first, options.first + options.seeds))
    began = time.monotonic()
    counts, broken = Counter[str](), list[int]()
    for chunk_counts, chunk_broken in _all(options.first, options.seeds, options.workers):
        counts += chunk_counts
        broken += chunk_broken
    took_s = time.monotonic() - began
    sys.stdout.write(_summary(options.seeds, counts, took_s))
    for seed in sorted(broken)[:_SHOWN]:
        sys.stdout.write(_found(seed))
    sys.stdout.write(f"{len(broken)} of {options.seeds} seeds broke a promise\n")
    return 1 if broken else 0


def _until_broken(seeds: range) -> int:
    """Simulate until a promise is broken, and say which."""
    for seed in seeds:
        made = simulate(seed)
        if made.broken is not None:
            sys.stdout.write(f"seed {seed} breaks a promise: {made.broken}\n")
            return 1
    return 0


def _all(first: int, count: int, workers: int) -> Iterator[tuple[Counter[str], list[int]]]:
    chunks = [
        range(at, min(at + _CHUNK, first + count)) for at in range(first, first + count, _CHUNK)
    ]
    if workers <= 1:
        yield from map(_chunk, chunks)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_chunk, chunks)


def _chunk(seeds: range) -> tuple[Counter[str], list[int]]:
    """Return the counts of these seeds, and those that broke a promise."""
    counts, broken = Counter[str](), list[int]()
    for seed in seeds:
        made = simulate(seed)
        counts += made.counts
        counts["workflow runs"] += len(made.server.runs)
        if made.broken is not None:
            broken.append(seed)
    return counts, broken


def _summary(seeds: int, counts: Counter[str], took_s: float) -> str:
    told = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    return f"{seeds} seeds in {took_s:.1f} s: {told}\n"


def _found(seed: int) -> str:
    """Return the story of a seed that broke a promise, and how to repeat it."""
    first = simulate(seed)
    short: Simulation = shrunk(first)
    assert short.broken is not None
    choices = list(short.choices)
    while choices and not choices[-1]:
        choices.pop()
    return (
        f"\nseed {seed}, shrunk from {len(first.choices)} choices to {len(choices)}:\n"
        f"{short.story}\n"
        f"repeat it: simulate({seed}, choices={choices})\n\n"
    )


if __name__ == "__main__":
    sys.exit(main())
