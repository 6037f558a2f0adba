"""Protocols: the prompt for a transcript, and the parsing of an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from perdure import errors, protocols, tool
from perdure.agents.definitions import define_tool
from perdure.protocols import Prompt
from perdure.text import size
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
from perdure.values.options import RequestOptions
from perdure.values.prices import bound
from perdure.values.reports import StopReason

from ..support.thorough import examples


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first one.
        b: The second one.
    """
    return a + b


@tool
def search_handbook(query: str) -> str:
    """Find passages in the handbook."""
    return query


TOOLS = tuple(define_tool(item, item.name) for item in (add, search_handbook))
ASKED = UserMessage.of("2 + 3?")
CALL = ToolCall(id="c1", name="add", arguments='{"a": 2, "b": 3}')
CALLED = AssistantMessage(parts=(Thinking(text="add them"), CALL))
RESULT = ToolMessage.of(CALL, "5")
SPOKEN = ("react_text", "json")


def said(*parts: Text | Thinking | ToolCall) -> AssistantMessage:
    return AssistantMessage(parts=parts)


def text(words: str) -> AssistantMessage:
    return said(Text(text=words))


def words_of(message: Message) -> str:
    """The text of a message; in a text protocol, a message has nothing else."""
    assert not isinstance(message, ToolMessage)
    return message.text


def asked(name: str, *messages: Message, tools: bool = True, **fields: Any) -> Prompt:
    """The request for these messages."""
    return protocols.named(name).ask(
        Prompt(messages=messages or (ASKED,), tools=TOOLS if tools else (), **fields)
    )


def read(
    name: str,
    words: str,
    *,
    corrects: bool = True,
    tools: bool = True,
    stop: StopReason = StopReason.END,
    **fields: Any,
) -> ModelAnswer:
    """The parsed form of an answer with this text."""
    prompt = Prompt(messages=(ASKED,), tools=TOOLS if tools else (), **fields)
    return protocols.named(name).read(
        ModelAnswer(message=text(words), stop=stop), prompt, corrects=corrects
    )


def test_native_sends_and_keeps_everything_as_it_is() -> None:
    """Tools and calls are those of the API."""
    prompt = Prompt(
        messages=(ASKED, CALLED, RESULT),
        system="Add.",
        tools=TOOLS,
        options=RequestOptions(tool_choice="required"),
    )
    answer = ModelAnswer(message=text("Action: add"))

    assert protocols.named("native").ask(prompt) == prompt
    assert protocols.named("native").read(answer, prompt, corrects=True) == answer


@pytest.mark.accepts("R6")
def test_tools_are_told_in_the_system_prompt() -> None:
    """After the agent's own instructions: name, description and arguments of each; the request
    itself has none.
    """
    sent = asked("react_text", system="Be brief.")

    assert sent.system.startswith("Be brief.\n\nYou have these tools:\n\n")
    schema = (
        '{"additionalProperties":false,"properties":{"query":{"type":"string"}},'
        '"required":["query"],"type":"object"}'
    )
    assert f"search_handbook: Find passages in the handbook.\nArguments: {schema}" in sent.system
    assert "add: Add two numbers.\nArguments: {" in sent.system
    assert "The first one." in sent.system
    assert "Action: the name of one tool: add, search_handbook\n" in sent.system
    assert (sent.tools, sent.response_schema, sent.options) == (
        (),
        None,
        RequestOptions(stop_sequences=("\nObservation:",)),
    )


@pytest.mark.accepts("R8")
def test_schema_forces_a_call_or_an_answer() -> None:
    """One branch for each tool with its own arguments, and one for the answer."""
    sent = asked("json", system="Be brief.")

    assert sent.response_schema == {
        "type": "object",
        "anyOf": [
            choice({"name": {"type": "string", "enum": ["add"]}, "arguments": TOOLS[0].parameters}),
            choice(
                {
                    "name": {"type": "string", "enum": ["search_handbook"]},
                    "arguments": TOOLS[1].parameters,
                }
            ),
            choice({"answer": {"type": "string"}}),
        ],
    }
    assert (sent.tools, sent.response_name, sent.options) == ((), "reply", RequestOptions())
    assert "Be brief.\n\nYou have these tools:\n\nadd: Add two numbers.\n" in sent.system
    assert 'To use a tool: {"name": "the tool", "arguments": {…}}.' in sent.system


