"""How thorough the tests by example are: all examples with `PERDURE_EXAMPLES=1`, as
`make test-slow` has it, and a part of them otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

SHARE = float(os.environ.get("PERDURE_EXAMPLES", "0.1"))


def examples(all_of_them: int) -> int:
    """So many examples for a test that is thorough with `all_of_them`."""
    return max(round(all_of_them * SHARE), 10)


def some(items: Sequence[T]) -> Sequence[T]:
    """All of them, or every so-manieth."""
    return items[:: every()]


def every() -> int:
    """One item of so many is tried."""
    return max(round(1 / SHARE), 1)
