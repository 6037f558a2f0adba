"""What a tool's function is given besides its arguments, and what it may return or raise."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import JsonValue
from pydantic_core import to_json

from perdure import limits
from perdure.errors import PerdureError
from perdure.text import size
from perdure.values.inquiries import GivenAnswers
from perdure.values.shared_state import (
    SharedState,
    check_shared_state,
    difference,
    merged,
    read,
)

Deps = TypeVar("Deps")
_CONTEXT_BY_NAME = re.compile(r"(\w+\.)*ToolContext(\[|$)")


class OutcomeUnknown(Exception):  # noqa: N818 - it says that a call may have succeeded
    """A tool raises it if its call may have taken effect, although it has no result.

    The model reads the message, and that it must not assume a failure. The outcome of the result is
    `unknown`. A read timeout or a connection that is lost has the same meaning without it, in a
    tool that is not read-only.
    """


class Sharing:
    """The shared state of a turn, as a call has it.

    Attributes:
        after: The state with the changes of the call.
    """

    def __init__(self, before: SharedState, *, may_change: bool = False) -> None:
        self.after = before
        self._before = before
        self._may_change = may_change

    @property
    def patch(self) -> SharedState:
        """What the call has changed; empty for nothing."""
        return difference(self._before, self.after)

    def change(self, changes: Mapping[str, object]) -> None:
        """Apply changes.

        Raises:
            ValueError: They are not valid, or nothing may be changed here.
        """
        if not self._may_change:
            raise ValueError("only the call of a tool itself changes the shared state")
        after = merged(self.after, read(changes))
        try:
            check_shared_state(after)
        except PerdureError as error:
            raise ValueError(error.message) from None
        self.after = after


@dataclass(frozen=True, kw_only=True)
class ToolContext(Generic[Deps]):
    """The context of a tool call.

    A parameter annotated with it is filled in and hidden from the model.

    Attributes:
        deps: The value that the worker's lifespan yielded; None without a lifespan.
        turn_id: The id of the calling turn.
        call_id: The id of the call that the model knows.
        idempotency_key: A key that is the same for every attempt of this call, also after a crash
            or a reset; 32 hexadecimal digits.
        effect_key: A key that is the same for every call with the same effect, which `effect=` of
            the tool says; without it, the `idempotency_key`. 32 hexadecimal digits.
        attempt: 1, or more when an idempotent tool runs again because its worker was lost.
        labels: The labels given when the turn was started.
        call_token: The token by which `AgentClient.finish_call` sends the result of this call, for
            a tool with `later=True`; else empty. It is the same for every attempt. Who has it may
            answer for the tool, so give it to the job alone.
        answers: For Perdure's own use: what people have answered to an MCP server.
        sharing: For Perdure's own use: the shared state, and what this call has changed of it.
    """

    deps: Deps = field(repr=False)
    turn_id: str
    call_id: str
    idempotency_key: str
    effect_key: str
    attempt: int
    labels: Mapping[str, str]
    beat: Callable[..., None] = field(repr=False)
    read_secret: Callable[[str], str] = field(repr=False)
    call_token: str = field(default="", repr=False)
    answers: GivenAnswers | None = field(default=None, repr=False)
    sharing: Sharing = field(default_factory=lambda: Sharing({}), repr=False)

    @property
    def shared_state(self) -> dict[str, Any]:
        """A copy of the shared state of the turn when this call began, with its own changes."""
        return read(self.sharing.after)

    def change_shared_state(self, changes: Mapping[str, object]) -> None:
        """Change the shared state of the turn, which its user interface shows.

        The changes are recorded with the result of this call, and only if the call returns one: a
        call that raises changes nothing. Changes of calls that run at the same time are merged.

        Args:
            changes: A JSON Merge Patch: objects are merged, None removes a field, and every other
                value replaces what was there. The whole state has at most 16 KiB of JSON.

        Raises:
            ValueError: The changes are no JSON, or the state would be too large; or this is not
                the call itself, but its `verify=`, `poll=` or `cancel=`.
        """
        self.sharing.change(changes)

    def heartbeat(self, *details: JsonValue) -> None:
        """Report progress. It is not needed to keep the call alive: Perdure does that.

        The last details are shown in the Temporal UI, and `Turn.live` yields them to all watchers.

        Raises:
            ValueError: The details are not JSON, or larger than 4 KiB.
        """
        if size(encode(details)) > limits.HEARTBEAT_BYTES:
            raise ValueError(f"the details of a heartbeat may have {limits.HEARTBEAT_BYTES} bytes")
        self.beat(*details)

    def secret(self, name: str) -> str:
        """Return the environment variable `name` of the worker.

        Raises:
            ConfigurationError: It is not set, or contains a character that is not valid in headers.
        """
        return self.read_secret(name)


def encode(value: object) -> str:
    """Encode a tool's return value for the model: strings unchanged, everything else as JSON.

    Raises:
        ValueError: The value cannot be encoded.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Awaitable):
        if inspect.iscoroutine(value):
            value.close()
        raise ValueError("the function returned something to await; declare it with async def")
    try:
        return to_json(value, inf_nan_mode="constants").decode()
    except Exception as error:
        raise ValueError(f"{type(value).__name__} cannot be encoded as JSON: {error}") from error


def is_context(hint: object) -> bool:
    """Return whether an annotation is that of a parameter which gets the context."""
    if isinstance(hint, str):
        return _CONTEXT_BY_NAME.match(hint) is not None
    return hint is ToolContext or typing.get_origin(hint) is ToolContext
