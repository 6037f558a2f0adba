"""What MCP servers ask people: how it is read, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import JsonValue

from perdure import limits
from perdure.turn.inquiry_values import CallInquiry
from perdure.values.inquiries import GivenAnswers, Inquiry, ServerAnswer, ServerQuestion

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from perdure.activities.mcp import inquiries


def asks(message: str = "Which?", **schema: Any) -> dict[str, Any]:
    """A request to the user."""
    whole = {"type": "object", "properties": {"name": {"type": "string"}}, **schema}
    params = {"mode": "form", "message": message, "requestedSchema": whole}
    return {"method": "elicitation/create", "params": params}


def read(**requests: Any) -> Inquiry:
    """What is read of requests of a server that knows a secret."""
    return inquiries.read("works", requests, lambda text: text.replace("sesame", "…"))


@pytest.mark.accepts("T72")
def test_words_of_a_server_are_data() -> None:
    """Without invisible characters and secrets, in the message and in the form."""
    field = {"type": "string", "title": "Na\u202eme", "description": "sesame", "pattern": "^a"}
    [question] = read(a=asks("Say sesame\x1b[2K\u200b", properties={"name": field})).questions

    assert question.text == "Say …[2K"
    assert question.form == {
        "type": "object",
        "properties": {"name": {"type": "string", "title": "Name", "description": "…"}},
    }


@pytest.mark.accepts("T72")
def test_form_of_the_protocol_is_a_form_here() -> None:
    """With choices that have titles, lists of choices, and keywords that are left out."""
    titled = {"oneOf": [{"const": "r", "title": "red"}, {"const": "g", "title": "green"}]}
    fields: dict[str, Any] = {
        "one": {"type": "string", **titled},
        "more": {"type": "array", "uniqueItems": True, "items": {"anyOf": titled["oneOf"]}},
        "old": {"type": "string", "enum": ["a"], "enumNames": ["A"]},
    }
    [question] = read(a=asks(properties=fields, required=["one"])).questions

    assert question.form == {
        "type": "object",
        "properties": {
            "one": {"type": "string", **titled},
            "more": {"type": "array", "items": {"anyOf": titled["oneOf"]}},
            "old": {"type": "string", "enum": ["a"]},
        },
        "required": ["one"],
    }


ODD: dict[str, tuple[Any, str]] = {
    "no request": ("Which?", "it asks for None"),
    "no message": ({"method": "elicitation/create", "params": {}}, "its question is not valid"),
    "no params": ({"method": "elicitation/create", "params": []}, "its question is not valid"),
    "a list of params": (
        {"method": "elicitation/create", "params": [1]},
        "its question is not valid",
    ),
    "empty": (asks(" \u200b"), "its question is empty"),
    "no form": (asks(type="array"), "its form cannot be shown: the schema is not"),
    "odd fields": (asks(properties=["name"]), "its form cannot be shown"),
    "numbers": (
        asks(properties={"n": {"type": "array", "items": {"type": "number"}}}),
        "its form cannot be shown: n is no text",
    ),
    "unions": (
        asks(properties={"n": {"type": ["string", "null"]}}),
        "its form cannot be shown: n is no text",
    ),
    "large": (
        asks(properties={"n": {"type": "string", "title": "n" * limits.FORM_BYTES}}),
        "its form cannot be shown: the schema has",
    ),
    "within": (
        asks(properties={"n": {"anyOf": [{"type": "string", "format": "password"}]}}),
        r"it asks for a password \(n\)",
    ),
    "write-only": (
        asks(properties={"key": {"type": "string", "writeOnly": True}}),
        r"it asks for a password \(key\)",
    ),
}


@pytest.mark.accepts("T76")
@pytest.mark.parametrize(("request_", "words"), ODD.values(), ids=ODD)
def test_odd_question_is_refused_with_the_reason(request_: Any, words: str) -> None:
    """It never raises anything else."""
    with pytest.raises(ValueError, match=words):
        read(a=request_)


@pytest.mark.accepts("T76")
def test_server_asks_no_more_than_history_holds() -> None:
    """Neither many questions, nor large ones, nor with a large state or key."""
    many = {str(number): asks() for number in range(limits.SERVER_QUESTIONS + 1)}
    large = {str(number): asks("?" * 3_000) for number in range(limits.SERVER_QUESTIONS)}
    with pytest.raises(ValueError, match="it asks 21 questions at once"):
        read(**many)
    with pytest.raises(ValueError, match=r"its questions have .* bytes, more than"):
        read(**large)
    with pytest.raises(ValueError, match=r"its questions have .* bytes, more than"):
        inquiries.read("works", {"a": asks()}, str, "s" * limits.SERVER_QUESTIONS_BYTES)
    with pytest.raises(ValueError, match="the key of a question"):
        read(**{"k" * 201: asks()})


@pytest.mark.accepts("T79")
def test_last_answers_are_kept() -> None:
    """Those of earlier questions may go, as the server has had them; the last may not."""
    text: dict[str, JsonValue] = {"text": "x" * (limits.ANSWER_BYTES - 20)}
    inquiry = CallInquiry(server="works")
    for key in "abcdef":
        asked = Inquiry(server="works", questions=(ServerQuestion(key=key, text="?"),))
        inquiry = inquiry.plus(asked).answered("accept", text)

    assert [answer.key for answer in inquiry.answers] == ["d", "e", "f"]
    assert inquiry.number == 7


@pytest.mark.accepts("T79")
def test_only_answers_that_are_waited_for_are_sent() -> None:
    """By the keys that the task names."""
    answers = GivenAnswers(
        given=(
            ServerAnswer(key="a", action="accept", content={"n": 1}),
            ServerAnswer(key="b", action="decline"),
        )
    )

    assert inquiries.responses(answers, {"b": asks(), "c": asks()}) == {"b": {"action": "decline"}}
