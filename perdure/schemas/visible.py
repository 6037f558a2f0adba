"""JSON schemas of servers, without invisible characters in what people and models read."""

from __future__ import annotations

from typing import Any

from perdure.text import stripped

_WORDS = ("title", "description", "$comment")
_DATA = ("enum", "const", "default", "examples", "required", "pattern")


def readable(parameters: Any) -> Any:
    """Return a schema without invisible characters in its texts for people and models.

    Constraints on values, such as an `enum`, are not changed.
    """
    if isinstance(parameters, list):
        return [readable(item) for item in parameters]
    if not isinstance(parameters, dict):
        return parameters
    return {name: _readable(name, value) for name, value in parameters.items()}


def _readable(name: str, value: Any) -> Any:
    """Return the value of a keyword without invisible characters in its texts."""
    if name in _WORDS and isinstance(value, str):
        return stripped(value)
    if _is_data(name, value):
        return value
    return readable(value)


def _is_data(name: str, value: Any) -> bool:
    """Whether a keyword contains values rather than schemas.

    A property may have the name of such a keyword, but is a schema.
    """
    return name in _DATA and not isinstance(value, dict)
