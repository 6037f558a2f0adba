"""Values about effects that are stored in Temporal, in the inputs and results of activities."""

from __future__ import annotations

from operator import not_
from typing import Literal

from pydantic import Field

from perdure import limits
from perdure.agents.effects import EffectScope
from perdure.base import Wire
from perdure.values.effects import EffectRecord
from perdure.values.messages import Media

Verdict = Literal["found", "absent", "unreadable"]
"""What a read-back has found out: the effect is there, or it is not, or nobody can tell."""


class EffectScopes(Wire):
    """The texts of the scopes of effects, from which their keys are made.

    `turn` is the first turn of forks and resumed turns, or the root of delegates; empty for the
    turn itself. `session` is the session, or the task of a batch; empty without either.
    """

    turn: str = Field(default="", exclude_if=not_)
    session: str = Field(default="", exclude_if=not_)

    def text(self, scope: EffectScope, own_turn: str) -> str:
        """Return the text of a scope. `own_turn` is that of the turn itself."""
        match scope:
            case "account":
                return "account"
            case "session" if self.session:
                return f"session {self.session}"
            case _:
                return f"turn {self.turn or own_turn}"

    def within(self, own_turn: str) -> EffectScopes:
        """Return the scopes of a turn that this turn starts, or that goes on after it."""
        return self.model_copy(update={"turn": self.turn or own_turn})


class KnownEffect(Wire):
    """An effect that a worker recognizes by its key, or by the arguments if no key is known."""

    is_done: bool
    key: str = Field(default="", exclude_if=not_)
    arguments: str = Field(default="", exclude_if=not_)

    @classmethod
    def of(cls, record: EffectRecord) -> KnownEffect:
        """Return what a worker needs of a record."""
        arguments = "" if record.key else record.arguments
        key = record.key[: limits.KEY_BYTES]
        return cls(is_done=record.status == "done", key=key, arguments=arguments)


class Verification(Wire):
    """The result of a read-back.

    `content` and `media` are the result of the call, if its effect is there; otherwise `content`
    says why that is not known. `effect_key` is the key of the effect, if the tool has such keys.
    """

    verdict: Verdict
    content: str = ""
    media: tuple[Media, ...] = Field(default=(), exclude_if=not_)
    effect_key: str = Field(default="", exclude_if=not_)


class Doubt(Wire):
    """Why the outcome of a call is unknown, as long as that is looked into.

    `reason` is what the model reads if it remains unknown. `is_earlier` means that the call itself
    was not made: an earlier call may have brought about the same effect. `waits` means that a
    person has to say what became of it.
    """

    reason: str
    is_earlier: bool = False
    waits: bool = False
