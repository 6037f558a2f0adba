"""Parses the arguments of a call from text.

Models without tool calls write JSON, JSON in a fence, JSON with line breaks in its strings, a
Python dict, or just the value. Text that cannot be parsed is left as it is: the tool then reports
what is wrong with it, and the model reads that.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Any

from perdure.agents.definitions import ToolDefinition
from perdure.text import clean

_FENCE = re.compile(r"\s*+(?P<ticks>`{3,}+|~{3,}+)[^\n`]*+\n")
_FENCE_BEGINS = re.compile(
    r"\s*+(?:(?:`{3,}+|~{3,}+)[ \t]*+"
    r"(?:[A-Za-z0-9_+-]*+[ \t]*+\n|(?:json|python)?+[ \t]*+(?=\{))\s*+|`(?=\{)|)",
    re.IGNORECASE,
)
_NAMES = ("name", "tool", "action", "tool_name", "function")
_INPUTS = ("arguments", "args", "parameters", "action_input", "input", "tool_input")
_NOTHING = ("", "none", "null", "n/a", "()")
_PYTHON = 20_000
"""Characters: evaluating a longer literal costs more than another step of the model."""

_LENIENT = json.JSONDecoder(strict=False)


def arguments_of(written: str, text: str, begin: int, tool: ToolDefinition | None) -> str:
    """Return JSON text for the arguments in `written`.

    `text` has `written` at `begin`, followed by the rest of the reply, for a JSON object that
    itself contains what looks like its end.
    """
    json_object = object_in(text, begin)
    if json_object is not None:
        return json_object[0]
    plain_text = unfenced(written)
    literal = _python_literal(plain_text)
    if literal is not None:
        return literal
    fields = _fields(tool)
    if tool is not None and (
        not fields or (plain_text.lower() in _NOTHING and not tool.parameters.get("required"))
    ):
        return "{}"
    only = _only_field(tool, fields)
    if only is not None:
        return dumped({only: _value(plain_text, fields[only])})
    inside = object_in(plain_text, plain_text.find("{")) if "{" in plain_text else None
    return inside[0] if inside else plain_text or "{}"


def object_in(text: str, begin: int = 0) -> tuple[str, dict[str, Any]] | None:
    """Return the JSON object at `begin`, fenced or not, as JSON text and as a value, or None."""
    fence = _FENCE_BEGINS.match(text, begin)
    begin = fence.end() if fence else begin
    if not text.startswith("{", begin):
        return None
    try:
        value, end = _LENIENT.raw_decode(text, begin)
        return (text[begin:end] if _is_strict(text[begin:end]) else dumped(value)), value
    except (ValueError, RecursionError):
        return None


def call_in(value: dict[str, Any]) -> tuple[str, str] | None:
    """Return the name and the arguments of the tool that a JSON object names, or None."""
    name = next(
        (value[key] for key in _NAMES if isinstance(value.get(key), str) and value[key].strip()),
        None,
    )
    if name is None:
        return None
    arguments: Any = next((value[key] for key in _INPUTS if value.get(key) is not None), {})
    return name.strip(), arguments if isinstance(arguments, str) else dumped(arguments)


def unfenced(text: str) -> str:
    """Return the text inside a fence or backticks, else all of it, stripped."""
    fence = _FENCE.match(text)
    if fence:
        end = text.find(fence["ticks"], fence.end())
        text = text[fence.end() : end] if end >= 0 else text[fence.end() :]
    return text.strip().strip("`").strip()


def dumped(value: Any) -> str:
    """Return JSON text without lone surrogates."""
    return clean(json.dumps(value, ensure_ascii=False))


def _is_strict(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _python_literal(text: str) -> str | None:
    """Convert a Python dict to JSON text."""
    if not text.startswith("{") or not text.endswith("}") or len(text) > _PYTHON:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in the model's strings
            value = ast.literal_eval(text)
        return dumped(value) if isinstance(value, dict) else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _fields(tool: ToolDefinition | None) -> dict[str, Any]:
    fields = tool.parameters.get("properties") if tool else None
    return fields if isinstance(fields, dict) else {}


def _only_field(tool: ToolDefinition | None, fields: dict[str, Any]) -> str | None:
    """Return the only argument that an unnamed value can be meant for."""
    required = tool.parameters.get("required") if tool else None
    names = required if isinstance(required, list) and len(required) == 1 else list(fields)
    return names[0] if len(names) == 1 and names[0] in fields else None


def _value(text: str, field: Any) -> Any:
    """Convert text to a value of this field.

    It is parsed as JSON, except that a string field takes unquoted text literally.
    """
    try:
        value = json.loads(text)
        dumped(value)
    # parsing and writing reach Python's recursion limit at different depths
    except (ValueError, RecursionError):
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text
    return text if _is_text(field) and not isinstance(value, str) else value


def _is_text(field: Any) -> bool:
    """Return whether an argument is a string or an optional string."""
    kinds = [field, *(field.get("anyOf") or ())] if isinstance(field, dict) else []
    return any(isinstance(kind, dict) and kind.get("type") == "string" for kind in kinds)
