"""The cost of parsing text from outside: twice as much text takes about twice the time and memory,
whatever its content.

Each input has two sizes, one eight times the other. Linear time takes eight times as long,
quadratic time 64 times; the limit lies in between. Without PERDURE_EXAMPLES=1 every third input is
tried. Time is the CPU time of the thread, the best of several runs, and very short times always
pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp_types import CallToolResult, TextContent
from pydantic_ai import messages as theirs

import perdure.protocols.json_choice as json_choice
import perdure.protocols.react_text as react_text
from perdure import errors, text
from perdure.activities import output_validation
from perdure.activities.mcp import results
from perdure.activities.providers import (
    anthropic,
    http_errors,
    lenient_json,
    openai_chat,
    openai_responses,
    pydantic_ai_messages,
    sse,
)
from perdure.activities.providers.chat_stream import ChatStream
from perdure.activities.providers.http import retry_after_s
from perdure.activities.providers.message_stream import MessageStream
from perdure.activities.providers.response_stream import ResponseStream
from perdure.activities.skill_folders import read as read_skills
from perdure.activities.toolboxes import calculator, pages, targets
from perdure.activities.toolboxes import fetch as web
from perdure.activities.toolboxes.folder import Folder
from perdure.agents.agent import Agent
from perdure.agents.definitions import ToolDefinition
from perdure.agents.mcp_servers import ListedTool, MCPServer, name_of, toolbox
from perdure.protocols.arguments import arguments_of, unfenced
from perdure.protocols.prompt import Prompt
from perdure.schemas import output_type, tool_arguments
from perdure.schemas.strict_schema import Schema, check_size, plain, strict
from perdure.values.answers import ModelAnswer
from perdure.values.messages import (
    AssistantMessage,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from perdure.worker import health

from ..support.thorough import examples, some

SMALL, TIMES = 4_000, 8
MOST = 28
"""The allowed factor for eight times the text."""
NOTHING_S = 0.02
NOTHING_BYTES = 2_000_000

STRINGS = {"type": "array", "items": {"type": "string"}}
PAIR = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
MAP = {"type": "object", "additionalProperties": {"type": "integer"}}
CHOICE = {"anyOf": [{"type": "array", "items": PAIR}, {"type": "array", "items": MAP}, STRINGS]}


def tool(name: str, **fields: Any) -> ToolDefinition:
    """A tool in the form for a model."""
    parameters = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in fields.items()},
        "required": [*fields],
    }
    return ToolDefinition(
        name=name,
        description="",
        parameters=parameters,
        activity="x",
        is_idempotent=True,
        timeout_s=1,
        schema_digest="",
    )


TOOLS = (tool("search", query="string"), tool("add", a="integer", b="integer"))


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Text from outside may be refused, with a typed error."""
    with contextlib.suppress(errors.PerdureError, ValueError, RecursionError):
        yield


def seconds(read: Callable[[], object]) -> float:
    """CPU time of this thread."""
    began = time.thread_time()
    with refused():
        read()
    return time.thread_time() - began


def peak(read: Callable[[], object]) -> int:
    """The peak memory of a call, beyond what was in use before."""
    tracemalloc.start()
    try:
        with refused():
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def check_growth(
    make: Callable[[int], Any], read: Callable[[Any], object], small: int = SMALL
) -> None:
    """Parse both sizes, and compare. A busy machine has three tries."""
    less, more = make(small), make(small * TIMES)
    for chance in range(3):
        long = seconds(lambda: read(more))
        if long < NOTHING_S or long < MOST * (
            short := min(seconds(lambda: read(less)) for _ in range(3))
        ):
            break
        assert chance < 2, (
            f"{small} characters take {short:.3f} s, {TIMES} times as many {long:.3f} s"
        )
    many = peak(lambda: read(more))

    assert many < NOTHING_BYTES or many < MOST * peak(lambda: read(less))


