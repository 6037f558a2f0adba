"""Images and files in tool results: what a tool may return, what each API is sent, what a model
gets that does not take them, and what budgets count.
"""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from pydantic_ai import messages as theirs

from perdure import (
    AssistantMessage,
    Media,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    limits,
    protocols,
)
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import (
    anthropic,
    openai_chat,
    openai_responses,
    pydantic_ai_messages,
)
from perdure.activities.tool_results import fitted, output_of
from perdure.agents.definitions import AgentDefinition
from perdure.protocols import Prompt
from perdure.temporal.payloads import pack
from perdure.turn import guards
from perdure.turn.context_window import Cut, sent
from perdure.turn.decide import Act
from perdure.turn.history_limits import check_batch, media_room
from perdure.turn.keys import ToolKey
from perdure.turn.media import for_model
from perdure.turn.state import TurnState
from perdure.turn.token_estimate import tokens
from perdure.turn.transcript import TokenCount, Transcript
from perdure.turn.wire import ToolOutput, ToolRun, TurnRequest
from perdure.values.messages import canonical, digest_of
from perdure.values.prices import MEDIA_TOKENS, bound
from perdure.values.reports import Step

DATA = base64.b64encode(b"\x89PNG" + bytes(8_000)).decode()
PNG = Media(media_type="image/png", data=DATA)
PDF = Media(media_type="application/pdf", data=DATA)
FAR = Media(media_type="image/png", url="https://example.com/a.png")
CALLS = (ToolCall(id="c1", name="look"), ToolCall(id="c2", name="add"))


def result(*media: Media, content: str = "", is_error: bool = False) -> ToolResult:
    """The result of `look`, whose text names its media as a tool's result does."""
    said = output_of([content, *media]).content if content else output_of(list(media)).content
    return ToolResult(call_id="c1", name="look", content=said, is_error=is_error, media=media)


def conversation(*results: ToolResult) -> tuple[Message, ...]:
    """A question, the calls, and their results; the second of text."""
    text = ToolResult(call_id="c2", name="add", content="2")
    return (
        UserMessage.of("What is it?"),
        AssistantMessage(parts=CALLS),
        ToolMessage(results=(*results, text)),
    )


def request(*results: ToolResult) -> ModelRequest:
    """A request with these results."""
    return ModelRequest(model="m", messages=conversation(*results))


# What a tool may return


@pytest.mark.accepts("M31")
@pytest.mark.parametrize(
    ("value", "content", "media"),
    [
        (PNG, "[image/png, 8 KB]", (PNG,)),
        (["Look:", PNG, {"page": 2}, PDF],
         'Look:\n\n[image/png, 8 KB]\n\n{"page":2}\n\n[application/pdf, 8 KB]', (PNG, PDF)),
        ((FAR,), "[image/png, https://example.com/a.png]", (FAR,)),
        (["a", "b"], '["a","b"]', ()),
        ([], "[]", ()),
    ],
)  # fmt: skip
def test_media_alone_or_among_texts_are_kept(
    value: object, content: str, media: tuple[Media, ...]
) -> None:
    """The text names the kind and the size of each in its place; other lists stay JSON."""
    assert output_of(value) == ToolOutput(content=content, media=media)


@pytest.mark.accepts("M31")
@pytest.mark.parametrize(
    ("media", "reason"),
    [
        (Media(media_type="image/png"), "has neither data nor a url"),
        (Media(media_type="image/png", data="a b c"), "is not base64"),
    ],
)
def test_media_that_no_provider_could_read_are_refused(media: Media, reason: str) -> None:
    """The tool failed, with what is wrong."""
    with pytest.raises(ValueError, match=reason):
        output_of([media])


# What the APIs are sent


