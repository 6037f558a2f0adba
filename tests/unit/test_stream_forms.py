"""Variants of the streams of each API and of compatible servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Text, Thinking, ToolCall, Usage, errors
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import OpenAIChat, anthropic, openai_chat, openai_responses
from perdure.activities.providers.chat_stream import ChatStream
from perdure.activities.providers.http import Parts
from perdure.activities.providers.message_stream import MessageStream
from perdure.activities.providers.response_stream import ResponseStream
from perdure.activities.providers.sse import EventReader
from perdure.testing import stub_streams
from perdure.testing.stub_provider import StubProvider
from perdure.values.answers import ModelAnswer
from perdure.values.reports import StopReason

from ..support.clerk import in_its_own_time
from ..support.loopback import ANTHROPIC, HELLO, OPENAI, RESPONSES
from ..support.recordings import Exchange, as_reply, streams, whole

Event = dict[str, Any]

APIS = [("chat", "/chat/completions"), ("messages", "/v1/messages"), ("responses", "/responses")]
VENDOR = {"chat": OPENAI, "messages": ANTHROPIC, "responses": RESPONSES}
SKIP = pytest.mark.skip(
    reason="PERDURE_RECORDINGS is not set to the absolute path of a folder with recordings"
)
ANSWER: dict[str, Callable[[Any, str], ModelAnswer]] = {
    "chat": openai_chat.answer_of,
    "messages": anthropic.answer_of,
    "responses": openai_responses.answer_of,
}


def unheard(_: str) -> None:
    """The streamed text does not matter here."""


def params(found: Iterable[tuple[str, str, Exchange]]) -> list[Any]:
    """Each exchange with its API, by its name."""
    return [pytest.param(api, exchange, id=name) for api, name, exchange in found] or [
        pytest.param("", None, marks=SKIP, id="none")
    ]


def sent(*data: Event | None) -> bytes:
    """Events with these data; None for `[DONE]`."""
    return b"".join(
        (
            f"event: {one.get('type', '')}\ndata: {json.dumps(one)}\n\n".encode()
            if one is not None
            else b"data: [DONE]\n\n"
        )
        for one in data
    )


def body_of(parts: Parts, pieces: Iterable[bytes]) -> Event | None:
    """The body assembled from a stream in these chunks."""
    reader = EventReader("stub")
    for piece in pieces:
        for event in reader.feed(piece):
            if parts.take(event.name, None if event.data == "[DONE]" else json.loads(event.data)):
                return parts.body()
    return parts.body()


def parts_of(api: str, heard: Callable[[str], None] = unheard) -> Parts:
    made: dict[str, Parts] = {
        "chat": ChatStream(heard),
        "messages": MessageStream("stub", heard),
        "responses": ResponseStream(heard),
    }
    return made[api]


# Recordings


def is_answered(response: dict[str, Any]) -> bool:
    """Whether it is an answer, and not a background response."""
    return (
        response["status"] == 200
        and not response["body"].get("error")
        and response["body"].get("status") != "queued"
    )


STREAMS = [(api, name, exchange) for api, path in APIS for name, exchange in streams(api, path)]
WHOLE = [
    (api, name, exchange)
    for api, path in APIS
    for name, exchange in whole(api, path)
    if exchange["response"]["status"] == 200
    and not exchange["response"]["body"].get("error")
    and exchange["response"]["body"].get("status") != "queued"
]


def words_in(api: str, stream: str) -> str:
    """The text of a recorded stream, parsed independently."""
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    if api == "chat":
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)
    if api == "messages":
        return "".join(
            event["delta"].get("text", "")
            for event in events
            if event["type"] == "content_block_delta"
        )
    return "".join(
        event["delta"] for event in events if event["type"] == "response.output_text.delta"
    )


def usage_in(api: str, stream: str) -> tuple[int, int]:
    """Its last usage."""
    names = (
        ("prompt_tokens", "completion_tokens")
        if api == "chat"
        else ("input_tokens", "output_tokens")
    )
    counts = [0, 0]
    for line in stream.splitlines():
        event = json.loads(line[6:]) if line.startswith("data: {") else {}
        told = [
            event.get("usage"),
            *((event.get(name) or {}).get("usage") for name in ("message", "response", "x_groq")),
        ]
        for usage in filter(None, told):
            counts = [usage.get(name) or count for name, count in zip(names, counts, strict=True)]
    return counts[0], counts[1]


@pytest.mark.accepts("M5")
@pytest.mark.parametrize(("api", "exchange"), params(STREAMS))
async def test_recorded_stream_is_read_as_it_was_meant(api: str, exchange: Exchange) -> None:
    """Text, usage, model and end; the streamed text equals the answer's."""
    stream = exchange["response"]["body"]

    answer, heard = await VENDOR[api].hear_served(as_reply(exchange["response"]))

    assert answer.message.text == "".join(heard) == words_in(api, stream) != ""
    assert answer.usage.output_tokens == usage_in(api, stream)[1]
    assert answer.usage.input_tokens >= usage_in(api, stream)[0]
    assert answer.stop is StopReason.END
    assert f'"model":"{answer.model}"' in stream.replace(": ", ":")


