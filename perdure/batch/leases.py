"""The money of a batch: what a part is given, and what each of its turns may spend. Pure.

A batch gives a part all that is left, with the places. The part reserves a lease for each turn
before it starts, books what the turn spent when it ends, and gives back the rest when it has no
more tasks. So spent and reserved amounts together never exceed the budget of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_DOWN, Decimal
from typing import Any

from perdure.turn.ledger import Ledger
from perdure.values.budgets import DIMENSIONS, NOTHING, Budget, Spending

_NANO = Decimal("0.000000001")


class ExhaustedError(Exception):
    """Nothing is left for another turn, and nothing will come back."""


def limited(budget: Budget | None) -> tuple[str, ...]:
    """Return the dimensions with a limit, without time."""
    return tuple(name for name in DIMENSIONS if getattr(budget, name, None) is not None)


def ledger_of(budget: Budget | None, granted: Spending, spent: Spending, held: Spending) -> Ledger:
    """Return the ledger of a holder who was given a part of a budget.

    The rest of the budget is reserved for the others.
    """
    amounts = Spending(**{name: getattr(budget, name) for name in limited(budget)})
    ledger = Ledger(budget, spent=spent).hold("others", bounded(amounts - granted))
    return ledger.hold("turns", held)


def left_of(ledger: Ledger) -> Spending:
    """Return what is neither spent nor reserved; nothing in a dimension without a limit."""
    return Spending.model_validate(
        {name: ledger.remaining(name) for name in limited(ledger.budget)}
    )


def share_of(ledger: Ledger, places: int) -> Spending:
    """Return an equal share of what is left for each free place."""
    remaining = left_of(ledger)
    return Spending.model_validate(
        {name: _share(getattr(remaining, name), places) for name in limited(ledger.budget)}
    )


def even_share(share: Spending, ledger: Ledger, held: Spending, places: int) -> Spending:
    """Return a share that is no larger than an equal one of all that is not spent.

    After an addition to the budget, the turns that run hold less than their share: without this,
    the first place that is free would take all that was added. `places` are all, free or not.
    """
    unspent = left_of(ledger) + held
    return Spending.model_validate(
        {
            name: min(getattr(share, name), _share(getattr(unspent, name), places))
            for name in limited(ledger.budget)
        }
    )


def wanted(ledger: Ledger, share: Spending, peak: Spending, own_budget: Budget | None) -> Spending:
    """Return the lease that the next turn should have.

    It has its own limit if its task sets a limit, otherwise its share, or what the costliest turn
    spent if that is more.
    """
    amounts = {}
    for name in limited(ledger.budget):
        limit = getattr(own_budget, name, None)
        amounts[name] = max(getattr(share, name), getattr(peak, name)) if limit is None else limit
    return Spending(**amounts)


def lease(ledger: Ledger, needed: Spending, *, is_last: bool) -> Spending | None:
    """Return the lease of the next turn; None if it waits until money comes back.

    If less than `needed` is left, the turn waits for others; without others (`is_last`) it gets the
    rest.

    Raises:
        ExhaustedError: Nothing is left, and there are no others.
    """
    remaining = left_of(ledger)
    if is_last and not has_some(remaining, ledger.budget):
        raise ExhaustedError
    if not is_last and not (covers(remaining, needed) and has_some(remaining, ledger.budget)):
        return None
    return Spending(
        **{name: min(getattr(needed, name), getattr(remaining, name)) for name in DIMENSIONS}
    )


def covers(available: Spending, required: Spending) -> bool:
    """Return whether enough is left in every dimension."""
    return all(getattr(available, name) >= getattr(required, name) for name in DIMENSIONS)


def has_some(amounts: Spending, budget: Budget | None) -> bool:
    """Return whether something is left in every dimension with a limit."""
    return all(getattr(amounts, name) > 0 for name in limited(budget))


def _share(amount: Decimal | int, places: int) -> Decimal | int:
    if isinstance(amount, Decimal):
        return (amount / places).quantize(_NANO, rounding=ROUND_DOWN) or amount
    return max(amount // places, min(amount, 1))


def needed(lease: Spending, dimension: object) -> Spending:
    """Return what a turn needs at least that its lease did not suffice for: twice as much."""
    names = (dimension,) if dimension in DIMENSIONS else DIMENSIONS
    return Spending(**{str(name): getattr(lease, str(name)) * 2 for name in names})


def has_any(amount: Spending, budget: Budget | None) -> bool:
    """Return whether there is something in a dimension with a limit."""
    return any(getattr(amount, name) > 0 for name in limited(budget))


def largest(*amounts: Spending) -> Spending:
    """Return the largest amount in each dimension."""
    return Spending(
        **{name: max(getattr(amount, name) for amount in amounts) for name in DIMENSIONS}
    )


def bounded(amount: Spending) -> Spending:
    """Return an amount with zero for dimensions that are below it."""
    return largest(amount, NOTHING)


def total(amounts: Iterable[Spending]) -> Spending:
    """Return the sum of amounts."""
    return sum(amounts, NOTHING)


def budget_for(lease: Spending, limits: Budget | None, own_budget: Budget | None) -> dict[str, Any]:
    """Return the limits of a turn without its time: its own limits, and its lease."""
    mine = {name: value for name, value in own_budget or () if value is not None and name != "time"}
    return {**mine, **{name: getattr(lease, name) for name in limited(limits)}}
