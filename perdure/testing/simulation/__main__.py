"""Simulate turns, sessions and batches: `python -m perdure.testing.simulation --seeds 1000`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from perdure.testing.simulation.choices import AIMS, FEATURES
from perdure.testing.simulation.many import all_of
from perdure.testing.simulation.simulate import KINDS, Kind, Simulation, shrunk, simulate

_SHOWN = 3
"""So many broken simulations are shrunk and told."""


def main(arguments: list[str] | None = None) -> int:
    """Simulate, print what was found, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m perdure.testing.simulation",
        description="Simulate turns, sessions and batches of random agents: all that may happen.",
    )
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=KINDS, help="what to simulate (default: all)"
    )
    parser.add_argument(
        "--focus",
        nargs="+",
        choices=(*FEATURES, *AIMS),
        default=(),
        help="only these features (default: some)",
    )
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--until-broken", action="store_true", help="stop at the first that is")
    parser.add_argument("--story", action="store_true", help="tell the first seed, event by event")
    options = parser.parse_args(arguments)
    if options.story:
        told = [simulate(options.first, kind=kind, focus=options.focus) for kind in options.kinds]
        sys.stdout.writelines(f"{one.story}\n" for one in told)
        return 1 if any(one.broken for one in told) else 0
    seeds = range(options.first, options.first + options.seeds)
    if options.until_broken:
        return _until_broken(seeds, options.kinds, options.focus)
    codes = [_simulated(kind, seeds, options.workers, options.focus) for kind in options.kinds]
    return max(codes)


def _simulated(kind: Kind, seeds: range, workers: int, focus: Sequence[str]) -> int:
    """Simulate many seeds of a kind, print what was found, and return the exit code."""
    began = time.monotonic()
    counts, broken = Counter[str](), list[int]()
    for chunk_counts, chunk_broken in all_of(kind, seeds, workers, focus):
        counts += chunk_counts
        broken += chunk_broken
    took_s = time.monotonic() - began
    sys.stdout.write(_summary(kind, len(seeds), counts, took_s))
    for seed in sorted(broken)[:_SHOWN]:
        sys.stdout.write(_found(kind, seed, focus))
    sys.stdout.write(f"{len(broken)} of {len(seeds)} seeds of a {kind} broke a promise\n")
    return 1 if broken else 0


def _until_broken(seeds: range, kinds: Sequence[Kind], focus: Sequence[str]) -> int:
    """Simulate until a promise is broken, and say which."""
    for seed in seeds:
        for kind in kinds:
            made = simulate(seed, kind=kind, focus=focus)
            if made.broken is not None:
                sys.stdout.write(f"seed {seed} of a {kind} breaks a promise: {made.broken}\n")
                return 1
    return 0


def _summary(kind: Kind, seeds: int, counts: Counter[str], took_s: float) -> str:
    told = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    return f"{seeds} seeds of a {kind} in {took_s:.1f} s: {told}\n"


def _found(kind: Kind, seed: int, focus: Sequence[str]) -> str:
    """Return the story of a seed that broke a promise, and how to repeat it."""
    first = simulate(seed, kind=kind, focus=focus)
    short: Simulation = shrunk(first, focus=focus)
    assert short.broken is not None
    choices = list(short.choices)
    while choices and not choices[-1]:
        choices.pop()
    about = f", focus={tuple(focus)}" if focus else ""
    return (
        f"\nseed {seed} of a {kind}, shrunk from {len(first.choices)} choices to {len(choices)}:\n"
        f"{short.story}\n"
        f'repeat it: simulate({seed}, kind="{kind}", choices={choices}{about})\n\n'
    )


if __name__ == "__main__":
    sys.exit(main())
