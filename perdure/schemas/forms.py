"""The JSON schemas of forms that people fill in, and whether what they filled in fits. Pure.

A form may come from a model, and its check is part of the fold of a turn. So only a part of JSON
Schema is known, every check takes a time proportional to its input, and no library whose next
version could decide otherwise is asked. A form is an object. Its fields are texts, numbers,
booleans, choices, lists, or objects again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_json

from perdure import limits
from perdure.text import head, quoted

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_NOTES = frozenset({"title", "description", "default", "examples", "format", "$schema"})
_KEYWORDS = _NOTES | {
    *("type", "enum", "const", "anyOf", "oneOf", "properties", "required", "additionalProperties"),
    *("items", "minItems", "maxItems", "minLength", "maxLength"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_REFERENCE = "#/$defs/"
_PROBLEMS = 5
_SHOWN_BYTES = 100
_INFINITY = float("inf")


def check(schema: Mapping[str, JsonValue]) -> None:
    """Check that a schema is that of a form.

    Raises:
        ValueError: It is not; the message is written for the model.
    """
    if schema.get("type") != "object" or not schema.get("properties"):
        raise ValueError("the schema is not that of an object with properties")
    _check_node(schema, "the schema", 1)
    try:
        size = len(to_json(dict(schema)))
    except ValueError:
        raise ValueError("the schema is nested too deeply") from None
    if size > limits.FORM_BYTES:
        raise ValueError(f"the schema has {size} bytes, more than {limits.FORM_BYTES}")


def expanded(schema: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return a schema with a copy of its definition in place of each reference.

    Raises:
        ValueError: A reference leads nowhere, or to itself.
    """
    definitions = schema.get("$defs", {})
    whole = {name: value for name, value in schema.items() if name != "$defs"}
    made: dict[str, JsonValue] = _expanded(whole, definitions, ())
    return made


