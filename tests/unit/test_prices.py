"""Prices: a model's upper bound is never below its cost, and an unknown price is not guessed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from genai_prices import types as genai
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from perdure import errors
from perdure.activities import pricing
from perdure.activities.pricing import MOST_TOKENS, Prices
from perdure.values.prices import Price
from perdure.values.reports import Usage

from ..support.clerk import NANO, in_its_own_time
from ..support.thorough import examples

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
PER_MILLION = 1_000_000
KNOWN = Prices({})

RATES = st.integers(0, 10**12).map(lambda nanos: nanos * NANO)
TOKENS = st.integers(0, 10**7)
MONEY = st.integers(0, 10**12).map(lambda nanos: nanos * NANO)


@st.composite
def some_prices(draw: st.DrawFn) -> Price:
    """A price whose cached input is not more expensive than the rest."""
    rate = draw(RATES)
    return Price(
        input=rate,
        output=draw(RATES),
        cached=draw(st.none() | RATES.map(lambda cached: min(cached, rate))),
        request=draw(MONEY),
    )


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """Consistent token counts."""
    read, written, rest, output = (draw(TOKENS) for _ in range(4))
    return Usage(
        input_tokens=read + written + rest,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


@in_its_own_time
@given(some_prices(), usages())
def test_upper_bound_is_at_least_what_the_same_tokens_cost(price: Price, usage: Usage) -> None:
    """For any share of cached input."""
    assert price.most(usage.input_tokens, usage.output_tokens) >= price.of(usage)


@in_its_own_time
@given(some_prices(), MONEY, TOKENS)
def test_output_that_money_pays_for_is_all_of_it_and_not_a_token_more(
    price: Price, money: Decimal, tokens: int
) -> None:
    """With this number of input tokens; None if output is free and the input is paid."""
    paid = price.output_for(money, tokens)

    if price.most(tokens, 0) > money:
        assert paid is not None
        assert paid < 0
    elif paid is None:
        assert price.output == 0
    else:
        assert price.most(tokens, paid) <= money < price.most(tokens, paid + 1) + NANO


@in_its_own_time
@given(some_prices(), MONEY, TOKENS)
def test_input_that_money_pays_for_is_all_of_it_and_not_a_token_more(
    price: Price, money: Decimal, tokens: int
) -> None:
    """With this number of output tokens; unlimited if input is free and the output is paid."""
    paid = price.input_for(money, tokens)

    if price.most(0, tokens) > money:
        assert paid < 0
    elif not price.input:
        assert paid == 10**15
    else:
        assert price.most(paid, tokens) <= money < price.most(paid + 1, tokens) + NANO


@pytest.mark.parametrize("rate", [0.5, True, "NaN", "-1", "1e9"])
def test_rate_that_is_no_price_is_refused(rate: object) -> None:
    """Money is exact here, too."""
    with pytest.raises(ValidationError):
        Price.model_validate({"input": rate, "output": "1"})


def test_price_is_the_same_after_json() -> None:
    """It is part of an agent's definition in history."""
    price = Price(input="0.15", output="0.60", cached="0.075", request="0.000000001")

    assert Price.model_validate_json(price.model_dump_json()) == price


def test_named_price_goes_before_what_anybody_else_says() -> None:
    """First the model's own, then that of its provider, then the library's."""
    one, rest, free = Price(input=1, output=2), Price(input=3, output=4), Price(input=5, output=6)
    named = Prices(
        {"openai:gpt-4o": one, "openai:*": rest, "scripted:*": free, "vllm:qwen:3b": one}
    )

    assert [
        named.price(target)
        for target in ("openai:gpt-4o", "openai:gpt-4o-mini", "scripted:a", "vllm:qwen:3b")
    ] == [one, rest, free, one]
    assert named.price("vllm:qwen") is None
    assert (
        named.cost(
            "openai:gpt-4o",
            "gpt-4o-2024-08-06",
            Usage(input_tokens=PER_MILLION, output_tokens=PER_MILLION),
        )
        == 3
    )


@pytest.mark.parametrize("key", ["gpt-4o", "", ":", ":gpt-4o", "openai:"])
def test_key_that_no_model_can_have_is_refused(key: str) -> None:
    """Otherwise only the bill would show that a price is never used."""
    with pytest.raises(errors.ConfigurationError, match="provider:model"):
        Prices({key: Price.free()})


def test_own_models_are_free() -> None:
    """The librarian and scripted models cost nothing, whatever their usage."""
    usage = Usage(input_tokens=10**6, output_tokens=10**6)

    assert [KNOWN.price(target) for target in ("offline:librarian", "scripted:writer")] == [
        Price.free()
    ] * 2
    assert [
        KNOWN.cost(target, "scripted", usage) for target in ("offline:librarian", "scripted:writer")
    ] == [0, 0]


