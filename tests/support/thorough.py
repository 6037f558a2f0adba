"""How many examples the property-based tests try: all with `PERDURE_EXAMPLES=1`, as in `make
test-slow`, and a part of them otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

SHARE = float(os.environ.get("PERDURE_EXAMPLES", "0.1"))


def examples(all_of_them: int) -> int:
    """The number of examples for a test that has `all_of_them` in thorough runs."""
    return max(round(all_of_them * SHARE), 10)


def some(items: Sequence[T]) -> Sequence[T]:
    """All of the items in thorough runs, otherwise every nth."""
    return items[:: every()]


def every() -> int:
    """One in so many items is tried."""
    return max(round(1 / SHARE), 1)