def known_part(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the schema of a form without the keywords that forms do not have, in its fields too.

    What fits the schema fits this part of it, and perhaps more does.
    """
    part: dict[str, Any] = {name: value for name, value in schema.items() if name in _KEYWORDS}
    part.pop("additionalProperties", None)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(items := part.get(keyword), list):
            part[keyword] = [_known_field(item) for item in items]
    if isinstance(fields := part.get("properties"), Mapping):
        part["properties"] = {name: _known_field(field) for name, field in fields.items()}
    if "items" in part:
        part["items"] = _known_field(part["items"])
    return part


def _known_field(field: Any) -> Any:
    return known_part(field) if isinstance(field, Mapping) else field


def misfit(schema: Mapping[str, JsonValue], value: JsonValue) -> str:
    """Return what is wrong with a value by the schema of a form; empty if it fits."""
    return "; ".join(islice(_misfits(schema, value, ""), _PROBLEMS))


def _expanded(node: Any, definitions: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_expanded(item, definitions, within) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" not in node:
        return {name: _expanded(item, definitions, within) for name, item in node.items()}
    name = str(node["$ref"]).removeprefix(_REFERENCE)
    if name in within or name not in definitions:
        raise ValueError(f"the reference to {name} leads {'to itself' if within else 'nowhere'}")
    more = {key: item for key, item in node.items() if key != "$ref"}
    return _expanded({**definitions[name], **more}, definitions, (*within, name))


def _check_node(node: object, where: str, depth: int) -> None:
    if not isinstance(node, Mapping):
        raise ValueError(f"{where} is not an object")
    if depth > limits.FORM_DEPTH:
        raise ValueError(f"the schema is nested more than {limits.FORM_DEPTH} deep")
    unknown = next((name for name in node if name not in _KEYWORDS), None)
    if unknown is not None:
        raise ValueError(f"{where} has {_shown(unknown)}, which is not supported here")
    _check_kind(node, where)
    _check_numbers(node, where)
    _check_fields(node, where, depth)
    for keyword in ("anyOf", "oneOf"):
        for item in _listed(node, keyword, where):
            _check_node(item, where, depth + 1)
    if "items" in node:
        _check_node(node["items"], f"items of {where}", depth + 1)


def _check_kind(node: Mapping[str, Any], where: str) -> None:
    kind = node.get("type")
    if kind is not None and kind not in _TYPES:
        raise ValueError(f"the type of {where} is {_shown(kind)}; use one of {', '.join(_TYPES)}")
    choices = [*_listed(node, "enum", where), node.get("const")]
    if any(isinstance(choice, dict | list) for choice in choices):
        raise ValueError(f"a choice of {where} is not a text, a number or a boolean")
    if not {"type", "enum", "const", "anyOf", "oneOf"} & node.keys():
        raise ValueError(f"{where} has no type")


def _check_numbers(node: Mapping[str, Any], where: str) -> None:
    for name in _COUNTS:
        value = node.get(name, 0)
        if not _is_whole(value) or value < 0:
            raise ValueError(f"{name} of {where} is not a whole number from 0")
    for name in _BOUNDS:
        if not _is_number(node.get(name, 0)):
            raise ValueError(f"{name} of {where} is not a number")


def _check_fields(node: Mapping[str, Any], where: str, depth: int) -> None:
    fields = node.get("properties", {})
    if not isinstance(fields, Mapping):
        raise ValueError(f"the properties of {where} are not an object")
    for name, field in fields.items():
        _check_node(field, f"the property {_shown(name)}", depth + 1)
    missing = next((name for name in _listed(node, "required", where) if name not in fields), None)
    if missing is not None:
        raise ValueError(f"{where} requires {_shown(missing)}, which is none of its properties")
    if node.get("additionalProperties", False) is not False:
        raise ValueError(f"{where} allows additional properties, which forms do not have")


def _listed(node: Mapping[str, Any], keyword: str, where: str) -> list[Any]:
    """Return the list of a keyword; an empty one if the keyword is missing."""
    if keyword not in node:
        return []
    items = node[keyword]
    if not isinstance(items, list) or (not items and keyword != "required"):
        raise ValueError(f"{keyword} of {where} is not a list with items")
    if keyword == "required" and not all(isinstance(name, str) for name in items):
        raise ValueError(f"required of {where} is not a list of names")
    return items


def _misfits(node: Any, value: JsonValue, path: str) -> Iterator[str]:
    where = path or "the answer"
    if not _is_of(node.get("type"), value):
        yield f"{where} is {_shown(value)}, not of type {node['type']}"
        return
    choices = [*node.get("enum", ()), *([node["const"]] if "const" in node else [])]
    if choices and not any(_is_same(choice, value) for choice in choices):
        yield f"{where} is {_shown(value)}, not one of {', '.join(map(_shown, choices))}"
    for keyword in ("anyOf", "oneOf"):
        alternatives = node.get(keyword)
        if alternatives and all(any(_misfits(item, value, path)) for item in alternatives):
            yield f"{where} is {_shown(value)}, which none of the alternatives allows"
    match value:
        case dict():
            yield from _misfits_of_fields(node, value, path)
        case list():
            yield from _misfits_of_count(node, len(value), where, "Items")
            for number, item in enumerate(value if "items" in node else (), 1):
                yield from _misfits(node["items"], item, f"{path}[{number}]")
        case str():
            yield from _misfits_of_count(node, len(value), where, "Length")
        case int() | float() if not isinstance(value, bool):
            yield from _misfits_of_bounds(node, value, where)


def _misfits_of_fields(node: Any, value: dict[str, JsonValue], path: str) -> Iterator[str]:
    fields = node.get("properties", {})
    for name in node.get("required", ()):
        if name not in value:
            yield f"{_below(path, name)} is missing"
    for name, item in value.items():
        if name in fields:
            yield from _misfits(fields[name], item, _below(path, name))
        elif node.get("type") == "object":
            yield f"{_below(path, name)} is not asked for"


def _misfits_of_count(node: Any, count: int, where: str, what: str) -> Iterator[str]:
    noun = "items" if what == "Items" else "characters"
    if count < node.get(f"min{what}", 0):
        yield f"{where} has {count} {noun}, fewer than {node[f'min{what}']}"
    if count > node.get(f"max{what}", count):
        yield f"{where} has {count} {noun}, more than {node[f'max{what}']}"


def _misfits_of_bounds(node: Any, value: float, where: str) -> Iterator[str]:
    if value < node.get("minimum", value):
        yield f"{where} is {value}, less than {node['minimum']}"
    if value > node.get("maximum", value):
        yield f"{where} is {value}, more than {node['maximum']}"
    if "exclusiveMinimum" in node and value <= node["exclusiveMinimum"]:
        yield f"{where} is {value}, not more than {node['exclusiveMinimum']}"
    if "exclusiveMaximum" in node and value >= node["exclusiveMaximum"]:
        yield f"{where} is {value}, not less than {node['exclusiveMaximum']}"


def _is_of(kind: str | None, value: JsonValue) -> bool:
    match kind:
        case None:
            return True
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "integer":
            return _is_whole(value)
        case _:
            return _is_number(value)


def _is_number(value: object) -> bool:
    """Return whether a value is a number that JSON can hold: `1e400` is read as infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_INFINITY < value < _INFINITY


def _is_whole(value: object) -> bool:
    return _is_number(value) and (isinstance(value, int) or float.is_integer(value))  # type: ignore[arg-type]


def _is_same(one: JsonValue, other: JsonValue) -> bool:
    return one == other and isinstance(one, bool) is isinstance(other, bool)


def _below(path: str, name: str) -> str:
    shown = name if name.isidentifier() and len(name) <= limits.NAME_CHARACTERS else _shown(name)
    return f"{path}.{shown}" if path else shown


def _shown(value: object) -> str:
    """Return a value as JSON in one line, cut if it is long."""
    if isinstance(value, str):
        written = quoted(value[:_SHOWN_BYTES])
    else:
        written = to_json(value, fallback=str).decode()
    short = head(written, _SHOWN_BYTES)
    return short if short == written else f"{short}…"