def choice(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def test_transcript_is_told_in_the_words_that_are_asked_for() -> None:
    """Calls and answers in the form expected from the model, results as user messages."""
    messages = (
        ASKED,
        CALLED,
        RESULT,
        said(Thinking(text="known"), Text(text="It is 5.")),
        UserMessage.of("And now?"),
    )

    assert asked("react_text", *messages).messages == (
        ASKED,
        text('Thought: add them\nAction: add\nAction Input: {"a": 2, "b": 3}'),
        UserMessage.of("Observation: 5"),
        text("Thought: known\nFinal Answer: It is 5."),
        UserMessage.of("And now?"),
    )
    assert asked("json", *messages).messages == (
        ASKED,
        text('{"name": "add", "arguments": {"a": 2, "b": 3}}'),
        UserMessage.of("Result of add:\n5"),
        text('{"answer": "It is 5."}'),
        UserMessage.of("And now?"),
    )


@pytest.mark.accepts("R2")
def test_failed_call_is_told_with_its_words() -> None:
    """The model gets the error message."""
    failed = ToolMessage.of(CALL, "add failed: ValueError: no", is_error=True)

    assert asked("react_text", ASKED, CALLED, failed).messages[-1] == UserMessage.of(
        "Observation: add failed: ValueError: no"
    )
    assert asked("json", ASKED, CALLED, failed).messages[-1] == UserMessage.of(
        "Result of add:\nadd failed: ValueError: no"
    )


def test_calls_that_a_native_model_made_at_once_are_told_one_by_one() -> None:
    """The history of another agent; the text next to the calls becomes the first thought."""
    second = ToolCall(id="c2", name="search_handbook", arguments="not json")
    results = ToolMessage(
        results=(
            RESULT.results[0],
            ToolResult(call_id="c2", name="search_handbook", content="nothing"),
        )
    )
    messages = (ASKED, said(Text(text="Both."), CALL, second), results)

    assert [words_of(message) for message in asked("react_text", *messages).messages[1:]] == [
        'Thought: Both.\nAction: add\nAction Input: {"a": 2, "b": 3}',
        "Observation: 5",
        "Action: search_handbook\nAction Input: not json",
        "Observation: nothing",
    ]
    assert asked("json", *messages).messages[3] == text(
        '{"name": "search_handbook", "arguments": "not json"}'
    )


def test_thinking_that_a_provider_wants_back_goes_back_and_other_reasoning_stays() -> None:
    """Signed and redacted parts unchanged; only the Thought is part of the text."""
    signed, hidden = Thinking(text="long", signature="s"), Thinking(text="", redacted="r")
    message = said(signed, hidden, Thinking(text="reasoning"), Thinking(text="add them"), CALL)

    sent = asked("react_text", ASKED, message, RESULT).messages[1]

    assert sent == said(
        signed, hidden, Text(text='Thought: add them\nAction: add\nAction Input: {"a": 2, "b": 3}')
    )


def test_user_and_model_take_turns() -> None:
    """Text after a result joins its message; pictures are unchanged."""
    picture = UserMessage(
        parts=(Media(media_type="image/png", data="eA=="), Text(text="What is it?"))
    )
    messages = (ASKED, picture, CALLED, RESULT, UserMessage.of("Answer now."), picture)

    sent = asked("react_text", *messages).messages

    assert sent[0] == UserMessage(parts=(*ASKED.parts, *picture.parts))
    assert sent[2:] == (
        UserMessage(parts=(Text(text="Observation: 5\n\nAnswer now."), *picture.parts)),
    )


def test_empty_message_stands_in_nobodys_way() -> None:
    """Its neighbour is sent."""
    assert asked("react_text", UserMessage(parts=()), ASKED).messages == (ASKED,)


def test_without_tools_only_an_answer_is_asked_for() -> None:
    """For a last answer, an agent without tools, and by option."""
    for sent in (
        asked("react_text", tools=False),
        asked("react_text", options=RequestOptions(tool_choice="none")),
    ):
        assert "add" not in sent.system
        assert "You have no tools now." in sent.system
        assert sent.options == RequestOptions()
    for sent in (
        asked("json", tools=False),
        asked("json", options=RequestOptions(tool_choice="none")),
    ):
        assert sent.response_schema == choice({"answer": {"type": "string"}})
        assert (
            sent.system
            == 'You have no tools now. Reply with one JSON object and nothing else: {"answer":'
            ' "your answer"}.'
        )


def test_schema_keeps_to_a_tool_choice_and_words_cannot() -> None:
    """A call, or one of a certain tool, is forced; an unknown tool is refused."""
    forced: Any = asked("json", options=RequestOptions(tool_choice="required")).response_schema
    one = asked("json", options=RequestOptions(tool_choice="add"))

    assert [part["properties"]["name"]["enum"] for part in forced["anyOf"]] == [
        ["add"],
        ["search_handbook"],
    ]
    assert one.response_schema == choice(
        {"name": {"type": "string", "enum": ["add"]}, "arguments": TOOLS[0].parameters}
    )
    assert one.options.tool_choice is None
    with pytest.raises(
        errors.LLMInvalidRequestError,
        match=(
            "tool_choice 'sub' is none of auto, required, none and the tools: add, search_handbook"
        ),
    ):
        asked("json", options=RequestOptions(tool_choice="sub"))
    with pytest.raises(
        errors.LLMInvalidRequestError,
        match="tool_choice 'required' cannot be kept by the protocol react_text",
    ):
        asked("react_text", options=RequestOptions(tool_choice="required"))


def test_stop_sequences_of_the_options_stand_in_place_of_ours() -> None:
    """An explicit empty list is sent as none, for models that refuse the parameter."""
    assert (
        asked("react_text", options=RequestOptions(stop_sequences=())).options.stop_sequences == ()
    )
    assert asked(
        "react_text", options=RequestOptions(stop_sequences=("END",))
    ).options.stop_sequences == ("END",)


def test_definitions_of_schemas_come_up_under_names_of_their_own() -> None:
    """Two tools may each have an `Address`."""
    place: dict[str, JsonValue] = {
        "$defs": {
            "Address": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Address"}}}
        },
        "type": "object",
    }
    there = {
        **place,
        "properties": {
            "at": {"anyOf": [{"$ref": "#/$defs/Address"}, {"$ref": "https://elsewhere"}]}
        },
    }
    tools = tuple(item.model_copy(update={"parameters": there}) for item in TOOLS)

    schema: Any = (
        protocols.named("json").ask(Prompt(tools=tools, response_schema=place)).response_schema
    )

    assert schema["$defs"] == {
        f"{owner}.Address": {
            "type": "object",
            "properties": {"next": {"$ref": f"#/$defs/{owner}.Address"}},
        }
        for owner in ("add", "search_handbook", "answer")
    }
    assert schema["anyOf"][1] == choice(
        {
            "name": {"type": "string", "enum": ["search_handbook"]},
            "arguments": {
                "type": "object",
                "properties": {
                    "at": {
                        "anyOf": [
                            {"$ref": "#/$defs/search_handbook.Address"},
                            {"$ref": "https://elsewhere"},
                        ]
                    }
                },
            },
        }
    )


def test_typed_answer_is_asked_for_by_its_schema() -> None:
    """In text, or as the answer's branch; later it is part of the transcript as JSON, too."""
    wanted = choice({"total": {"type": "integer"}})

    sent = asked("react_text", response_schema=wanted)
    assert (
        sent.response_schema,
        f"Final Answer: your answer, as JSON that fits this schema: {json.dumps(wanted)}"
        in sent.system,
    ) == (None, True)
    sent = asked("json", ASKED, text('{"total": 5}'), ASKED, tools=False, response_schema=wanted)
    assert (sent.response_schema, sent.messages[1]) == (
        choice({"answer": wanted}),
        text('{"answer": {"total": 5}}'),
    )


@pytest.mark.accepts("O7", "R1")
def test_thought_and_action_become_thinking_and_a_call() -> None:
    """As with native calls; the turn assigns the call's id."""
    answer = read(
        "react_text",
        'Thought: add them\nAction: add\nAction Input: {"a": 2, "b": 3}',
        stop=StopReason.STOP_SEQUENCE,
    )

    assert answer.message == said(
        Thinking(text="add them"), ToolCall(id="", name="add", arguments='{"a": 2, "b": 3}')
    )
    assert (answer.stop, answer.objection) == (StopReason.TOOL_CALLS, "")


@pytest.mark.accepts("R1")
def test_final_answer_becomes_the_text() -> None:
    """Without its marker."""
    answer = read("react_text", "Thought: known\nFinal Answer: 15", stop=StopReason.STOP_SEQUENCE)

    assert (answer.message, answer.stop, answer.objection) == (
        said(Thinking(text="known"), Text(text="15")),
        StopReason.STOP_SEQUENCE,
        "",
    )


def test_reasoning_is_kept_and_not_taken_for_a_thought() -> None:
    """The provider's, and text in tags; an empty Thought says that it is not repeated."""
    call = ToolCall(id="", name="add")
    message = said(Thinking(text="reasoning"), Text(text="<think>more</think>Action: add"))

    kept = (
        protocols.named("react_text")
        .read(ModelAnswer(message=message), Prompt(tools=TOOLS), corrects=True)
        .message
    )

    assert kept == said(Thinking(text="reasoning"), Thinking(text="more"), Thinking(text=""), call)
    assert asked("react_text", ASKED, kept).messages[1] == text("Action: add\nAction Input: {}")


@pytest.mark.accepts("R8")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            '{"name": "add", "arguments": {"a": 2}}',
            said(ToolCall(id="", name="add", arguments='{"a": 2}')),
        ),
        ('```json\n{"tool": "add",\n"args": "{}"}\n```', said(ToolCall(id="", name="add"))),
        ('Well {sic}: {"name": "sub"} and more', said(ToolCall(id="", name="sub"))),
        ('{"answer": "15"}', text("15")),
        ('{"answer": {"total": 15}}', text('{"total": 15}')),
        ('{"name": "add", "arguments": {}, "answer": "15"}', said(ToolCall(id="", name="add"))),
        ('{"name": null, "answer": "15"}', text("15")),
        (
            '<think>{"a": 1}</think>\n{"answer": "15"}',
            said(Thinking(text='{"a": 1}'), Text(text="15")),
        ),
        ('{"answer": "</think>"}', text("</think>")),
    ],
)
def test_object_becomes_a_call_or_the_text(words: str, message: AssistantMessage) -> None:
    """Even if nothing forced the model, and there is text around the object."""
    answer = read("json", words)

    assert (answer.message, answer.objection) == (message, "")
    assert answer.stop is (StopReason.TOOL_CALLS if message.calls else StopReason.END)


