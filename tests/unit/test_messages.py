"""Messages: typed parts, stable digests, and transcripts that can be continued."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from perdure import (
    AssistantMessage,
    Media,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    ToolResult,
    UserMessage,
)
from perdure.values import messages
from perdure.values.messages import NO_DIGEST, OPEN_CALL

READ = UserMessage(
    parts=(Text(text="Read "), Media(media_type="image/png", data="aGk="), Text(text="this"))
)
ASKED = AssistantMessage(
    parts=(
        Thinking(text="hm", signature="s1"),
        Text(text="I will "),
        ToolCall(id="c1", name="add", arguments='{"a": 1}'),
        Text(text="add."),
        ToolCall(id="c2", name="sub"),
    )
)
RESULTS = (
    ToolResult(call_id="c1", name="add", content="3"),
    ToolResult(call_id="c2", name="sub", content="no", is_error=True),
)
TRANSCRIPT: tuple[Message, ...] = (
    READ,
    ASKED,
    ToolMessage(results=RESULTS),
    AssistantMessage(parts=(Text(text="done"),)),
)

WORDS = st.lists(st.text(st.characters(codec="utf-8"), max_size=3), max_size=4)
ADAPTER: TypeAdapter[Message] = TypeAdapter(Message)


def test_text_and_calls_of_a_message() -> None:
    """All text parts joined, without thinking; the calls in order."""
    assert (READ.text, ASKED.text) == ("Read this", "I will add.")
    assert [call.id for call in ASKED.calls] == ["c1", "c2"]


def test_one_result_is_one_message() -> None:
    """The short form for tests and readers."""
    call = ToolCall(id="c9", name="add")

    assert ToolMessage.of(call, "5") == ToolMessage(
        results=(ToolResult(call_id="c9", name="add", content="5"),)
    )
    assert ToolMessage.of(call, "no", is_error=True).results[0].is_error


@pytest.mark.parametrize("message", TRANSCRIPT, ids=["user", "assistant", "tool", "answer"])
def test_message_comes_back_from_json_as_it_was(message: Message) -> None:
    """Its role determines its type."""
    assert ADAPTER.validate_json(messages.canonical(message)) == message


def test_unknown_field_of_a_message_is_refused() -> None:
    """People write messages, so an unknown field is a mistake."""
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        UserMessage.model_validate({"role": "user", "parts": [], "content": "hello"})


@pytest.mark.accepts("Y6")
def test_digest_of_a_transcript_is_what_it_was_in_the_first_release() -> None:
    """Running turns and stored histories have digests, which a change would break."""
    assert (
        messages.canonical(TRANSCRIPT[1])
        == b'{"role":"assistant","parts":[{"type":"thinking","text":"hm","signature":"s1"},'
        b'{"type":"text","text":"I will "},'
        b'{"type":"tool_call","id":"c1","name":"add","arguments":"{\\"a\\": 1}"},'
        b'{"type":"text","text":"add."},'
        b'{"type":"tool_call","id":"c2","name":"sub","arguments":"{}"}]}'
    )
    assert (
        messages.digest_of(TRANSCRIPT)
        == "e89acb404903d86f3e01deddf444879278162819935b4f25cabfb94ce9748dee"
    )


def test_digest_runs_from_message_to_message() -> None:
    """The digest of a longer transcript follows from the shorter one's and the new message; an
    empty transcript has none.
    """
    shorter = messages.digest_of(TRANSCRIPT[:-1])

    assert messages.digest_of(()) == NO_DIGEST == ""
    assert messages.chain(shorter, messages.canonical(TRANSCRIPT[-1])) == messages.digest_of(
        TRANSCRIPT
    )


@given(WORDS, WORDS)
def test_different_transcripts_have_different_digests(first: list[str], second: list[str]) -> None:
    """Even if a text only moves from one message to the next."""
    digests = [
        messages.digest_of(UserMessage.of(text) for text in texts) for texts in (first, second)
    ]

    assert (digests[0] == digests[1]) == (first == second)


@pytest.mark.accepts("L19")
def test_whole_transcript_is_closed_already() -> None:
    """Nothing is added or left out."""
    assert messages.closed(TRANSCRIPT) == TRANSCRIPT


@pytest.mark.accepts("L19")
@pytest.mark.parametrize(
    "given_results", [(), RESULTS[:1], RESULTS[1:]], ids=["none", "first", "second"]
)
def test_call_without_a_result_is_closed_with_an_error_result(
    given_results: tuple[ToolResult, ...],
) -> None:
    """In call order; existing results are kept."""
    partial = (
        (*TRANSCRIPT[:2], ToolMessage(results=given_results)) if given_results else TRANSCRIPT[:2]
    )
    kept = {result.call_id: result for result in given_results}

    open_calls = [
        ToolResult(
            call_id=call.id,
            name=call.name,
            content=OPEN_CALL,
            is_error=True,
            outcome=ToolOutcome.UNKNOWN,
        )
        for call in ASKED.calls
    ]
    assert messages.closed(partial) == (
        *TRANSCRIPT[:2],
        ToolMessage(results=tuple(kept.get(result.call_id, result) for result in open_calls)),
    )


@pytest.mark.accepts("L19")
def test_open_call_in_the_middle_is_closed_where_it_stands() -> None:
    """The next message was a user message."""
    following = UserMessage.of("never mind")

    closed = messages.closed((ASKED, following))

    assert [message.role for message in closed] == ["assistant", "tool", "user"]


@pytest.mark.accepts("L19")
def test_results_without_a_call_and_empty_answers_are_left_out() -> None:
    """No provider accepts either."""
    stray = ToolMessage(results=RESULTS)
    answer = AssistantMessage(parts=(Text(text="done"),))

    assert messages.closed(
        (stray, UserMessage.of("a"), AssistantMessage(parts=()), answer, stray)
    ) == (UserMessage.of("a"), answer)


@pytest.mark.accepts("T9", "L19")
def test_history_with_repeated_and_missing_ids_is_given_unique_ones() -> None:
    """Each result stays with its call, in the given order."""
    asked = AssistantMessage(
        parts=(ToolCall(id="", name="a"), ToolCall(id="", name="b"), ToolCall(id="x", name="c"))
    )
    answered = ToolMessage(
        results=(
            ToolResult(call_id="", name="a", content="1"),
            ToolResult(call_id="", name="b", content="2"),
            ToolResult(call_id="x", name="c", content="3"),
        )
    )

    made = messages.closed((UserMessage.of("go"), asked, answered, asked, answered))

    pairs = [
        [
            (call.id, result.call_id, result.content)
            for call, result in zip(answer.calls, results.results, strict=True)
        ]
        for answer, results in zip(made[1::2], made[2::2], strict=True)
        if isinstance(answer, AssistantMessage) and isinstance(results, ToolMessage)
    ]
    assert pairs == [
        [("past_1_1", "past_1_1", "1"), ("past_1_2", "past_1_2", "2"), ("x", "x", "3")],
        [
            ("past_3_1", "past_3_1", "1"),
            ("past_3_2", "past_3_2", "2"),
            ("past_3_3", "past_3_3", "3"),
        ],
    ]
