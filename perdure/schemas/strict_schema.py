"""Converts JSON schemas to the strict form of OpenAI and Anthropic, and answers back. Pure.

Both vendors accept a subset for structured outputs. Every property of an object is required and no
others are allowed, the root is an object, no type contains itself, and most constraints are not
supported (`minimum`, `maxLength`, `pattern`, …). A schema is converted as follows:

- a property with a default becomes required; an optional property may be null
- a map becomes a list of entries: `{"a": 1}` is written as `[{"key": "a", "value": 1}]`
- a root that is not an object, such as a list, is wrapped: `{"value": …}`
- `oneOf` becomes `anyOf`; a tuple becomes a list of its element types
- unsupported constraints are added to the description, and checked when the answer arrives
- references are kept, except if they have a description of their own, which is not allowed; those
  are replaced by a copy

Copies of copies multiply, so the size is measured during conversion and limited. Both directions
visit the same parts of a schema: its alternatives if it has any, else nothing if it is an enum,
else its fields or items.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import JsonValue

from perdure import limits

Schema = dict[str, JsonValue]
Node = Mapping[str, Any]
Where = tuple[str, ...]

_SCALARS = ("string", "integer", "number", "boolean", "null")
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
_KNOWN_KEYWORDS = {
    "type",
    "anyOf",
    "oneOf",
    "enum",
    "const",
    "$ref",
    "$defs",
    "properties",
    "required",
    "items",
    "additionalProperties",
    "patternProperties",
}
_KNOWN_KEYWORDS |= {"propertyNames", "description", "title", "discriminator", "$schema"}
_REFERENCE = "#/$defs/"
_SAME_PLACE = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else")
"""Keywords whose schemas apply to the value itself and not to its parts.

