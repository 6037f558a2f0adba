"""The parser of the ReAct format, with texts that models write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from perdure import tool
from perdure.agents.definitions import define_tool
from perdure.protocols.react_parser import ParsedReply, parse
from perdure.protocols.react_text import _answer, _call
from perdure.values.messages import ToolCall

from ..support.thorough import examples


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def search_handbook(query: str, limit: int = 5) -> str:
    """Search."""
    return query * limit


@tool
def run_code(code: str) -> str:
    """Run a program."""
    return code


@tool
def now() -> str:
    """The time."""
    return "noon"


@tool
def greet(name: str | None = None) -> str:
    """Greet somebody."""
    return name or ""


@tool
def square(number: int) -> int:
    """Square a number."""
    return number**2


TOOLS = [
    define_tool(item, item.name) for item in (add, search_handbook, run_code, now, greet, square)
]
ADDS = ParsedReply(action="add", arguments='{"a": 2, "b": 3}')
NEITHER = ParsedReply()


@pytest.mark.accepts("R5")
@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('Action: add\nAction Input: {"a": 2,\n "b": 3}', '{"a": 2,\n "b": 3}'),
        ('Action: add\nAction Input:\n{"a": 2, "b": 3}', '{"a": 2, "b": 3}'),
        ('Action:\nadd\nAction Input:\n\n{"a": 2, "b": 3}\n', '{"a": 2, "b": 3}'),
        ('Action: add\nAction Input: ```json\n{"a": 2, "b": 3}\n```', '{"a": 2, "b": 3}'),
        ('Action: add\nAction Input:\n```\n{"a": 2,\n"b": 3}\n```\n', '{"a": 2,\n"b": 3}'),
        ('Action: add\nAction Input: `{"a": 2, "b": 3}`', '{"a": 2, "b": 3}'),
    ],
)
def test_input_on_several_lines_on_the_next_or_in_a_fence_is_read(
    text: str, arguments: str
) -> None:
    """The JSON is unchanged."""
    assert parse(text, TOOLS) == ParsedReply(action="add", arguments=arguments)


@pytest.mark.accepts("R5")
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Final Answer: 15", "15"),
        ("Final Answer:\n15\n\nand 16", "15\n\nand 16"),
        (
            'Final Answer: The words are "Final Answer: 15".\nFinal Answer: 16',
            'The words are "Final Answer: 15".\nFinal Answer: 16',
        ),
        (
            "Final Answer: write\nAction: add\nAction Input: {}",
            "write\nAction: add\nAction Input: {}",
        ),
    ],
)
def test_answer_goes_on_to_the_end(text: str, answer: str) -> None:
    """With any markers inside."""
    assert parse(text, TOOLS) == ParsedReply(answer=answer)


@pytest.mark.accepts("R4")
@pytest.mark.parametrize(
    "invented",
    [
        "\nObservation: 5\nThought: I know it\nFinal Answer: 5",
        "\nFinal Answer: 5",
        "\nAction: now\nAction Input: {}",
        ' and so on\nObservation: {"c": 5}',
        "\n\n**Observation:** 5",
    ],
)
def test_what_is_invented_after_an_action_is_dropped(invented: str) -> None:
    """The first action runs, whatever follows."""
    assert parse(f'Action: add\nAction Input: {{"a": 2, "b": 3}}{invented}', TOOLS) == ADDS


@pytest.mark.parametrize(
    "text",
    [
        '**Action:** add\n**Action Input:** {"a": 2, "b": 3}',
        '**Action**: `add`\n**Action Input**: {"a": 2, "b": 3}',
        '### Action\nadd\n### Action Input\n{"a": 2, "b": 3}',
        'ACTION: add\nACTION INPUT: {"a": 2, "b": 3}',
        'action: add\naction_input: {"a": 2, "b": 3}',
        'Action 1: add\nAction Input 1: {"a": 2, "b": 3}',
        '> Action: [add]\n> Action Input: {"a": 2, "b": 3}',
        'Action\uff1aadd\nAction Input\uff1a{"a": 2, "b": 3}',
        'Action: add\r\nAction Input: {"a": 2, "b": 3}\r\n',
        'Action: Add.\nAction Input: {"a": 2, "b": 3}',
        'Action: I will use add\nAction Input: {"a": 2, "b": 3}',
        'Action: add Action Input: {"a": 2, "b": 3}',
        'Action: add\n{"a": 2, "b": 3}',
        'Action: add({"a": 2, "b": 3})',
        'Action: add\nAction Input: Here it is: {"a": 2, "b": 3}',
        "Action: add\nAction Input: {'a': 2, 'b': 3,}",
        'Action:\n```json\n{"action": "add", "action_input": {"a": 2, "b": 3}}\n```',
        'Action: {"name": "add", "arguments": {"a": 2, "b": 3}}',
        'Action: {"tool": "add", "args": "{\\"a\\": 2, \\"b\\": 3}"}',
    ],
)
def test_many_ways_to_write_an_action_are_one(text: str) -> None:
    """Bold, headings, case, numbers, quotes, one line, one object, a Python dict."""
    assert parse(text, TOOLS) == ADDS


@pytest.mark.parametrize(
    ("written", "action", "arguments"),
    [
        (
            "search_handbook\nAction Input: notice period",
            "search_handbook",
            {"query": "notice period"},
        ),
        (
            'Search Handbook\nAction Input: "notice: period"',
            "search_handbook",
            {"query": "notice: period"},
        ),
        ("search-handbook[notice period]", "search_handbook", {"query": "notice period"}),
        ("search_handbook\nAction Input: 42", "search_handbook", {"query": "42"}),
        (
            "run_code\nAction Input:\n```python\nx = {}\nprint(x)\n```\nDone.",
            "run_code",
            {"code": "x = {}\nprint(x)"},
        ),
        (
            'run_code\nAction Input: {"code": "a\nObservation: b"}',
            "run_code",
            {"code": "a\nObservation: b"},
        ),
        ("greet\nAction Input: 'Ann'", "greet", {"name": "Ann"}),
        ("greet\nAction Input: 42", "greet", {"name": "42"}),
        ("greet\nAction Input: None", "greet", {}),
        ("greet", "greet", {}),
        ("square\nAction Input: 12", "square", {"number": 12}),
        ("square\nAction Input: twelve", "square", {"number": "twelve"}),
        ("now\nAction Input: None", "now", {}),
        ("now()", "now", {}),
        ("now", "now", {}),
    ],
)
def test_words_are_the_one_argument_that_they_can_be_meant_for(
    written: str, action: str, arguments: dict[str, Any]
) -> None:
    """A tool with one argument, or with one required argument."""
    reply = parse(f"Thought: hm\nAction: {written}", TOOLS)

    assert (reply.thought, reply.action, json.loads(reply.arguments)) == ("hm", action, arguments)


def test_words_for_a_tool_of_several_arguments_stay_as_they_are() -> None:
    """The tool then reports what is wrong with them."""
    assert parse("Action: add\nAction Input: 2 and 3\nObservation: 5", TOOLS) == ParsedReply(
        action="add", arguments="2 and 3"
    )


@pytest.mark.accepts("R2")
@pytest.mark.parametrize(
    ("written", "name"),
    [("web_search", "web_search"), ('"Web Search"', "Web Search"), ("x" * 200, "x" * 99 + "…")],
)
def test_unknown_action_keeps_its_name(written: str, name: str) -> None:
    """100 characters at most."""
    assert parse(f"Action: {written}\nAction Input: words", TOOLS) == ParsedReply(
        action=name, arguments="words"
    )


@pytest.mark.parametrize(
    "text",
    [
        "Thought: done\n**Final Answer:** **15** apples",
        "Thought: done\n**Final Answer**: **15** apples",
        "**Thought:** done\n**Final Answer: **15** apples**",
        "Thought: done\n## Final Answer\n**15** apples",
        "done\nFinalAnswer: **15** apples",
        "Thought: done\nAnswer: **15** apples",
        "Thought: done Final Answer: **15** apples",
        "Thought: done\nAction: Final Answer\nAction Input: **15** apples",
        'Thought: done\nAction: finish\nAction Input: {"answer": "**15** apples"}',
        "Thought: done\nAction: Finish[**15** apples]",
    ],
)
def test_many_ways_to_write_an_answer_are_one(text: str) -> None:
    """Bold text inside the answer is kept."""
    assert parse(text, TOOLS) == ParsedReply(thought="done", answer="**15** apples")


@pytest.mark.parametrize(
    "nothing", ["None", "N/A", "none (I can answer)", "no action", "`None`", "-", "None needed"]
)
def test_action_that_is_none_is_none(nothing: str) -> None:
    """An answer after it counts; otherwise there is neither."""
    assert parse(f"Action: {nothing}\nFinal Answer: 15", TOOLS).answer == "15"
    assert parse(f"Action: {nothing}", TOOLS) == NEITHER


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "The answer is 15.",
        "Thought: I should add",
        "Action:",
        "Final Answer:",
        "Action Input: {}",
        "Thought: of an action\nObservation: 5",
    ],
)
def test_text_without_a_marker_that_says_something_is_neither(text: str) -> None:
    """The parser does not decide what happens to it."""
    assert parse(text, TOOLS) == NEITHER


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        (
            "<think>Action: now</think>\nThought: t\nAction: now",
            ParsedReply("t", "Action: now", "now", "{}"),
        ),
        (
            "I could say\nFinal Answer: 1\n</think>\n\nFinal Answer: 2",
            ParsedReply("", "I could say\nFinal Answer: 1", answer="2"),
        ),
        ("<think>hm</think>It is 2.", ParsedReply(reasoning="hm")),
        ("<think>hm</think>", NEITHER),
        ("Final Answer: the tag </think> ends it", ParsedReply(answer="the tag </think> ends it")),
    ],
)
def test_reasoning_in_tags_stands_apart(text: str, reply: ParsedReply) -> None:
    """Markers in it do not count; an answer may mention the tag."""
    assert parse(text, TOOLS) == reply


def test_without_tools_there_are_no_actions() -> None:
    """In a last answer, text in the form of an action is only text."""
    assert parse("Action: add\nAction Input: {}", []) == NEITHER
    assert parse("Action: add\nFinal Answer: 15", []).answer == "15"


def test_a_tool_may_have_the_name_of_an_answer_or_of_nothing() -> None:
    """The offered tool takes precedence."""
    tools = [
        define_tool(tool(name="finish")(run_code.function), "finish"),
        define_tool(tool(name="none")(run_code.function), "none"),
    ]

    assert [parse(f"Action: {name}\nAction Input: x", tools) for name in ("finish", "none")] == [
        ParsedReply(action="finish", arguments='{"code": "x"}'),
        ParsedReply(action="none", arguments='{"code": "x"}'),
    ]


MARKERS = (
    "Thought: ",
    "Action: ",
    "Action Input: ",
    "Observation: ",
    "Final Answer: ",
    "Answer:",
    "<think>",
    "</think>",
    "**",
    "# ",
    "```",
    "```json\n",
)
WORDS = (
    "\n",
    "\r\n",
    " ",
    "add",
    "run_code",
    "now",
    "None",
    "words",
    "é",
    "\\",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ":",
    '"',
    "'",
    '{"a": 1}',
)
PIECES = st.sampled_from(MARKERS) | st.sampled_from(WORDS)
WRITTEN = st.lists(PIECES, max_size=15).map("".join) | st.text(max_size=200)
UNTAGGED = WRITTEN.map(lambda text: text.replace("</think>", ""))


@settings(max_examples=examples(200), deadline=None)
@given(text=WRITTEN)
@example(text="Action: run_code\nAction Input: " + "[" * 100_000)
@example(text="Action: run_code\nAction Input: " + '{"a":' * 100_000)
@example(text="Action: run_code\nAction Input: {" + "-" * 15_000 + "1}")
@example(text="Action: square\nAction Input: " + "9" * 5_000)
@example(text="*" * 100_000)
@example(text="Action: add\n" * 2_000)
@example(text="```" * 20_000)
def test_parser_never_raises_and_never_says_two_things(text: str) -> None:
    """For any text, it returns an action, an answer or neither, and never a part of one."""
    reply = parse(text, TOOLS)

    assert not (reply.action and reply.answer)
    assert bool(reply.arguments) == bool(reply.action)
    assert reply.action or reply.answer or not reply.thought


@settings(max_examples=examples(200), deadline=None)
@given(
    before=UNTAGGED,
    marker=st.sampled_from(["Action: ", "Final Answer: ", "**Action:** now("]),
    after=UNTAGGED,
)
def test_what_was_read_is_read_the_same_when_it_is_written_again(
    before: str, marker: str, after: str
) -> None:
    """So a model that copies its own earlier format is parsed in the same way."""
    reply = parse(f"{before}\n{marker}{after}", TOOLS)
    assume(reply.action or reply.answer)
    said = (
        _call(reply.thought, ToolCall(id="", name=reply.action, arguments=reply.arguments))
        if reply.action
        else _answer(reply.thought, reply.answer)
    )

    assert parse(said, TOOLS) == ParsedReply(
        reply.thought, "", reply.action, reply.arguments, reply.answer
    )


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
UNMARKED = (
    st.text(max_size=80).map(str.strip).filter(lambda text: ":" not in text and "\r" not in text)
)


@pytest.mark.accepts("C3")
def test_call_behind_a_hundred_markers_that_name_nothing_is_not_looked_for() -> None:
    """Markers are parsed one by one, so a reply with very many of them would take long."""
    call = "Action: now\nAction Input: {}"

    assert parse("Action:\n" * 99 + call, TOOLS).action == "now"
    assert parse("Action:\n" * 100 + call, TOOLS) == ParsedReply()


@settings(max_examples=examples(150), deadline=None)
@given(
    thought=UNMARKED,
    name=st.sampled_from([item.name for item in TOOLS]),
    values=st.dictionaries(st.text(), VALUES, max_size=4),
    indent=st.none() | st.just(1),
)
def test_call_survives_being_written(
    thought: str, name: str, values: dict[str, Any], indent: int | None
) -> None:
    """With any JSON object as arguments, even one that contains markers."""
    arguments = json.dumps(values, indent=indent)

    assert parse(
        _call(thought, ToolCall(id="c", name=name, arguments=arguments)), TOOLS
    ) == ParsedReply(thought, "", name, arguments)


@settings(max_examples=examples(150), deadline=None)
@given(
    thought=UNMARKED,
    answer=WRITTEN.map(str.strip).filter(
        lambda text: bool(text) and "\r" not in text and "</think>" not in text
    ),
)
def test_answer_survives_being_written(thought: str, answer: str) -> None:
    """Any text, even in the form of an action."""
    assert parse(_answer(thought, answer), TOOLS) == ParsedReply(thought, answer=answer)