@pytest.mark.parametrize(
    "target",
    [
        *[
            "vllm:gpt-4o",
            "ollama:llama3.2",
            "my-openai:gpt-4o",
            "OPENAI:gpt-4o",
            "litellm:openai/gpt-4o",
            ":gpt-4o",
            "gpt-4o",
            "",
        ],
        *[
            "openai:gpt-99",
            "openai:",
            "openai:ft:gpt-4o:mine",
            "anthropic:gpt-4o",
            "openai:text-embedding-3-small",
            "openai:whisper-1",
        ],
        *["openai:" + "x" * 10_000, "openrouter:auto", "openrouter:deepseek/deepseek-r1:free"],
    ],
    ids=lambda target: target[:30] or "empty",
)
def test_price_that_nobody_knows_is_not_guessed(target: str) -> None:
    """Neither from a model's name at another provider, nor for a model that is not priced by
    tokens.
    """
    assert KNOWN.price(target) is None
    assert KNOWN.cost(target, "", Usage(input_tokens=10, output_tokens=10)) is None


@pytest.mark.parametrize(
    ("target", "like"),
    [
        ("xai:grok-4.20", "x-ai:grok-4.20"),
        ("gemini:gemini-2.5-flash", "google:gemini-2.5-flash"),
        ("vertex:gemini-2.5-flash", "google:gemini-2.5-flash"),
        ("openai-responses:gpt-5-mini", "openai:gpt-5-mini"),
    ],
)
def test_vendor_is_known_by_the_name_that_people_use(target: str, like: str) -> None:
    """The library's name is `x-ai` for xai, and one vendor may have two APIs."""
    usage = Usage(input_tokens=PER_MILLION, output_tokens=PER_MILLION)

    assert KNOWN.price(target) == KNOWN.price(like)
    assert KNOWN.price(target) is not None
    assert KNOWN.cost(target, "", usage) == KNOWN.cost(like, "", usage)


def test_known_price_says_where_it_is_from() -> None:
    """With the release, because its data changes."""
    price = KNOWN.price("openai:gpt-4o")

    assert price is not None
    assert price.source.startswith("genai-prices 0.")
    assert price.input >= Decimal("2.5")
    assert price.output >= Decimal(10)


def mtok(input_rate: str, output_rate: str, **more: str | genai.TieredPrices) -> genai.ModelPrice:
    """Prices per million tokens."""
    rates = {"input_mtok": input_rate, "output_mtok": output_rate, **more}
    return genai.ModelPrice(
        **{name: Decimal(rate) if isinstance(rate, str) else rate for name, rate in rates.items()}
    )


def tiers(base: str, start: int, price: str) -> genai.TieredPrices:
    return genai.TieredPrices(
        base=Decimal(base), tiers=[genai.Tier(start=start, price=Decimal(price))]
    )


def dearest(
    listed: genai.ModelPrice | Sequence[genai.ConditionalPrice],
    variants: Sequence[genai.PriceVariant] = (),
    extra: dict[str, object] | None = None,
) -> Price | None:
    """The upper bound for a vendor with this one model."""
    model = genai.ModelInfo(
        id="m",
        match=genai.ClauseEquals("m"),
        prices=listed if isinstance(listed, genai.ModelPrice) else list(listed),
        price_variants=list(variants),
    )
    return pricing.dearest(genai.Provider("v", "V", "", models=[model]), model, NOW, extra)


def rates(price: Price | None) -> tuple[str, ...]:
    """Input, output, cached input and the request, as text."""
    assert price is not None
    return tuple(
        "none" if rate is None else f"{rate:f}"
        for rate in (price.input, price.output, price.cached, price.request)
    )


def since(day: date, price: genai.ModelPrice) -> genai.ConditionalPrice:
    return genai.ConditionalPrice(genai.StartDateConstraint(day), prices=price)


def daily(start: int, end: int, price: genai.ModelPrice) -> genai.ConditionalPrice:
    return genai.ConditionalPrice(
        genai.TimeOfDateConstraint(time(start, tzinfo=UTC), time(end, tzinfo=UTC)), prices=price
    )


ALWAYS = genai.ConditionalPrice(prices=mtok("1", "2"))


