"""The kind and the key of an event, as one text."""

from __future__ import annotations

from perdure.turn.facts import Fact


def kind(fact: Fact) -> str:
    return f"{type(fact).__name__} {getattr(fact, 'key', '')}".strip()
