"""What `--json` prints: one value a line, and nothing else on standard output.

A turn is told as its events, each with `turn`, `cursor`, `at`, `kind` and `fact`, and then as its `report`. A command that fails says why in a last
line of kind `error`, whatever it is about.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from pydantic_core import to_json

from perdure.clients.aloud import Aloud
from perdure.clients.feed import Event
from perdure.clients.screen import put
from perdure.clients.speech import Said, TextBegins, TextVoid
from perdure.clients.tree import Followed, Reach
from perdure.clients.turn import Turn
from perdure.errors import PerdureError
from perdure.facts import Fact, Key
from perdure.reports import AgentReport
from perdure.text import exact


class Told:
    """Tells one turn as lines of JSON."""

    def __init__(self, *, streams: bool = False) -> None:
        self._streams = streams

    def start(self, turn: Turn[Any]) -> None:
        """Every line says which turn it is."""

    async def follow(self, turn: Turn[Any], _: Reach) -> None:
        """Its events to its end, and with `streams` what its model says."""
        followed: Followed = Aloud(turn, lambda said: say(turn.id, said)) if self._streams else turn
        async for event in followed.events():
            tell({"turn": turn.id, "kind": kind_of(event.fact), **_event(event)})

    def close(self, report: AgentReport[Any]) -> None:
        """The report."""
        tell({"turn": report.turn_id, "kind": "report", "report": report})

    def fail(self, report: AgentReport[Any]) -> None:
        """The error that ends the command holds it."""


def tell(value: object) -> None:
    """Print a line. What a terminal would obey is escaped, which changes no value."""
    put(exact(to_json(value).decode()))


def tell_error(error: PerdureError) -> None:
    """Print why a command failed."""
    turn = {"turn": error.report.turn_id} if error.report is not None else {}
    tell({**turn, "kind": "error", "class": type(error).__name__, **error.to_dict(), "report": error.report})


def say(turn_id: str, said: Said) -> None:
    """Print a piece of what a model says."""
    match said:
        case TextBegins(step, attempt):
            tell({"turn": turn_id, "kind": "text_begins", "step": step, "attempt": attempt})
        case TextVoid(step, attempt):
            tell({"turn": turn_id, "kind": "text_void", "step": step, "attempt": attempt})
        case str():
            tell({"turn": turn_id, "kind": "text", "text": said})


def kind_of(fact: Fact | type[Fact]) -> str:
    """`ModelAnswered` as `model_answered`."""
    name = fact.__name__ if isinstance(fact, type) else type(fact).__name__
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _event(event: Event) -> dict[str, Any]:
    return {"cursor": event.cursor, "at": event.at, "fact": {field.name: _value(event.fact, field.name) for field in dataclasses.fields(event.fact)}}


def _value(fact: Fact, name: str) -> Any:
    """A key as it is written everywhere, `step-1.call-2`; the rest as it is."""
    value = getattr(fact, name)
    return str(value) if isinstance(value, Key) else value
