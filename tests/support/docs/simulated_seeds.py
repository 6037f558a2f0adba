"""The section of `docs/proof.md` about the seeds that were simulated, with the commits."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .measured import FOLDER

KEPT = FOLDER / "simulated.json"
"""The ranges that are kept, of one commit after the other."""


@dataclass(frozen=True)
class Seeds:
    """Seeds of a kind that kept every promise.

    Attributes:
        commit: The commit that was simulated.
        kind: What was simulated.
        first: The first seed.
        end: The first seed that was not.
        turns: The turns that these seeds had.
        runs: The runs of workflows of all kinds.
        cpu_s: The seconds of CPU that they took.
    """

    commit: str
    kind: str
    first: int
    end: int
    turns: int
    runs: int
    cpu_s: int


CLEAN: tuple[Seeds, ...] = tuple(Seeds(**one) for one in json.loads(KEPT.read_text()))
_HEAD = """
## Seeds without a violation

`make simulate SEEDS=1000 ARGS="--first 20000000"` prints how many turns its seeds had, and how long
they took. These ranges kept every promise: TURNS turns, in HOURS hours of one core. A seed gives
another simulation when the product or the simulator changes, so a range holds for its commit alone.

| commit | seeds | simulations | turns | runs of workflows | turns a second |
|---|---|---|---|---|---|
"""


def section() -> str:
    """Return the section; empty as long as no range is kept."""
    if not CLEAN:
        return ""
    turns, cpu_s = sum(one.turns for one in CLEAN), sum(one.cpu_s for one in CLEAN)
    head = _HEAD.replace("TURNS", f"{turns:,}").replace("HOURS", f"{cpu_s / 3600:.1f}")
    return "".join([head, *map(_row, CLEAN)])


def _row(one: Seeds) -> str:
    return (
        f"| `{one.commit}` | {one.first:,} to {one.end - 1:,} of a {one.kind} |"
        f" {one.end - one.first:,} | {one.turns:,} | {one.runs:,} | {one.turns / one.cpu_s:.0f} |\n"
    )
