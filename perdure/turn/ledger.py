"""The ledger: reserve before, settle after. Pure.

What is spent and what is reserved together never exceed the budget, whatever the order of events,
unless a provider bills more than the upper bound that was reserved; then the bill is booked whole,
`overrun` is set, and nothing more can be reserved: the bounds cannot be relied on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

from perdure import errors
from perdure.values.budgets import DIMENSIONS, NOTHING, Budget, Spending, usd


@dataclass(frozen=True, slots=True)
class Ledger:
    """What may be spent, what is spent, and what is reserved, by the key of who reserved it.

    Without a budget everything fits.

    `reserved` is all of `held` together: it is asked for with every call that is made.
    """

    budget: Budget | None = None
    spent: Spending = NOTHING
    held: Mapping[str, Spending] = field(default_factory=dict)
    overrun: bool = False
    reserved: Spending = NOTHING

    def remaining(self, dimension: str) -> Decimal | int | None:
        """What is neither spent nor reserved of one dimension, at least 0.

        None where it has no limit.
        """
        limit = getattr(self.budget, dimension, None)
        if limit is None:
            return None
        left: Decimal | int = (
            limit - getattr(self.spent, dimension) - getattr(self.reserved, dimension)
        )
        return max(left, type(left)(0))

    def lacking(self, amount: Spending) -> str | None:
        """The first dimension in which `amount` does not fit; None where all of it does."""
        for dimension in DIMENSIONS:
            left = self.remaining(dimension)
            if left is not None and getattr(amount, dimension) > left:
                return dimension
        return None

    def reserve(self, key: str, amount: Spending) -> Ledger:
        """Set `amount` aside for `key`.

        Raises:
            TurnBudgetExceededError: It does not fit, or a bill was above its reservation before.
            ValueError: The key has a reservation, which would be lost.
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
        """Set `amount` aside without asking: for what history says was reserved."""
        others = self.release(key)
        return replace(self, held={**self.held, key: amount}, reserved=others.reserved + amount)

    def settle(self, key: str, amount: Spending) -> Ledger:
        """Book what `key` really spent instead of its reservation, also where it is more."""
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
        """Book a reservation as spent: nobody knows what became of it."""
        return self.settle(key, self.held.get(key, NOTHING))

    def release(self, key: str) -> Ledger:
        """Give a reservation back."""
        if key not in self.held:
            return self
        held, reserved = self._others(key)
        return replace(self, held=held, reserved=reserved)

    def _others(self, key: str) -> tuple[Mapping[str, Spending], Spending]:
        """The reservations except that of `key`, and their sum."""
        held = dict(self.held)
        gone = held.pop(key)
        left = self.reserved - gone
        if gone.usd:  # added anew, so that it has no more digits than its parts
            left = left.model_copy(
                update={"usd": sum((amount.usd for amount in held.values()), Decimal(0))}
            )
        return held, left

    def add(self, more: Budget) -> Ledger:
        """Raise the budget.

        Raises:
            InvalidRequestError: `more` names what has no limit.
        """
        if self.budget is None:
            raise errors.InvalidRequestError(
                "the turn has no budget, so nothing can be added to it"
            )
        return replace(self, budget=self.budget.plus(more))


_UNITS = {
    "usd": "${}",
    "tokens": "{} tokens",
    "model_calls": "{} model calls",
    "tool_calls": "{} tool calls",
}


def in_words(dimension: str, amount: object) -> str:
    """An amount with its unit."""
    return _UNITS[dimension].format(f"{amount:f}" if isinstance(amount, Decimal) else amount)


def exceeded(ledger: Ledger, dimension: str, amount: Spending) -> errors.TurnBudgetExceededError:
    """The error that says what did not fit."""
    limit, spent = getattr(ledger.budget, dimension), getattr(ledger.spent, dimension)
    asked, left = getattr(amount, dimension), ledger.remaining(dimension)
    return errors.TurnBudgetExceededError(
        f"the next call may cost {in_words(dimension, asked)} and {in_words(dimension, left)} are"
        f" left of {in_words(dimension, limit)}; raise the budget, or continue from the report's"
        " messages",
        context={
            "dimension": dimension,
            "limit": str(limit),
            "spent": str(spent),
            "needed": str(asked),
        },
    )