`dependentSchemas` is another one.
"""


def strict(schema: Schema) -> dict[str, Any]:
    """Return the strict form of `schema`.

    Raises:
        ValueError: A type contains itself, allows any value somewhere, or is too large; the message
            says where.
    """
    check_size(schema)
    writer = _StrictWriter(schema.get("$defs"))
    body = writer.node(schema, ())
    _check_references(schema.get("$defs"))
    body = writer.inlined(body)
    if body.get("type") != "object":
        body = _object({"value": body})
    used = {name: writer.made[name] for name in writer.made if name in writer.used}
    return {**body, "$defs": used} if used else body


def check_size(schema: object) -> None:
    """Check the number of values and the depth of a schema.

    Raises:
        ValueError: It exceeds a limit.
    """
    count, level = 0, [schema]
    for _ in range(2 * limits.SCHEMA_DEPTH):
        level = [inner for value in level for inner in _inside(value)]
        count += len(level)
        if count > limits.SCHEMA_VALUES:
            raise ValueError(f"it has more than {limits.SCHEMA_VALUES} values; leave fields out")
        if not level:
            return
    raise ValueError(f"it is nested more than {limits.SCHEMA_DEPTH} deep")


def _check_references(definitions: object) -> None:
    """Reject definitions that refer back to themselves for the same value, which would never end.

    Parts of a schema that are not sent are checked as well, because answers are validated by them.

    Raises:
        ValueError: There is a cycle.
    """
    items = definitions.items() if isinstance(definitions, dict) else ()
    try:
        TopologicalSorter({name: _same_place(node) for name, node in items}).prepare()
    except CycleError as error:
        circle = " to ".join(error.args[1][:4])
        raise ValueError(
            f"$defs: the references from {circle} lead back to where they begin"
        ) from None


def _same_place(node: object) -> set[str]:
    """Return the definitions that `node` refers to for the value itself."""
    names, waiting = set[str](), [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                names.add(_name(node["$ref"]))
            waiting += (node.get(keyword) for keyword in _SAME_PLACE)
            waiting += _inside(node.get("dependentSchemas"))
    return names


def plain(schema: Schema, value: Any) -> Any:
    """Convert a value from the strict form of `schema` to the form of `schema` itself.

    A value that has that form already is returned unchanged.

    Raises:
        ValueError: A map has a duplicate key.
    """
    definitions = schema.get("$defs")
    reader = _StrictReader(definitions if isinstance(definitions, dict) else {})
    if not reader.is_record(schema) and isinstance(value, dict) and value.keys() == {"value"}:
        value = value["value"]
    return reader.read([schema], value)


class _StrictWriter:
    """Generates the strict form.

    `made` are the definitions so far, `used` those that are referred to.
    """

    def __init__(self, definitions: object) -> None:
        self._definitions = definitions if isinstance(definitions, dict) else {}
        self._open: list[str] = []
        self._depth = self._values = self._bytes = 0
        self.made: dict[str, dict[str, Any]] = {}
        self.used: set[str] = set()

    def node(self, node: object, where: Where) -> dict[str, Any]:
        """Convert one schema, at `where` in the value."""
        if not isinstance(node, dict):
            raise _untyped(where)
        self._depth += 1
        if self._depth > limits.SCHEMA_DEPTH:
            raise ValueError(f"{_at(where)}: it is nested more than {limits.SCHEMA_DEPTH} deep")
        made = (
            self._reference(node, where)
            if "$ref" in node
            else _described(self._shape(node, where), node)
        )
        self._count(made, where)
        self._depth -= 1
        return made

    def inlined(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the referenced schema if `body` is a reference."""
        return self.made[_name(body["$ref"])] if "$ref" in body else body

    def _count(self, made: dict[str, Any], where: Where) -> None:
        """Add the size of one schema, without the schemas inside it, which are counted already."""
        contents = [made.get("description"), made.get("enum", ()), [*made.get("properties", ())]]
        # a field occurs in `properties` and in `required`
        self._values += len(made) + len(contents[1]) + 2 * len(contents[2])
        self._bytes += len(json.dumps(contents, ensure_ascii=False))
        if self._values > limits.SCHEMA_VALUES or self._bytes > limits.TASK_BYTES:
            cap = f"{limits.SCHEMA_VALUES} values or {limits.TASK_BYTES} bytes"
            raise ValueError(
                f"{_at(where)}: here it comes to more than {cap}, because a type that is described"
                " where it is used is sent once for each use; leave such descriptions out, or"
                " fields"
            )

    def _shape(self, node: Node, where: Where) -> dict[str, Any]:
        kind = node.get("type")
        if alternatives := _alternatives(node):
            return {"anyOf": [self.node(item, where) for item in alternatives]}
        if _is_choice(node):
            return _chosen(node, where)
        if kind == "object":
            return self._object(node, where)
        if kind == "array":
            return self._array(node, where)
        kinds = kind if isinstance(kind, list) else [kind]
        if not kinds or any(item not in _SCALARS for item in kinds):
            raise _untyped(where)
        known = {"format": node["format"]} if node.get("format") in _FORMATS else {}
        return {"type": kind, **known}

    def _reference(self, node: Node, where: Where) -> dict[str, Any]:
        name = _name(node["$ref"])
        if name in self._open:
            raise ValueError(
                f"{_at(where)}: {name} contains itself, and a model cannot be held to a recursive"
                " type"
            )
        if name not in self._definitions:
            raise ValueError(
                f"{_at(where)}: there is no definition for {node['$ref']!r}; only definitions"
                " under $defs can be used"
            )
        if name not in self.made:
            self.made[name] = self._definition(name, where)
        if _described(self.inlined(self.made[name]), node) != self.made[name]:
            # converted again, so that it is counted again
            return _described(self.inlined(self._definition(name, where)), node)
        self.used.add(name)
        return {"$ref": _REFERENCE + name}

    def _definition(self, name: str, where: Where) -> dict[str, Any]:
        self._open.append(name)
        made = self.node(self._definitions[name], where)
        self._open.pop()
        return made

    def _object(self, node: Node, where: Where) -> dict[str, Any]:
        if _is_record(node):
            return _object(
                {
                    name: self.node(field, (*where, name))
                    for name, field in node["properties"].items()
                }
            )
        key = self.node(_key(node), where)
        values = [self.node(value, (*where, "*")) for value in _values(node)]
        if not values:
            raise _untyped((*where, "*"))
        entry = _object({"key": key, "value": values[0] if len(values) == 1 else {"anyOf": values}})
        return {"type": "array", "items": entry, "description": "One entry for each key."}

    def _array(self, node: Node, where: Where) -> dict[str, Any]:
        if not isinstance(node.get("prefixItems"), list):
            return {"type": "array", "items": self.node(node.get("items"), (*where, "[]"))}
        places = [self.node(item, (*where, "[]")) for item in node["prefixItems"]]
        items = [*{json.dumps(item, sort_keys=True): item for item in places}.values()]
        return {"type": "array", "items": items[0] if len(items) == 1 else {"anyOf": items}}


