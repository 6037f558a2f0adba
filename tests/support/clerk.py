"""A reference implementation of spending, with plain sums and lists, to compare the ledger with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from hypothesis import settings
from hypothesis import strategies as st

from perdure.values.budgets import DIMENSIONS, Budget, Spending

NANO = Decimal("0.000000001")

in_its_own_time = settings(deadline=None)
"""For property tests: a machine that is busy makes no failure."""


def spending(nanos: int, tokens: int, model_calls: int, tool_calls: int) -> Spending:
    """An amount; the money in nano-dollars."""
    return Spending(usd=nanos * NANO, tokens=tokens, model_calls=model_calls, tool_calls=tool_calls)


def total(amounts: Iterable[Spending]) -> Spending:
    """The sum per dimension, without the product's arithmetic."""
    amounts = list(amounts)
    return Spending(
        usd=sum((amount.usd for amount in amounts), Decimal(0)),
        tokens=sum(amount.tokens for amount in amounts),
        model_calls=sum(amount.model_calls for amount in amounts),
        tool_calls=sum(amount.tool_calls for amount in amounts),
    )


def named(budget: Budget) -> Mapping[str, Decimal | int]:
    """The limits of a budget, except time."""
    return {name: getattr(budget, name) for name in DIMENSIONS if getattr(budget, name) is not None}


def fits(amounts: Iterable[Spending], budget: Budget) -> bool:
    """Whether the amounts together are within every limit."""
    together = total(amounts)
    return all(getattr(together, name) <= limit for name, limit in named(budget).items())


def small_budget(limits: tuple[int | None, ...]) -> Budget:
    """A budget of nano-dollars, tokens, model calls and tool calls."""
    return Budget.model_validate(
        {
            name: limit * NANO if name == "usd" else limit
            for name, limit in zip(DIMENSIONS, limits, strict=True)
            if limit
        }
    )


BUDGETS = (
    st.tuples(*(st.none() | st.integers(1, most) for most in (100, 100, 5, 5)))
    .filter(any)
    .map(small_budget)
)
"""Small ones, so that they are spent often; each limits something."""

AMOUNTS = st.builds(spending, *(st.integers(0, most) for most in (40, 40, 2, 2)))
