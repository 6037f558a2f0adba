"""Budgets: invalid limits are refused when they are built, and valid ones add up exactly."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from perdure import errors
from perdure.values.budgets import DIMENSIONS, NOTHING, Budget, Spending, usd

from ..support.clerk import NANO, in_its_own_time

AMOUNTS = st.integers(0, 10**17).map(lambda nanos: nanos * NANO)
COUNTS = st.integers(1, 10**12)
SPENDINGS = st.builds(Spending, usd=AMOUNTS, tokens=COUNTS, model_calls=COUNTS, tool_calls=COUNTS)
LIMITS = {
    "usd": st.integers(1, 10**17).map(lambda nanos: nanos * NANO),
    "time": st.timedeltas(timedelta(microseconds=1), timedelta(days=365)),
    "tokens": COUNTS,
    "model_calls": COUNTS,
    "tool_calls": COUNTS,
}
NAMED = st.dictionaries(st.sampled_from(sorted(LIMITS)), st.none(), min_size=1).flatmap(
    lambda names: st.fixed_dictionaries({name: LIMITS[name] for name in names})
)
BUDGETS = NAMED.map(Budget.model_validate)


def named(budget: Budget) -> dict[str, object]:
    """The limits of a budget."""
    return budget.model_dump(exclude_none=True)


@pytest.mark.accepts("B14")
@pytest.mark.parametrize("money", [0.5, 1.0, float("nan"), float("inf"), True, False])
def test_money_that_is_a_float_or_no_number_is_refused(money: object) -> None:
    """0.1 is not a tenth of a dollar, and True is not one dollar."""
    with pytest.raises(ValidationError, match="not exact"):
        Budget.model_validate({"usd": money})


@pytest.mark.parametrize("text", ['{"usd": 0.5}', '{"usd": 1e2}', '{"usd": NaN}', '{"usd": true}'])
def test_float_in_json_is_refused_too(text: str) -> None:
    """In other languages and on the command line, too: money is a string there."""
    with pytest.raises(ValidationError, match="not exact"):
        Budget.model_validate_json(text)


@pytest.mark.parametrize(
    "limit",
    [
        *[
            {"usd": money}
            for money in (
                "0",
                "-0",
                "-0.01",
                -1,
                "NaN",
                "sNaN",
                "Infinity",
                "1e400",
                "0x10",
                "",
                "1 $",
                "0.0000000001",
                "1e9",
                10**9,
            )
        ],
        *[{"usd": Decimal(money)} for money in ("NaN", "Infinity", "-1", "0", "1E-10", "1E+30")],
        *[
            {"time": time}
            for time in (
                0,
                -1,
                float("nan"),
                float("inf"),
                1e300,
                True,
                "soon",
                90,
                1.5,
                timedelta(0),
                timedelta(days=-1),
                timedelta(days=4000),
            )
        ],
        *[
            {name: count}
            for name in DIMENSIONS[1:]
            for count in (0, -1, True, 1.0, "5", float("nan"), 10**16, 10**400)
        ],
        *[{"euros": 5}, {"usd": None}, {}],
    ],
    ids=lambda limit: (
        ", ".join(f"{name}={str(value)[:20]!r}" for name, value in limit.items()) or "nothing"
    ),
)
def test_limit_that_cannot_be_kept_is_refused(limit: dict[str, object]) -> None:
    """Zero, negative, not a number, absurdly large, smaller than a nano-dollar, unknown, or no
    limit at all.
    """
    with pytest.raises(ValidationError):
        Budget.model_validate(limit)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"usd": "0.50"}, {"usd": Decimal("0.5")}),
        ({"usd": 2}, {"usd": Decimal(2)}),
        ({"usd": Decimal("0.000000001")}, {"usd": NANO}),
        ({"usd": "999999999"}, {"usd": Decimal(999_999_999)}),
        ({"time": timedelta(minutes=10)}, {"time": timedelta(seconds=600)}),
        ({"time": "PT10M"}, {"time": timedelta(seconds=600)}),
        (
            {"tokens": 1, "model_calls": 10**15, "tool_calls": 3},
            {"tokens": 1, "model_calls": 10**15, "tool_calls": 3},
        ),
    ],
)
def test_limit_is_kept_as_it_was_meant(given: dict[str, object], kept: dict[str, object]) -> None:
    """Money as text, int or Decimal; time as a duration or in ISO 8601."""
    assert named(Budget.model_validate(given)) == kept


@in_its_own_time
@given(BUDGETS)
def test_budget_is_the_same_after_json(budget: Budget) -> None:
    """It crosses Temporal to the last nano-dollar and microsecond."""
    assert Budget.model_validate_json(budget.model_dump_json()) == budget


@in_its_own_time
@given(BUDGETS, BUDGETS)
def test_limits_that_are_named_win_and_the_others_are_taken(mine: Budget, other: Budget) -> None:
    """A turn's budget overrides its agent's, limit by limit."""
    assert named(mine.over(other)) == {**named(other), **named(mine)}
    assert mine.over(None) == mine


@in_its_own_time
@given(BUDGETS, st.data())
def test_more_of_what_is_limited_is_added_exactly(budget: Budget, data: st.DataObject) -> None:
    """Each limit in the addition grows by its amount, the others stay."""
    names = data.draw(st.sets(st.sampled_from(sorted(named(budget))), min_size=1))
    more = {name: data.draw(LIMITS[name]) for name in sorted(names)}

    grown = budget.plus(Budget.model_validate(more))

    assert named(grown) == {
        name: value + more[name] if name in more else value  # type: ignore[operator]
        for name, value in named(budget).items()
    }


def test_more_of_what_is_not_limited_is_refused() -> None:
    """It would introduce a limit."""
    with pytest.raises(errors.InvalidRequestError, match=r"^there is no limit of tokens"):
        Budget(usd="1").plus(Budget(usd="1", tokens=5, tool_calls=5))


@pytest.mark.parametrize(
    "much", [{"usd": "999999999"}, {"tokens": 10**15}, {"time": timedelta(days=3650)}]
)
def test_more_than_can_be_kept_is_a_typed_error(much: dict[str, object]) -> None:
    """A running turn must survive any addition, so this is not a ValidationError."""
    most = Budget.model_validate(much)

    with pytest.raises(errors.InvalidRequestError):
        most.plus(most)


@in_its_own_time
@given(st.decimals(0, 10**9, allow_nan=False, allow_infinity=False, places=15))
def test_amount_is_booked_as_the_next_whole_nano_dollar(amount: Decimal) -> None:
    """Rounded up, never down, by less than one; and unchanged when it is rounded again."""
    booked = usd(amount)

    assert amount <= booked < amount + NANO
    assert booked % NANO == 0
    assert usd(booked) == booked


@in_its_own_time
@given(st.lists(SPENDINGS), SPENDINGS)
def test_spendings_add_up_in_any_order_and_can_be_taken_back(
    spendings: list[Spending], one: Spending
) -> None:
    """Each dimension separately, exactly."""
    total = sum(spendings, NOTHING)

    assert total == sum(reversed(spendings), NOTHING)
    assert total == Spending(
        **{
            name: sum((getattr(spending, name) for spending in spendings), getattr(NOTHING, name))
            for name in DIMENSIONS
        }
    )
    assert total + one - one == total
