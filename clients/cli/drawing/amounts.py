"""Budgets in words, and as the options of a command."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from perdure import errors
from perdure.text import counted, money
from perdure.values.budgets import Budget, Remaining

UNITS = (
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("min", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
)


def budget_of(limits: Mapping[str, Any]) -> Budget | None:
    """Return the budget of these options; None if none of them is given.

    Raises:
        InvalidRequestError: A limit is not valid.
    """
    given = {name: value for name, value in limits.items() if value is not None}
    try:
        return Budget(**given) if given else None
    except errors.ConfigurationError as error:
        raise errors.InvalidRequestError(error.message) from None


def time_in_words(time: timedelta) -> str:
    """Format a duration in its two largest units, down to seconds: `2 h 5 min`, `12 s`."""
    units = [(name, length) for name, length in UNITS if time >= length][:2]
    parts = []
    for name, length in units:
        parts.append(f"{time // length} {name}")
        time %= length
    return " ".join(part for part in parts if not part.startswith("0 ")) or "0 s"


def in_words(left: Remaining) -> str:
    """Format the rest of a budget, in one line."""
    words = {
        "usd": money(left.usd) if left.usd is not None else "",
        "time": time_in_words(left.time) if left.time is not None else "",
        "tokens": counted(left.tokens, "token") if left.tokens is not None else "",
        "model_calls": counted(left.model_calls, "model call")
        if left.model_calls is not None
        else "",
        "tool_calls": counted(left.tool_calls, "tool call") if left.tool_calls is not None else "",
        "iterations": counted(left.iterations, "iteration") if left.iterations is not None else "",
    }
    return ", ".join(word for word in words.values() if word)
