"""The schema of a typed answer, in the requests of both APIs, and parsing their answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from perdure import protocols, tool
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import anthropic, openai_chat, schemas
from perdure.activities.providers.schemas import is_strict
from perdure.agents.definitions import define_tool
from perdure.protocols import Prompt
from perdure.testing.stub_provider import StubProvider
from perdure.values.messages import AssistantMessage, Text, Thinking, ToolCall, ToolMessage
from perdure.values.options import RequestOptions
from perdure.values.reports import StopReason

from ..support.loopback import ADD, ANTHROPIC, HELLO, OPENAI, RESPONSES


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


PLAIN = closed(total={"type": "integer"})
CHOICE = {
    "type": "object",
    "anyOf": [PLAIN, closed(at={"$ref": "#/$defs/Place"})],
    "$defs": {"Place": closed(city={"type": "string"})},
}


def asking(schema: dict[str, Any], **fields: Any) -> ModelRequest:
    """A request for an answer of this schema."""
    return replace(HELLO, response_schema=schema, response_name="bill", **fields)


def test_chat_completions_get_the_schema_as_a_response_format() -> None:
    """With strict mode if OpenAI's own servers support it for the schema; other servers are strict
    anyway.
    """
    bodies = [openai_chat.body_of(asking(schema)) for schema in (PLAIN, CHOICE)]

    assert [body["response_format"] for body in bodies] == [
        {"type": "json_schema", "json_schema": {"name": "bill", "schema": PLAIN, "strict": True}},
        {"type": "json_schema", "json_schema": {"name": "bill", "schema": CHOICE, "strict": False}},
    ]


def test_chat_completions_get_a_schema_beside_tools_at_openai_only() -> None:
    """A server that enforces the schema from the first token could not produce a call."""
    both = asking(PLAIN, tools=(ADD,))
    bodies = [
        openai_chat.body_of(both, "max_completion_tokens"),
        openai_chat.body_of(both, "max_tokens"),
    ]

    assert [{"tools", "response_format"} <= body.keys() for body in bodies] == [True, False]
    assert "response_format" not in openai_chat.body_of(HELLO)


def test_messages_get_the_schema_as_a_tool_that_must_be_chosen() -> None:
    """Unchanged, or nested one level down if it has a union at its root, with the definitions still
    at the root.
    """
    plain, choice = (anthropic.body_of(asking(schema), 9) for schema in (PLAIN, CHOICE))

    assert plain["tools"] == [
        {"name": "bill", "description": "Gives your reply.", "input_schema": PLAIN}
    ]
    assert plain["tool_choice"] == choice["tool_choice"] == {"type": "tool", "name": "bill"}
    inside = {"type": "object", "anyOf": CHOICE["anyOf"]}
    assert choice["tools"][0]["input_schema"] == {**closed(reply=inside), "$defs": CHOICE["$defs"]}


def test_messages_with_thinking_are_not_forced() -> None:
    """The API refuses that; the prompt asks for the schema."""
    body = anthropic.body_of(
        asking(
            PLAIN,
            options=RequestOptions(extra={"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ),
        9,
    )

    assert body["tool_choice"] == {"type": "auto"}


def test_messages_beside_tools_or_after_calls() -> None:
    """An agent's tools are never replaced; those of earlier turns stay declared."""
    call = ToolCall(id="c", name="add", arguments="{}")
    past = (*HELLO.messages, AssistantMessage(parts=(call,)), ToolMessage.of(call, "1"))

    assert [
        item["name"] for item in anthropic.body_of(asking(PLAIN, tools=(ADD,)), 9)["tools"]
    ] == ["add"]
    assert [
        item["name"]
        for item in anthropic.body_of(replace(asking(PLAIN), messages=past), 9)["tools"]
    ] == ["bill", "add"]


