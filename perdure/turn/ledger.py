"""The ledger of a turn: reserve before a call, settle after it. Pure.

Spent and reserved amounts together never exceed the budget, whatever the order of events, unless a
provider bills more than the upper bound that was reserved. Then the full bill is booked, `overrun`
is set, and nothing more can be reserved, because the bounds are unreliable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from perdure import errors
from perdure.base import replace
from perdure.text import counted
from perdure.values.budgets import DIMENSIONS, NOTHING, Budget, Spending, usd


@dataclass(frozen=True)
class Ledger:
    """The budget, the amount spent, and the reservations by key.

    Without a budget, everything fits. `reserved` is the sum of `held`, kept because every call
    needs it.
    """

    budget: Budget | None = None
    spent: Spending = NOTHING
    held: Mapping[str, Spending] = field(default_factory=dict)
    overrun: bool = False
    reserved: Spending = NOTHING

    def remaining(self, dimension: str) -> Decimal | int | None:
        """Return the amount of one dimension that is neither spent nor reserved, at least 0.

        None if the dimension has no limit.
        """
        limit = getattr(self.budget, dimension, None)
        if limit is None:
            return None
        remaining: Decimal | int = (
            limit - getattr(self.spent, dimension) - getattr(self.reserved, dimension)
        )
        return max(remaining, type(remaining)(0))

    @property
    def rest(self) -> Budget:
        """What remains of each limit, as a budget."""
        remaining = {name: self.remaining(name) for name in DIMENSIONS}
        return Budget.model_validate(
            {name: amount for name, amount in remaining.items() if amount is not None}
        )

    def lacking(self, amount: Spending) -> str | None:
        """Return the first dimension in which `amount` does not fit; None if it fits."""
        for dimension in DIMENSIONS:
            remaining = self.remaining(dimension)
            if remaining is not None and getattr(amount, dimension) > remaining:
                return dimension
        return None

    def reserve(self, key: str, amount: Spending) -> Ledger:
        """Reserve `amount` for `key`.

        Raises:
            TurnBudgetExceededError: It does not fit, or an earlier bill exceeded its reservation.
            ValueError: The key already has a reservation, which would be lost.
        """
        if key in self.held:
            raise ValueError(f"{key} has a reservation already")
        if self.overrun:
            raise errors.TurnBudgetExceededError(
                "a provider billed more than the upper bound that was reserved, so nothing more is"
                " called",
                context={"overrun": True},
            )
        dimension = self.lacking(amount)
        if dimension is not None:
            raise exceeded(self, dimension, amount)
        return self.hold(key, amount)

    def hold(self, key: str, amount: Spending) -> Ledger:
        """Reserve `amount` without a check, as recorded in history."""
        released = self.release(key)
        return replace(self, held={**self.held, key: amount}, reserved=released.reserved + amount)

    def settle(self, key: str, amount: Spending) -> Ledger:
        """Book the actual spending of `key` instead of its reservation, even if it is more."""
        if key not in self.held:
            return self
        over = self._is_over(amount, self.held[key])
        held, reserved = self._others(key)
        return replace(
            self,
            held=held,
            reserved=reserved,
            spent=self.spent + amount,
            overrun=self.overrun or over,
        )

    def correct(self, booked: Spending, amount: Spending) -> Ledger:
        """Book `amount` instead of `booked`, which was charged before the amount was known."""
        over = self._is_over(amount, booked)
        spent = self.spent - booked + amount
        spent = spent.model_copy(update={"usd": usd(spent.usd)})
        return replace(self, spent=spent, overrun=self.overrun or over)

    def _is_over(self, amount: Spending, reserved: Spending) -> bool:
        limits = (name for name in DIMENSIONS if getattr(self.budget, name, None) is not None)
        return any(getattr(amount, name) > getattr(reserved, name) for name in limits)

    def charge(self, key: str) -> Ledger:
        """Book a whole reservation as spent, as for a call with an unknown outcome."""
        return self.settle(key, self.held.get(key, NOTHING))

    def release(self, key: str) -> Ledger:
        """Release a reservation."""
        if key not in self.held:
            return self
        held, reserved = self._others(key)
        return replace(self, held=held, reserved=reserved)

    def _others(self, key: str) -> tuple[Mapping[str, Spending], Spending]:
        """Return the reservations without the one for `key`, and their sum."""
        held = dict(self.held)
        gone = held.pop(key)
        reserved = self.reserved - gone
        if gone.usd:  # summed again, so that it has no more digits than its parts
            reserved = reserved.model_copy(
                update={"usd": sum((amount.usd for amount in held.values()), Decimal(0))}
            )
        return held, reserved

    def add(self, more: Budget) -> Ledger:
        """Raise the budget.

        Raises:
            InvalidRequestError: A dimension in `more` has no limit, or the sum is too large.
        """
        if self.budget is None:
            raise errors.InvalidRequestError(
                "the turn has no budget, so nothing can be added to it"
            )
        return replace(self, budget=self.budget.plus(more))


@dataclass(frozen=True, slots=True)
class Bill:
    """The charge for an answer.

    `is_told` is set if the provider reported its usage, and `overrun` if that exceeds the
    reservation.
    """

    amount: Spending
    cost: Decimal | None
    is_told: bool
    overrun: bool = False


_UNITS = {"tokens": "token", "model_calls": "model call", "tool_calls": "tool call"}


def in_words(dimension: str, amount: Decimal | int) -> str:
    """Return an exact amount with its unit."""
    return f"${amount:f}" if dimension == "usd" else counted(int(amount), _UNITS[dimension])


def exceeded(ledger: Ledger, dimension: str, amount: Spending) -> errors.TurnBudgetExceededError:
    """Return the error for an amount that does not fit in a dimension."""
    limit, spent = getattr(ledger.budget, dimension), getattr(ledger.spent, dimension)
    needed, remaining = getattr(amount, dimension), ledger.remaining(dimension) or 0
    return errors.TurnBudgetExceededError(
        f"the next call may cost {in_words(dimension, needed)} and {in_words(dimension, remaining)}"
        f" are left of {in_words(dimension, limit)}; raise the budget, or go on after the end"
        " with turn.resume(Budget(…))",
        context={
            "dimension": dimension,
            "limit": str(limit),
            "spent": str(spent),
            "needed": str(needed),
        },
    )
