"""Prices: the upper bounds of the costs of tokens and requests.

A reservation must be at least the bill. A token of text has at least one byte, so the bytes of a
request bound its tokens; there is a fixed allowance for what a provider adds itself (its own words
about tools, an image's tiles). Once a provider has reported the tokens of a transcript, only the
part added since is bounded in this way.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from perdure.text import size
from perdure.validation import Given
from perdure.values.budgets import Dollars, Money, usd
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Message,
    Text,
    ToolMessage,
    canonical,
)
from perdure.values.reports import Usage

MEDIA_TOKENS = 20_000
"""The largest number of tokens of an image, which providers scale down (14,364 measured).

For other media, every byte counts as a token.
"""
REQUEST_TOKENS = 1_500
"""The number of tokens that a provider adds to a request itself.

These are words about tools and markers of roles (616 measured).
"""
MILLION = Decimal(1_000_000)


class Price(Given):
    """The price of a model, in US dollars per million tokens.

    Attributes:
        input: The highest rate of an input token.
        output: The highest rate of an output token, thinking included.
        cached: The rate of input that was read from a prompt cache; the default is `input`.
        request: The price of each request, in US dollars.
        source: The source of the price.
    """

    input: Money
    output: Money
    cached: Money | None = None
    request: Annotated[Money, Field()] = Decimal(0)
    source: str = "named"

    if TYPE_CHECKING:  # type checkers take the types of the fields for the types of the arguments

        def __init__(
            self,
            *,
            input: Dollars,  # noqa: A002 - the name of the field
            output: Dollars,
            cached: Dollars | None = None,
            request: Dollars = 0,
            source: str = "named",
        ) -> None: ...

    @model_validator(mode="after")
    def _cached_is_no_dearer(self) -> Price:
        if self.cached is not None and self.cached > self.input:
            raise ValueError(
                "cached is the rate of what was read from a cache, and cannot be dearer than input"
            )
        return self

    @classmethod
    def free(cls) -> Price:
        """Return the price of a free model, such as a local one."""
        return cls(input=Decimal(0), output=Decimal(0), source="free")

    @property
    def is_free(self) -> bool:
        """Whether every use is free."""
        return not (self.input or self.output or self.request)

    def most(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Return the highest cost of these numbers of tokens."""
        return usd(
            (self.input * input_tokens + self.output * output_tokens) / MILLION + self.request
        )

    def of(self, usage: Usage) -> Decimal:
        """Return the cost of this usage."""
        cached = min(usage.cache_read_tokens, usage.input_tokens)
        rate = self.input if self.cached is None else self.cached
        paid = (
            self.input * (usage.input_tokens - cached)
            + rate * cached
            + self.output * usage.output_tokens
        )
        return usd(paid / MILLION + self.request)

    def output_for(self, money: Decimal, input_tokens: int) -> int | None:
        """Return the number of output tokens that `money` pays for beside `input_tokens`.

        It may be zero or negative; None if output is free.
        """
        remaining = money - self.most(input_tokens, 0)
        if remaining < 0:
            return -1
        if not self.output:
            return None
        return int(remaining * MILLION // self.output)

    def input_for(self, money: Decimal, output_tokens: int) -> int:
        """Return the number of input tokens that `money` pays for beside `output_tokens`.

        It may be zero or negative.
        """
        remaining = money - self.most(0, output_tokens)
        if remaining < 0:
            return -1
        if not self.input:
            return 10**15
        return int(remaining * MILLION // self.input)


def bound(message: Message) -> int:
    """Return the largest number of input tokens that a message can have."""
    if isinstance(message, ToolMessage) and message.media:
        text = message.map(lambda result: result.model_copy(update={"media": ()}))
        return len(canonical(text)) + sum(map(_bound_of, message.media))
    if isinstance(message, AssistantMessage | ToolMessage):
        return len(canonical(message))
    return 50 + sum(_bound_of(part) for part in message.parts)


def _bound_of(part: Text | Media) -> int:
    if isinstance(part, Text):
        return size(part.text) + 10
    if part.media_type.startswith("image/"):
        return MEDIA_TOKENS
    return max(MEDIA_TOKENS, len(part.data or ""))