@pytest.mark.accepts("M5")
@pytest.mark.parametrize(("api", "exchange"), params(WHOLE))
@pytest.mark.table(15)
async def test_recorded_answer_is_the_same_as_a_stream(api: str, exchange: Exchange) -> None:
    """Every recorded answer, converted to the events of a stream."""
    body = exchange["response"]["body"]
    stream = b"".join(stub_streams.served({}, body))

    answer, _ = await VENDOR[api].hear_served(
        {"raw": stream, "headers": {"content-type": "text/event-stream"}}
    )

    assert answer == await VENDOR[api].ask_served(as_reply(exchange["response"]))


@pytest.mark.skipif(
    not STREAMS,
    reason="PERDURE_RECORDINGS is not set to the absolute path of a folder with recordings",
)
def test_recordings_hold_streams_of_every_api(
    record_property: Callable[[str, object], None],
) -> None:
    """Otherwise the tests above would prove nothing."""
    counts = {
        api: (sum(one[0] == api for one in STREAMS), sum(one[0] == api for one in WHOLE))
        for api, _ in APIS
    }
    record_property("streams", counts)
    print(f"recorded streams, and whole answers sent as streams: {counts}")

    assert all(min(count) > 0 for count in counts.values())


# Any answer, cut anywhere

WORDS = st.text(st.characters(codec="utf-8"), max_size=40)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["add", "look"]),
        st.dictionaries(WORDS, WORDS | st.integers() | st.lists(WORDS), max_size=3),
    ),
    max_size=3,
)
SIZES = st.lists(st.integers(1, 200), min_size=1, max_size=5)


def chat_body(words: str, thought: str, calls: list[tuple[str, Any]]) -> Event:
    functions = [
        {"id": f"c{n}", "function": {"name": name, "arguments": json.dumps(given)}}
        for n, (name, given) in enumerate(calls)
    ]
    message = {
        "role": "assistant",
        "content": words or None,
        "reasoning_content": thought,
        **({"tool_calls": functions} if functions else {}),
    }
    return {
        "model": "m1",
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }


def messages_body(words: str, thought: str, calls: list[tuple[str, Any]]) -> Event:
    tools = [
        {"type": "tool_use", "id": f"c{n}", "name": name, "input": given}
        for n, (name, given) in enumerate(calls)
    ]
    thinking = [
        {"type": "thinking", "thinking": thought, "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "eA=="},
    ]
    content = [*thinking, {"type": "text", "text": words}, *tools]
    return {
        "model": "m1",
        "content": content,
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }


def responses_body(words: str, thought: str, calls: list[tuple[str, Any]]) -> Event:
    items = [
        {"type": "function_call", "call_id": f"c{n}", "name": name, "arguments": json.dumps(given)}
        for n, (name, given) in enumerate(calls)
    ]
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": words}],
    }
    reasoning = {
        "type": "reasoning",
        "id": "rs1",
        "summary": [{"type": "summary_text", "text": thought}],
        "encrypted_content": "eA==",
    }
    return {
        "model": "m1",
        "status": "completed",
        "output": [reasoning, said, *items],
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }


BODIES = {"chat": chat_body, "messages": messages_body, "responses": responses_body}


