"""Prompt caching in Anthropic's API: where breakpoints are set, and what they save."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from perdure.activities.pricing import Prices
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import Anthropic
from perdure.activities.providers.anthropic import body_of
from perdure.activities.providers.prompt_cache import LEAST_BYTES
from perdure.testing.stub_provider import StubProvider
from perdure.turn.context_window import Cut, sent
from perdure.values.messages import (
    AssistantMessage,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from perdure.values.options import RequestOptions
from perdure.values.reports import Usage

from ..support.loopback import ADD

MODEL = "claude-sonnet-4-6"
MARK = {"type": "ephemeral"}
LONG = "word " * 800
LOOKED_BACK = 20
"""The number of blocks before a breakpoint in which the API looks for a cached prefix."""


def turn(
    steps: int, *, calls: int = 1, question: str = LONG, result: str = LONG
) -> tuple[Message, ...]:
    """A transcript with this number of steps and calls per step."""
    messages: list[Message] = [UserMessage.of(question)]
    for step in range(steps):
        asked = tuple(ToolCall(id=f"c{step}_{index}", name="add") for index in range(calls))
        messages.append(AssistantMessage(parts=(Text(text="Let me see."), *asked)))
        messages.append(
            ToolMessage(
                results=tuple(
                    ToolResult(call_id=call.id, name="add", content=f"{call.id} {result}")
                    for call in asked
                )
            )
        )
    return tuple(messages)


def request_of(messages: tuple[Message, ...], **more: Any) -> ModelRequest:
    """A request of the loop; it offers a tool."""
    return ModelRequest(
        **{"model": MODEL, "messages": messages, "system": LONG, "tools": (ADD,), **more}
    )


def blocks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All blocks that can have a breakpoint, in the order of the API."""
    yield from body.get("tools", ())
    system = body.get("system", [])
    yield from [{"type": "text", "text": system}] if isinstance(system, str) else system
    yield from (block for message in body["messages"] for block in message["content"])


def marks(body: dict[str, Any]) -> list[str]:
    """The blocks with a breakpoint: the name of a tool, the beginning of a text or a result, or the
    result's id.
    """
    marked = [block for block in blocks(body) if block.get("cache_control") == MARK]
    return [block.get("tool_use_id") or block.get("name") or block["text"][:4] for block in marked]


def unmarked(value: Any) -> Any:
    """The body without breakpoints, and with text again where a block was needed for one."""
    match value:
        case list():
            return [unmarked(item) for item in value]
        case dict():
            plain = {
                name: unmarked(item) for name, item in value.items() if name != "cache_control"
            }
            if isinstance(plain.get("system"), list):
                plain["system"] = plain["system"][0]["text"]
            return plain
        case _:
            return value


# Where they are set


@pytest.mark.parametrize(
    ("request_", "places"),
    [
        (request_of(turn(0)), ["word", "word"]),
        (request_of(turn(1)), ["word", "word", "c0_0"]),
        (request_of(turn(3)), ["word", "c1_0", "c2_0"]),
        (request_of(turn(2, calls=2)), ["word", "c0_1", "c1_1"]),
        (request_of(turn(1), system=""), ["word", "c0_0"]),
        (
            request_of(turn(1), system="", tools=(ADD.model_copy(update={"description": LONG}),)),
            ["add", "word", "c0_0"],
        ),
        (request_of(turn(1, question="?", result="5"), system=""), []),
        (request_of(turn(1, question="?"), system="Be brief."), ["c0_0"]),
        (
            request_of(turn(1), options=RequestOptions(tool_choice="required")),
            ["word", "word", "c0_0"],
        ),
        (request_of(turn(1), options=RequestOptions(tool_choice="none")), []),
        (request_of(turn(1), tools=()), []),
        (
            request_of(
                turn(0),
                options=RequestOptions(extra={"cache_control": {"type": "ephemeral", "ttl": "1h"}}),
            ),
            [],
        ),
        (
            request_of(
                turn(0),
                options=RequestOptions(
                    extra={"system": [{"type": "text", "text": "s", "cache_control": MARK}]}
                ),
            ),
            ["s"],
        ),
        (request_of(turn(0), options=RequestOptions(extra={"system": "Another."})), ["word"]),
    ],
    ids=[
        *[
            "the first request",
            "the second",
            "the fourth",
            "several calls",
            "no system prompt",
            "long tools",
            "all is short",
            "the front is short",
        ],
        *[
            "some tool",
            "no tool may be chosen",
            "no tools",
            "its own for all",
            "its own",
            "another system prompt",
        ],
    ],
)
def test_breakpoints_stand_where_another_request_will_begin_alike(
    request_: ModelRequest, places: list[str]
) -> None:
    """After tools and system prompt, after this request and the previous one; none if no other
    request follows, and none in addition to those of `extra`.
    """
    assert marks(body_of(request_, 9)) == places


@pytest.mark.parametrize("short_of", [0, 1])
def test_what_is_shorter_than_the_least_gets_no_breakpoint(short_of: int) -> None:
    """The API would ignore it; the size is estimated from bytes, not characters."""
    bare = len(
        json.dumps(body_of(request_of(turn(0, question="?")), 9, caching=False)["tools"][0])
    ) + len('""')
    system = "ü" * ((LEAST_BYTES - bare - short_of) // 2) + "." * (
        (LEAST_BYTES - bare - short_of) % 2
    )

    assert len(marks(body_of(request_of(turn(0, question="?"), system=system), 9))) == (
        1 if short_of else 2
    )


