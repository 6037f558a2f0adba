"""Values about effects that are stored in Temporal, in the inputs and results of activities."""

from __future__ import annotations

from operator import not_
from typing import Literal, NamedTuple

from pydantic import Field

from perdure import limits
from perdure.agents.effects import EffectScope
from perdure.base import Wire
from perdure.text import harmless
from perdure.values.approvals import Decision
from perdure.values.effects import EffectRecord
from perdure.values.messages import Media

Verdict = Literal["found", "absent", "unreadable"]
"""What a read-back has found out: the effect is there, or it is not, or nobody can tell."""


class EffectScopes(Wire):
    """The scopes of effects that reach further than a turn with its delegates.

    `turn` is the first turn, for forks and resumed turns. `session` is the session, or the task of
    a batch. Both are empty without it.
    """

    turn: str = Field(default="", exclude_if=not_)
    session: str = Field(default="", exclude_if=not_)

    def text(self, scope: EffectScope | Literal["call"], root: str) -> str:
        """Return the text of a scope, which is a part of keys. `root` is the root of delegates."""
        match scope:
            case "account":
                return "account"
            case "session" if self.session:
                return f"session {self.session}"
            case _:
                return f"turn {self.turn or root}"


class KnownEffect(Wire):
    """An effect that a worker recognizes by its key, or by the arguments if no key is known.

    `place` is that of its record. `can_undo` means that it may have been taken back since.
    `turn_id` is the turn of the record, if that is another one and somebody may know more of the
    effect now: it is unknown whether it is there, or it may have been taken back.
    """

    place: str
    is_done: bool
    key: str = Field(default="", exclude_if=not_)
    arguments: str = Field(default="", exclude_if=not_)
    can_undo: bool = Field(default=False, exclude_if=not_)
    turn_id: str = Field(default="", exclude_if=not_)

    @classmethod
    def of(cls, record: EffectRecord) -> KnownEffect:
        """Return what a worker needs of a record."""
        arguments = "" if record.key else record.arguments
        key = record.key[: limits.KEY_BYTES]
        is_done = record.status == "done"
        return cls(
            place=record.place,
            is_done=is_done,
            key=key,
            arguments=arguments,
            can_undo=bool(record.undo),
            turn_id="" if is_done and not record.undo else record.turn_id,
        )

    def call_in(self, turn_id: str) -> CallPlace | None:
        """Return which call the record is about, for a turn that has the record.

        None for a record that an earlier release gave to the worker, of another turn.
        """
        return CallPlace.parse(self.place, self.turn_id, turn_id)


class CallPlace(NamedTuple):
    """The call that a record of an effect is about: its turn, its step and its id."""

    turn_id: str
    step: int
    call_id: str

    @classmethod
    def parse(cls, place: str, record_turn: str, turn_id: str) -> CallPlace | None:
        """Read the place of a record of a turn; None if it is not one.

        `record_turn` is the turn that the record names, and empty for the turn that has the record,
        which is `turn_id`.
        """
        step, _, call_id = place.removeprefix(f"{record_turn}:").partition(":")
        return cls(record_turn or turn_id, int(step), call_id) if step.isdecimal() else None


class SettledCall(Wire):
    """Input of the workflow that keeps what a person says of a call which no turn waits for.

    `run_id` is the run of the turn at that time: after a reset, another call may have this place.
    """

    turn_id: str
    run_id: str
    step: int
    tool: str
    decision: Decision

    @property
    def place(self) -> CallPlace:
        """Which call it is about."""
        return CallPlace(self.turn_id, self.step, self.decision.call_id)

    @property
    def in_words(self) -> str:
        """Who has said what, such as `by anna: done`."""
        who = f" by {harmless(self.decision.by)}" if self.decision.by else ""
        return f"settled{who}: {self.decision.settlement}"


class Undo(Wire):
    """What a turn is for that takes back the effect of a call of another turn.

    `record` is about that call, and has its turn. The effects in `then` are taken back afterwards,
    each by a turn of its own. `by` is who asked for it; None for an agent with `on_failure="undo"`.
    """

    record: EffectRecord
    then: tuple[EffectRecord, ...] = Field(default=(), exclude_if=not_)
    by: str | None = None


class Verification(Wire):
    """The result of a read-back.

    `content` and `media` are the result of the call, if its effect is there; otherwise `content`
    says why that is not known. `effect_key` is the key of the effect, if the tool has such keys,
    and `same_as` has the places of the known records of the same effect.
    """

    verdict: Verdict
    content: str = ""
    media: tuple[Media, ...] = Field(default=(), exclude_if=not_)
    effect_key: str = Field(default="", exclude_if=not_)
    same_as: tuple[str, ...] = Field(default=(), exclude_if=not_)


class Doubt(Wire):
    """Why the outcome of a call is unknown, as long as that is looked into.

    `reason` is what the model reads if it remains unknown. `is_earlier` means that the call itself
    was not made: an earlier call may have brought about the same effect. `waits` means that a
    person has to say what became of it. `effect_key` is the key of the effect, if it is known, and
    `same_as` has the places of records of the same effect.
    """

    reason: str
    effect_key: str = ""
    same_as: tuple[str, ...] = ()
    is_earlier: bool = False
    waits: bool = False