@pytest.mark.parametrize("api", list(BODIES))
@in_its_own_time
@given(words=WORDS, thought=WORDS, calls=CALLS, sizes=SIZES)
def test_any_answer_cut_into_any_pieces_is_the_whole_one(
    api: str, words: str, thought: str, calls: list[tuple[str, Any]], sizes: list[int]
) -> None:
    """Text, thinking and calls; chunks end inside characters and between fields."""
    body = BODIES[api](words, thought, calls)
    stream, heard = b"".join(stub_streams.served({}, body)), list[str]()
    ends = [0]
    while ends[-1] < len(stream):
        ends.append(ends[-1] + sizes[len(ends) % len(sizes)])

    made = body_of(
        parts_of(api, heard.append), (stream[begin:end] for begin, end in pairwise(ends))
    )

    assert made is not None
    assert ANSWER[api](made, "m") == ANSWER[api](body, "m")
    assert "".join(heard) == words


# Chat completions


def chunk(finish: str | None = None, **delta: Any) -> Event:
    """A chunk with a delta."""
    return {"model": "m1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def piece(**fields: Any) -> Event:
    """A chunk with a piece of a call."""
    name, arguments = fields.pop("name", None), fields.pop("arguments", None)
    function = {
        name: value
        for name, value in {"name": name, "arguments": arguments}.items()
        if value is not None
    }
    return chunk(tool_calls=[{**fields, "function": function}])


def chat(*chunks: Event | None) -> ModelAnswer:
    """The answer of these chunks."""
    body = body_of(ChatStream(unheard), [sent(*chunks)])
    assert body is not None
    return openai_chat.answer_of(body, "m")


TWO = [("a", "add", "{}"), ("b", "look", "[1]")]
USAGE = {"prompt_tokens": 7, "completion_tokens": 3}
INTERLEAVED = [
    *[piece(index=0, id="a", name="add"), piece(index=1, id="b", name="look", arguments="[")],
    *[piece(index=0, arguments="{}"), piece(index=1, arguments="1]")],
]


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        (
            [
                piece(index=0, id="a", name="add", arguments="{}"),
                piece(index=1, id="b", name="look", arguments="[1]"),
            ],
            TWO,
        ),
        (
            [
                piece(index=0, id="a", name="add", arguments="{}"),
                piece(index=0, id="b", name="look", arguments="[1]"),
            ],
            TWO,
        ),
        (
            [
                piece(id="a", name="add", arguments="{}"),
                piece(id="b", name="look"),
                piece(arguments="[1]"),
            ],
            TWO,
        ),
        (INTERLEAVED, TWO),
        (
            [
                piece(index=0, id="a", name="add", arguments="{"),
                piece(index=0, id="a", name="add", arguments="}"),
            ],
            TWO[:1],
        ),
        ([piece(index=0, id="a", name="ad"), piece(index=0, name="d", arguments="{}")], TWO[:1]),
        (
            [piece(index=0, id="a", arguments="{"), piece(index=0, name="add", arguments="}")],
            TWO[:1],
        ),
        ([piece(index=0, name="add", arguments="{}"), piece(index=0, id="a")], TWO[:1]),
        ([piece(index=0, id="a", name="add", arguments={"x": 1})], [("a", "add", '{"x": 1}')]),
        ([piece(index=0, id="a", name="add")], [("a", "add", "{}")]),
        (
            [piece(name="add", arguments="{}"), piece(name="add", arguments="[1]")],
            [("", "add", "{}"), ("", "add", "[1]")],
        ),
        (
            [
                piece(index=0, id="a", name="add", arguments=""),
                piece(index=0, id="", name="", arguments="{}"),
            ],
            TWO[:1],
        ),
    ],
)
def test_calls_of_servers_with_ways_of_their_own(
    pieces: list[Event], calls: list[tuple[str, str, str]]
) -> None:
    """With one index for all, with none, with names and ids again in each piece, in pieces or late,
    with arguments as an object.
    """
    answer = chat(*pieces, chunk("tool_calls"), None)

    assert [(call.id, call.name, call.arguments) for call in answer.message.calls] == calls


