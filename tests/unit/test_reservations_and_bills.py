"""The reservation of a request is at least its bill, checked with recorded exchanges of every API
and the rules for agents.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from perdure.activities.pricing import Prices
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import anthropic, openai_chat, openai_responses, reasoning
from perdure.agents.definitions import AgentDefinition
from perdure.text import size
from perdure.turn import reservations
from perdure.turn.facts import ModelAnswered, Scheduled
from perdure.turn.fold import apply
from perdure.turn.keys import ModelKey
from perdure.turn.state import TurnState
from perdure.turn.transcript import TokenCount
from perdure.values.answers import ModelAnswer
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from perdure.values.prices import bound

from ..support.clerk import in_its_own_time
from ..support.exchanges import PATHS, Exchange, exchanges
from ..support.loopback import ADD

PRICES = Prices({})
EXCHANGES = list(exchanges())
SKIP = pytest.mark.skipif(
    not EXCHANGES,
    reason="PERDURE_RECORDINGS is not set to the absolute path of a folder with recordings",
)


def each(*cases: Exchange | tuple[Exchange, Exchange]) -> pytest.MarkDecorator:
    """The parameters of a test for each exchange, by the name of the request; skipped, with the
    reason, without recordings.
    """
    named = [
        pytest.param(case, id=(case if isinstance(case, Exchange) else case[1]).name)
        for case in cases
    ]
    return pytest.mark.parametrize("case", named or [pytest.param(None, marks=SKIP, id="none")])


def asked(exchange: Exchange) -> TurnState:
    """The state in which one of our agents would send this request."""
    agent = exchange.agent(PRICES.price(exchange.target))
    tokens = TokenCount(
        base=reservations.base_tokens(agent), bound=sum(map(bound, exchange.messages))
    )
    return TurnState(agent=agent, tokens=tokens)


def asked_again(before: Exchange, exchange: Exchange) -> TurnState:
    """The same with the token count of the previous answer."""
    answer, *added = exchange.messages[len(before.messages) :]
    assert isinstance(answer, AssistantMessage)
    state = apply(asked(before), Scheduled(ModelKey(1)))
    state = apply(
        state, ModelAnswered(ModelKey(1), ModelAnswer(message=answer, usage=before.usage))
    )
    return replace(
        state, tokens=replace(state.tokens, bound=state.tokens.bound + sum(map(bound, added)))
    )


def check(state: TurnState, exchange: Exchange) -> None:
    """In tokens for every model, in money for those with a known price."""
    assert state.agent is not None
    reserved = reservations.for_call(state, state.agent, state.agent.chain[0]).amount
    cost = PRICES.cost(exchange.target, exchange.served, exchange.usage)

    assert exchange.usage.input_tokens <= state.input_bound(state.agent.model)
    assert exchange.usage.output_tokens <= exchange.output
    assert exchange.usage.input_tokens + exchange.usage.output_tokens <= reserved.tokens
    if state.agent.price:
        assert cost is not None
        assert 0 < cost <= reserved.usd
        assert (exchange.billed or 0) <= reserved.usd


@pytest.mark.table(30)
@pytest.mark.accepts("B15")
@each(*EXCHANGES)
def test_reservation_is_at_least_the_bill(case: Exchange) -> None:
    """For a transcript that no provider has counted yet, its bytes are the bound."""
    check(asked(case), case)


@pytest.mark.accepts("B15")
@each(*((before, after) for before, after in pairwise(EXCHANGES) if after.goes_on(before)))
def test_reservation_is_at_least_the_bill_when_the_beginning_was_counted(
    case: tuple[Exchange, Exchange],
) -> None:
    """Only the bytes after the counted part are added to the count."""
    check(asked_again(*case), case[1])


WORDS = st.text(st.characters(codec="utf-8"), max_size=40)
IDS = st.text("abc-_.", min_size=1, max_size=12)
ARGUMENTS = st.dictionaries(WORDS, WORDS | st.lists(WORDS), max_size=3).map(json.dumps) | WORDS
SUMMARIES = st.lists(
    st.builds(lambda words: {"type": "summary_text", "text": words}, WORDS), max_size=3
)
REASONING = st.builds(
    lambda summary, sealed: {
        "type": "reasoning",
        "id": "rs_1",
        "summary": summary,
        "encrypted_content": sealed,
    },
    SUMMARIES,
    IDS,
)
THOUGHTS = st.builds(Thinking, text=WORDS, signature=WORDS) | REASONING.map(
    reasoning.thought_of
).filter(bool)
CALLS = st.builds(ToolCall, id=IDS, name=IDS, arguments=ARGUMENTS)
RESULTS = st.builds(ToolResult, call_id=IDS, name=IDS, content=WORDS, is_error=st.booleans())
MESSAGES = (
    st.builds(UserMessage, parts=st.lists(st.builds(Text, text=WORDS)).map(tuple))
    | st.builds(
        AssistantMessage, parts=st.lists(st.builds(Text, text=WORDS) | THOUGHTS | CALLS).map(tuple)
    )
    | st.builds(ToolMessage, results=st.lists(RESULTS).map(tuple))
)


def said(value: object) -> int:
    """The bytes of all text in JSON, without punctuation."""
    if isinstance(value, dict):
        return sum(
            said(name) + said(item) for name, item in value.items() if name not in ("type", "role")
        )
    return (
        sum(map(said, value))
        if isinstance(value, list)
        else size(value)
        if isinstance(value, str)
        else 0
    )


@in_its_own_time
@given(MESSAGES)
def test_every_byte_of_what_is_sent_counts(message: Message) -> None:
    """A token has at least one byte, and no API gets more bytes of text for a message than its
    bound has tokens.
    """
    request = ModelRequest(model="m", messages=(message,))

    assert said(openai_chat.body_of(request)["messages"]) <= bound(message)
    assert said(openai_responses.body_of(request)["input"]) <= bound(message)
    assert said(anthropic.body_of(request, 1)["messages"]) <= bound(message)


@in_its_own_time
@given(WORDS, WORDS, st.dictionaries(WORDS, WORDS))
def test_every_byte_of_instructions_and_tools_counts(
    instructions: str, description: str, parameters: dict[str, JsonValue]
) -> None:
    """They are part of every request."""
    tool = ADD.model_copy(update={"description": description, "parameters": parameters})
    plain = AgentDefinition(name="a", instructions="", model="m:m")
    agent = plain.model_copy(update={"instructions": instructions, "tools": (tool, tool)})

    added = reservations.base_tokens(agent) - reservations.base_tokens(plain)
    assert added >= size(instructions) + 2 * said([tool.name, description, parameters])


LARGEST = [
    pytest.param(4_784, id="Anthropic, 2576 pixels on the long edge"),
    pytest.param(2_240, id="Gemini 3, ultra high"),
    pytest.param(1_445, id="GPT-4o, 8 tiles"),
    pytest.param(3_779, id="GPT-4.1 nano, 1536 patches"),
]


@pytest.mark.parametrize("tokens", LARGEST)
@pytest.mark.parametrize(
    "image", [{"data": "iVBORw0KGgo="}, {"url": "https://example.com/a.png"}], ids=["data", "url"]
)
def test_image_counts_as_much_as_vendors_make_of_the_largest(
    tokens: int, image: dict[str, str]
) -> None:
    """Its size in bytes does not matter, because a small file can have many pixels; the numbers are
    from the vendors' documentation.
    """
    assert bound(UserMessage(parts=(Media(media_type="image/png", **image),))) >= tokens


@SKIP
def test_recordings_are_of_every_api_and_most_have_a_price(
    record_property: Callable[[str, object], None],
) -> None:
    """Otherwise the tests above would prove nothing."""
    counts = {api: sum(exchange.api == api for exchange in EXCHANGES) for api in PATHS}
    priced = sum(PRICES.price(exchange.target) is not None for exchange in EXCHANGES)
    record_property("exchanges", counts)
    record_property("priced", priced)
    print(
        f"reservations of {counts} recorded exchanges compared with their bills, {priced} of them"
        " in money"
    )

    assert min(counts.values()) > 0
    assert priced > len(EXCHANGES) / 2