def repeated(piece: str, before: str = "", after: str = "") -> Callable[[int], str]:
    """A string of about this number of characters."""
    return lambda n: before + piece * (n // len(piece)) + after


def answered(words: str) -> ModelAnswer:
    return ModelAnswer(message=AssistantMessage(parts=(Text(text=words),)), model="m")


def in_react(words: str) -> None:
    react_text.read(answered(words), Prompt(tools=TOOLS), corrects=True)
    unfenced(words)
    arguments_of(words, words, 0, TOOLS[0])


def in_json(words: str) -> None:
    json_choice.read(
        answered(words), Prompt(tools=TOOLS, response_schema={"type": "object"}), corrects=True
    )


def in_words(words: str) -> None:
    in_react(words)
    in_json(words)


REPLIES = {
    "fence that is not closed": repeated(" ", "Action: search\nAction Input: ```\n", "x"),
    "actions without input": repeated("Action: none\n"),
    "fence of tildes": repeated("\n", "Action: search\nAction Input: ~~~\n", "x"),
    "actions that name nothing": repeated("Action:\n"),
    "tildes": repeated("~"),
    "ticks": repeated("`"),
    "tabs behind a fence": repeated("\t", "Action: search\nAction Input: ```", "x"),
    "inputs": repeated("Action Input: {\n", "Action: search\n"),
    "answers that are empty": repeated("**Final Answer:**\n"),
    "decoration": repeated("*#> _"),
    "words of markers": repeated("action "),
    "digits": repeated("1", "Action "),
    "blanks before a colon": repeated(" ", "Action", "x"),
    "objects that are not closed": repeated('{"a":'),
    "objects in lines": repeated('Action: {"a": "\n'),
    "brackets": repeated("[", "Action: search"),
    "calls in calls": repeated("search(", "Action: "),
    "quotes": repeated('"', "Action: search\nAction Input: {"),
    "escapes": repeated("\\", 'Action: search\nAction Input: {"a": "'),
    "thoughts": repeated("<think></think>"),
    "open thoughts": repeated("<think>"),
    "final answers in a line": repeated("final answer is "),
    "dicts of Python": repeated("{'a':"),
    "braces": repeated("{"),
    "answer": repeated("word ", "Thought: I know.\nFinal Answer: "),
}


@pytest.mark.accepts("C3")
@pytest.mark.parametrize("read", [in_react, in_json])
@pytest.mark.parametrize("make", some([*REPLIES.values()]), ids=some([*REPLIES]))
def test_reply_in_words_is_read_in_linear_time(
    make: Callable[[int], str], read: Callable[[str], None]
) -> None:
    """For any text in place of a call."""
    check_growth(make, read)


MARKS = [
    "Action:",
    "Action Input:",
    "Final Answer:",
    "Answer:",
    "\n",
    " ",
    "\t",
    "```",
    "~~~",
    "`",
    "{",
    "}",
    '"',
    ":",
    "a",
    "(",
    "[",
    "**",
    "<think>",
    "</think>",
]
TAGS = [
    "<",
    ">",
    "/",
    "a",
    "!",
    "--",
    "=",
    '"',
    "'",
    " ",
    "\n",
    "script",
    "title",
    "pre",
    "href",
    "&#",
    "9",
    "x",
    ";",
    "&amp;",
    "p",
]


def pieces(words: list[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words), min_size=1, max_size=5).map("".join)


@pytest.mark.accepts("C3")
@settings(
    max_examples=examples(25),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(pieces(MARKS), pieces(MARKS), pieces(MARKS))
def test_no_repetition_of_marks_makes_a_reply_dear(before: str, piece: str, after: str) -> None:
    """Random repetitions, between a beginning and an end."""
    check_growth(repeated(piece, before, after), in_words)


@pytest.mark.accepts("C3")
@settings(
    max_examples=examples(25),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(pieces(TAGS), pieces(TAGS), pieces(TAGS))
def test_no_repetition_of_tags_makes_a_page_dear(before: str, piece: str, after: str) -> None:
    """The same for HTML."""
    check_growth(
        repeated(piece, before, after), lambda page: pages.readable(page, "https://shop.test/")
    )


def of_values(one: Callable[[int], Any]) -> Callable[[int], list[Any]]:
    return lambda n: [one(number) for number in range(n // 10)]


VALUES = {
    "texts": (STRINGS, of_values(str)),
    "objects": ({"type": "array", "items": PAIR}, of_values(lambda n: {"a": n, "b": "x"})),
    "wrong objects": ({"type": "array", "items": PAIR}, of_values(lambda n: {"a": "x"})),
    "unique objects": (
        {"type": "array", "uniqueItems": True, "items": PAIR},
        of_values(lambda n: {"a": n, "b": "x"}),
    ),
    "names that are not allowed": (PAIR, lambda n: {str(number): 1 for number in range(n // 10)}),
    "unique items of all kinds": (
        {"type": "array", "uniqueItems": True, "items": CHOICE},
        of_values(lambda n: [n, str(n), [n], {"a": n}][n % 4]),
    ),
    "entries of a map": (MAP, of_values(lambda n: {"key": str(n), "value": n})),
    "one of many": (
        {"type": "array", "items": {"enum": [str(n) for n in range(2000)]}},
        of_values(lambda n: "1999"),
    ),
    "alternatives": (CHOICE, of_values(lambda n: [{"key": str(n), "value": n}])),
    "pattern": (
        {"type": "array", "items": {"type": "string", "pattern": "^(a+)+$"}},
        of_values(lambda n: "a" * 20 + "b"),
    ),
    "pattern of a long text": ({"type": "string", "pattern": "(?:.{0,1000}x){3}y"}, repeated("x")),
    "names by a pattern": (
        {
            "type": "object",
            "patternProperties": {"(a+)+$": {"type": "integer"}},
            "additionalProperties": False,
        },
        lambda n: {"a" * 20 + f"b{number}": 1 for number in range(n // 10)},
    ),
}


@pytest.mark.accepts("C2", "C3")
@pytest.mark.parametrize(("wanted", "make"), some([*VALUES.values()]), ids=some([*VALUES]))
def test_answer_is_held_to_a_schema_in_linear_time(
    wanted: Schema, make: Callable[[int], Any]
) -> None:
    """Validation with a caller's schema, and the conversion from the strict form."""
    check = output_validation.validator(wanted)

    check_growth(make, lambda value: check(plain(wanted, value)))
    check_growth(lambda n: json.dumps(make(n)), lambda words: output_type.value_in(words, wanted))


def in_levels(levels: int, inner: Callable[[int], Schema], last: Schema) -> Schema:
    """Definitions of which each refers to the next."""
    made: dict[str, Any] = {f"L{level}": inner(level + 1) for level in range(levels)}
    return {"$defs": {**made, f"L{levels}": last}, "$ref": "#/$defs/L0"}


def reference(level: int, **words: str) -> Schema:
    return {"$ref": f"#/$defs/L{level}", **words}


DOUBLING: dict[str, Callable[[int], Schema]] = {
    "described references": lambda n: {
        "type": "object",
        "properties": {"a": reference(n, description="a"), "b": reference(n, description="b")},
    },
    "plain references": lambda n: {
        "type": "object",
        "properties": {"a": reference(n), "b": reference(n)},
    },
    "alternatives": lambda n: {"anyOf": [reference(n), reference(n)]},
    "alternatives of objects": lambda n: {
        "anyOf": [
            {"type": "object", "properties": {"a": reference(n)}},
            {"type": "object", "properties": {"a": reference(n), "b": reference(n)}},
        ]
    },
    "all of": lambda n: {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "allOf": [reference(n), reference(n)],
    },
    "tuples": lambda n: {
        "type": "array",
        "prefixItems": [reference(n, description="a"), reference(n, description="b")],
    },
}


@pytest.mark.accepts("C1", "C2")
@pytest.mark.parametrize("inner", DOUBLING.values(), ids=DOUBLING.keys())
@pytest.mark.table(3)
def test_references_that_double_cost_no_more_than_the_limits_allow(
    inner: Callable[[int], Schema],
) -> None:
    """Thirty levels would be a billion nodes; each is refused, or parsed."""
    wanted = in_levels(30, inner, {"type": "object", "properties": {}})
    value: Any = {}
    for _ in range(30):
        value = {"a": value}

    def use() -> None:
        json.dumps(strict(wanted))
        check = output_validation.validator(wanted)
        check(plain(wanted, value))

    assert seconds(use) < 60
    assert peak(lambda: (strict(wanted), plain(wanted, value))) < 100_000_000


SCHEMAS: dict[str, Callable[[int], Schema]] = {
    "fields": lambda n: {
        "type": "object",
        "properties": {
            f"f{number}": {"type": "string", "description": "x"} for number in range(n // 50)
        },
    },
    "choices": lambda n: {"enum": [str(number) for number in range(n // 10)]},
    "tuple": lambda n: {
        "type": "array",
        "prefixItems": [
            {"type": "string", "description": str(number)} for number in range(n // 40)
        ],
    },
    "long name with fields": lambda n: {
        "type": "object",
        "properties": {
            "x" * n: {
                "type": "object",
                "properties": {f"f{number}": {"type": "string"} for number in range(n // 50)},
            }
        },
    },
    "long description that is copied": lambda n: {
        "$defs": {"a": {"type": "string", "description": "x" * n}},
        "type": "object",
        "properties": {
            f"f{number}": {"$ref": "#/$defs/a", "description": "b"} for number in range(100)
        },
    },
    "types": lambda n: {
        "type": "object",
        "properties": {},
        "allOf": [{"type": [[number] for number in range(n // 10)]}],
    },
    "required": lambda n: {
        "type": "object",
        "properties": {},
        "required": [str(number) if number % 2 else {} for number in range(n // 10)],
    },
    "nothing but depth": lambda n: {
        "type": "array",
        "items": json.loads('{"items":' * 100 + "{}" + "}" * 100),
        "x": "x" * n,
    },
}


@pytest.mark.slow
@pytest.mark.accepts("C1", "C3")
@pytest.mark.parametrize("make", some([*SCHEMAS.values()]), ids=some([*SCHEMAS]))
def test_schema_is_read_in_linear_time(make: Callable[[int], Schema]) -> None:
    """In a workflow, and in the activity that validates answers."""
    check_growth(make, strict)
    check_growth(make, output_validation.validator)
    check_growth(make, check_size)


def spend(expression: str, places: list[int], limit: float = 1.5) -> str:
    """A function with arguments."""
    return expression


GIVEN = tool_arguments.GivenArguments({"type": "object"})
ARGUMENTS = {
    "fields": lambda n: json.dumps({f"x{number}": 1 for number in range(n // 10)}),
    "items of a wrong kind": lambda n: json.dumps({"expression": "x", "places": ["x"] * (n // 5)}),
    "same field": repeated('"expression":"x",', "{", '"places":[]}'),
    "digits": repeated("1", '{"expression":"x","places":[', "]}"),
    "brackets": repeated("[", '{"places":'),
    "blanks": repeated(" "),
    "escapes": repeated("\\u00e9", '{"expression":"', '"}'),
}


@pytest.mark.accepts("C3")
@pytest.mark.parametrize("make", some([*ARGUMENTS.values()]), ids=some([*ARGUMENTS]))
def test_arguments_are_checked_in_linear_time(make: Callable[[int], str]) -> None:
    """With a function's signature, and with the schema of an MCP server."""
    check_growth(make, tool_arguments.arguments_of(spend).parse)
    check_growth(make, GIVEN.parse)
    check_growth(make, text.arguments_in_brief)
    check_growth(make, text.arguments_indented)


def events(*data: dict[str, Any]) -> Callable[[int], list[tuple[str, dict[str, Any]]]]:
    """A stream that repeats these events; `#` is the number of the event."""
    forms = [json.dumps(one) for one in data]

    def make(n: int) -> list[tuple[str, dict[str, Any]]]:
        numbered = (
            (number, form)
            for number, form in zip(range(n // 10), itertools.cycle(forms), strict=False)
        )
        return [("", json.loads(form.replace("#", str(number)))) for number, form in numbered]

    return make


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


CHAT = {
    "words": events(delta(content="word ")),
    "reasoning and words": events(delta(reasoning_content="so"), delta(content="w")),
    "chunks": events(
        delta(
            content=[
                {"type": "text", "text": "a"},
                {"type": "thinking", "thinking": [{"type": "text", "text": "b"}]},
            ]
        )
    ),
    "pieces of a name": events(delta(tool_calls=[{"index": 0, "function": {"name": "n#" * 40}}])),
    "pieces of arguments": events(
        delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "n", "arguments": "1"}}])
    ),
    "calls": events(
        delta(tool_calls=[{"index": 0, "id": "c#", "function": {"name": "n", "arguments": "1"}}])
    ),
}
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
MESSAGES = {
    "words": events(
        BLOCK,
        *[{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "w"}}]
        * 9,
    ),
    "blocks": events({**BLOCK, "index": "#"}),
    "fields of the message": events(
        {"type": "message_delta", "delta": {"f#": 1}, "usage": {"g#": 1}}
    ),
    "signatures": events(
        BLOCK,
        *[
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "signature_delta", "signature": "s" * 99},
            }
        ]
        * 9,
    ),
}
RESPONSES = {
    "words": events({"type": "response.output_text.delta", "delta": "w"}),
    "items": events(
        {"type": "response.output_item.added", "output_index": "#", "item": {"type": "message"}}
    ),
}
STREAMS: list[Any] = [
    *(
        pytest.param(lambda: ChatStream(lambda _: None), make, id=f"chat, {name}")
        for name, make in CHAT.items()
    ),
    *(
        pytest.param(lambda: MessageStream("v", lambda _: None), make, id=f"messages, {name}")
        for name, make in MESSAGES.items()
    ),
    *(
        pytest.param(lambda: ResponseStream(lambda _: None), make, id=f"responses, {name}")
        for name, make in RESPONSES.items()
    ),
]


@pytest.mark.accepts("C3")
@pytest.mark.parametrize(("opened", "make"), some(STREAMS))
@pytest.mark.table(1)
def test_stream_is_put_together_in_linear_time(
    opened: Callable[[], Any], make: Callable[[int], Any]
) -> None:
    """Each of the three APIs, event by event, to its end."""

    def read(given: list[tuple[str, dict[str, Any]]]) -> None:
        stream = opened()
        for name, data in given:
            stream.take(name, data)
        stream.body()

    check_growth(make, read, small=40_000)


def fed(size: int) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        reader = sse.EventReader("vendor")
        for begin in range(0, len(data), size):
            for _ in reader.feed(data[begin : begin + size]):
                pass

    return read


BYTES = {
    "line without end": b"x",
    "lines of one event": b"data: x\n",
    "events": b"data: x\n\n",
    "carriage returns": b"\r",
    "comments": b": x\n",
    "names": b"event: x\n",
}


@pytest.mark.accepts("C3")
@pytest.mark.parametrize("piece", some([*BYTES.values()]), ids=some([*BYTES]))
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_events_are_found_in_linear_time(piece: bytes, size: int) -> None:
    """In pieces of any size."""
    check_growth(lambda n: piece * (n // len(piece)), fed(size))


BODIES: dict[str, Callable[[int], dict[str, Any]]] = {
    "words": lambda n: {"choices": [{"message": {"content": "x" * n}, "finish_reason": "stop"}]},
    "chunks": lambda n: {
        "choices": [
            {
                "message": {"content": [{"type": "text", "text": "x"}] * (n // 10)},
                "finish_reason": "stop",
            }
        ]
    },
    "choices": lambda n: {"choices": [{"message": {"content": "x"}}] * (n // 10)},
    "blocks": lambda n: {
        "content": [{"type": "text", "text": "x"}, {"type": "thinking", "thinking": "y"}]
        * (n // 20)
    },
    "items": lambda n: {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "x"}]}]
        * (n // 10),
    },
    "thoughts": lambda n: {
        "status": "completed",
        "output": [{"type": "reasoning", "summary": [{"text": "x"}]}, {"type": "web_search"}]
        * (n // 20),
    },
    "fields": lambda n: {f"f{number}": number for number in range(n // 10)},
    "error": lambda n: {
        "error": {"message": "try again in " * (n // 10), "details": [{"reason": "x"}] * (n // 10)}
    },
    "error in words": lambda n: {"error": "<" * n},
    "error that is an object": lambda n: {"error": {"message": {"a": ["x"] * (n // 5)}}},
}


@pytest.mark.accepts("C3")
@pytest.mark.parametrize("make", some([*BODIES.values()]), ids=some([*BODIES]))
def test_reply_of_a_provider_is_read_in_linear_time(make: Callable[[int], dict[str, Any]]) -> None:
    """As a success of each API, as an error, and as JSON with lone surrogates."""

    def read(body: dict[str, Any]) -> None:
        for vendor in (openai_chat, openai_responses, anthropic):
            with refused():
                vendor.answer_of(body, "m")
        http_errors.quoted(http_errors.words_of(body.get("error")), "sk-0123456789")
        anthropic.error_of(400, body, {}, "m")
        lenient_json.parsed(json.dumps({"half": "\ud800", **body}))

    check_growth(make, read)


def by_library(n: int) -> theirs.ModelResponse:
    """A reply with many parts, converted by pydantic-ai."""
    calls = [
        theirs.ToolCallPart("add", '{"a":' + "1" * 30, f"c{number}") for number in range(n // 80)
    ]
    thoughts = [theirs.ThinkingPart("x" * 30, signature="s", provider_name="p")] * (n // 80)
    return theirs.ModelResponse(parts=[*calls, *thoughts, theirs.TextPart("x" * n)])


@pytest.mark.accepts("C3")
def test_reply_by_pydantic_ai_is_read_in_linear_time() -> None:
    """Its words, thoughts and calls."""
    check_growth(by_library, lambda response: pydantic_ai_messages.answer_of(response, "m"))


TEXTS = {
    "letters": repeated("x"),
    "digits": repeated("1"),
    "digits and colons": repeated("1:"),
    "blanks": repeated(" "),
    "blanks and letters": repeated(" x"),
    "lines": repeated("\n"),
    "parentheses": repeated("("),
    "controls": repeated("\x1b"),
    "halves of characters": repeated("\ud800"),
    "hashes": repeated("#"),
    "hashes and blanks": repeated(" ", "# "),
    "underlines": repeated("=", "x\n", "!"),
    "minus": repeated("-"),
    "commas": repeated("Mon, "),
    "headings": repeated("# a\n\nb\n"),
    "fences": repeated("```\n"),
    "words": repeated("refund of a printed word "),
    "braces": repeated('{"a":'),
    "open brackets": repeated("["),
    "stars": repeated("*a"),
    "slashes": repeated("a/"),
    "references": repeated("&"),
    "numbers of characters": repeated("9", "&#"),
    "semicolons": repeated("; charset=x"),
}


@pytest.mark.accepts("C3")
@pytest.mark.parametrize("make", some([*TEXTS.values()]), ids=some([*TEXTS]))
def test_any_text_is_read_in_linear_time(make: Callable[[int], str], tmp_path: Path) -> None:
    """As text to clean, truncate and quote, as a file, an expression, a header, a pattern, a path,
    a page or a result.
    """
    folder = Folder(tmp_path)
    (tmp_path / "a.md").write_text("# Refunds\n\nWithin 30 days.\n")

    def of_folder(words: str) -> None:
        for use in (
            folder.list_files.function,
            folder.search_files.function,
            folder.read_file.function,
        ):
            with refused():
                use(words)

    def found(words: str) -> None:
        (tmp_path / "a.md").write_text(words.encode("utf-8", "replace").decode())
        folder.search_files.function("refund word")

    def of_server(words: str) -> None:
        results.output_of(
            CallToolResult(content=[TextContent(text=words)], structured_content={"a": words})
        )
        name_of("notes", words)

    for read in (
        lambda words: (
            text.clean(words),
            text.harmless(words),
            text.one_line(words, 80),
            text.clip(words, 1000),
            text.tail(words, 1000),
        ),
        lambda words: retry_after_s({"retry-after": words[:60_000]}),
        calculator.calculate.function,
        of_folder,
        found,
        lambda page: pages.readable(page, "https://shop.test/"),
        of_server,
        lambda words: web._charset(_Response(words)),  # type: ignore[arg-type]
        targets.parse,
    ):
        check_growth(make, read)


class _Response:
    """A reply with one header."""

    def __init__(self, words: str) -> None:
        self.headers = {"content-type": words}


def spoken(n: int) -> tuple[Any, ...]:
    calls = tuple(
        ToolCall(id=f"c{number}", name="add", arguments='{"a":') for number in range(n // 40)
    )
    answers = tuple(ToolResult(call_id=call.id, name=call.name, content="x") for call in calls)
    return (
        UserMessage.of("go"),
        AssistantMessage(parts=calls),
        ToolMessage(results=answers),
        *[UserMessage.of("go on")] * (n // 400),
    )


@pytest.mark.accepts("C3")
@pytest.mark.parametrize("protocol", [react_text, json_choice])
def test_transcript_is_told_in_linear_time(protocol: Any) -> None:
    """By the text protocols."""
    check_growth(spoken, lambda messages: protocol.ask(Prompt(messages=messages, tools=TOOLS)))


@pytest.mark.accepts("C5")
def test_results_and_tools_of_a_server_are_read_in_linear_time() -> None:
    """Many texts next to a structured value, and a long list of tools."""
    server = MCPServer.stdio("notes", ["notes"])

    def result(n: int) -> CallToolResult:
        words = [TextContent(text=json.dumps({"result": [number]})) for number in range(n // 10)]
        return CallToolResult(
            content=[*words], structured_content={"result": [[number] for number in range(n // 10)]}
        )

    def tools(n: int) -> list[ListedTool]:
        return [
            ListedTool(f"tool {number}", "x", {"type": "object", "properties": {}})
            for number in range(n // 40)
        ]

    check_growth(result, results.output_of)
    check_growth(tools, lambda listed: toolbox(server, listed, lambda *_: None))  # type: ignore[arg-type]


FRONTMATTER = {
    "fields": lambda n: "".join(f"f{number}: x\n" for number in range(n // 10)),
    "brackets": repeated("[", "x: "),
    "sixties": repeated(":59", "x: 1"),
    "digits": repeated("1", "x: "),
    "quotes": repeated("'", "x: "),
    "blanks": repeated(" ", "x:", "y"),
    "folded": repeated("  x\n", "x: >\n"),
}


@pytest.mark.slow
@pytest.mark.accepts("C4")
@pytest.mark.parametrize("make", some([*FRONTMATTER.values()]), ids=some([*FRONTMATTER]))
def test_frontmatter_of_a_skill_is_read_in_linear_time(
    make: Callable[[int], str], tmp_path: Path
) -> None:
    """Up to its limit; longer input is refused without parsing."""

    def read(words: str) -> None:
        (tmp_path / "SKILL.md").write_text(f"---\n{words}\n---\nBody")
        read_skills(Agent(name="a", model="m:m", skills=[tmp_path]))

    check_growth(make, read, small=1_900)


HEADS = {
    "path": b"x",
    "queries": b"?",
    "slashes": b"/",
    "blanks": b" ",
    "versions": b" HTTP/1.",
    "lines": b"a: b\r\n",
}


@pytest.mark.accepts("C3")
@pytest.mark.parametrize("piece", some([*HEADS.values()]), ids=some([*HEADS]))
def test_request_of_a_probe_is_read_in_linear_time(piece: bytes) -> None:
    """Each is at most 8 KB, but the loop that answers also polls Temporal."""

    async def head(data: bytes) -> bytes:
        reader = asyncio.StreamReader(limit=len(data))
        reader.feed_data(data)
        reader.feed_eof()
        with contextlib.suppress(asyncio.IncompleteReadError):
            await health._head(reader)
        return data

    def read(data: bytes) -> None:
        health._REQUEST_LINE.match(asyncio.run(head(data)))

    check_growth(lambda n: b"GET /" + piece * (n // len(piece)), read)