@pytest.mark.parametrize(
    ("chunks", "parts"),
    [
        (
            [chunk(reasoning_content="hm"), chunk(reasoning_content=" so"), chunk(content="yes")],
            [Thinking(text="hm so"), Text(text="yes")],
        ),
        ([chunk(reasoning="hm"), chunk(content="yes")], [Thinking(text="hm"), Text(text="yes")]),
        (
            [
                chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": word}]}])
                for word in ("h", "m")
            ]
            + [chunk(content="yes")],
            [Thinking(text="hm"), Text(text="yes")],
        ),
        ([chunk(content=[{"type": "text", "text": "ye"}]), chunk(content="s")], [Text(text="yes")]),
        ([chunk(content=None), chunk(content=7), chunk(content="yes")], [Text(text="yes")]),
        (
            [
                chunk(content="ye"),
                {"choices": [{"index": 1, "delta": {"content": "no"}}]},
                {"choices": []},
                {},
                chunk(content="s"),
            ],
            [Text(text="yes")],
        ),
    ],
)
def test_words_and_thinking_of_a_stream_are_told_apart(
    chunks: list[Event], parts: list[Any]
) -> None:
    """In every form that servers use; other choices and chunks of unknown kinds are left out."""
    assert list(chat(*chunks, chunk("stop"), None).message.parts) == parts


@pytest.mark.parametrize(
    ("last", "usage"),
    [
        ([{"choices": [], "usage": USAGE}], Usage(input_tokens=7, output_tokens=3)),
        ([{"choices": [], "x_groq": {"usage": USAGE}}], Usage(input_tokens=7, output_tokens=3)),
        (
            [{"choices": [], "usage": USAGE}, {"choices": [], "usage": None}],
            Usage(input_tokens=7, output_tokens=3),
        ),
        ([], Usage()),
    ],
)
def test_usage_of_a_stream_is_what_is_told_at_its_end(last: list[Event], usage: Usage) -> None:
    """Groq sends it in its own field; without one at the end, the usage is unknown."""
    assert (
        chat(
            {**chunk(content="yes"), "usage": {**USAGE, "completion_tokens": 1}},
            chunk("stop"),
            *last,
            None,
        ).usage
        == usage
    )


def test_refusal_of_a_stream_is_one() -> None:
    """The text of the refusal is streamed, too."""
    heard = list[str]()

    body = body_of(
        ChatStream(heard.append),
        [sent(chunk(refusal="I "), chunk(refusal="will not"), chunk("stop"), None)],
    )

    assert body is not None
    answer = openai_chat.answer_of(body, "m")
    assert (answer.stop, answer.message.text, heard) == (
        StopReason.REFUSED,
        "I will not",
        ["I ", "will not"],
    )


@pytest.mark.accepts("M8")
@pytest.mark.parametrize(
    "chunks",
    [
        [None],
        [chunk(content="The answer is"), None],
        [piece(index=0, id="a", name="add", arguments='{"a": 1'), None],
    ],
)
def test_end_of_a_stream_without_a_reason_is_a_cut(chunks: list[Event | None]) -> None:
    """Some gateways always send `[DONE]`, even after a failure."""
    assert body_of(ChatStream(unheard), [sent(*chunks)]) is None


def test_end_of_a_stream_with_a_reason_needs_no_more() -> None:
    """Some servers send no `[DONE]`."""
    assert chat(chunk(content="yes"), chunk("stop")).message.text == "yes"


