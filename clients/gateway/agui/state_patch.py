"""The difference between two shared states, as a JSON Patch (RFC 6902). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_json


def patch_of(before: JsonValue, after: JsonValue, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the operations that make one value of another. A list is replaced as a whole."""
    if to_json(before) == to_json(after):
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _of_objects(before, after, path)
    else:
        yield {"op": "replace", "path": path, "value": after}


def _of_objects(
    before: Mapping[str, JsonValue], after: Mapping[str, JsonValue], path: str
) -> Iterator[dict[str, Any]]:
    for name in before:
        if name not in after:
            yield {"op": "remove", "path": _at(path, name)}
    for name, value in after.items():
        if name in before:
            yield from patch_of(before[name], value, _at(path, name))
        else:
            yield {"op": "add", "path": _at(path, name), "value": value}


def _at(path: str, name: str) -> str:
    """Return the JSON Pointer of a field."""
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