@pytest.mark.accepts("R3")
@pytest.mark.parametrize(
    ("name", "words"),
    [("react_text", "It is 15."), ("react_text", "Action: none"), ("json", "It is 15.")],
)
def test_unmarked_text_is_objected_to_or_the_answer(name: str, words: str) -> None:
    """Depending on the option; the text is kept unchanged either way."""
    corrected, taken = read(name, words), read(name, words, corrects=False)

    assert corrected.message == taken.message == text(words)
    assert (bool(corrected.objection), taken.objection) == (True, "")


@pytest.mark.parametrize(
    "words", ['{"name": "add", "arg', '{"total": 5}', '{"answer": null}', '{"answer": " "}']
)
def test_broken_object_is_no_answer_even_where_text_is(words: str) -> None:
    """It was meant to be parsed."""
    assert read("json", words, corrects=False).objection != ""


@pytest.mark.parametrize(
    ("name", "words"), [("react_text", '```json\n{"total": 5}\n```'), ("json", '{"total": 5}')]
)
def test_object_without_a_marker_is_the_answer_where_one_is_wanted(name: str, words: str) -> None:
    """A model that is asked for nothing but JSON answers like this; the schema is validated
    elsewhere.
    """
    answer = read(name, words, response_schema=choice({"total": {"type": "integer"}}))

    assert (answer.message, answer.objection) == (text(words), "")


