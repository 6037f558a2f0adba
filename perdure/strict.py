"""JSON schemas as the structured outputs of OpenAI and Anthropic take them, and the way back from what is written to them. Pure.

Both take a subset. Every property of an object is required and no other is allowed, the root is an object, no type contains itself, and most
limits are not known (`minimum`, `maxLength`, `pattern`, …). So a schema is sent as follows:

- a property with a default is required like any other; an optional one may be null
- a map is a list of entries: `{"a": 1}` is written as `[{"key": "a", "value": 1}]`
- a root that is no object, such as a list, is written as `{"value": …}`
- `oneOf` is `anyOf`; a tuple is a list of what may stand in it
- what is not known is told in the description, and the answer is held to it when it is here
- references stay, but for one with words of its own beside it, which is not allowed; there a copy stands
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import JsonValue

Schema = dict[str, JsonValue]
Node = Mapping[str, Any]

_SCALARS = ("string", "integer", "number", "boolean", "null")
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
_SAID = {"type", "anyOf", "oneOf", "enum", "const", "$ref", "$defs", "properties", "required", "items", "additionalProperties", "patternProperties"}
_SAID |= {"propertyNames", "description", "title", "discriminator", "$schema"}
_REFERENCE = "#/$defs/"


def strict(schema: Schema) -> dict[str, Any]:
    """`schema` as it is sent.

    Raises:
        ValueError: A type contains itself, or any value may stand somewhere; the message says where.
    """
    writer = _Writer(schema.get("$defs"))
    body = writer.node(schema, "")
    body = writer.inlined(body)
    if body.get("type") != "object":
        body = _object({"value": body})
    used = {name: writer.made[name] for name in writer.made if name in writer.used}
    return {**body, "$defs": used} if used else body


def plain(schema: Schema, value: Any) -> Any:
    """What was written to the strict form of `schema`, in the form of `schema` itself. What is so already stays.

    Raises:
        ValueError: A map has an entry twice.
    """
    definitions = schema.get("$defs")
    reader = _Reader(definitions if isinstance(definitions, dict) else {})
    if not _is_record(reader.target(schema)) and isinstance(value, dict) and value.keys() == {"value"}:
        value = value["value"]
    return reader.read(schema, value)


class _Writer:
    """Writes the strict form. `made` are the definitions so far, `used` those that are referred to."""

    def __init__(self, definitions: object) -> None:
        self._definitions = definitions if isinstance(definitions, dict) else {}
        self._open: list[str] = []
        self.made: dict[str, dict[str, Any]] = {}
        self.used: set[str] = set()

    def node(self, node: object, where: str) -> dict[str, Any]:
        """One schema, at `where` in the value."""
        if not isinstance(node, dict):
            raise _untyped(where)
        if "$ref" in node:
            return self._reference(node, where)
        return _described(self._shape(node, where), node)

    def inlined(self, body: dict[str, Any]) -> dict[str, Any]:
        """The schema itself where it is a reference."""
        return self.made[_name(body["$ref"])] if "$ref" in body else body

    def _shape(self, node: Node, where: str) -> dict[str, Any]:
        kind = node.get("type")
        alternatives = node.get("anyOf", node.get("oneOf"))
        if isinstance(alternatives, list) and alternatives:
            return {"anyOf": [self.node(one, where) for one in alternatives]}
        if "const" in node or "enum" in node:
            return _chosen(node, where)
        if kind == "object":
            return self._object(node, where)
        if kind == "array":
            return self._array(node, where)
        kinds = kind if isinstance(kind, list) else [kind]
        if not kinds or any(one not in _SCALARS for one in kinds):
            raise _untyped(where)
        known = {"format": node["format"]} if node.get("format") in _FORMATS else {}
        return {"type": kind, **known}

    def _reference(self, node: Node, where: str) -> dict[str, Any]:
        name = _name(node["$ref"])
        if name in self._open:
            raise ValueError(f"{_at(where)}: {name} contains itself, and a model cannot be held to a recursive type")
        if name not in self._definitions:
            raise ValueError(f"{_at(where)}: there is no definition for {node['$ref']!r}; only those under $defs can be referred to")
        if name not in self.made:
            self._open.append(name)
            self.made[name] = self.node(self._definitions[name], where)
            self._open.pop()
        copy = _described(self.inlined(self.made[name]), node)
        if copy != self.made[name]:
            return copy
        self.used.add(name)
        return {"$ref": _REFERENCE + name}

    def _object(self, node: Node, where: str) -> dict[str, Any]:
        if _is_record(node):
            return _object({name: self.node(field, f"{where}.{name}") for name, field in node["properties"].items()})
        key = self.node(_key(node), where)
        values = [self.node(value, f"{where}.*") for value in _values(node)]
        if not values:
            raise _untyped(f"{where}.*")
        entry = _object({"key": key, "value": values[0] if len(values) == 1 else {"anyOf": values}})
        return {"type": "array", "items": entry, "description": "One entry for each key."}

    def _array(self, node: Node, where: str) -> dict[str, Any]:
        places = node.get("prefixItems")
        if not isinstance(places, list):
            return {"type": "array", "items": self.node(node.get("items"), f"{where}[]")}
        items: list[dict[str, Any]] = []
        for place in places:
            item = self.node(place, f"{where}[]")
            items += [] if item in items else [item]
        return {"type": "array", "items": items[0] if len(items) == 1 else {"anyOf": items}}


class _Reader:
    """Reads what was written to a strict form."""

    def __init__(self, definitions: Node) -> None:
        self._definitions = definitions

    def target(self, node: Any) -> Node:
        """What a reference refers to."""
        while isinstance(node, dict) and "$ref" in node:
            node = self._definitions.get(_name(node["$ref"]))
        return node if isinstance(node, dict) else {}

    def read(self, node: Any, value: Any) -> Any:
        """`value`, and all in it."""
        node = self.target(node)
        alternatives = [self.target(one) for one in node.get("anyOf", node.get("oneOf", ()))]
        if value == [] and any(one.get("type") == "array" for one in alternatives):
            return value
        value = self._each(alternatives, value)
        if _is_map(node) and _are_entries(value):
            value = _entries(value)
        if isinstance(value, dict):
            return {name: self._each(_fields(node, name), item) for name, item in value.items()}
        if isinstance(value, list):
            places = node.get("prefixItems", [])
            return [self._each([places[index] if index < len(places) else node.get("items")], item) for index, item in enumerate(value)]
        return value

    def _each(self, nodes: list[Any], value: Any) -> Any:
        for node in nodes:
            value = self.read(node, value)
        return value


def _object(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(fields), "required": list(fields), "additionalProperties": False}


def _chosen(node: Node, where: str) -> dict[str, Any]:
    """One of some values; both APIs want to know their types."""
    values = node["enum"] if isinstance(node.get("enum"), list) else [node.get("const")]
    kinds = list(dict.fromkeys(map(_kind, values)))
    if not kinds or any(kind not in _SCALARS for kind in kinds):
        raise ValueError(f"{_at(where)}: a choice must be of texts, numbers, booleans and null")
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def _kind(value: object) -> str:
    kinds: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    return kinds.get(type(value), "")


def _described(made: dict[str, Any], node: Node) -> dict[str, Any]:
    """With the words that `node` says, and what else it says that is not known."""
    left = {name: value for name, value in node.items() if name not in _SAID and made.get(name) != value}
    if left.get("default", 0) is None:
        del left["default"]
    told = "[" + ", ".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in left.items()) + "]" if left else ""
    said = " ".join(str(part) for part in (node.get("description"), made.get("description"), told) if part)
    return {**made, "description": said} if said else made


def _is_record(node: Node) -> bool:
    """Whether it is an object with named properties, and nothing else."""
    return isinstance(node.get("properties"), dict) and node.get("type") == "object" and not node.keys() & {"anyOf", "oneOf", "enum", "const"}


def _is_map(node: Node) -> bool:
    return node.get("type") == "object" and "properties" not in node


def _key(node: Node) -> Any:
    """What the keys of a map may be."""
    names, patterns = node.get("propertyNames"), node.get("patternProperties")
    if isinstance(names, dict):
        return names if "$ref" in names else {"type": "string", **names}
    return {"type": "string", **({"pattern": " or ".join(patterns)} if isinstance(patterns, dict) else {})}


def _values(node: Node) -> Iterator[Any]:
    """What the values of a map may be."""
    patterns = node.get("patternProperties")
    yield from patterns.values() if isinstance(patterns, dict) else ()
    if isinstance(node.get("additionalProperties"), dict):
        yield node["additionalProperties"]


def _fields(node: Node, name: str) -> list[Any]:
    if node.get("type") != "object":
        return []
    return list(_values(node)) if "properties" not in node else [node["properties"].get(name)]


def _are_entries(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) and entry.keys() == {"key", "value"} for entry in value)


def _entries(value: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in value:
        if str(entry["key"]) in found:
            raise ValueError(f"the key {entry['key']!r} stands twice")
        found[str(entry["key"])] = entry["value"]
    return found


def _name(reference: object) -> str:
    return str(reference).removeprefix(_REFERENCE)


def _at(where: str) -> str:
    return where.strip(".") or "the type itself"


def _untyped(where: str) -> ValueError:
    return ValueError(f"{_at(where)}: any value may stand there, and a model cannot be held to that; name a type")
