"""Budgets: the limits of a turn's spending, and the spending itself.

Money is `Decimal` in US dollars; tokens are input and output together.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import ROUND_UP, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from perdure import errors, validation
from perdure.base import Wire
from perdure.text import one_line
from perdure.validation import Given, Must

_NANO = Decimal("0.000000001")
"""The unit of money: amounts are multiples of it, so sums are exact."""


def usd(amount: Decimal) -> Decimal:
    """Return an amount as it is booked: whole nano-dollars, rounded up."""
    if not amount:
        return Decimal(0)
    short = amount.quantize(_NANO, rounding=ROUND_UP).normalize()
    exponent = short.as_tuple().exponent
    return short.quantize(Decimal(1)) if isinstance(exponent, int) and exponent > 0 else short


def _exact(value: object) -> object:
    if isinstance(value, float | bool):
        raise ValueError(
            f"give money as text or Decimal, such as '0.50', not {value!r}: a float is not exact"
        )
    if isinstance(value, str) and not _is_number(value):
        raise ValueError(f"{one_line(value, 40)!r} is not a number, such as '0.50'")
    return value


def _is_number(text: str) -> bool:
    try:
        Decimal(text)
    except InvalidOperation:
        return False
    return True


Money = Annotated[
    Decimal,
    BeforeValidator(_exact),
    Field(ge=0, allow_inf_nan=False, max_digits=18, decimal_places=9),
]
Dollars = Decimal | str | int
"""The types in which money may be given."""

Time = Annotated[
    validation.Duration,
    Field(gt=timedelta(0), le=validation.LONGEST),
    Must(validation.TIME),
]
Count = Annotated[int, Field(gt=0, strict=True, le=10**15)]
Iterations = Annotated[int, Field(gt=0, strict=True, le=validation.MOST)]
"""A limit of the steps of one turn, or an addition to it."""


class Budget(Given):
    """The limits of a turn's spending, delegates included. A limit that is not set is unlimited.

    Attributes:
        usd: Money, as `Decimal`, string or int; a float is refused.
        time: Wall clock from the start of the turn, queueing and outages included. Waits for
            people, for the end of a delay and for that of a provider's limit are excluded.
        tokens: Input and output of all model calls together; input counts whole, cached or not.
        model_calls: Requests to models, repeated attempts included.
        tool_calls: Tool calls that were started, repeated attempts included.

    Raises:
        ConfigurationError: A limit is not valid, or no limit is set.
    """

    usd: Annotated[Money, Field(gt=0)] | None = None
    time: Time | None = None
    tokens: Count | None = None
    model_calls: Count | None = None
    tool_calls: Count | None = None

    if TYPE_CHECKING:  # type checkers take the types of the fields for the types of the arguments

        def __init__(
            self,
            *,
            usd: Dollars | None = None,
            time: timedelta | None = None,
            tokens: int | None = None,
            model_calls: int | None = None,
            tool_calls: int | None = None,
        ) -> None: ...

    @model_validator(mode="after")
    def _limits_something(self) -> Budget:
        if all(getattr(self, name) is None for name in Budget.model_fields):
            raise ValueError("name at least one of usd, time, tokens, model_calls, tool_calls")
        return self

    def over(self, other: Budget | None) -> Budget:
        """Return this budget, with the limits of `other` as defaults."""
        if other is None:
            return self
        return Budget(**{**_named(other), **_named(self)})

    def within(self, other: Budget | None) -> Budget:
        """Return the smaller limit of both budgets in every dimension."""
        if other is None:
            return self
        mine, limits = _named(self), _named(other)
        return Budget(
            **{
                **limits,
                **{name: min(value, limits.get(name, value)) for name, value in mine.items()},
            }
        )

    def plus(self, more: Budget) -> Budget:
        """Return the sum of both budgets.

        Raises:
            InvalidRequestError: `more` has a limit that this budget does not have, or the sum is
                larger than a budget can be.
        """
        mine, added = _named(self), _named(more)
        unlimited = sorted(set(added) - set(mine))
        if unlimited:
            raise errors.InvalidRequestError(
                f"there is no limit of {', '.join(unlimited)}, so nothing can be added to it"
            )
        try:
            return Budget(
                **{
                    name: value + added[name] if name in added else value
                    for name, value in mine.items()
                }
            )
        except errors.ConfigurationError:
            raise errors.InvalidRequestError(
                "the budget would be larger than a budget can be; add less"
            ) from None


ABudget = Annotated[Budget, validation.instance("a Budget, such as Budget(usd='0.50')", Budget)]
"""A budget as an argument."""


def _named(budget: Budget) -> dict[str, Any]:
    return {name: value for name, value in budget if value is not None}


class BudgetUpdate(Budget):
    """The input of the update that adds to a budget, to the limit of iterations, or to both.

    `by` is the person who adds it. An earlier release reads the update as a `Budget`, and refuses
    an update that adds iterations only.
    """

    by: str | None = None
    iterations: Iterations | None = None

    @model_validator(mode="after")
    def _limits_something(self) -> BudgetUpdate:
        if self.iterations is None and self.budget is None:
            raise ValueError(
                "name at least one of usd, time, tokens, model_calls, tool_calls, iterations"
            )
        return self

    @property
    def budget(self) -> Budget | None:
        """The addition to the budget; None if only iterations are added."""
        named = {
            name: getattr(self, name)
            for name in Budget.model_fields
            if getattr(self, name) is not None
        }
        return Budget(**named) if named else None


class Remaining(Wire):
    """The rest of a budget when a request is made, at least zero; None without a limit.

    `iterations` is set in the answer of `add_budget` only: the steps that the turn may still make,
    including the current one.
    """

    usd: Decimal | None = None
    time: timedelta | None = None
    tokens: int | None = None
    model_calls: int | None = None
    tool_calls: int | None = None
    iterations: int | None = None

    @field_validator("time")
    @classmethod
    def _nothing_at_least(cls, value: timedelta | None) -> timedelta | None:
        return value and max(value, timedelta())


class Spending(Wire):
    """An amount in every dimension except time."""

    usd: Decimal = Decimal(0)
    tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            usd=self.usd + other.usd,
            tokens=self.tokens + other.tokens,
            model_calls=self.model_calls + other.model_calls,
            tool_calls=self.tool_calls + other.tool_calls,
        )

    def __sub__(self, other: Spending) -> Spending:
        return Spending(
            usd=self.usd - other.usd,
            tokens=self.tokens - other.tokens,
            model_calls=self.model_calls - other.model_calls,
            tool_calls=self.tool_calls - other.tool_calls,
        )


NOTHING = Spending()
ONE_TOOL_CALL = Spending(tool_calls=1)
DIMENSIONS = ("usd", "tokens", "model_calls", "tool_calls")