@pytest.mark.accepts("M8")
@pytest.mark.parametrize(
    ("fault", "cls", "words"),
    [
        ({"error": {"message": "too busy", "code": 503}}, errors.LLMUnavailableError, "too busy"),
        (
            {"error": {"message": "slow down", "code": "rate_limit_exceeded"}},
            errors.LLMRateLimitError,
            "slow down",
        ),
        ({"error": "gone"}, errors.LLMUnavailableError, "gone"),
        (
            {"object": "error", "message": "out of memory", "code": 500},
            errors.LLMUnavailableError,
            "out of memory",
        ),
        (
            {"type": "error", "message": "out of memory"},
            errors.LLMUnavailableError,
            "out of memory",
        ),
        (
            {"error": {"message": "lost"}, "choices": [{"delta": {}, "finish_reason": "error"}]},
            errors.LLMUnavailableError,
            "lost",
        ),
        (
            {"choices": [{"delta": {}, "error": {"message": "lost", "code": 429}}]},
            errors.LLMRateLimitError,
            "lost",
        ),
        (
            {"choices": [{"delta": {}, "finish_reason": "error"}]},
            errors.LLMUnavailableError,
            "broken off",
        ),
    ],
)
async def test_error_in_a_stream_of_chunks_is_typed(
    fault: Event, cls: type[errors.LLMError], words: str
) -> None:
    """In every form that servers use; after output it may be billed, and a usage reported in
    between does not count.
    """
    begun = {**chunk(content="The answer"), "usage": {"prompt_tokens": 7, "completion_tokens": 1}}

    error = await OPENAI.failing_stream(
        {"raw": sent(begun, fault, None), "headers": {"content-type": "text/event-stream"}}
    )

    assert type(error) is cls
    assert words in error.message
    assert (error.context["charged"], "usage" in error.context) == (True, False)


@pytest.mark.parametrize(
    ("base_url", "given", "asks"),
    [
        ("https://api.openai.com/v1", None, True),
        ("http://127.0.0.1:8000/v1", None, True),
        ("https://api.mistral.ai/v1", None, False),
        ("https://mistral.ai:443/v1", None, False),
        ("https://api.mistral.ai.example.com/v1", None, True),
        ("https://api.mistral.ai/v1", True, True),
        ("https://api.openai.com/v1", False, False),
    ],
)
def test_usage_is_asked_for_where_the_server_takes_it(
    base_url: str, given: bool | None, asks: bool
) -> None:
    """Mistral refuses the field and reports the usage anyway."""
    assert bool(OpenAIChat(base_url=base_url, stream_usage=given)._streaming) is asks


async def test_request_for_a_stream_differs_in_two_fields() -> None:
    """The user's options are unchanged, and cannot turn it off."""
    extra = {"seed": 1, "stream": False}
    request = ModelRequest(
        model="m",
        messages=HELLO.messages,
        options=HELLO.options.model_copy(update={"extra": extra}),
    )
    with StubProvider([{"text": "hi"}]) as stub:
        await OPENAI.ask(stub.anthropic_url, request)
        await OPENAI.hear(stub.anthropic_url, request)

    whole, streamed = stub.requests
    assert streamed == {**whole, "stream": True, "stream_options": {"include_usage": True}}


# Messages


def block(index: int, start: Event, *deltas: Event, ends: bool = True) -> list[Event]:
    """The events of a block."""
    begun = {"type": "content_block_start", "index": index, "content_block": start}
    ended = [{"type": "content_block_stop", "index": index}] if ends else []
    return [
        begun,
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        *ended,
    ]


def messages(*events: Event, stop: str = "end_turn") -> Event | None:
    """The body of these events, with the first and the last one added."""
    start = {
        "type": "message_start",
        "message": {
            "model": "m1",
            "usage": {"input_tokens": 7, "cache_read_input_tokens": 2, "output_tokens": 1},
        },
    }
    end = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5}}
    return body_of(
        MessageStream("stub", unheard), [sent(start, *events, end, {"type": "message_stop"})]
    )


def test_thinking_keeps_its_signature_through_a_stream() -> None:
    """Redacted thinking arrives whole; deltas and events of unknown kinds are ignored."""
    thinking = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "h"},
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "c2ln"},
        {"type": "new_delta", "new": 1},
    )
    redacted = block(1, {"type": "redacted_thinking", "data": "eA=="})
    words = block(
        2,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "yes"},
        {"type": "citations_delta", "citation": {}},
    )

    body = messages(*thinking, {"type": "ping"}, *redacted, {"type": "new_event"}, *words)

    assert body is not None
    answer = anthropic.answer_of(body, "m")
    assert answer.message.parts == (
        Thinking(text="hm", signature="c2ln"),
        Thinking(text="", redacted="eA=="),
        Text(text="yes"),
    )
    assert answer.usage == Usage(input_tokens=9, output_tokens=5, cache_read_tokens=2)