@pytest.mark.parametrize("name", SPOKEN)
def test_text_that_was_objected_to_goes_back_as_it_was_written(name: str) -> None:
    """The model gets its own text and the objection."""
    answer = read(name, "It is 15.")

    sent = asked(name, ASKED, answer.message, UserMessage.of(answer.objection)).messages

    assert sent == (ASKED, text("It is 15."), UserMessage.of(answer.objection))


@pytest.mark.parametrize("name", SPOKEN)
@pytest.mark.parametrize(
    ("stop", "fields"),
    [
        (StopReason.MAX_TOKENS, {}),
        (StopReason.REFUSED, {}),
        (StopReason.END, {"tools": False}),
        (StopReason.END, {"options": RequestOptions(tool_choice="none")}),
    ],
)
def test_no_objection_where_nothing_better_would_come(
    name: str, stop: StopReason, fields: dict[str, Any]
) -> None:
    """Truncated, refused, or a last answer."""
    answer = read(name, "It is", stop=stop, **fields)

    assert answer == ModelAnswer(message=text("It is"), stop=stop)


def test_stop_sequence_of_the_options_is_an_end() -> None:
    """A stop at our own sequence is not: the model was about to invent a result."""
    mine = RequestOptions(stop_sequences=("END",))

    assert (
        read("react_text", "It is 15.", stop=StopReason.STOP_SEQUENCE, options=mine).objection == ""
    )
    assert read("react_text", "Thought: hm", stop=StopReason.STOP_SEQUENCE).objection != ""


