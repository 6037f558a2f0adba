"""The schema of a choice between tools, each with its own arguments, and an answer.

The definitions of each part are moved to the top level under unique names, because a `$ref` is
resolved from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from perdure.agents.definitions import ToolDefinition

_DEFINITIONS = ("$defs", "definitions")


def schema_of(
    tools: Sequence[ToolDefinition], answer: Mapping[str, JsonValue] | None
) -> dict[str, JsonValue]:
    """Return the schema of a reply; `answer` is the schema of an answer, None to rule it out."""
    definitions: dict[str, JsonValue] = {}
    parts = [_call(tool, definitions) for tool in tools]
    parts += (
        [_object({"answer": _lifted(answer, "answer", definitions)})] if answer is not None else []
    )
    schema: dict[str, JsonValue] = (
        parts[0] if len(parts) == 1 else {"type": "object", "anyOf": [*parts]}
    )
    return {**schema, "$defs": definitions} if definitions else schema


def _call(tool: ToolDefinition, collected: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return _object(
        {
            "name": {"type": "string", "enum": [tool.name]},
            "arguments": _lifted(tool.parameters, tool.name, collected),
        }
    )


def _object(properties: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def _lifted(
    schema: Mapping[str, JsonValue], owner: str, collected: dict[str, JsonValue]
) -> JsonValue:
    """Return `schema` without its definitions, which are added to `collected`."""
    for kind in _DEFINITIONS:
        definitions = schema.get(kind)
        for name, definition in definitions.items() if isinstance(definitions, dict) else ():
            collected[f"{owner}.{name}"] = _renamed(definition, owner)
    lifted: JsonValue = _renamed(
        {key: value for key, value in schema.items() if key not in _DEFINITIONS}, owner
    )
    return lifted


def _renamed(value: Any, owner: str) -> Any:
    """Return `value` with its references pointing to the owner's definitions."""
    if isinstance(value, list):
        return [_renamed(item, owner) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _reference(item, owner)
        if key == "$ref" and isinstance(item, str)
        else _renamed(item, owner)
        for key, item in value.items()
    }


def _reference(target: str, owner: str) -> str:
    _, kind, name = target.split("/", 2) if target.count("/") >= 2 else ("", "", "")
    return f"#/$defs/{owner}.{name}" if target.startswith("#/") and kind in _DEFINITIONS else target