@pytest.mark.parametrize(
    ("deltas", "arguments"),
    [
        (['{"a": ', "1}"], '{"a": 1}'),
        ([""], "{}"),
        ([], "{}"),
        (['{"a": "', "\\ud800", '"}'], '{"a": "?"}'),
    ],
)
def test_input_of_a_call_is_put_together(deltas: list[str], arguments: str) -> None:
    """A call without arguments has no input to assemble."""
    call = block(
        0,
        {"type": "tool_use", "id": "a", "name": "add", "input": {}},
        *({"type": "input_json_delta", "partial_json": one} for one in deltas),
    )

    body = messages(*call, stop="tool_use")

    assert body is not None
    assert anthropic.answer_of(body, "m").message.calls == (
        ToolCall(id="a", name="add", arguments=arguments),
    )


def test_call_that_was_cut_off_at_the_limit_is_told_as_such() -> None:
    """Its input is invalid JSON; the turn does not run truncated calls."""
    call = block(
        0,
        {"type": "tool_use", "id": "a", "name": "add", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"a": 1'},
    )

    body = messages(*call, stop="max_tokens")

    assert body is not None
    answer = anthropic.answer_of(body, "m")
    assert (answer.stop, answer.message.calls[0].arguments) == (StopReason.MAX_TOKENS, '{"a": 1')


@pytest.mark.accepts("M8")
def test_call_without_an_end_is_a_cut() -> None:
    """Even if the answer says that it has ended."""
    call = block(
        0,
        {"type": "tool_use", "id": "a", "name": "add", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"a": 1}'},
        ends=False,
    )

    assert messages(*call, stop="tool_use") is None


def test_piece_of_a_block_that_never_began_is_an_error() -> None:
    """An event was lost."""
    with pytest.raises(errors.LLMUnavailableError, match="a block that was never started"):
        messages(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "yes"},
            }
        )


async def test_first_count_of_the_output_is_not_taken_for_all_of_it() -> None:
    """A stream that fails after a million words had reported one token."""
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}}
    fault = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}

    error = await ANTHROPIC.failing_stream(
        {"raw": sent(start, fault), "headers": {"content-type": "text/event-stream"}}
    )

    assert error.context == {"model": "m", "status": 200, "charged": True}


async def test_answer_that_is_given_as_arguments_is_not_heard() -> None:
    """With a schema and without tools the model must answer by a call; its text is the same as in a
    whole reply.
    """
    request = ModelRequest(
        model="m", messages=HELLO.messages, response_schema={"type": "object"}, response_name="add"
    )
    with StubProvider(
        [{"text": "Here it is:", "calls": [{"name": "add", "arguments": {"a": 1}}]}]
    ) as stub:
        whole = await ANTHROPIC.ask(stub.anthropic_url, request)
        streamed, heard = await ANTHROPIC.hear(stub.anthropic_url, request)

    assert streamed == whole
    assert (whole.message.text, heard) == ('{"a": 1}', [])


# Responses


def test_items_count_where_the_last_event_leaves_them_out() -> None:
    """Some servers do that."""
    item = {"type": "message", "content": [{"type": "output_text", "text": "yes"}]}
    events: list[Event] = [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "message", "content": []},
        },
        {"type": "response.output_text.delta", "delta": "yes"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ]

    body = body_of(ResponseStream(unheard), [sent(*events)])

    assert body == {"status": "completed", "output": [item]}


@pytest.mark.accepts("M8")
@pytest.mark.parametrize(
    ("last", "words"),
    [
        (
            {
                "type": "response.failed",
                "response": {
                    "status": "failed",
                    "error": {"code": "server_error", "message": "lost"},
                },
            },
            "lost",
        ),
        ({"type": "response.failed", "response": {"status": "failed"}}, "not finished"),
        ({"type": "error", "code": "server_error", "message": "lost"}, "lost"),
        ({"type": "error", "error": {"code": "server_error", "message": "lost"}}, "lost"),
    ],
)
async def test_response_that_failed_is_an_error(last: Event, words: str) -> None:
    """After output it may be billed."""
    begun = {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}}

    error = await RESPONSES.failing_stream(
        {"raw": sent(begun, last), "headers": {"content-type": "text/event-stream"}}
    )

    assert type(error) is errors.LLMUnavailableError
    assert words in error.message
    assert error.context["charged"] is True
