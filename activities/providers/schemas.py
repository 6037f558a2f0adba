"""Response schemas, as far as an API enforces them.

OpenAI's own servers enforce a schema strictly only if it has no optional fields, no open objects
and no union at its top level; strict mode must not be requested for other schemas, or the request
is rejected. Servers that constrain output by a grammar (vLLM, llama.cpp, Ollama) enforce any
schema. Anthropic's API has a format of its own, which supports few schemas. A forced tool supports
nearly all, except for a union at the top level, which is therefore nested a level down.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from perdure.activities.provider import ModelRequest
from perdure.activities.providers.lenient_json import mapping
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Text, Thinking, ToolCall
from perdure.values.reports import StopReason

INSIDE = "reply"
"""The field that a schema is nested in if it is not allowed at the top level."""

_CHOICES = ("anyOf", "oneOf", "allOf")
_LOOSE = frozenset(
    {
        "oneOf",
        "allOf",
        "not",
        "if",
        "then",
        "else",
        "default",
        "patternProperties",
        "dependentRequired",
        "dependentSchemas",
    }
)


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Return whether OpenAI's strict mode supports this schema."""
    return (
        schema.get("type") == "object"
        and "anyOf" not in schema
        and all(map(_is_closed, _parts(schema)))
    )


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas inside it."""
    schema = mapping(schema)
    yield schema
    inside = [
        *mapping(schema.get("properties")).values(),
        *mapping(schema.get("$defs")).values(),
        *(schema.get("anyOf") or ()),
    ]
    for part in [*inside, *([schema["items"]] if "items" in schema else [])]:
        yield from _parts(part)


def _is_closed(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema describes its value completely."""
    if _LOOSE & schema.keys() or not schema.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
        return False
    if schema.get("type") == "array":
        return "items" in schema
    if schema.get("type") != "object":
        return True
    return schema.get("additionalProperties") is False and {*schema.get("required", ())} == {
        *mapping(schema.get("properties"))
    }


def tool_of(request: ModelRequest) -> dict[str, Any]:
    """Return the tool whose arguments are the answer, in the form of Anthropic's API."""
    schema = dict(request.response_schema or {})
    if _has_choice(schema):
        definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
        schema = {
            "type": "object",
            "properties": {INSIDE: schema},
            "required": [INSIDE],
            "additionalProperties": False,
            **definitions,
        }
    return {
        "name": request.response_name,
        "description": "Gives your reply.",
        "input_schema": schema,
    }


def is_asked_as_tool(request: ModelRequest) -> bool:
    """Return whether the answer is requested as the arguments of `tool_of`."""
    return request.response_schema is not None and not request.tools


def as_text(answer: ModelAnswer, request: ModelRequest) -> ModelAnswer:
    """Convert an answer given as the arguments of `tool_of` into text."""
    if not is_asked_as_tool(request) or request.response_name not in [
        call.name for call in answer.message.calls
    ]:
        return answer
    parts = tuple(
        _converted(part, request) for part in answer.message.parts if not isinstance(part, Text)
    )
    stop = StopReason.END if answer.stop is StopReason.TOOL_CALLS else answer.stop
    return answer.model_copy(update={"message": AssistantMessage(parts=parts), "stop": stop})


def _converted(part: Thinking | ToolCall, request: ModelRequest) -> Thinking | ToolCall | Text:
    if not isinstance(part, ToolCall) or part.name != request.response_name:
        return part
    if not _has_choice(request.response_schema or {}):
        return Text(text=part.arguments)
    return Text(text=_unwrapped(part.arguments))


def _unwrapped(arguments: str) -> str:
    """Return the answer in the arguments of a call; the arguments if they do not hold it."""
    try:
        values = json.loads(arguments)
    except ValueError:
        return arguments
    if isinstance(values, dict) and INSIDE in values:
        return json.dumps(values[INSIDE], ensure_ascii=False)
    return arguments


def _has_choice(schema: Mapping[str, Any]) -> bool:
    return any(kind in schema for kind in _CHOICES)
