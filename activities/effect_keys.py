"""Recognizes the effect of a call by its key, before the call is made."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perdure import limits
from perdure.activities.tool_compatibility import error_result
from perdure.agents import effects
from perdure.agents.tools import Tool
from perdure.text import clean
from perdure.turn.effect_values import KnownEffect
from perdure.turn.wire import ToolOutput, ToolRun
from perdure.values.effects import EffectStatus


def key_of(item: Tool, run: ToolRun, arguments: str | None = None) -> str:
    """Return the key of the effect of a call; empty for a tool, or a turn, without such keys.

    `arguments` are others than those of the call, as JSON. Everything that `effect=` of the tool
    raises is passed on.
    """
    if not run.effect_scope or (item.effect is None and not run.undoes):
        return ""
    values = item.arguments.values(clean(run.arguments if arguments is None else arguments))
    return effects.key_of(item.effect or (), values, item.name, run.effect_scope)


@dataclass(frozen=True, slots=True)
class Recognized:
    """The effect of a call, as a worker recognizes it.

    Attributes:
        key: Its key; empty for a tool, or a turn, without such keys.
        same: What is known of the same effect.
        settled: The result of an earlier call that a person has said since; empty without one.
        undone: The calls with the same effect that were taken back since, in words.
        undoing: A call with the same effect that is being taken back, in words; empty without one.
    """

    key: str = ""
    same: tuple[KnownEffect, ...] = ()
    settled: str = ""
    undone: tuple[str, ...] = ()
    undoing: str = ""

    @property
    def service_key(self) -> str:
        """The key for the service.

        After the effect was taken back, it is another one: with the same key, the service would
        answer that it is there.
        """
        if not self.undone:
            return self.key
        text = "\n".join((self.key, *sorted(self.undone)))
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]

    @property
    def unknown(self) -> tuple[KnownEffect, ...]:
        """The same effect as far as it is unknown whether it is there; nothing if it is there."""
        return () if any(known.is_done for known in self.same) else self.same

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the result of an activity."""
        same = self.unknown or tuple(known for known in self.same if known.is_done)
        return {"effect_key": self.key, "same_as": tuple(known.place for known in same)}

    def instead_of_call(
        self, item: Tool, result_before: Callable[[Sequence[KnownEffect]], str]
    ) -> ToolOutput | None:
        """Return the result of a call that is not made because of what is known of its effect.

        None for a call that is made. `result_before` returns the result of the call that a run made
        before it was reset.
        """
        if self.undoing:
            return error_result(
                f"{item.name}: this call was not made. {self.undoing} has the same effect, which is"
                " being taken back. Make the call again when that is over."
            )
        known = self.known_before(item)
        if known is None:
            return None
        return ToolOutput(
            content=self.settled or result_before(self.same),
            is_error=known != "done",
            known=known,
            is_settled=bool(self.settled),
            **self.fields,
        )

    def known_before(self, item: Tool) -> EffectStatus | None:
        """Return what is known of the effect of a call that must not be made, or None.

        A call may be made again after a lost one if the service recognizes the key, and the tool
        has no read-back.
        """
        if self.settled or any(known.is_done for known in self.same):
            return "done"
        has_service_key = item.idempotent and item.verify is None
        return "unknown" if self.same and not has_service_key else None


def recognized(item: Tool, run: ToolRun, before_reset: Sequence[KnownEffect] = ()) -> Recognized:
    """Return the effect of a call. Everything that `effect=` of the tool raises is passed on.

    `before_reset` has what is known of effects that the turn does not know any more.
    """
    key = key_of(item, run)
    if not key:
        return Recognized()
    own = {known.place for known in run.known}
    forgotten = (
        known
        for known in before_reset
        if known.place not in own and not (known.is_done and item.may_recur)
    )
    known_effects = (*run.known, *forgotten)
    return Recognized(
        key, tuple(known for known in known_effects if _is_same(item, run, known, key))
    )


def _is_same(item: Tool, run: ToolRun, known: KnownEffect, key: str) -> bool:
    if known.key:
        return key.startswith(known.key)
    with contextlib.suppress(Exception):  # what the tool reads differently now is another effect
        return key_of(item, run, known.arguments)[: limits.KEY_BYTES] == key[: limits.KEY_BYTES]
    return False
