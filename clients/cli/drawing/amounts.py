"""Budgets in words, and as the options of a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure import errors
from perdure.text import counted, money
from perdure.values.budgets import Budget, Remaining
from perdure.values.moments import period_in_words


def budget_of(limits: Mapping[str, Any]) -> Budget | None:
    """Return the budget of these options; None if all of them are None.

    Raises:
        InvalidRequestError: A limit is not valid.
    """
    named = {name: value for name, value in limits.items() if value is not None}
    try:
        return Budget(**named) if named else None
    except errors.ConfigurationError as error:
        raise errors.InvalidRequestError(error.message) from None


def with_budget(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a command with the limits of a budget as one value, `budget`.

    Raises:
        InvalidRequestError: A limit is not valid.
    """
    limits = {name: value for name, value in values.items() if name in Budget.model_fields}
    options = {name: value for name, value in values.items() if name not in limits}
    return {**options, "budget": budget_of(limits)}


def named_budget(limits: Mapping[str, Any]) -> Budget:
    """Return what these options add to a budget.

    Raises:
        InvalidRequestError: A limit is not valid, or there is none.
    """
    more = budget_of(limits)
    if more is None:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in limits)
        raise errors.InvalidRequestError(f"name what to add: {names}")
    return more


def budget_in_words(budget: Budget) -> str:
    """Format a budget, in one line."""
    return in_words(Remaining.model_validate(dict(budget)))


def in_words(remaining: Remaining) -> str:
    """Format the rest of a budget, in one line."""
    counts = (
        (remaining.tokens, "token"),
        (remaining.model_calls, "model call"),
        (remaining.tool_calls, "tool call"),
        (remaining.iterations, "iteration"),
    )
    parts = [counted(count, noun) for count, noun in counts if count is not None]
    if remaining.time is not None:
        parts.insert(0, period_in_words(remaining.time))
    if remaining.usd is not None:
        parts.insert(0, money(remaining.usd))
    return ", ".join(parts)
