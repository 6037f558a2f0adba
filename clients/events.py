"""The events of a turn, as values and as JSON.

An event is told in two ways. `to_json` is whole, as `--json` prints it: it holds the prompt, the
instructions and all arguments. `public` is made for browsers and other places where these do not
belong. It names what it shows field by field, so a field that a fact gains later is not in it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from datetime import datetime
from typing import Any, Literal

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from perdure import errors
from perdure.clients import public_events
from perdure.turn.facts import Fact, ModelAnswered
from perdure.turn.keys import Key
from perdure.values.messages import ToolCall

VERSION = 1
"""Of the JSON of events.

It changes when a field goes or means something else, not when one comes.
"""

Private = Literal["task", "arguments", "results", "errors"]


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A fact of a turn, and when it was recorded.

    Attributes:
        cursor: `turn.events(after=cursor)` goes on after this event, in any process.
        at: When it was recorded, in UTC.
        fact: What was recorded, one of `perdure.events`.
        turn_id: The turn's id.
        agent: The name of the turn's agent.
        calls: The tool calls that the fact is about, as the model asked for them: all of an answer,
            or one; none for other facts.
        text: What the model said, or at the end the answer; empty where the fact has none, and
            while a middleware has yet to let the answer pass.
    """

    cursor: str
    at: datetime
    fact: Fact
    turn_id: str = ""
    agent: str = ""
    calls: tuple[ToolCall, ...] = ()
    text: str = ""

    @property
    def call(self) -> ToolCall | None:
        """The one tool call that the fact is about.

        None where there is none, or an answer with several.
        """
        return self.calls[0] if self.calls and not isinstance(self.fact, ModelAnswered) else None

    @property
    def kind(self) -> str:
        """The kind of its fact, such as `model_answered`."""
        return kind_of(self.fact)

    @property
    def step(self) -> int | None:
        """The step that it belongs to, from 1; None outside of steps."""
        key = key_of(self.fact)
        return key.step or None if key else None

    @property
    def attempt(self) -> int | None:
        """Which attempt of an activity, from 1; None where it is about none."""
        key = key_of(self.fact)
        return key.attempt if key else None

    def to_json(self) -> dict[str, JsonValue]:
        """The event as JSON values, as `--json` prints it.

        It has the prompt, arguments and results.
        """
        fact = {
            field.name: getattr(self.fact, field.name) for field in dataclasses.fields(self.fact)
        }
        told: dict[str, JsonValue] = to_jsonable_python(
            {**self._head(), "fact": {name: _value(value) for name, value in fact.items()}}
        )
        return told

    def public(self, include: Collection[Private] = ()) -> dict[str, JsonValue]:
        """The event as JSON values for a browser.

        No prompt, no instructions, no arguments, no results.

        Args:
            include: What is shown all the same: the `task`, the `arguments` of tool calls, the
                `results` of tools, and the messages of `errors` with the reasons that people
                and policies gave.

        Raises:
            InvalidRequestError: A name in `include` is none of these.
        """
        unknown = (
            sorted(set(include) - public_events.PRIVATE)
            if not isinstance(include, str)
            else [include]
        )
        if unknown:
            raise errors.InvalidRequestError(
                f"include has {', '.join(map(repr, unknown))}; give a set of"
                f" {', '.join(sorted(public_events.PRIVATE))}"
            )
        shown = public_events.shown(self.fact, self.calls, frozenset(include))
        text: dict[str, Any] = {"text": self.text} if self.text else {}
        told: dict[str, JsonValue] = to_jsonable_python({**self._head(), **text, **shown})
        return told

    def _head(self) -> dict[str, Any]:
        return {
            "v": VERSION,
            "turn": self.turn_id,
            "kind": self.kind,
            "cursor": self.cursor,
            "at": self.at,
            "agent": self.agent,
            "step": self.step,
            "attempt": self.attempt,
            "tool": self.call.name if self.call else None,
            "call_id": self.call.id if self.call else None,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class CaughtUp:
    """All that history had when the watching began has been told; what comes now is news."""

    def to_json(self) -> dict[str, JsonValue]:
        """The mark as JSON values."""
        return {"v": VERSION, "kind": "caught_up"}


def kind_of(fact: Fact | type[Fact]) -> str:
    """`ModelAnswered` as `model_answered`."""
    name = fact.__name__ if isinstance(fact, type) else type(fact).__name__
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def key_of(fact: Fact) -> Key | None:
    """The activity that a fact is about."""
    key: Key | None = getattr(fact, "key", None)
    return key


def _value(value: object) -> object:
    """A key as it is written everywhere, `step-1.call-2`; the rest as it is."""
    return str(value) if isinstance(value, Key) else value
