"""A lenient parser for replies in the ReAct format. It never raises.

Markers are at the beginning of a line, in any case, with or without bold, headings or numbers
(`**Action 2:**`). The first marker with content decides: after an Action the rest is invented, and
after a Final Answer all of the rest is the answer. These forms of small models are understood as
well: no Thought, `Answer:`, the Final Answer in the middle of a line, `Action: none`, `Action:
Final Answer`, `Action: search[words]`, the name and the input as one JSON object, names that differ
from a tool's only in case and separators, and `<think>` around the thoughts of reasoning models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.agents.definitions import ToolDefinition
from perdure.protocols.arguments import arguments_of, call_in, object_in, unfenced
from perdure.text import one_line

_MARK = re.compile(
    r"^(?P<open>[ \t>#*_`-]*)"
    r"(?P<name>thought|action[ \t_]?input|action|observation|final[ \t_]?answer|answer)"
    r"(?:[ \t]*\d+)?"
    r"(?P<shut>[ \t*_`]*)(?:(?P<colon>[:\uff1a])(?P<close>[*_`]*)|$)",
    re.IGNORECASE | re.MULTILINE,
)
_INLINE_ANSWER = re.compile(r"\bfinal[ _]?answer(?: is)?[ \t]*[:\uff1a]", re.IGNORECASE)
_INLINE_INPUT = re.compile(r"\baction[ _]?input[ \t]*[:\uff1a]", re.IGNORECASE)
_CALL = re.compile(
    r"(?P<name>[\w.-]+)[ \t]*(?:\((?P<round>.*)\)|\[(?P<square>.*)\])[.;]?", re.DOTALL
)
_LABEL = re.compile(r"[ \t>#*_`-]*thought(?:[ \t]*\d+)?[ \t*_`]*[:\uff1a][*_`]*", re.IGNORECASE)
_NO_ACTION = frozenset({"none", "no_action", "no_tool", "n_a", "na", "nothing", "not_needed"})
_NAME = 100
_SECTIONS = 100
"""The number of markers to try until one has content."""
_ANSWERS = frozenset({"final_answer", "finalanswer", "finish"})


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A parsed reply: an `action` with `arguments`, an `answer`, or neither, each after a thought.

    `reasoning` is the text between `<think>` tags.
    """

    thought: str = ""
    reasoning: str = ""
    action: str = ""
    arguments: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class _Mark:
    """A marker: its kind, and the beginnings of the marker and of its content.

    `bold` is the markup that it leaves open.
    """

    kind: str
    begin: int
    end: int
    bold: str


def parse(text: str, tools: Sequence[ToolDefinition]) -> ParsedReply:
    """Parse a reply. Without `tools`, it has no actions."""
    reasoning, body = _split_reasoning(text.replace("\r\n", "\n"))
    marks = list(_marks(body))
    sections = [mark for mark in marks if mark.kind != "answer"]
    for index, mark in enumerate(sections[:_SECTIONS]):
        if mark.kind == "action" and tools:
            reply = _action(_RequestedAction.at(body, sections[index : index + 3]), tools)
            if reply.action or reply.answer:
                return ParsedReply(
                    _thought(body[: mark.begin]),
                    reasoning,
                    reply.action,
                    reply.arguments,
                    reply.answer,
                )
        elif mark.kind == "finalanswer" and (answer := _answer(body, mark)):
            return ParsedReply(_thought(body[: mark.begin]), reasoning, answer=answer)
    return _half_marked(body, marks, reasoning)


def _half_marked(body: str, marks: Sequence[_Mark], reasoning: str) -> ParsedReply:
    """Find an answer in the middle of a line, or after a shorter marker."""
    inline = _INLINE_ANSWER.search(body)
    if inline and (answer := body[inline.end() :].strip()):
        return ParsedReply(_thought(body[: inline.start()]), reasoning, answer=answer)
    short = next((mark for mark in marks if mark.kind == "answer"), None)
    if short and (answer := _answer(body, short)):
        return ParsedReply(_thought(body[: short.begin]), reasoning, answer=answer)
    return ParsedReply(reasoning=reasoning)


def _split_reasoning(text: str) -> tuple[str, str]:
    """Split a reply into reasoning, if the model writes it there, and the rest.

    Some servers drop the opening tag.
    """
    before, tag, after = text.partition("</think>")
    is_opened = before.lstrip().startswith("<think>")
    if (
        not tag
        or not after.strip()
        or not (is_opened or next(_marks(after), None) or not next(_marks(before), None))
    ):
        return "", text
    return before.strip().removeprefix("<think>").strip(), after