@pytest.mark.parametrize("steps", range(4))
def test_nothing_but_the_marks_is_another(steps: int) -> None:
    """The same request without caching, and never more breakpoints than the API accepts."""
    request = request_of(turn(steps, calls=3))

    body = body_of(request, 9)

    assert unmarked(body) == body_of(request, 9, caching=False)
    assert 0 < len(marks(body)) <= 4


def test_request_is_not_changed_by_its_body() -> None:
    """The definition of a tool is shared by all turns of an agent."""
    tool = ADD.model_copy(update={"description": LONG})
    before = tool.model_dump()

    body_of(request_of(turn(1), system="", tools=(tool,)), 9)

    assert tool.model_dump() == before


@pytest.mark.parametrize("caching", [True, False])
async def test_caching_can_be_switched_off(caching: bool) -> None:
    """For servers that refuse it; in whole and streamed answers."""
    with StubProvider([{}, {"text": "hi"}]) as stub:
        provider, heard = (
            Anthropic(stub.anthropic_url, api_key_env=None, caching=caching),
            list[str](),
        )
        await provider.complete(request_of(turn(1)))
        await provider.stream(request_of(turn(1)), heard.append)
        await provider.close()

    assert [bool(marks(body)) for body in stub.requests] == [caching, caching]


# What they save


class Cache:
    """Anthropic's cache as documented: looked up by content at a breakpoint or at most 20 blocks
    before it, written up to the last breakpoint.

    A token is four bytes here. Prompts shorter than 1,024 tokens are not cached.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def usage(self, body: dict[str, Any]) -> Usage:
        """The reported usage of a request."""
        said = [(json.dumps(unmarked(block)), "cache_control" in block) for block in blocks(body)]
        ends = [
            sum(len(words) for words, _ in said[: place + 1]) // 4 for place in range(len(said))
        ]
        begins = ["".join(words for words, _ in said[: place + 1]) for place in range(len(said))]
        breaks = [
            place for place, (_, is_break) in enumerate(said) if is_break and ends[place] >= 1_024
        ]
        hits = [
            place
            for end in breaks
            for place in range(max(0, end - LOOKED_BACK), end + 1)
            if begins[place] in self._known
        ]
        read, written = (ends[max(hits)] if hits else 0), (ends[breaks[-1]] if breaks else 0)
        self._known.update(begins[place] for place in breaks)
        return Usage(
            input_tokens=ends[-1],
            output_tokens=100,
            cache_read_tokens=read,
            cache_write_tokens=max(0, written - read),
        )


def cost(bodies: list[dict[str, Any]]) -> Decimal:
    """The cost of consecutive requests within minutes, at the vendor's own prices."""
    cache, prices = Cache(), Prices({})
    costs = [prices.cost(f"anthropic:{MODEL}", "", cache.usage(body)) for body in bodies]
    return sum((one for one in costs if one is not None), Decimal(0))


def saved(requests: list[ModelRequest]) -> float:
    """The share of the bill that caching saves; negative if it costs more."""
    plain = cost([body_of(request, 9, caching=False) for request in requests])
    return float(1 - cost([body_of(request, 9) for request in requests]) / plain)


@pytest.mark.table(1)
@pytest.mark.parametrize(("steps", "least"), [(1, 0.1), (2, 0.25), (9, 0.6), (40, 0.8)])
def test_turn_of_several_steps_costs_less(steps: int, least: float) -> None:
    """Including writes at 1.25 of the input price: the longer the turn, the more is saved."""
    assert saved([request_of(turn(step)) for step in range(steps + 1)]) > least


def test_turn_of_one_request_costs_a_little_more() -> None:
    """It is not known in advance that the model will call no tool: a quarter of its input, most of
    which the agent's next turn reads from the cache.
    """
    one = request_of(turn(0))

    assert -0.25 < saved([one]) < 0
    assert saved([one, one]) > 0.25


def test_steps_of_many_calls_are_found_again() -> None:
    """Between two requests there are more than 20 blocks of results, and the API looks back no
    further than that.
    """
    assert saved([request_of(turn(step, calls=30, result="five" * 20)) for step in range(6)]) > 0.5


def test_cut_view_is_cached_until_the_next_cut() -> None:
    """A transcript that is too long is cut rarely, for the sake of the cache."""
    requests = [
        request_of(sent(turn(step), Cut(results=step // 10 * 20, opening=0))) for step in range(30)
    ]

    assert saved(requests) > 0.6


def test_reservation_bounds_a_request_that_is_all_written() -> None:
    """A cache write costs 1.25 of the input price, and the rate of reservations is not lower."""
    prices = Prices({})
    price = prices.price(f"anthropic:{MODEL}")
    usage = Usage(input_tokens=1_000_000, output_tokens=1_000, cache_write_tokens=1_000_000)
    written = prices.cost(f"anthropic:{MODEL}", "", usage)
    plain = prices.cost(
        f"anthropic:{MODEL}", "", Usage(input_tokens=1_000_000, output_tokens=1_000)
    )

    assert price is not None
    assert written is not None
    assert plain is not None
    assert plain < written <= price.most(usage.input_tokens, usage.output_tokens)
