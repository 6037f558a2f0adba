"""What a tool says about its effect outside of the turn: its key, and its read-back.

A call whose answer is lost may have taken effect. With a key, a later call with the same meaning is
recognized as the same effect, also by a service that honours keys. With a read-back, a turn finds
out what became of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from operator import not_
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field
from pydantic_core import to_json

from perdure import errors, validation
from perdure.base import Wire
from perdure.validation import Must

EffectScope = Literal["turn", "session", "account"]
"""Where two calls with the same values are one effect.

`turn` is the turn with its delegates, forks and resumed turns. `session` is the session, or the
task of a batch, or else as `turn`. `account` is everywhere.
"""
RESULT = "result"
"""The argument of a tool in `undo=` that gets the text of the result of the call."""
OnUnknown = Literal["tell", "pause", "fail"]
"""What happens if the outcome of a call remains unknown.

The model is told, the turn waits until a person says what became of it, or the turn fails.
"""


class EffectOptions(TypedDict, total=False):
    """The options of a tool about its effect; see `perdure.tool`."""

    effect: Callable[[Any], object] | Sequence[str] | None
    effect_scope: EffectScope
    may_recur: bool
    verify: Any
    settle: timedelta | None
    on_unknown: OnUnknown
    undo: Any


DEFAULTS = EffectOptions(
    effect=None,
    effect_scope="session",
    may_recur=False,
    verify=None,
    settle=None,
    on_unknown="tell",
    undo=None,
)
_IS_EFFECT = Must(
    "a function of the arguments, or a list of their names",
    lambda given: callable(given) or validation.accepts(list[str] | tuple[str, ...], given),
)
KINDS = {
    "effect": Annotated[object, _IS_EFFECT] | None,
    "effect_scope": EffectScope,
    "may_recur": bool,
    "settle": validation.Time | None,
    "on_unknown": OnUnknown,
}


class PinnedEffect(Wire):
    """What a turn is pinned to of the effect of a tool.

    `has_key` means that calls have effect keys, in `scope`; `may_recur`, that an effect that is
    known may be brought about again. `verifies` means that a lost call is read back, `settle_s`
    seconds after its loss; one read takes at most `verify_timeout_s` seconds. `can_undo` means that
    another tool takes the effect back. `scope` is `call` for such a tool that does not say itself
    what its effect is: to take one call back is one effect.
    """

    has_key: bool = False
    scope: EffectScope | Literal["call"] = "session"
    may_recur: bool = False
    verifies: bool = False
    settle_s: float = 0
    verify_timeout_s: float = 0
    on_unknown: OnUnknown = "tell"
    can_undo: bool = Field(default=False, exclude_if=not_)


def check(tool: str, options: EffectOptions, *, read_only: bool) -> None:
    """Refuse options that do not fit together.

    Raises:
        ConfigurationError: An option needs another one, or the tool changes nothing.
    """
    given = [name for name in DEFAULTS if options.get(name) != DEFAULTS[name]]  # type: ignore[literal-required]
    if read_only and given:
        raise errors.ConfigurationError(
            f"tool {tool} is read-only, so it has no effect: leave out {given[0]}="
        )
    for name, needed in (
        ("effect_scope", "effect"),
        ("may_recur", "effect"),
        ("settle", "verify"),
    ):
        if name in given and needed not in given:
            raise errors.ConfigurationError(f"tool {tool}: {name}= needs {needed}=")


def key_of(
    effect: Callable[[Any], object] | Sequence[str],
    arguments: Mapping[str, Any],
    tool: str,
    scope: str,
) -> str:
    """Return the key of an effect: 32 hexadecimal digits.

    `scope` is the text of the scope. Everything that `effect` raises is passed on.
    """
    if callable(effect):
        values = effect(SimpleNamespace(**arguments))
    else:
        values = [arguments.get(name) for name in effect]
    text = "\n".join((scope, tool, to_json(values, inf_nan_mode="constants").decode()))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