def _marks(text: str) -> Iterator[_Mark]:
    for match in _MARK.finditer(text):
        opened, shut = match["open"].strip(), match["shut"].strip()
        if not match["colon"] and opened[-1:] not in ("#", "*", "_"):
            continue  # an ordinary word at the end of a line
        close = match["close"] or ""
        closes = close if not shut and opened.endswith(close) else ""
        bold = "**" if opened.endswith("**") and not shut and not closes else ""
        kind = re.sub(r"[ \t_]", "", match["name"].lower())
        yield _Mark(kind, match.start(), match.end() - len(close) + len(closes), bold)


def _thought(text: str) -> str:
    """Return the text before a marker, without its label."""
    text = text.strip()
    label = _LABEL.match(text)
    return text[label.end() :].strip() if label else text


def _answer(body: str, mark: _Mark) -> str:
    answer = body[mark.end :].strip()
    return (
        answer.removesuffix(mark.bold).rstrip()
        if mark.bold and answer.count(mark.bold) % 2
        else answer
    )


@dataclass(frozen=True, slots=True)
class _RequestedAction:
    """A requested action: a name, and its input as `written`.

    The input is in `text` at `begin`; `text` continues after it.
    """

    name: str
    written: str
    text: str
    begin: int = 0

    @classmethod
    def at(cls, body: str, marks: Sequence[_Mark]) -> _RequestedAction:
        """Return the action at the first of `marks`."""
        ends = [mark.begin for mark in marks[1:]] + [len(body)]
        named = body[marks[0].end : ends[0]]
        if inline := _INLINE_INPUT.search(named):
            begin = marks[0].end + inline.end()
            return cls(named[: inline.start()], body[begin : ends[0]], body, begin)
        if len(marks) > 1 and marks[1].kind == "actioninput":
            return cls(named, body[marks[1].end : ends[1]], body, marks[1].end)
        return cls.in_one(named, body, marks[0].end)

    @classmethod
    def in_one(cls, named: str, body: str, begin: int) -> _RequestedAction:
        """Return an action with its name and input in one text.

        It is a JSON object, `name(input)`, `name[input]`, or the two on separate lines.
        """
        json_object = object_in(body, begin)
        if json_object is not None and (call := call_in(json_object[1])):
            return cls(call[0], call[1], call[1])
        if match := _CALL.fullmatch(unfenced(named)):
            written = match["round"] or match["square"] or ""
            return cls(match["name"], written, written)
        name, _, written = named.strip().partition("\n")
        return cls(name, written, written)


def _action(requested: _RequestedAction, tools: Sequence[ToolDefinition]) -> ParsedReply:
    """Return the requested action, or an answer given as an action; neither if nothing is named."""
    name = _name(requested.name, tools)
    tool = next((tool for tool in tools if tool.name == name), None)
    plain = _plain(name)
    if tool is None and plain in _ANSWERS:
        return ParsedReply(answer=_answer_in_input(requested.written))
    if tool is None and (not plain or plain in _NO_ACTION or plain.startswith("none_")):
        return ParsedReply()
    return ParsedReply(
        action=name,
        arguments=arguments_of(requested.written, requested.text, requested.begin, tool),
    )


def _name(written: str, tools: Sequence[ToolDefinition]) -> str:
    """Return the tool that is meant; if none is, the first line."""
    line = one_line(unfenced(written).partition("\n")[0], _NAME).strip(" *`\"'[](){}<>.,:;")
    plain = _plain(line)
    alike = [tool.name for tool in tools if line == tool.name] or [
        tool.name for tool in tools if plain and plain == _plain(tool.name)
    ]
    if len(alike) == 1:
        return alike[0]
    tokens = set(re.findall(r"[\w-]+", line))
    mentioned = [tool.name for tool in tools if tool.name in tokens]
    return mentioned[0] if len(mentioned) == 1 and not alike else line


def _plain(name: str) -> str:
    return re.sub(r"\W+|_+", "_", name.lower()).strip("_")


def _answer_in_input(written: str) -> str:
    """Return an answer that was given as the input of an action, without quotes or its object."""
    json_object = object_in(written)
    values = list(json_object[1].values()) if json_object else []
    if len(values) == 1 and isinstance(values[0], str):
        return values[0].strip()
    plain_text = unfenced(written)
    return (
        plain_text[1:-1]
        if len(plain_text) > 1 and plain_text[0] == plain_text[-1] and plain_text[0] in "\"'"
        else plain_text
    )
