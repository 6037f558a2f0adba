"""The librarian model, in a plain loop with the real tools on real folders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure import errors
from perdure.activities.provider import ModelRequest, Provider
from perdure.activities.providers.librarian import Librarian
from perdure.activities.toolboxes.folder import folder_toolbox
from perdure.agents.definitions import ToolDefinition, define_tool
from perdure.agents.tool_context import encode
from perdure.agents.tools import Tool, as_tools, tool
from perdure.values.answers import ModelAnswer
from perdure.values.messages import (
    AssistantMessage,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from perdure.values.reports import StopReason, Usage

LEASE = """# Lease

The flat is on the second floor.

## Notice period

The notice period is three months.

It begins on the first day of a month.

## Pets

Cats are welcome.
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with three documents."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "lease.md").write_text(LEASE)
    (tmp_path / "rules" / "house.md").write_text(
        "# House rules\n\nQuiet hours begin at ten.\n\n# Waste\n\nBins are emptied on Fridays.\n"
    )
    (tmp_path / "contacts.txt").write_text("Caretaker: Ms Sommer, second floor\n")
    return tmp_path


@dataclass(frozen=True)
class Asked:
    """A complete conversation."""

    answers: Sequence[ModelAnswer]
    messages: Sequence[Message]

    @property
    def text(self) -> str:
        return self.answers[-1].message.text

    @property
    def calls(self) -> list[tuple[str, dict[str, object]]]:
        return [
            (call.name, json.loads(call.arguments))
            for answer in self.answers
            for call in answer.message.calls
        ]


async def ask(question: str, tools: Sequence[Tool], history: Sequence[Message] = ()) -> Asked:
    """Ask, run the tools, and repeat until there is an answer."""
    model: Provider = Librarian()
    messages: list[Message] = [*history, UserMessage.of(question)]
    answers: list[ModelAnswer] = []
    while not answers or answers[-1].message.calls:
        answers.append(await model.complete(request(messages, tools)))
        messages.append(answers[-1].message)
        if calls := answers[-1].message.calls:
            messages.append(ToolMessage(results=tuple(result(call, tools) for call in calls)))
    return Asked(answers, messages)