@pytest.mark.parametrize(
    ("schema", "given", "text"),
    [
        (PLAIN, {"total": 5}, '{"total": 5}'),
        (CHOICE, {"reply": {"at": {"city": "Köln"}}}, '{"at": {"city": "Köln"}}'),
        (CHOICE, {"total": 5}, '{"total": 5}'),
    ],
)
async def test_arguments_of_that_tool_are_the_text(
    schema: dict[str, Any], given: dict[str, Any], text: str
) -> None:
    """Text next to them is dropped, and the stop reason is a normal end."""
    with StubProvider(
        [{"text": "Here it is.", "calls": [{"name": "bill", "arguments": given}]}]
    ) as stub:
        answer = await ANTHROPIC.ask(stub.anthropic_url, asking(schema))

    assert [json.loads(part.text) for part in answer.message.parts if isinstance(part, Text)] == [
        json.loads(text)
    ]
    assert (answer.message.calls, answer.stop) == ((), StopReason.END)


async def test_text_without_that_tool_stays_text() -> None:
    """A compatible server may ignore the tool choice."""
    for vendor in (OPENAI, RESPONSES, ANTHROPIC):
        with StubProvider([{"text": '{"total": 5}'}]) as stub:
            answer = await vendor.ask(stub.anthropic_url, asking(PLAIN))

        assert answer.message == AssistantMessage(parts=(Text(text='{"total": 5}'),))


def test_thinking_before_the_answer_is_kept() -> None:
    """With its signature."""
    thought = Thinking(text="hm", signature="s")
    body = {
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "t", "name": "bill", "input": {"total": 5}},
        ]
    }

    answer = schemas.as_text(anthropic.answer_of(body, "m"), asking(PLAIN))

    assert answer.message.parts == (thought, Text(text='{"total": 5}'))


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (PLAIN, True),
        (
            closed(
                items={"type": "array", "items": PLAIN},
                kind={"enum": ["a"]},
                note={"anyOf": [{"type": "string"}, {"type": "null"}]},
            ),
            True,
        ),
        ({**closed(place={"$ref": "#/$defs/Place"}), "$defs": CHOICE["$defs"]}, True),
        (closed(default={"type": "string"}), True),
        (closed(), True),
        ({**PLAIN, "required": []}, False),
        ({**PLAIN, "additionalProperties": True}, False),
        (closed(inner={"type": "object"}), False),
        (closed(inner={}), False),
        (closed(inner={"type": "array"}), False),
        (closed(inner={"type": "string", "default": "x"}), False),
        (closed(inner={"anyOf": [{"type": "object"}]}), False),
        (
            {**closed(place={"$ref": "#/$defs/Place"}), "$defs": {"Place": {"type": "object"}}},
            False,
        ),
        ({"type": "array", "items": PLAIN}, False),
        (CHOICE, False),
    ],
)
def test_schema_is_strict_if_it_says_all_of_everything(
    schema: dict[str, Any], strict: bool
) -> None:
    """No optional field, no open object, no unconstrained value, an object at its root."""
    assert is_strict(schema) is strict


@pytest.mark.accepts("R8")
async def test_choice_of_the_json_protocol_crosses_both_apis() -> None:
    """The request, and the call in the answer."""

    @tool
    def multiply(a: int, b: int) -> int:
        """Multiply."""
        return a * b

    protocol, asked = (
        protocols.named("json"),
        Prompt(messages=HELLO.messages, tools=(define_tool(multiply, "multiply"),)),
    )
    sent = protocol.ask(asked)
    request = replace(
        HELLO,
        system=sent.system,
        messages=sent.messages,
        response_schema=sent.response_schema,
        response_name=sent.response_name,
    )
    object_ = {"name": "multiply", "arguments": {"a": 2, "b": 3}}

    with StubProvider([{"text": json.dumps(object_)}]) as stub:
        plain = await OPENAI.ask(stub.anthropic_url, request)
    with StubProvider([{"calls": [{"name": "reply", "arguments": {"reply": object_}}]}]) as stub:
        forced = await ANTHROPIC.ask(stub.anthropic_url, request)

    assert stub.requests[0]["tool_choice"] == {"type": "tool", "name": "reply"}
    for answer in (plain, forced):
        (call,) = protocol.read(answer, asked, corrects=True).message.calls
        assert (call.name, json.loads(call.arguments)) == ("multiply", {"a": 2, "b": 3})