@pytest.mark.accepts("M30")
def test_anthropic_gets_images_and_documents_inside_the_result() -> None:
    """Its text first; a result without media stays a string."""
    body = anthropic.body_of(request(result(PNG, PDF, content="see")), 100)

    (first, second) = body["messages"][-1]["content"]
    text, image, document = first["content"]
    assert (first["tool_use_id"], text) == (
        "c1",
        {"type": "text", "text": "see\n\n[image/png, 8 KB]\n\n[application/pdf, 8 KB]"},
    )
    assert image == {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": DATA},
    }
    assert document["type"] == "document"
    assert second == {"type": "tool_result", "tool_use_id": "c2", "content": "2"}


@pytest.mark.accepts("M30")
def test_anthropic_gets_text_alone_for_an_error() -> None:
    """Its API takes nothing else in the result of a failed call."""
    body = anthropic.body_of(request(result(PNG, content="no", is_error=True)), 100)

    assert body["messages"][-1]["content"][0]["content"] == (
        "no\n\n[image/png, 8 KB: not sent, because the result of a failed call takes only text]"
    )


@pytest.mark.accepts("M30")
def test_responses_api_gets_a_list_as_the_output() -> None:
    """Text, image and file."""
    body = openai_responses.body_of(request(result(PNG, PDF)))

    first, second = body["input"][-2:]
    text, image, file = first["output"]
    assert text["type"] == "input_text"
    assert image == {
        "type": "input_image",
        "image_url": f"data:image/png;base64,{DATA}",
        "detail": "auto",
    }
    assert (file["type"], file["filename"]) == ("input_file", "file.pdf")
    assert second["output"] == "2"