def request(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> ModelRequest:
    return ModelRequest(
        model="librarian", messages=tuple(messages), tools=tuple(definition(item) for item in tools)
    )


def definition(item: Tool) -> ToolDefinition:
    return define_tool(item, item.name)


def result(call: ToolCall, tools: Sequence[Tool]) -> ToolResult:
    """Run a call; an exception of a tool is a result for the model."""
    item = next(item for item in tools if item.name == call.name)
    try:
        content = encode(item.function(**item.arguments.parse(call.arguments)))
    except ValueError as error:
        return ToolResult(call_id=call.id, name=call.name, content=str(error), is_error=True)
    return ToolResult(call_id=call.id, name=call.name, content=content)


def tools_of(root: Path, *names: str) -> list[Tool]:
    """The folder's tools, or a selection of them."""
    return [
        item for item in as_tools(folder_toolbox(root).tools) if not names or item.name in names
    ]


async def test_question_is_answered_with_the_section_and_its_source(root: Path) -> None:
    """It searches, reads, and quotes."""
    asked = await ask("How long is the notice period?", tools_of(root))

    assert asked.calls == [
        ("search_files", {"query": "long notice period", "limit": 5}),
        ("read_file", {"path": "lease.md", "first_line": 5, "lines": 120}),
    ]
    assert (
        asked.text
        == "## Notice period\n\nThe notice period is three months.\n\nIt begins on the first day of"
        " a month.\n\nSource: lease.md:5"
    )


@pytest.mark.parametrize(
    ("question", "said", "source"),
    [
        ("Am I allowed to have a cat?", "Cats are welcome.", "lease.md:11"),
        ("When are the bins emptied?", "Bins are emptied on Fridays.", "rules/house.md:5"),
        ("Who is the caretaker?", "Caretaker: Ms Sommer, second floor", "contacts.txt:1"),
        ("quiet hour", "Quiet hours begin at ten.", "rules/house.md:1"),
    ],
)
async def test_each_question_finds_its_own_source(
    root: Path, question: str, said: str, source: str
) -> None:
    """The questions share neither words nor files."""
    asked = await ask(question, tools_of(root))

    assert said in asked.text
    assert asked.text.endswith(f"\n\nSource: {source}")


async def test_stop_reasons_call_ids_and_tokens_are_those_of_a_model(root: Path) -> None:
    """A tool call and an answer can be told apart, and tokens are counted."""
    asked = await ask("bins", tools_of(root, "search_files", "read_file"))
    first, second, third = asked.answers

    assert [answer.stop for answer in asked.answers] == [
        StopReason.TOOL_CALLS,
        StopReason.TOOL_CALLS,
        StopReason.END,
    ]
    assert [answer.message.calls[0].id for answer in (first, second)] == ["call_1", "call_2"]
    assert {answer.model for answer in asked.answers} == {"librarian"}
    assert third.usage.output_tokens == len(third.message.text.split())
    assert first.usage.input_tokens < second.usage.input_tokens < third.usage.input_tokens


async def test_tokens_are_words() -> None:
    """The input is one word of system prompt and two of the question; the output is its answer."""
    answer = await Librarian().complete(
        ModelRequest(model="librarian", system="Help.", messages=(UserMessage.of("two words"),))
    )

    assert answer.usage == Usage(input_tokens=3, output_tokens=len(answer.message.text.split()))


async def test_same_request_has_the_same_answer(root: Path) -> None:
    """There is no randomness."""
    assert await ask("Are pets welcome?", tools_of(root)) == await ask(
        "Are pets welcome?", tools_of(root)
    )


async def test_nothing_found_is_said_with_the_words_and_the_files(root: Path) -> None:
    """It invents nothing."""
    asked = await ask("Is there a swimming pool?", tools_of(root))

    assert [name for name, _ in asked.calls] == ["search_files", "list_files"]
    assert (
        asked.text
        == "I found nothing about this. I searched 3 files for: swimming, pool.\nThe folder has"
        " contacts.txt, lease.md, rules/house.md."
    )


async def test_files_that_could_not_be_searched_are_mentioned(root: Path) -> None:
    """The answer may be in one of them."""
    (root / "plan.pdf").write_bytes(b"%PDF\0\0")
    asked = await ask("swimming pool", tools_of(root, "search_files", "read_file"))

    assert (
        asked.text
        == "I found nothing about this. I searched 3 files for: swimming, pool.\nThe search says: 1"
        " file was left out: not UTF-8 text, or over 1 MB."
    )


async def test_poor_match_is_shown_as_one(root: Path) -> None:
    """It lists the words of the question that the passage does not have."""
    asked = await ask("How deep is the swimming pool on the second floor?", tools_of(root))

    assert asked.text.startswith(
        "Nothing fits well: the closest passage does not have the words deep, swimming, pool.\n\n"
    )


async def test_long_section_is_quoted_at_its_paragraphs(root: Path) -> None:
    """1,200 characters at most, verbatim, with the line of the quotation."""
    filler = "\n\n".join(
        f"Paragraph {number} says nothing in particular, at some length." for number in range(60)
    )
    text = f"# Log\n\n{filler}\n\nThe lighthouse is white.\nIt was painted in May.\n\n{filler}\n"
    (root / "log.md").write_text(text)
    quoted, _, source = (
        await ask("Which colour has the lighthouse?", tools_of(root))
    ).text.rpartition("\n\nSource: log.md:")

    assert "The lighthouse is white.\nIt was painted in May." in quoted
    assert len(quoted) <= 1200
    assert "\n".join(text.split("\n")[int(source) - 1 :]).startswith(quoted)


@pytest.mark.parametrize("text", ["lighthouse " * 1000, "\n".join(["lighthouse keepers"] * 1000)])
async def test_paragraph_that_is_too_long_is_cut(root: Path, text: str) -> None:
    """Between lines, if there are any."""
    (root / "log.txt").write_text(text)
    quoted, _, source = (await ask("lighthouse", tools_of(root))).text.rpartition("\n\nSource: ")

    assert 1000 < len(quoted) <= 1200
    assert source == "log.txt:1"


async def test_each_question_of_a_conversation_is_looked_up(root: Path) -> None:
    """Results of an earlier question do not answer a later one, and call ids stay unique."""
    before = await ask("notice period", tools_of(root))
    after = await ask("bins", tools_of(root), history=before.messages)

    assert after.text.endswith("Source: rules/house.md:5")
    assert [call.id for answer in after.answers for call in answer.message.calls] == [
        "call_3",
        "call_4",
    ]


async def test_context_before_the_task_is_not_the_question(root: Path) -> None:
    """The last text of the message is the question."""
    message = UserMessage(
        parts=(Text(text="<memory>\nlikes cats\n</memory>\n\n"), Text(text="bins?"))
    )
    answer = await Librarian().complete(request([message], tools_of(root)))

    assert json.loads(answer.message.calls[0].arguments) == {"query": "bins", "limit": 5}


async def test_error_of_a_tool_is_told(root: Path) -> None:
    """The error message is the answer."""

    @tool(read_only=True)
    def read_file(path: str, first_line: int, lines: int) -> str:
        """Fail."""
        raise ValueError(f"{path} is on fire")

    asked = await ask("bins", [*tools_of(root, "search_files"), read_file])

    assert asked.text == "I could not look it up: rules/house.md is on fire"


async def test_result_of_another_form_is_told() -> None:
    """Another search_files tool may return plain text."""

    @tool(read_only=True)
    def search_files(query: str, limit: int) -> str:
        """Search."""
        return f"{limit} times {query}"

    asked = await ask("bins", [search_files])

    assert asked.text == "I could not look it up: a tool answered in a form that I cannot read."


async def test_without_read_file_the_match_itself_is_quoted(root: Path) -> None:
    """Search results are enough for an answer."""
    asked = await ask("bins", tools_of(root, "search_files"))

    assert asked.text == "# Waste\n\nBins are emptied on Fridays.\n\nSource: rules/house.md:5"


async def test_without_tools_it_says_what_it_is() -> None:
    """It does not claim to know anything."""
    asked = await ask("What is the meaning of life?", [])

    assert (
        asked.text
        == "I am no language model. I can only look things up with the tools search_files and"
        " read_file, and I have none here."
    )


@pytest.mark.parametrize("messages", [[UserMessage.of("?!")], [UserMessage(parts=())], []])
async def test_question_without_words_is_answered(root: Path, messages: list[Message]) -> None:
    """An answer always has text or calls."""
    answer = await Librarian().complete(request(messages, tools_of(root)))

    assert answer.message == AssistantMessage(
        parts=(Text(text="I can only look words up, and this question has none."),)
    )


async def test_another_model_name_is_refused() -> None:
    """A request for a language model must not get quotations."""
    with pytest.raises(
        errors.LLMInvalidRequestError, match="the only model here is 'librarian', not 'gpt-5'"
    ):
        await Librarian().complete(ModelRequest(model="gpt-5", messages=(UserMessage.of("hello"),)))
