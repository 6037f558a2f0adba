"""The cost of a delegation, compared with child workflows started by hand, interleaved on one
embedded server: `make -C benchmarks trees`.

There are three kinds of tree: one child at a time that answers at once, one at a time with three
steps, and five at once. Both sides make the same number of model calls. `ms_per_delegation`
includes everything, also the model calls of parent and child. It is compared twice: with a
hand-written parent of hand-written loops, and with a hand-written parent of Perdure's turns, which
leaves the cost of delegation itself. The bytes for each additional child, between 10, 50 and 100 of
them, show whether a parent's history grows linearly.

`python -m benchmarks.delegations ROUNDS` measures this number of rounds; the results are in
`benchmarks/out/trees.json`.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import measures
from benchmarks.bench import Bench, Kind, opened
from benchmarks.measures import Figures, converted, medians, quiet, ratio, size
from benchmarks.run import versions, write

OUT = Path(__file__).parent / "out" / "trees.json"
TIMES = 20
BYTES = 1_000
CHILDREN = (10, 50, 100)
AT_ONCE = 5
TREES = {"answers at once": (0, 1), "takes three steps": (3, 1), "five at once": (0, AT_ONCE)}
"""Steps of each child, and how many of them at once."""


def handwritten(steps: int, at_once: int) -> Kind:
    """The hand-written tree."""
    return Kind(
        "handwritten", "benchmarks.handwritten_tree", "HandwrittenParent", _task(steps, at_once)
    )


def bare(steps: int, at_once: int) -> Kind:
    """Turns as plain child workflows, without leases, guards or lists."""
    return Kind(
        "bare turns", "benchmarks.tree_with_perdure", "ParentOfTurns", _task(steps, at_once)
    )


def perdure(steps: int, at_once: int) -> Kind:
    """Perdure's tree."""
    task = _task(steps, at_once)
    return Kind(
        "perdure",
        "benchmarks.tree_with_perdure",
        "AgentTurn",
        lambda start: {"agent": "parent", "task": task(start)},
    )


async def alone(bench: Bench, rounds: int) -> dict[str, Any]:
    """One tree at a time: milliseconds, and CPU milliseconds of the worker, per delegation."""
    took, used = await _measured(bench, rounds)
    figures: dict[str, Any] = {}
    for name, (_, at_once) in TREES.items():
        in_all = TIMES * at_once
        kept = quiet(took[name])
        ms, cpu = (
            converted(one[name], kept, lambda s, n=in_all: 1000 * s / n)  # type: ignore[misc]
            for one in (took, used)
        )
        figures[f"{name}: ms_per_delegation"] = medians(ms)
        for other in ("handwritten", "bare turns"):
            figures[f"{name}: ms_per_delegation over {other}"] = ratio(ms, "perdure", other)
            figures[f"{name}: worker_cpu over {other}"] = ratio(cpu, "perdure", other)
    return figures


async def weight(bench: Bench) -> dict[str, Any]:
    """The history bytes of a parent by the number of children, five at once."""
    figures: dict[str, Any] = {}
    for kind in (handwritten(0, AT_ONCE), perdure(0, AT_ONCE)):
        sizes = {
            children: size((await bench.turn(kind, children // AT_ONCE, BYTES))[1])
            for children in CHILDREN
        }
        figures[f"parent_history_bytes: {kind.name}"] = sizes
        figures[f"bytes_of_each_more_child: {kind.name}"] = {
            f"{few} to {many}": round((sizes[many] - sizes[few]) / (many - few))
            for few, many in itertools.pairwise(CHILDREN)
        }
    return figures


async def _measured(bench: Bench, rounds: int) -> tuple[dict[str, Figures], dict[str, Figures]]:
    """Seconds, and CPU seconds of the workers, by tree and kind."""
    took: dict[str, Figures] = {
        name: {"handwritten": [], "bare turns": [], "perdure": []} for name in TREES
    }
    used: dict[str, Figures] = {
        name: {"handwritten": [], "bare turns": [], "perdure": []} for name in TREES
    }
    for _ in range(rounds):
        for name, (steps, at_once) in TREES.items():
            for kind in (
                handwritten(steps, at_once),
                bare(steps, at_once),
                perdure(steps, at_once),
            ):
                worker = bench.workers[kind.module]
                before = await worker.cpu()
                seconds, _history = await bench.turn(kind, TIMES, BYTES)
                used[name][kind.name].append(await worker.cpu() - before)
                took[name][kind.name].append(seconds)
    return took, used


def _task(steps: int, at_once: int) -> Callable[[str], str]:
    return lambda task: f"{task} {steps} {at_once}"


async def main(rounds: int) -> None:
    """Measure everything and write the results."""
    figures: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "versions": versions()}
    async with opened([handwritten(0, 1), bare(0, 1), perdure(0, 1)]) as bench:
        figures |= await alone(bench, rounds)
        figures |= await weight(bench)
    write(OUT, figures)
    for name, figure in figures.items():
        print(f"{name:55} {figure}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else measures.ROUNDS))
