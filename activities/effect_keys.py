"""Recognizes the effect of a call by its key, before the call is made."""

from __future__ import annotations

import contextlib

from perdure import limits
from perdure.agents import effects
from perdure.agents.tools import Tool
from perdure.text import clean
from perdure.turn.effect_values import KnownEffect
from perdure.turn.wire import ToolRun
from perdure.values.effects import EffectStatus


def key_of(item: Tool, run: ToolRun, arguments: str | None = None) -> str:
    """Return the key of the effect of a call; empty for a tool, or a turn, without such keys.

    `arguments` are others than those of the call, as JSON. Everything that `effect=` of the tool
    raises is passed on.
    """
    if item.effect is None or not run.effect_scope:
        return ""
    values = item.arguments.values(clean(run.arguments if arguments is None else arguments))
    return effects.key_of(item.effect, values, item.name, run.effect_scope)


def known_before(item: Tool, run: ToolRun, key: str) -> EffectStatus | None:
    """Return what is known of the effect of a call that must not be made; None if it may be.

    A call may be made again after a lost one if the service recognizes the key, and the tool has no
    read-back.
    """
    same = [known for known in run.known if key and _is_same(item, run, known, key)]
    if any(known.is_done for known in same):
        return "done"
    recognized = item.idempotent and item.verify is None
    return "unknown" if same and not recognized else None


def _is_same(item: Tool, run: ToolRun, known: KnownEffect, key: str) -> bool:
    if known.key:
        return key.startswith(known.key)
    with contextlib.suppress(Exception):  # what the tool reads differently now is another effect
        return key_of(item, run, known.arguments)[: limits.KEY_BYTES] == key[: limits.KEY_BYTES]
    return False