@pytest.mark.parametrize(
    ("name", "words"),
    [("react_text", 'Action: add\nAction Input: {"a": 2'), ("json", '{"name": "add"} and')],
)
def test_call_that_was_cut_off_is_not_to_be_run(name: str, words: str) -> None:
    """The stop reason is kept."""
    answer = read(name, words, stop=StopReason.MAX_TOKENS)

    assert ([call.name for call in answer.message.calls], answer.stop) == (
        ["add"],
        StopReason.MAX_TOKENS,
    )


@pytest.mark.parametrize("name", SPOKEN)
def test_call_by_the_api_is_a_call_all_the_same(name: str) -> None:
    """Some servers parse calls from the text themselves."""
    answer = ModelAnswer(message=said(Text(text="Action: nothing"), CALL))

    assert protocols.named(name).read(answer, Prompt(tools=TOOLS), corrects=True) == answer


@pytest.mark.parametrize("name", SPOKEN)
def test_answer_of_nothing_stays_nothing(name: str) -> None:
    """It is an error of the model, which is handled elsewhere."""
    answer = ModelAnswer(message=text(" "))

    assert protocols.named(name).read(answer, Prompt(tools=TOOLS), corrects=True) == answer


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["call", "answer", "wrong", "user"]),
        st.text(max_size=10),
        st.text(min_size=1, max_size=10),
    ),
    max_size=8,
)


@pytest.mark.parametrize("name", SPOKEN)
@settings(max_examples=examples(100), deadline=None)
@given(steps=STEPS)
def test_what_is_sent_only_grows_at_its_end(name: str, steps: list[tuple[str, str, str]]) -> None:
    """Every request starts with the previous one, byte for byte, so that prompt caches work."""
    transcript: tuple[Message, ...] = (ASKED,)
    before = flat(asked(name, *transcript))
    for kind, thought, words in steps:
        call = ToolCall(id="c", name="add", arguments=words)
        objection = read(name, "words").objection
        more: dict[str, tuple[Message, ...]] = {
            "call": (said(Thinking(text=thought), call), ToolMessage.of(call, words)),
            "answer": (said(Thinking(text=thought), Text(text=words)), UserMessage.of(words)),
            "wrong": (text(words), UserMessage.of(objection)),
            "user": (UserMessage.of(words),),
        }
        transcript += more[kind]
        after = flat(asked(name, *transcript))

        assert after.startswith(before)
        before = after


WORDS = st.text(max_size=30)
ARGUMENTS = WORDS | st.sampled_from(["[" + ",".join("1" * 1_000) + "]", '{"a":{"b":1}}', ""])


@pytest.mark.parametrize("name", SPOKEN)
@settings(max_examples=examples(100), deadline=None)
@given(
    steps=st.lists(st.tuples(st.booleans(), WORDS, ARGUMENTS, WORDS), max_size=4),
    typed=st.booleans(),
)
def test_words_of_messages_are_no_longer_than_what_is_reserved_for_them(
    name: str, steps: list[tuple[bool, str, str, str]], typed: bool
) -> None:
    """So the bound of a budget holds in every protocol."""
    messages: list[Message] = [ASKED]
    for is_call, thought, words, more in steps:
        call = ToolCall(id="", name="add", arguments=words)
        parts = (Thinking(text=thought), call if is_call else Text(text=words))
        messages += [said(*parts), ToolMessage.of(call, more) if is_call else UserMessage.of(more)]

    sent = asked(name, *messages, response_schema=choice({}) if typed else None).messages

    assert sum(size(words_of(message)) for message in sent) <= sum(map(bound, messages))


def flat(prompt: Prompt) -> str:
    """The concatenated text of a request."""
    return prompt.system + "".join(
        f"\n[{message.role}]{words_of(message)}" for message in prompt.messages
    )


@pytest.mark.parametrize("name", SPOKEN)
@settings(max_examples=examples(200), deadline=None)
@given(
    words=st.text()
    | st.recursive(
        st.text() | st.none(),
        lambda inner: st.dictionaries(st.sampled_from(["name", "answer", "arguments"]), inner),
    ).map(json.dumps)
)
def test_reading_never_raises(name: str, words: str) -> None:
    """Any text of a model becomes text, a call or nothing."""
    for corrects in (True, False):
        answer = read(name, words, corrects=corrects)

        assert bool(words.strip()) == bool(answer.message.text.strip() or answer.message.calls)
