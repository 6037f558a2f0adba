"""Through what a person or a program acts, and who starts something: how Temporal keeps it.

Most requests have the name of who acts in their input. A start has it in the memo, and a cancel
beside its reason (`cancellations`). Through what they act is in the metadata of the input, which no
workflow reads, so it changes no state; and at the beginning of the identity of a cancel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Literal

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from perdure import limits
from perdure.text import one_line

Via = Literal["client", "cli", "rest", "page", "responses", "agui", "a2a", "mcp", "hook"]
"""Through what a person or a program acts.

`client`: a program with `AgentClient`. `cli`: the command line. `rest`, `responses`, `agui`, `a2a`
and `mcp`: the gateway, by these protocols; `mcp` is also `perdure mcp`. `page`: the gateway's page.
`hook`: a signed request of another system.
"""
Origin = Via | Literal["schedule", "turn", "session", "batch"]
"""The same, or what acts by itself."""

MEMO_STARTED = "perdure_started"
"""The memo field that says who has started something, and how: `by`, and `act` if it is no start.

For a schedule, it has `via` as well.
"""
_METADATA = "perdure-via"
_IDENTITY = "via:"

_via: ContextVar[Origin] = ContextVar("perdure_via", default="client")


@contextlib.contextmanager
def through(via: Origin) -> Iterator[None]:
    """Say through what the requests of a block are made."""
    token = _via.set(via)
    try:
        yield
    finally:
        _via.reset(token)


def go_through(via: Origin) -> None:
    """Say through what all further requests of this task are made."""
    _via.set(via)


def current() -> Origin:
    """Return through what requests are made now."""
    return _via.get()


def marked(payload: RawValue) -> RawValue:
    """Return the input of a request that says through what it is made."""
    copy = Payload()
    copy.CopyFrom(payload.payload)
    copy.metadata[_METADATA] = current().encode()
    return RawValue(copy)


def via_of(payload: Payload) -> str | None:
    """Return through what a request was made, by its input; None if it does not say so."""
    via = payload.metadata.get(_METADATA)
    return _line(via.decode(errors="replace")) if via else None


def memo_of_schedule(by: str | None) -> dict[str, Any]:
    """Return the memo of a schedule about who creates it: its input is that of its turns."""
    return {MEMO_STARTED: {"via": current(), **memo(by).get(MEMO_STARTED, {})}}


def memo(by: str | None, *, act: str | None = None) -> dict[str, Any]:
    """Return the field of the memo about who starts something; empty without anything to say."""
    started = {"by": by, "act": act}
    known = {name: value for name, value in started.items() if value is not None}
    return {MEMO_STARTED: known} if known else {}


def identity(name: str) -> str:
    """Return the identity of a request without an input; `name` is who makes it."""
    return f"{_IDENTITY}{current()};{name}"


def identified(identity: str) -> tuple[str | None, str]:
    """Return through what a request without an input was made, and who has made it."""
    via, separator, name = identity.removeprefix(_IDENTITY).partition(";")
    if not (identity.startswith(_IDENTITY) and separator):
        return None, identity
    return _line(via), name


def _line(text: str) -> str:
    return one_line(text, limits.NAME_CHARACTERS)