@dataclass(slots=True)
class _Allowed:
    """What is allowed in one place: all alternatives together, by the schemas of its parts."""

    takes_list: bool = False
    takes_map: bool = False
    fields: dict[str, list[Any]] = field(default_factory=dict)
    values: list[Any] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)
    tuples: list[list[Any]] = field(default_factory=list)

    def add(self, node: Node) -> None:
        """Add an alternative that has no alternatives itself."""
        if _is_record(node):
            for name, inner in node["properties"].items():
                self.fields.setdefault(name, []).append(inner)
        elif node.get("type") == "object":
            self.takes_map = True
            self.values += _values(node)
        elif node.get("type") == "array":
            self.takes_list = True
            if isinstance(places := node.get("prefixItems"), list):
                self.tuples.append(places)
            else:
                self.items.append(node.get("items"))

    def at(self, index: int) -> list[Any]:
        """Return the schemas of a list item."""
        return (
            [*self.items, *(places[index] for places in self.tuples if index < len(places))]
            if self.tuples
            else self.items
        )


class _StrictReader:
    """Converts values from the strict form.

    Each value is visited once, with all schemas that may apply to it.
    """

    def __init__(self, definitions: Node) -> None:
        self._definitions = definitions
        self._places: dict[tuple[int, ...], _Allowed] = {}

    def is_record(self, node: Any) -> bool:
        """Return whether it is, or refers to, an object with named properties."""
        while isinstance(node, dict) and "$ref" in node:
            node = self._definitions.get(_name(node["$ref"]))
        return isinstance(node, dict) and _is_record(node)

    def read(self, nodes: list[Any], value: Any) -> Any:
        """Convert `value` and its parts. `nodes` are the schemas of its place."""
        if not nodes or not isinstance(value, list | dict):
            return value
        allowed = self._place(nodes)
        if value == [] and allowed.takes_list:
            return value
        if allowed.takes_map and isinstance(value, list) and _are_entries(value):
            value = _entries(value)
        if isinstance(value, dict):
            return {
                name: (
                    self.read([*allowed.fields.get(name, ()), *allowed.values], item)
                    if isinstance(item, list | dict)
                    else item
                )
                for name, item in value.items()
            }
        return [
            self.read(allowed.at(index), item) if isinstance(item, list | dict) else item
            for index, item in enumerate(value)
        ]

    def _place(self, nodes: list[Any]) -> _Allowed:
        known = tuple(map(id, nodes))
        if known not in self._places:
            self._places[known] = allowed = _Allowed()
            for node in self._leaves(nodes):
                allowed.add(node)
        return self._places[known]

    def _leaves(self, nodes: Iterable[Any]) -> Iterator[Node]:
        """Yield the distinct alternatives in these schemas that have no alternatives themselves."""
        waiting, seen = [*nodes][::-1], set[int]()
        while waiting:
            node = waiting.pop()
            if not isinstance(node, dict) or id(node) in seen:
                continue
            seen.add(id(node))
            if "$ref" in node:
                waiting.append(self._definitions.get(_name(node["$ref"])))
            elif alternatives := _alternatives(node):
                waiting += reversed(alternatives)
            elif not _is_choice(node):
                yield node