@pytest.mark.parametrize(
    ("price", "expected"),
    [
        (mtok("1", "2"), ("1", "2", "none", "0")),
        (mtok("1", "2", cache_read_mtok="0.1"), ("1", "2", "0.1", "0")),
        (mtok("1", "2", cache_write_mtok="1.25", cache_write_1h_mtok="2"), ("2", "2", "none", "0")),
        (mtok("1", "2", cache_read_mtok=tiers("0.1", 1000, "3")), ("3", "2", "none", "0")),
        (mtok("1", "2", input_audio_mtok="7", output_audio_mtok="8"), ("7", "8", "none", "0")),
        (mtok("1", "2", output_reasoning_mtok="3"), ("1", "3", "none", "0")),
        (mtok("1", "2", requests_kcount="5"), ("1", "2", "none", "0.005")),
        (mtok("1", "2", web_searches_kcount="10"), ("1", "2", "none", "0")),
        (mtok("0.0000000001", "2"), ("0.000000001", "2", "none", "0")),
    ],
    ids=[
        "plain",
        "cache read",
        "cache written",
        "tiers",
        "sound",
        "thinking",
        "requests",
        "searches",
        "less than a nano-dollar",
    ],
)
def test_dearest_rate_of_every_kind_of_token_counts(
    price: genai.ModelPrice, expected: tuple[str, ...]
) -> None:
    """The cached share and the tier of a long request are not known in advance; the vendor's own
    tools are left out.
    """
    assert rates(dearest(price)) == expected


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([ALWAYS, since(date(2025, 1, 1), mtok("3", "1"))], ("3", "1")),
        (
            [since(date(2020, 1, 1), mtok("9", "9")), since(date(2026, 11, 20), mtok("3", "1"))],
            ("9", "9"),
        ),
        (
            [since(date(2020, 1, 1), mtok("9", "9")), since(date(2026, 11, 19), mtok("3", "1"))],
            ("3", "1"),
        ),
        ([ALWAYS, since(date(2027, 1, 1), mtok("3", "1"))], ("3", "2")),
        ([ALWAYS, daily(0, 8, mtok("3", "1")), daily(8, 9, mtok("0.1", "4"))], ("3", "4")),
        (
            [
                since(date(2026, 1, 1), mtok("5", "5")),
                since(date(2026, 2, 1), mtok("1", "2")),
                daily(1, 4, mtok("3", "1")),
            ],
            ("3", "2"),
        ),
        ([since(date(2027, 1, 1), mtok("5", "5"))], ("5", "5")),
        ([since(date(2020, 1, 1), mtok("9", "9")), ALWAYS], ("1", "2")),
    ],
    ids=[
        "replaced",
        "replaced today",
        "replaced yesterday",
        "announced",
        "by the hour",
        "all of it",
        "not yet",
        "always",
    ],
)
def test_price_that_holds_now_or_may_hold_later_counts(
    listed: list[genai.ConditionalPrice], expected: tuple[str, str]
) -> None:
    """A turn can last for days, and clocks differ about the date; a price that has been replaced is
    ignored.
    """
    assert rates(dearest(listed))[:2] == expected


VARIANTS = [
    genai.PriceVariant({"service_tier": "priority"}, mtok("4", "8")),
    genai.PriceVariant({"service_tier": "flex"}, mtok("0.5", "1")),
    genai.PriceVariant({"speed": "fast"}, genai.ModelPrice(output_mtok=Decimal(30))),
]


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (None, ("4", "30")),
        ({}, ("1", "2")),
        ({"service_tier": "flex"}, ("1", "2")),
        ({"service_tier": "priority", "seed": 5}, ("4", "8")),
        ({"speed": "fast"}, ("1", "30")),
        ({"speed": ["fast"], "service_tier": None}, ("1", "2")),
    ],
    ids=str,
)
def test_variants_count_where_the_request_asks_for_them_or_nobody_knows(
    extra: dict[str, object] | None, expected: tuple[str, str]
) -> None:
    """`service_tier` and `speed` are fields of the request; if they are unknown, the most expensive
    variant counts.
    """
    assert rates(dearest(mtok("1", "2"), VARIANTS, extra))[:2] == expected


def test_variants_are_those_of_the_vendor_that_lists_them() -> None:
    """If one vendor sells the models of another, its own tiers are unknown, and genai-prices
    charges the standard price.
    """
    model = genai.ModelInfo(
        id="m", match=genai.ClauseEquals("m"), prices=mtok("1", "2"), price_variants=VARIANTS
    )

    assert rates(pricing.dearest(genai.Provider("reseller", "R", ""), model, NOW))[:2] == ("1", "2")


@pytest.mark.parametrize(
    "price",
    [
        genai.ModelPrice(),
        genai.ModelPrice(input_mtok=Decimal(1)),
        genai.ModelPrice(audio_hours=Decimal(1)),
    ],
    ids=str,
)
def test_model_without_a_rate_for_input_and_output_has_no_price(price: genai.ModelPrice) -> None:
    """The library lists free, subscribed and unknown models alike, with an empty price."""
    assert dearest(price) is None
    assert dearest([since(date(2020, 1, 1), price), daily(1, 2, mtok("1", "2"))]) is None


