"""Prices of models: those that people named, and those that the library genai-prices knows.

A vendor is found by the name of our provider alone and never by the name of a model: `vllm:gpt-4`
is not OpenAI's. What nobody knows is None. genai-prices takes a quarter of a second to load, so it
is loaded with the first question; `warm` does it before that, in a thread of yours.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Generic, TypeVar

from perdure import errors
from perdure.values.budgets import usd
from perdure.values.prices import Price
from perdure.values.reports import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

    Found = tuple[Provider, ModelInfo]

FREE = frozenset({"offline", "scripted"})
"""The names of providers that cost nothing."""

MOST_TOKENS = 1_000_000_000
"""A provider that reports more made it up."""

_VENDORS = {
    "bedrock": "aws",
    "gemini": "google",
    "moonshot": "moonshotai",
    "openai-responses": "openai",
    "vertex": "google",
    "xai": "x-ai",
}
"""What genai-prices calls them, where people say it otherwise."""


V = TypeVar("V")


class ByModel(Generic[V]):
    """What a worker says of models, by `provider:model`, or by `provider:*` for all other models of a provider. `what` is for the error.

    Raises:
        ConfigurationError: A key has neither form.
    """

    def __init__(self, what: str, named: Mapping[str, V]) -> None:
        wrong = [key for key in named if not all(key.partition(":"))]
        if wrong:
            raise errors.ConfigurationError(
                f"{what} are named by provider:model or provider:*, not by {wrong[0]!r}"
            )
        self._named = dict(named)

    def get(self, target: str) -> V | None:
        """What is said of `provider:model`; None if nothing is."""
        return self._named.get(target, self._named.get(f"{target.partition(':')[0]}:*"))


class Prices:
    """Finds the price of a model.

    `named` has the worker's own prices, by `provider:model`, or by `provider:*` for all other
    models of a provider. They come first.

    Raises:
        ConfigurationError: A key has neither form.
    """

    def __init__(self, named: Mapping[str, Price]) -> None:
        self._named = ByModel("prices", named)

    def price(self, target: str, extra: Mapping[str, object] | None = None) -> Price | None:
        """The most that `provider:model` may charge; None where nobody knows.

        `extra` holds the further fields of the request. Some vendors charge more for `service_tier`
        or `speed`; without `extra` the dearest of these counts.
        """
        named = self._named_for(target)
        if named is not None:
            return named
        found = _find(*_parts(target))
        return None if found is None else dearest(*found, datetime.now(tz=UTC), extra)

    def cost(
        self, target: str, served: str, usage: Usage, extra: Mapping[str, object] | None = None
    ) -> Decimal | None:
        """What a call cost, in US dollars, by the model that `served`, or by `target` where `served` is empty or unknown.

        None where nobody knows: the price is unknown, or the usage is absurd. A number below zero
        counts as none, and so does one that was not told; whether all was told is for the caller to
        judge.
        """
        usage = _consistent(usage)
        if any(tokens > MOST_TOKENS for _, tokens in usage):
            return None
        named = self._named_for(target)
        if named is not None:
            return named.of(usage)
        vendor, model = _parts(target)
        found = (_find(vendor, served) if served else None) or _find(vendor, model)
        return None if found is None else _charged(*found, usage, extra or {})

    @property
    def is_loaded(self) -> bool:
        """Whether a question is answered at once."""
        return "genai_prices" in sys.modules

    def warm(self) -> None:
        """Load the prices now, so that the first question does not wait for them."""
        found = _find("openai", "gpt-4o")
        if found is not None:
            _charged(*found, Usage(), {})

    def _named_for(self, target: str) -> Price | None:
        vendor, _ = _parts(target)
        return self._named.get(target) or (Price.free() if vendor in FREE else None)


def window_of(target: str) -> int | None:
    """The context window of `provider:model` in tokens; None where nobody knows."""
    found = _find(*_parts(target))
    return found[1].context_window if found else None


def _parts(target: str) -> tuple[str, str]:
    vendor, _, model = target.partition(":")
    return vendor, model


def _find(vendor: str, model: str) -> Found | None:
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    provider = next(
        (one for one in snapshot.providers if one.id == _VENDORS.get(vendor, vendor)), None
    )
    if provider is None:
        return None
    try:
        return snapshot.find_provider_model(model, provider, None, None)
    except LookupError:
        return None


def dearest(
    provider: Provider, model: ModelInfo, now: datetime, extra: Mapping[str, object] | None = None
) -> Price | None:
    """An upper bound: of every kind of token, tier, time of day and variant of the price, the dearest rate that can hold from now on.

    A day of grace covers clocks that differ about the date. None for a model that does not charge
    by tokens, both input and output.
    """
    from genai_prices import __version__

    standard = tuple(_standard(model, now - timedelta(days=1)))
    if not all(map(_is_whole, standard)):
        return None
    reachable = (*standard, *_variants(provider, model, extra))
    rates = [rate for price in reachable for rate in _rates(price)]
    return Price(
        input=_top(
            rate for key, rate in rates if key.endswith("_mtok") and not key.startswith("output")
        ),
        output=_top(
            rate for key, rate in rates if key.endswith("_mtok") and key.startswith("output")
        ),
        cached=_only([vars(price).get("cache_read_mtok") for price in reachable]),
        request=_top(rate / 1000 for key, rate in rates if key == "requests_kcount"),
        source=f"genai-prices {__version__}",
    )


def _standard(model: ModelInfo, since: datetime) -> Iterator[ModelPrice]:
    """The prices that hold at `since` or may hold later.

    Those that a later one has replaced for good are left out.
    """
    from genai_prices.types import ModelPrice, StartDateConstraint

    if isinstance(model.prices, ModelPrice):
        yield model.prices
        return
    for conditional in reversed(model.prices):
        yield conditional.prices
        rule = conditional.constraint
        if rule is None or (isinstance(rule, StartDateConstraint) and rule.active(since)):
            return


def _is_whole(price: ModelPrice) -> bool:
    """Whether it can be the price of a chat.

    An empty one stands for free, for a subscription and for unknown alike.
    """
    return vars(price).get("input_mtok") is not None and vars(price).get("output_mtok") is not None


def _variants(
    provider: Provider, model: ModelInfo, extra: Mapping[str, object] | None
) -> Iterator[ModelPrice]:
    """The prices that the request may be charged on account of its further fields.

    All where these are not known.
    """
    if not any(model is one for one in provider.models):
        return
    for variant in model.price_variants or ():
        if extra is None or variant.when.items() <= _context(extra).items():
            yield variant.prices


def _rates(price: ModelPrice) -> Iterator[tuple[str, Decimal]]:
    from genai_prices.types import TieredPrices

    for key, value in vars(price).items():
        if isinstance(value, TieredPrices):
            yield from ((key, rate) for rate in (value.base, *(tier.price for tier in value.tiers)))
        elif value is not None:
            yield key, value


def _top(rates: Iterable[Decimal]) -> Decimal:
    return usd(max(rates, default=Decimal(0)))


def _only(rates: list[Decimal | TieredPrices | None]) -> Decimal | None:
    """The one rate that all prices have; None where there are several."""
    first = rates[0]
    return (
        usd(first) if isinstance(first, Decimal) and all(rate == first for rate in rates) else None
    )


def _context(extra: Mapping[str, object]) -> dict[str, str]:
    return {name: value for name, value in extra.items() if isinstance(value, str)}


def _consistent(usage: Usage) -> Usage:
    """Nothing below zero, and the input at least what is said to be cached of it."""
    told = {name: max(0, tokens) for name, tokens in usage}
    told["input_tokens"] = max(
        told["input_tokens"], told["cache_read_tokens"] + told["cache_write_tokens"]
    )
    return Usage(**told)


def _charged(
    provider: Provider, model: ModelInfo, usage: Usage, extra: Mapping[str, object]
) -> Decimal | None:
    from genai_prices import Usage as Counted

    bill = model.calc_price(Counted(**usage.model_dump()), provider, price_context=_context(extra))
    return usd(bill.total_price) if _is_whole(bill.model_price) else None
