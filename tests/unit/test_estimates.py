"""The estimate of a request's tokens: close to providers' counts for the recorded exchanges, and
closer after the first count.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import (
    AssistantMessage,
    Media,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    limits,
)
from perdure.turn import reservations
from perdure.turn.token_estimate import MEDIA_TOKENS, MESSAGE_TOKENS, Estimate, tokens

from ..support.clerk import in_its_own_time
from ..support.exchanges import Exchange, exchanges

SKIP = "PERDURE_RECORDINGS is not set to the absolute path of a folder with recordings"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (UserMessage.of("x" * 300), 100),
        (UserMessage.of("ä" * 300), 200),
        (
            UserMessage(
                parts=(Text(text="x" * 30), Media(media_type="image/png", data="x" * 90_000))
            ),
            10 + MEDIA_TOKENS,
        ),
        (
            AssistantMessage(
                parts=(
                    Thinking(text="x" * 30, signature="s" * 60, redacted="r" * 9),
                    Text(text="x" * 9),
                )
            ),
            33 + 3,
        ),
        (
            AssistantMessage(
                parts=(ToolCall(id="an id that is not counted", name="add", arguments='{"a": 1}'),)
            ),
            3,
        ),
        (
            ToolMessage(
                results=tuple(
                    ToolResult(call_id="c", name="add", content="x" * 60) for _ in range(2)
                )
            ),
            40,
        ),
    ],
    ids=["text", "bytes, not letters", "image", "thinking", "call", "results"],
)
def test_message_has_a_token_for_three_bytes(message: Message, expected: int) -> None:
    """For any content; an image counts the same for any size."""
    assert tokens(message) == MESSAGE_TOKENS + expected


def test_estimate_of_a_transcript_is_the_sum_of_its_messages() -> None:
    """Plus the part before them. Parts that are left out are subtracted."""
    first, second = UserMessage.of("x" * 300), UserMessage.of("x" * 30)

    estimate = Estimate().plus(first).on(3_000).plus(second)
    assert estimate.tokens() == 1_000 + tokens(first) + tokens(second)
    assert estimate.tokens(tokens(first)) == 1_000 + tokens(second)


@pytest.mark.parametrize(
    ("told", "then", "more"),
    [
        pytest.param(1_000, 1_000, 300, id="as estimated"),
        pytest.param(2_000, 2_000, 600, id="twice as many"),
        pytest.param(600, 600, 180, id="fewer"),
        pytest.param(3_000, 3_000, 900, id="a token for each byte"),
        pytest.param(9_000, 9_000, 900, id="more than text can have: what is added is text"),
        pytest.param(500, 500, 150, id="a token for six bytes"),
        pytest.param(7, 500, 150, id="fewer than text can have: not all of it was counted"),
        pytest.param(0, 1_000, 300, id="not said"),
    ],
)
def test_what_a_provider_counted_goes_before_the_estimate(told: int, then: int, more: int) -> None:
    """Later messages count at the same rate, and so do parts that are left out."""
    estimate = Estimate(base=400, messages=600).counted(told)
    grown = estimate.plus(UserMessage.of("x" * 3 * (300 - MESSAGE_TOKENS)))

    assert (estimate.tokens(), grown.tokens()) == (then, then + more)
    assert grown.tokens(300) == then
    assert estimate.tokens(600) == pytest.approx(then - 2 * more, abs=1)


def test_report_of_a_request_that_was_cut_is_compared_with_what_was_sent() -> None:
    """300 of 1,000 tokens were left out, and the provider counted 1,400: twice the estimate."""
    estimate = Estimate(messages=1_000).counted(1_400, saved=300)

    assert (estimate.tokens(300), estimate.tokens(500), estimate.tokens()) == (1_400, 1_000, 2_000)


@in_its_own_time
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**7), st.integers(0, 10**6))
def test_estimate_is_never_negative_and_less_is_sent_the_more_is_left_out(
    base: int, messages: int, told: int, saved: int
) -> None:
    """For any count of a provider."""
    estimate = Estimate(base=base, messages=messages).counted(told, saved // 2)
    amounts = [
        estimate.tokens(less)
        for less in sorted({0, min(saved, messages) // 3, min(saved, messages), messages})
    ]

    assert amounts == sorted(amounts, reverse=True)
    assert amounts[-1] >= 0


def estimate_of(exchange: Exchange) -> Estimate:
    """The estimate of one of our agents for this request, before any count."""
    estimate = Estimate().on(reservations.base_tokens(exchange.agent(None)))
    for message in exchange.messages:
        estimate = estimate.plus(message)
    return estimate


RECORDED = list(exchanges())
CONTINUED = [(before, after) for before, after in pairwise(RECORDED) if after.goes_on(before)]
MOST = 1 / limits.WINDOW_SHARE
"""The ratio of counted to estimated tokens above which a request may not fit the window."""


@pytest.mark.skipif(not RECORDED, reason=SKIP)
def test_providers_count_no_more_in_long_requests_than_a_window_has_room_for() -> None:
    """The ratio to the estimate is at least 0.4 as well. Short requests are excluded, because a
    provider's overhead dominates them.
    """
    counted = {
        one.name: one.usage.input_tokens / estimate_of(one).tokens()
        for one in RECORDED
        if one.usage.input_tokens >= 1_000
    }

    assert {name: rate for name, rate in counted.items() if not 0.4 <= rate <= MOST} == {}
    assert len(counted) >= 5


@pytest.mark.skipif(not RECORDED, reason=SKIP)
def test_estimate_is_nearer_once_the_request_before_was_counted() -> None:
    """In recorded conversations of several requests, if they are long enough."""
    counted = {}
    for before, after in CONTINUED:
        estimate = estimate_of(before).counted(before.usage.input_tokens)
        for message in after.messages[len(before.messages) :]:
            estimate = estimate.plus(message)
        if before.usage.input_tokens >= 400:
            counted[after.name] = after.usage.input_tokens / estimate.tokens()

    assert {name: rate for name, rate in counted.items() if not 0.8 <= rate <= MOST} == {}
    assert len(counted) >= 4