def _object(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(fields),
        "required": list(fields),
        "additionalProperties": False,
    }


def _alternatives(node: Node) -> list[Any]:
    alternatives = node.get("anyOf", node.get("oneOf"))
    return alternatives if isinstance(alternatives, list) else []


def _is_choice(node: Node) -> bool:
    """Return whether it is an enum or a constant."""
    return "const" in node or "enum" in node


def _inside(value: object) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _chosen(node: Node, where: Where) -> dict[str, Any]:
    """Return an enum with its types, which both APIs require."""
    values = node["enum"] if isinstance(node.get("enum"), list) else [node.get("const")]
    kinds = list(dict.fromkeys(map(_kind, values)))
    if not kinds or any(kind not in _SCALARS for kind in kinds):
        raise ValueError(f"{_at(where)}: a choice must be of texts, numbers, booleans and null")
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def _kind(value: object) -> str:
    kinds: dict[type, str] = {
        str: "string",
        bool: "boolean",
        int: "integer",
        float: "number",
        type(None): "null",
    }
    return kinds.get(type(value), "")


def _described(made: dict[str, Any], node: Node) -> dict[str, Any]:
    """Add the description of `node`, including its unsupported keywords."""
    unsupported = {
        name: value
        for name, value in node.items()
        if name not in _KNOWN_KEYWORDS and made.get(name) != value
    }
    if unsupported.get("default", 0) is None:
        del unsupported["default"]
    notes = [
        f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in unsupported.items()
    ]
    note = f"[{', '.join(notes)}]" if notes else ""
    description = " ".join(
        str(part) for part in (node.get("description"), made.get("description"), note) if part
    )
    return {**made, "description": description} if description else made


def _is_record(node: Node) -> bool:
    """Return whether it is an object with named properties, and nothing else."""
    return (
        isinstance(node.get("properties"), dict)
        and node.get("type") == "object"
        and not node.keys() & {"anyOf", "oneOf", "enum", "const"}
    )


def _key(node: Node) -> Any:
    """Return the schema of a map's keys."""
    names, patterns = node.get("propertyNames"), node.get("patternProperties")
    if isinstance(names, dict):
        return names if "$ref" in names else {"type": "string", **names}
    return {
        "type": "string",
        **({"pattern": " or ".join(patterns)} if isinstance(patterns, dict) else {}),
    }


def _values(node: Node) -> Iterator[Any]:
    """Yield the schemas of a map's values."""
    patterns = node.get("patternProperties")
    yield from patterns.values() if isinstance(patterns, dict) else ()
    if isinstance(node.get("additionalProperties"), dict):
        yield node["additionalProperties"]


def _are_entries(value: list[Any]) -> bool:
    return all(isinstance(entry, dict) and entry.keys() == {"key", "value"} for entry in value)


def _entries(value: list[dict[str, Any]]) -> dict[str, Any]:
    by_key: dict[str, Any] = {}
    for entry in value:
        if str(entry["key"]) in by_key:
            raise ValueError(f"the key {entry['key']!r} stands twice")
        by_key[str(entry["key"])] = entry["value"]
    return by_key


def _name(reference: object) -> str:
    return str(reference).removeprefix(_REFERENCE)


def _at(where: Where) -> str:
    return ".".join(where).replace(".[]", "[]") or "the type itself"


def _untyped(where: Where) -> ValueError:
    return ValueError(
        f"{_at(where)}: any value may stand there, and a model cannot be held to that; name a type"
    )
