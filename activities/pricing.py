"""Prices of models: the worker's own, and those known to the library genai-prices.

A vendor is found only by the name of our provider, never by the name of a model: `vllm:gpt-4` is
not OpenAI's. Unknown prices are None. genai-prices takes a quarter of a second to load, so it is
loaded with the first lookup; `warm` loads it earlier, in a thread of your choice.
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
"""The names of free providers."""

MOST_TOKENS = 1_000_000_000
"""The largest plausible number of reported tokens."""

_VENDORS = {
    "bedrock": "aws",
    "gemini": "google",
    "moonshot": "moonshotai",
    "openai-responses": "openai",
    "vertex": "google",
    "xai": "x-ai",
}
"""Vendor ids of genai-prices, if they differ from our provider names."""


V = TypeVar("V")


class ByModel(Generic[V]):
    """A worker's settings for models, by `provider:model` or `provider:*`.

    `what` names the settings in errors.

    Raises:
        ConfigurationError: A key has neither form.
    """

    def __init__(self, noun: str, named: Mapping[str, V]) -> None:
        wrong = [key for key in named if not all(key.partition(":"))]
        if wrong:
            raise errors.ConfigurationError(
                f"{noun} are named by provider:model or provider:*, not by {wrong[0]!r}"
            )
        self._named = dict(named)

    def get(self, target: str) -> V | None:
        """What is said of `provider:model`; None if nothing is."""
        return self._named.get(target, self._named.get(f"{target.partition(':')[0]}:*"))


class Prices:
    """Looks up the price of a model.

    `named` has the worker's own prices, by `provider:model`, or by `provider:*` for all other
    models of a provider. They take precedence.

    Raises:
        ConfigurationError: A key has neither form.
    """

    def __init__(self, named: Mapping[str, Price]) -> None:
        self._named = ByModel("prices", named)

    def price(self, target: str, extra: Mapping[str, object] | None = None) -> Price | None:
        """Return the most that `provider:model` may charge; None if unknown.

        `extra` holds further fields of the request. Some vendors charge more for `service_tier` or
        `speed`; without `extra` the most expensive variant is used.
        """
        named = self._named_for(target)
        if named is not None:
            return named
        listed = _find(*_parts(target))
        return None if listed is None else dearest(*listed, datetime.now(tz=UTC), extra)

    def cost(
        self, target: str, served: str, usage: Usage, extra: Mapping[str, object] | None = None
    ) -> Decimal | None:
        """Return the cost of a call in US dollars; None if the price is unknown or usage is absurd.

        The price is the price of the model that `served`, or of `target` if `served` is empty or
        unknown. A negative or unreported token count is 0; whether everything was reported is for
        the caller to judge.
        """
        usage = _consistent(usage)
        if any(tokens > MOST_TOKENS for _, tokens in usage):
            return None
        named = self._named_for(target)
        if named is not None:
            return named.of(usage)
        vendor, model = _parts(target)
        listed = (_find(vendor, served) if served else None) or _find(vendor, model)
        return None if listed is None else _charged(*listed, usage, extra or {})

    @property
    def is_loaded(self) -> bool:
        """Whether the prices are loaded."""
        return "genai_prices" in sys.modules

    def warm(self) -> None:
        """Load the prices now, so that the first lookup does not wait for them."""
        listed = _find("openai", "gpt-4o")
        if listed is not None:
            _charged(*listed, Usage(), {})

    def _named_for(self, target: str) -> Price | None:
        vendor, _ = _parts(target)
        return self._named.get(target) or (Price.free() if vendor in FREE else None)


def window_of(target: str) -> int | None:
    """Return the context window of `provider:model` in tokens; None if unknown."""
    listed = _find(*_parts(target))
    return listed[1].context_window if listed else None


def _parts(target: str) -> tuple[str, str]:
    vendor, _, model = target.partition(":")
    return vendor, model


def _find(vendor: str, model: str) -> Found | None:
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    vendor_id = _VENDORS.get(vendor, vendor)
    provider = next((each for each in snapshot.providers if each.id == vendor_id), None)
    if provider is None:
        return None
    try:
        return snapshot.find_provider_model(model, provider, None, None)
    except LookupError:
        return None


def dearest(
    provider: Provider, model: ModelInfo, now: datetime, extra: Mapping[str, object] | None = None
) -> Price | None:
    """Return an upper bound of a model's price from now on.

    It has the highest rate of each kind of token over all tiers, times of day and variants. A day
    of grace covers clocks that differ about the date. None for a model that does not charge for
    both input and output tokens.
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
    """Yield the prices that are valid at `since` or later.

    Prices that a later price has replaced for good are omitted.
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
    """Return whether it can be the price of a chat.

    An empty price may mean free, included in a subscription, or unknown.
    """
    return vars(price).get("input_mtok") is not None and vars(price).get("output_mtok") is not None


def _variants(
    provider: Provider, model: ModelInfo, extra: Mapping[str, object] | None
) -> Iterator[ModelPrice]:
    """Yield the price variants that the request's further fields may select; all if unknown."""
    if not any(model is other for other in provider.models):
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
    """Return the rate that all prices share; None if there are several."""
    first = rates[0]
    if isinstance(first, Decimal) and all(rate == first for rate in rates):
        return usd(first)
    return None


def _context(extra: Mapping[str, object]) -> dict[str, str]:
    return {name: value for name, value in extra.items() if isinstance(value, str)}


def _consistent(usage: Usage) -> Usage:
    """Return usage without negative counts, and with at least the cached tokens as input."""
    counts = {name: max(0, tokens) for name, tokens in usage}
    counts["input_tokens"] = max(
        counts["input_tokens"], counts["cache_read_tokens"] + counts["cache_write_tokens"]
    )
    return Usage(**counts)


def _charged(
    provider: Provider, model: ModelInfo, usage: Usage, extra: Mapping[str, object]
) -> Decimal | None:
    from genai_prices import Usage as Counted

    bill = model.calc_price(Counted(**usage.model_dump()), provider, price_context=_context(extra))
    return usd(bill.total_price) if _is_whole(bill.model_price) else None
