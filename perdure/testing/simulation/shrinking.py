"""Shrinks a failing simulation: the fewest choices that are not 0 and break the same promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

S = TypeVar("S")

MOST_TRIES = 300


def shrink(
    found: S,
    choices_of: Callable[[S], Sequence[int]],
    tried: Callable[[Sequence[int]], S | None],
    most_tries: int = MOST_TRIES,
) -> S:
    """Return the simplest found variant.

    First the tail of its choices is cut off, then pieces of them become 0, first large pieces.
    `tried` returns the variant with these choices, or None if it does not fail in the same way.
    """
    best, choices, tries = found, list(choices_of(found)), 0

    def attempt(candidate: list[int]) -> bool:
        nonlocal best, choices, tries
        tries += 1
        variant = tried(candidate)
        if variant is None:
            return False
        best, choices = variant, candidate
        return True

    length = len(choices) // 2
    while length and tries < most_tries:
        while len(choices) > length and attempt(choices[:-length]) and tries < most_tries:
            pass
        length //= 2
    size = max(len(choices) // 2, 1)
    while size and tries < most_tries:
        for begin in range(0, len(choices), size):
            piece = choices[begin : begin + size]
            if any(piece) and tries < most_tries:
                attempt([*choices[:begin], *[0] * len(piece), *choices[begin + size :]])
        size //= 2
    return best
