"""The ledger compared with plain lists, for every order of events: nothing is lost, counted twice
or spent beyond the budget.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import errors
from perdure.errors import TurnBudgetExceededError
from perdure.turn.ledger import Ledger
from perdure.values.budgets import DIMENSIONS, NOTHING, Budget, Spending

from ..support.clerk import AMOUNTS, BUDGETS, NANO, fits, in_its_own_time, named, spending, total

KEYS = ("1.0", "1.1", "2.0", "2.1", "writer-1", "writer-2")


@dataclass
class Books:
    """A reference for the ledger: every bill, their sum, and the open reservations.

    `orders` counts the operations, by their name.
    """

    budget: Budget
    bills: list[Spending] = field(default_factory=list)
    billed: Spending = NOTHING
    open: dict[str, Spending] = field(default_factory=dict)
    orders: Counter[str] = field(default_factory=Counter)

    def bill(self, key: str, amount: Spending) -> Spending:
        """A bill of at most the reservation; without a reservation there is none."""
        if key not in self.open:
            return amount
        reserved = self.open.pop(key)
        amount = Spending(
            **{name: min(getattr(amount, name), getattr(reserved, name)) for name in DIMENSIONS}
        )
        self.bills.append(amount)
        self.billed = total([self.billed, amount])
        return amount

    def has_room(self, amount: Spending) -> bool:
        return fits([self.billed, *self.open.values(), amount], self.budget)


def reserve(ledger: Ledger, books: Books, key: str, amount: Spending) -> Ledger:
    """The ledger must refuse exactly what the reference refuses."""
    if key in books.open:
        with pytest.raises(ValueError, match="has a reservation already"):
            ledger.reserve(key, amount)
        return ledger
    if not books.has_room(amount):
        books.orders["refuse"] += 1
        with pytest.raises(TurnBudgetExceededError):
            ledger.reserve(key, amount)
        return ledger
    books.open[key] = amount
    return ledger.reserve(key, amount)


def add(ledger: Ledger, books: Books, amount: Spending) -> Ledger:
    """Add to dimensions with a limit."""
    more = {name: getattr(amount, name) for name in named(books.budget) if getattr(amount, name)}
    if not more:
        return ledger
    books.budget = Budget.model_validate(
        {name: limit + more.get(name, 0) for name, limit in named(books.budget).items()}
    )
    return ledger.add(Budget.model_validate(more))


def carry_out(ledger: Ledger, books: Books, verb: str, key: str, amount: Spending) -> Ledger:
    """Apply one operation to the ledger and to the reference."""
    books.orders[verb] += 1
    match verb:
        case "reserve":
            return reserve(ledger, books, key, amount)
        case "settle":
            return ledger.settle(key, books.bill(key, amount))
        case "charge":
            books.bill(key, books.open.get(key, NOTHING))
            return ledger.charge(key)
        case "release":
            books.open.pop(key, None)
            return ledger.release(key)
        case _:
            return add(ledger, books, amount)


def check(ledger: Ledger, books: Books) -> None:
    """The ledger agrees with the reference, and is within the budget."""
    held = total(books.open.values())

    assert (ledger.budget, ledger.spent, dict(ledger.held), ledger.overrun) == (
        books.budget,
        total(books.bills),
        books.open,
        False,
    )
    assert ledger.reserved == held
    assert fits([ledger.spent, ledger.reserved], books.budget)
    left = {
        name: limit - getattr(total([*books.bills, held]), name)
        for name, limit in named(books.budget).items()
    }
    assert {name: ledger.remaining(name) for name in DIMENSIONS} == {
        **dict.fromkeys(DIMENSIONS),
        **left,
    }


ORDERS = st.tuples(
    st.sampled_from(["reserve", "reserve", "settle", "charge", "release", "add"]),
    st.sampled_from(KEYS),
    AMOUNTS,
)


@in_its_own_time
@given(BUDGETS, st.lists(ORDERS, max_size=60))
def test_spent_and_reserved_stay_within_the_budget_in_any_order(
    budget: Budget, orders: list[tuple[str, str, Spending]]
) -> None:
    """Concurrent calls, lost attempts, refunds and additions; compared with the reference after
    each operation.
    """
    ledger, books = Ledger(budget), Books(budget)

    for order in orders:
        ledger = carry_out(ledger, books, *order)
        check(ledger, books)


@pytest.mark.slow
def test_ten_thousand_orders_in_a_row_lose_nothing() -> None:
    """A long turn with many concurrent calls: every nano-dollar agrees with the reference."""
    rng = random.Random(4711)
    books = Books(Budget(usd="20", tokens=10**9, model_calls=4000, tool_calls=10**6))
    ledger = Ledger(books.budget)
    keys = [f"{number}.0" for number in range(12)]

    for _ in range(10_000):
        amount = spending(rng.randrange(10**8), rng.randrange(10**6), 1, rng.randrange(3))
        verb = rng.choices(["reserve", "settle", "charge", "release", "add"], [50, 35, 3, 10, 2])[0]
        ledger = carry_out(ledger, books, verb, rng.choice(keys), amount)
        assert fits([ledger.spent, ledger.reserved], books.budget)

    check(ledger, books)
    assert len(books.bills) > 1_000
    assert books.orders["refuse"] > 100


@pytest.mark.accepts("B14")
def test_ten_calls_of_ten_cents_spend_exactly_one_dollar() -> None:
    """An eleventh does not fit, not even for a nano-dollar."""
    ledger = Ledger(Budget(usd="1.00"))
    for number in range(10):
        ledger = ledger.reserve(str(number), Spending(usd=Decimal("0.10"))).settle(
            str(number), Spending(usd=Decimal("0.10"))
        )

    assert ledger == Ledger(Budget(usd="1.00"), spent=Spending(usd=Decimal("1.00")))
    with pytest.raises(TurnBudgetExceededError) as caught:
        ledger.reserve("10", Spending(usd=NANO))
    assert caught.value.context["dimension"] == "usd"


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_each_dimension_is_a_limit_of_its_own(dimension: str) -> None:
    """The rest can be reserved to the last unit, and no unit more; the other dimensions are not
    limited.
    """
    ledger = Ledger(Budget.model_validate({dimension: 3})).reserve(
        "a", Spending.model_validate({dimension: 2})
    )
    plenty = Spending(usd=Decimal(10**6), tokens=10**12, model_calls=10**6, tool_calls=10**6)

    assert ledger.remaining(dimension) == 1
    assert ledger.lacking(plenty.model_copy(update={dimension: 1})) is None
    assert ledger.lacking(plenty.model_copy(update={dimension: 2})) == dimension
    with pytest.raises(TurnBudgetExceededError) as caught:
        ledger.reserve("b", Spending.model_validate({dimension: 2}))
    assert caught.value.context == {
        "dimension": dimension,
        "limit": "3",
        "spent": "0",
        "needed": "2",
    }


@in_its_own_time
@given(st.lists(AMOUNTS))
def test_without_a_budget_everything_fits_and_is_counted(amounts: list[Spending]) -> None:
    """Spending is reported without a budget, too."""
    ledger = Ledger()
    for number, amount in enumerate(amounts):
        ledger = ledger.reserve(str(number), amount).settle(str(number), amount + amount)

    assert ledger == Ledger(spent=total([*amounts, *amounts]))
    assert [ledger.remaining(name) for name in DIMENSIONS] == [None] * 4


def test_what_is_over_is_settled_only_once() -> None:
    """A second answer of the same call, or one that arrives after it was given up, changes
    nothing.
    """
    held = Ledger(Budget(tokens=100)).reserve("a", Spending(tokens=10))
    settled, released = held.settle("a", Spending(tokens=4)), held.release("a")

    assert settled == Ledger(Budget(tokens=100), spent=Spending(tokens=4))
    assert (settled.settle("a", Spending(tokens=4)), settled.charge("a"), settled.release("a")) == (
        settled,
    ) * 3
    assert (released.settle("a", Spending(tokens=4)), released.charge("a")) == (
        Ledger(Budget(tokens=100)),
    ) * 2


@pytest.mark.accepts("B15")
@in_its_own_time
@given(BUDGETS, AMOUNTS, AMOUNTS)
def test_bill_above_its_reservation_is_booked_whole_and_ends_the_spending(
    budget: Budget, reserved: Spending, above: Spending
) -> None:
    """It ends the turn if the dimension is limited, because its bounds are unreliable; otherwise it
    is only counted.
    """
    is_over = any(getattr(above, name) > 0 for name in named(budget))

    ledger = Ledger(budget).hold("a", reserved).hold("b", NOTHING).settle("a", reserved + above)

    assert (ledger.spent, ledger.overrun) == (total([reserved, above]), is_over)
    assert all((ledger.remaining(name) or 0) >= 0 for name in DIMENSIONS)
    if is_over:
        assert ledger.settle("b", NOTHING).overrun
        with pytest.raises(TurnBudgetExceededError, match="billed more"):
            ledger.reserve("c", NOTHING)


def test_nothing_is_added_to_what_has_no_limit() -> None:
    """Neither without a budget nor in a dimension without a limit."""
    with pytest.raises(errors.InvalidRequestError, match="no budget"):
        Ledger().add(Budget(usd="1"))
    with pytest.raises(errors.InvalidRequestError, match="no limit of usd"):
        Ledger(Budget(tokens=5)).add(Budget(usd="1", tokens=1))
