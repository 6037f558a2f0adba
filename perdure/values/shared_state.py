"""The shared state of a turn: a small JSON object that its tools and a user interface both have.

It is changed by JSON Merge Patches (RFC 7396): objects are merged, None removes a field, and every
other value replaces what was there.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from perdure import errors, limits
from perdure.text import one_line

SharedState = dict[str, JsonValue]

_REASON_CHARACTERS = 200


def read(value: object) -> SharedState:
    """Return a value as JSON has it.

    Raises:
        ValueError: It is no JSON object, or nested too deeply.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"the shared state is a JSON object, and not {type(value).__name__}")
    try:
        state: SharedState = from_json(
            to_json(value, inf_nan_mode="constants"), allow_inf_nan=False
        )
    except (ValueError, RecursionError) as error:
        reason = one_line(str(error), _REASON_CHARACTERS)
        raise ValueError(f"the shared state is no JSON: {reason}") from None
    if _depth(state) > limits.SHARED_STATE_DEPTH:
        raise ValueError(
            f"the shared state is nested more than {limits.SHARED_STATE_DEPTH} levels deep"
        )
    return state


def check_shared_state(state: SharedState | None) -> None:
    """Refuse a shared state that is too large or too deep.

    Raises:
        TooLargeError: It is over its limit of bytes.
        InvalidRequestError: It is nested too deeply, or holds what JSON cannot say.
    """
    if not state:
        return
    try:
        read(state)
    except ValueError as error:
        raise errors.InvalidRequestError(str(error)) from None
    bytes_ = size_of(state)
    if bytes_ > limits.SHARED_STATE_BYTES:
        raise errors.TooLargeError(
            f"the shared state is {bytes_} bytes of JSON, more than {limits.SHARED_STATE_BYTES};"
            " keep the id of what is larger",
            context={"bytes": bytes_, "limit": limits.SHARED_STATE_BYTES},
        )


def size_of(state: SharedState | None) -> int:
    """Return the bytes of a shared state, as JSON; 0 if there is none."""
    return len(to_json(state)) if state else 0


def _depth(value: JsonValue) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


def merged(state: SharedState, patch: SharedState) -> SharedState:
    """Return a shared state after a JSON Merge Patch."""
    result = dict(state)
    for name, value in patch.items():
        before = result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(before if isinstance(before, dict) else {}, value)
        else:
            result[name] = value
    return result


def difference(before: SharedState, after: SharedState) -> SharedState:
    """Return the JSON Merge Patch that makes one shared state of another.

    `after` is `before` with patches; so no field of it is None that `before` does not have.
    """
    patch: SharedState = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        known = before.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            if changes := difference(known, value):
                patch[name] = changes
        elif name not in before or to_json(known) != to_json(value):  # 1 is not True
            patch[name] = value
    return patch