def test_cost_is_that_of_the_model_that_served() -> None:
    """An alias has the price of its target; an unknown name has that of the requested model."""
    usage = Usage(input_tokens=1000, output_tokens=100)
    large, small = (
        KNOWN.cost("openai:gpt-4o", "", usage),
        KNOWN.cost("openai:gpt-4o-mini", "", usage),
    )

    assert large == Decimal("0.0035")
    assert (
        KNOWN.cost("openai:gpt-4o", "gpt-4o-2024-08-06", usage),
        KNOWN.cost("openai:gpt-4o", "x", usage),
    ) == (large, large)
    assert KNOWN.cost("openai:gpt-4o", "gpt-4o-mini-2024-07-18", usage) == small
    assert KNOWN.cost("vllm:gpt-4o", "gpt-4o", usage) is None


def test_cost_knows_what_was_cached_and_what_was_asked_for() -> None:
    """Cached tokens are cheaper; the priority tier is more expensive."""
    usage = Usage(input_tokens=PER_MILLION)
    cached = usage.model_copy(update={"cache_read_tokens": PER_MILLION})

    assert KNOWN.cost("openai:gpt-4o", "", usage) == Decimal("2.5")
    assert KNOWN.cost("openai:gpt-4o", "", cached) == Decimal("1.25")
    assert KNOWN.cost("openai:gpt-4o", "", usage, {"service_tier": "priority"}) == Decimal("4.25")


@pytest.mark.parametrize(
    "named", [{}, {"openai:*": Price(input="2.5", output="10")}], ids=["known", "named"]
)
def test_usage_that_contradicts_itself_is_never_cheaper(named: dict[str, Price]) -> None:
    """More cached tokens than input, or negative counts; absurd counts have no cost, so the
    reservation is charged.
    """
    usage = Usage(
        input_tokens=1, output_tokens=1, cache_read_tokens=10**6, cache_write_tokens=10**6
    )
    ours = Prices(named)

    assert (ours.cost("openai:gpt-4o", "", usage) or 0) > 2
    assert ours.cost("openai:gpt-4o", "", Usage(input_tokens=-(10**30), output_tokens=-1)) == 0
    assert ours.cost("openai:gpt-4o", "", Usage(input_tokens=MOST_TOKENS + 1)) is None
    assert ours.cost("openai:gpt-4o", "", Usage(output_tokens=10**400)) is None


MODELS = [(provider, model) for provider in get_snapshot().providers for model in provider.models]
WILD = st.integers(-(10**7), 4 * 10**7) | st.sampled_from([0, 1, 199_999, 200_001, 272_001, 10**6])


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(MODELS),
    st.builds(
        Usage,
        input_tokens=WILD,
        output_tokens=WILD,
        cache_read_tokens=WILD,
        cache_write_tokens=WILD,
    ),
)
def test_no_model_that_is_known_costs_more_than_its_upper_bound(
    known: tuple[genai.Provider, genai.ModelInfo], usage: Usage
) -> None:
    """For all vendors, all usage and every variant; and there is no exception."""
    target = f"{known[0].id}:{known[1].id}"
    price = KNOWN.price(target)
    cached = max(0, usage.cache_read_tokens) + max(0, usage.cache_write_tokens)
    tokens = max(usage.input_tokens, cached), max(0, usage.output_tokens)

    for extra in ({}, {"service_tier": "priority"}, {"speed": "fast"}, {"processing": "batch"}):
        cost, asked = KNOWN.cost(target, "", usage, extra), KNOWN.price(target, extra)
        if price is None:
            assert (cost, asked) == (None, None)
        else:
            assert cost is not None
            assert asked is not None
            assert cost <= asked.most(*tokens) <= price.most(*tokens)


@pytest.mark.slow
def test_warming_up_loads_all_that_is_asked_for_later() -> None:
    """In a fresh process, because a worker does it in a thread before its first turn: no later
    lookup imports anything.
    """
    code = (
        "import sys\n"
        "from perdure.activities.pricing import Prices\n"
        "from perdure.values.reports import Usage\n"
        "prices = Prices({})\n"
        "assert 'genai_prices' not in sys.modules\n"
        "prices.warm()\n"
        "loaded = set(sys.modules)\n"
        "prices.price('anthropic:claude-sonnet-4-5')\n"
        "prices.cost('openai:gpt-4o', '', Usage(input_tokens=1))\n"
        "print(sorted(set(sys.modules) - loaded))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