@pytest.mark.accepts("M30")
def test_chat_api_gets_images_in_a_message_after_all_results_of_the_step() -> None:
    """A message of the role `tool` takes text alone, and all of them directly follow the calls."""
    body = openai_chat.body_of(request(result(PNG)))

    first, second, images = body["messages"][-3:]
    assert first == {"role": "tool", "tool_call_id": "c1", "content": "[image/png, 8 KB]"}
    assert second["role"] == "tool"
    assert images == {
        "role": "user",
        "content": [
            {"type": "text", "text": "From the result of look (call c1):"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        ],
    }


@pytest.mark.accepts("M30")
def test_pydantic_ai_gets_them_in_the_tools_return() -> None:
    """Its adapters know what each vendor takes."""
    *_, asked = pydantic_ai_messages.messages_of(conversation(result(PNG, FAR)))

    part = asked.parts[0]
    assert isinstance(part, theirs.ToolReturnPart)
    assert part.content == [
        "[image/png, 8 KB]\n\n[image/png, https://example.com/a.png]",
        theirs.BinaryContent(data=base64.b64decode(DATA), media_type="image/png"),
        theirs.ImageUrl(url="https://example.com/a.png", media_type="image/png"),
    ]


@pytest.mark.accepts("M30")
@pytest.mark.parametrize(
    ("protocol", "words"),
    [("react_text", "Observation: "), ("json", "Result of look:\n")],
)
def test_protocols_of_text_send_them_with_the_words_of_the_result(
    protocol: str, words: str
) -> None:
    """In the message of the user that holds the result."""
    asked = protocols.named(protocol).ask(Prompt(messages=conversation(result(PNG))))

    assert UserMessage(parts=(Text(text=f"{words}[image/png, 8 KB]"), PNG)) in asked.messages


# Models that do not take them


@pytest.mark.accepts("M33")
def test_sentence_is_in_the_place_of_what_a_model_does_not_take() -> None:
    """Each by its kind and its size; the others are sent, and messages without media untouched."""
    messages = conversation(result(PNG, PDF, content="see"))

    plain = for_model(messages, {})[-1]
    some = for_model(messages, {"image/*": 10_000, "application/pdf": 5_000})[-1]

    assert isinstance(plain, ToolMessage)
    assert isinstance(some, ToolMessage)
    assert plain.media == ()
    assert plain.results[0].content == (
        "see\n\n[image/png, 8 KB: this model takes no image/png]"
        "\n\n[application/pdf, 8 KB: this model takes no application/pdf]"
    )
    assert some.media == (PNG,)
    assert some.results[0].content == (
        "see\n\n[image/png, 8 KB]\n\n[application/pdf, 8 KB: this model takes application/pdf of"
        " at most 5 KB, and this one has 8 KB]"
    )
    assert for_model(messages, None) == messages


@pytest.mark.accepts("M39")
def test_oldest_media_are_left_out_of_a_request_that_would_be_too_large() -> None:
    """Until half remains, so that many requests begin the same way; nothing comes back."""
    size = len(DATA)
    messages: tuple[Message, ...] = ()
    sent_media, beginnings = [], []
    for _ in range(8):
        before = messages
        messages = (*messages, *conversation(result(PNG)))
        request = for_model(messages, None, 4 * size)
        sent_media.append([len(one.media) for one in request if isinstance(one, ToolMessage)])
        beginnings.append(request[: len(before)] == for_model(before, None, 4 * size))

    assert sent_media[:4] == [[1] * count for count in (1, 2, 3, 4)]
    assert sent_media[4] == [0, 0, 0, 1, 1]
    assert sent_media[7] == [0, 0, 0, 0, 0, 0, 1, 1]
    assert beginnings == [True, True, True, True, False, True, True, False]
    last = for_model(messages, None, 4 * size)[2]
    assert isinstance(last, ToolMessage)
    assert last.results[0].content == (
        "[image/png, 8 KB: left out, because newer ones fill the request]"
    )


# What history holds


@pytest.mark.accepts("M35")
def test_results_without_media_are_written_and_digested_as_before() -> None:
    """Byte for byte, so that turns of an earlier release go on."""
    messages = conversation()

    assert canonical(messages[-1]) == (
        b'{"role":"tool","results":[{"type":"tool_result","call_id":"c2","name":"add",'
        b'"content":"2","is_error":false}]}'
    )
    assert digest_of(messages) == (
        "85fcdb15541fe7abf9cdb6643de5dac8744a2cecd65ab88a1372b71c5e72ef10"
    )
    assert pack(ToolOutput(content="2")).payload.data == b'{"content":"2"}'
    request = TurnRequest(agent="a", task="t", history=messages)
    assert b"media" not in pack(request).payload.data
    run = ToolRun(owner="a", call_id="c1", arguments="{}", schema_digest="0")
    assert b"media" not in pack(run).payload.data


@pytest.mark.accepts("M35")
def test_media_are_part_of_the_digest() -> None:
    """Another image is another transcript."""
    other = Media(media_type="image/png", data=DATA[:-4] + "AAA=")

    assert digest_of(conversation(result(PNG))) != digest_of(conversation(result(other)))


@pytest.mark.accepts("M35")
def test_turn_that_takes_no_media_gets_a_sentence() -> None:
    """It began in an earlier release, whose workers would compute another digest."""
    output = fitted(output_of(["see", PNG]), "look", 0, has_storage=True)

    assert output == ToolOutput(
        content="see\n\n[image/png, 8 KB: left out, because this turn takes only text from tools]"
    )


@pytest.mark.accepts("M36")
def test_media_too_large_for_history_are_an_error_that_says_what_to_do() -> None:
    """With the text of the result; an external storage holds up to its own limit."""
    given = output_of(["see", PNG])
    large = ToolOutput(content="", media=(PNG.model_copy(update={"data": "A" * 22_000_000}),))

    refused = fitted(given, "look", 9_000, has_storage=False)

    assert refused.is_error
    assert refused.media == ()
    assert refused.content == (
        "look: TooLargeError: the tool ran, but its images and files are 11 KB in base64, more than"
        " the 9 KB that a result may have here; ask it for smaller ones. Its author can return"
        " Media(url=…) with an address that the provider fetches, or give Temporal's client an"
        " external storage"
        "\n\nsee\n\n[image/png, 8 KB]"
    )
    assert fitted(given, "look", 9_000, has_storage=True) == given
    assert fitted(given, "look", 12_000, has_storage=False) == given
    assert fitted(large, "look", 12_000, has_storage=True).is_error


def agent(rules: int = 3) -> AgentDefinition:
    """An agent whose turn began under these rules."""
    return AgentDefinition(name="seer", instructions="", model="scripted:m", rules=rules)


@pytest.mark.accepts("M36")
def test_calls_at_once_share_what_is_left_of_history() -> None:
    """So that their media never bring it to the limit of the server; none before rules 3."""
    moves = [Act(ToolKey(1, place), ToolCall(id=f"c{place}", name="look")) for place in (1, 2)]
    many = [Act(ToolKey(1, place), CALLS[0]) for place in range(1, limits.CALLS + 1)]
    state, size = TurnState(), 1_000_000

    rooms = [media_room(state, asked, agent(), size) for asked in (moves[:1], moves, many)]

    check_batch(state, many, size)
    assert rooms[:2] == [limits.RESULT_MEDIA_BYTES] * 2
    assert 300_000 < rooms[2] < 400_000
    text = 6 * limits.TOOL_RESULT_BYTES + limits.CALL_BYTES
    assert size + limits.CALLS * (rooms[2] + text) < limits.SERVER_BYTES
    assert media_room(state, moves, agent(rules=2), size) == 0
    full = replace(state, transcript=Transcript(size_bytes=limits.TRANSCRIPT_BYTES + 1))
    assert media_room(full, moves, agent(), size) == 0


@pytest.mark.accepts("M36")
def test_largest_result_with_media_fits_into_a_payload() -> None:
    """Its text as long as JSON may make it."""
    text = '"' * limits.TOOL_RESULT_BYTES
    media = Media(media_type="image/png", data="A" * (limits.RESULT_MEDIA_BYTES - 100))

    output = fitted(
        ToolOutput(content=text, media=(media,)),
        "look",
        limits.RESULT_MEDIA_BYTES,
        has_storage=False,
    )

    assert not output.is_error
    assert len(pack(output).payload.data) <= limits.PAYLOAD_BYTES


# What budgets and windows count


@pytest.mark.accepts("M37")
def test_bound_of_a_result_has_each_image_at_most_and_each_byte_of_a_file() -> None:
    """Its base64 is not counted as text."""
    plain = conversation(result(PNG))[-1].map(  # type: ignore[union-attr]
        lambda one: one.model_copy(update={"media": ()})
    )
    image, file = conversation(result(PNG))[-1], conversation(result(PDF))[-1]
    count = TokenCount().plus(image, len(canonical(image)))

    assert bound(image) == bound(plain) + MEDIA_TOKENS
    assert bound(file) > len(DATA)
    assert count.bound == bound(image)
    assert tokens(image) - tokens(plain) == 1_600


@pytest.mark.accepts("M37")
def test_cut_drops_the_media_with_the_text() -> None:
    """The note has the size of both."""
    view = sent(conversation(result(PNG)), Cut(results=3))[-1]

    assert isinstance(view, ToolMessage)
    assert view.media == ()
    assert view.results[0].content == "[result of look, 8 KB, left out]"
    assert view.results[1].content == "2"


@pytest.mark.accepts("M37")
def test_calls_whose_images_differ_are_no_loop() -> None:
    """Even if they have one size."""
    other = PNG.model_copy(update={"data": "B" + DATA[1:]})
    asked = AssistantMessage(parts=CALLS[:1])

    def steps(*media: Media) -> tuple[Step, ...]:
        return tuple(
            Step(number=place, model="m", message=asked, results=(result(one),))
            for place, one in enumerate(media, 1)
        )

    assert guards.loop_in(steps(PNG, PNG, PNG), agent())
    assert guards.loop_in(steps(PNG, other, PNG), agent()) is None


@pytest.mark.accepts("M38")
def test_media_are_printed_without_their_data() -> None:
    """A report printed in a terminal is readable."""
    assert repr(PNG) == "Media(type='media', media_type='image/png', url=None)"
    assert DATA not in str(conversation(result(PNG)))
