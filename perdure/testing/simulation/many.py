"""Simulates many seeds, in several processes.

A process that is spawned finds nothing in `__main__`, so this is a module of its own.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from perdure.temporal.names import TURN
from perdure.testing.simulation.simulate import Kind, simulate

_CHUNK = 25


def all_of(
    kind: Kind, seeds: range, workers: int, focus: Sequence[str] = ()
) -> Iterator[tuple[Counter[str], list[int]]]:
    """Yield the counts of some seeds at a time, and those that broke a promise, in their order."""
    chunks = [(kind, seeds[at : at + _CHUNK], focus) for at in range(0, len(seeds), _CHUNK)]
    if workers <= 1:
        yield from map(_chunk, chunks)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_be_quiet) as pool:
        yield from pool.map(_chunk, chunks)


def _be_quiet() -> None:
    """Let no process warn that the namespace of its simulations is not set up."""
    logging.getLogger("perdure").setLevel(logging.ERROR)


def _chunk(chunk: tuple[Kind, range, Sequence[str]]) -> tuple[Counter[str], list[int]]:
    """Return the counts of these seeds, and those that broke a promise."""
    kind, seeds, focus = chunk
    counts, broken = Counter[str](), list[int]()
    for seed in seeds:
        made = simulate(seed, kind=kind, focus=focus)
        counts += made.counts
        counts["workflow runs"] += len(made.server.runs)
        counts["turns"] += len({run.id for run in made.server.runs if run.begun.type == TURN})
        if made.broken is not None:
            broken.append(seed)
    return counts, broken
