"""The section of `docs/proof.md` about the seeds that were simulated, with the commits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Seeds:
    """Seeds of a kind that kept every promise.

    Attributes:
        commit: The commit that was simulated.
        kind: What was simulated.
        first: The first seed.
        end: The first seed that was not.
    """

    commit: str
    kind: str
    first: int
    end: int


CLEAN: tuple[Seeds, ...] = ()
_HEAD = """
## Seeds without a violation

`make simulate` prints the seeds and the time. These ranges kept every promise. A seed gives another
simulation when the simulator learns something new, so a range holds for its commit alone.

| commit | seeds | simulations |
|---|---|---|
"""


def section() -> str:
    """Return the section; empty as long as no range is kept."""
    rows = (
        f"| `{one.commit}` | {one.first:,} to {one.end - 1:,} of a {one.kind} |"
        f" {one.end - one.first:,} |\n"
        for one in CLEAN
    )
    return "".join([_HEAD, *rows]) if CLEAN else ""
