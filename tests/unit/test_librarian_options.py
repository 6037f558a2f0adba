"""Request options with the librarian."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import errors
from perdure.activities.provider import ModelRequest
from perdure.activities.providers.librarian import Librarian
from perdure.values.answers import ModelAnswer
from perdure.values.messages import ToolCall, UserMessage
from perdure.values.options import RequestOptions
from perdure.values.reports import StopReason, Usage

from ..support.loopback import ADD

SEARCH = ADD.model_copy(update={"name": "search_files", "description": ""})
ASKED = "notice period?"
NO_TOOLS = (
    "I am no language model. I can only look things up with the tools search_files and read_file,"
    " and I have none here."
)


async def ask(**options: Any) -> ModelAnswer:
    """The first answer to a question, with these options and a search tool."""
    request = ModelRequest(
        model="librarian",
        messages=(UserMessage.of(ASKED),),
        tools=(SEARCH,),
        options=RequestOptions(**options),
    )
    return await Librarian().complete(request)


async def test_without_tools_to_choose_it_answers_in_words() -> None:
    """It complies with `none`."""
    answer = await ask(tool_choice="none")

    assert (answer.message.text, answer.message.calls, answer.stop) == (
        NO_TOOLS,
        (),
        StopReason.END,
    )


async def test_answer_ends_at_its_limit() -> None:
    """Its tokens are words, and only words in the answer are counted."""
    answer = await ask(tool_choice="none", max_output_tokens=5)

    assert (answer.message.text, answer.stop) == ("I am no language model.", StopReason.MAX_TOKENS)
    assert answer.usage == Usage(input_tokens=3, output_tokens=5)


async def test_call_that_is_over_the_limit_is_not_made() -> None:
    """A partial call is invalid."""
    answer = await ask(max_output_tokens=2)

    assert (answer.message.text, answer.message.calls, answer.stop) == (
        "",
        (),
        StopReason.MAX_TOKENS,
    )


async def test_answer_ends_where_a_stop_sequence_begins() -> None:
    """At the first of them."""
    answer = await ask(tool_choice="none", stop_sequences=("only", " language", "nothing"))

    assert (answer.message.text, answer.stop) == ("I am no", StopReason.STOP_SEQUENCE)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tool_choice": "auto"},
        {"temperature": 1.0},
        {"max_output_tokens": 100},
        {"stop_sequences": ("x",)},
    ],
)
async def test_options_that_ask_for_nothing_else_change_nothing(options: dict[str, Any]) -> None:
    """There is no randomness, so a temperature has no effect."""
    answer = await ask(**options)

    assert answer.message.calls == (
        ToolCall(
            id="call_1", name="search_files", arguments='{"query": "notice period", "limit": 5}'
        ),
    )
    assert answer.stop is StopReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tool_choice": "required"}, "cannot be made to call a tool"),
        ({"tool_choice": "search_files"}, "cannot be made to call a tool"),
        ({"extra": {"seed": 7, "logprobs": True}}, "does not support logprobs, seed"),
    ],
)
async def test_option_that_it_cannot_keep_is_refused(options: dict[str, Any], says: str) -> None:
    """An answer that ignores the option would be wrong."""
    with pytest.raises(errors.LLMInvalidRequestError, match=says):
        await ask(**options)
