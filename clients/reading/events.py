"""The events of a turn, as values and as JSON.

An event has two JSON forms. `to_json` is complete, as `--json` prints it: it contains the prompt,
the instructions and all arguments. `public` is for browsers and other places where these do not
belong. It lists its fields one by one, so a field that is added to a fact later is not in it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from datetime import datetime
from typing import Any, Literal, TypeGuard, cast

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from perdure import errors
from perdure.clients.reading import public_events
from perdure.turn.facts import (
    Fact,
    ModelAnswered,
    PartCarried,
    Recorded,
    TaskBegan,
    TurnContinued,
)
from perdure.turn.fold import apply, fold
from perdure.turn.keys import CarryKey, Key
from perdure.turn.state import TurnState
from perdure.turn.wire import ToolOutput, TurnRequest
from perdure.values.messages import (
    Media,
    Message,
    Text,
    ToolCall,
    UserParts,
    parts_without_data,
    without_data,
    without_media_data,
)

VERSION = 1
"""The version of the JSON of events.

It changes when a field is removed or changes its meaning, not when one is added.
"""

Private = Literal["task", "arguments", "results", "errors"]


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A fact of a turn, with the time at which it was recorded.

    Attributes:
        cursor: The position of the event: `turn.events(after=cursor)` continues after it, in any
            process.
        at: The time at which it was recorded, in UTC.
        fact: The recorded fact, one of `perdure.events`.
        turn_id: The turn's id.
        agent: The name of the agent that the turn was started with.
        last_agent: The name of the agent that has the turn after the event: the one that it was
            last handed over to, or else `agent`.
        calls: The tool calls that the fact is about, as the model requested them: all calls of an
            answer, or one; empty for other facts.
        text: The text of the model, or at the end the answer; empty if the fact has none, and as
            long as a middleware has not accepted the answer. The fact itself has it.
        read: The ids of the messages of the user that this model call is the first to send to the
            model; empty for other facts.
        before: The facts since the event before that are none of the turn's own: it went on in a
            new run of its workflow, took over the messages of another turn, or did another
            workflow task. They are not part of its events.
    """

    cursor: str
    at: datetime
    fact: Fact
    turn_id: str = ""
    agent: str = ""
    last_agent: str = ""
    calls: tuple[ToolCall, ...] = ()
    text: str = ""
    read: tuple[str, ...] = ()
    before: tuple[Recorded, ...] = dataclasses.field(default=(), repr=False, compare=False)

    def onto(self, state: TurnState) -> TurnState:
        """Return the state of the turn after the event, from that before it."""
        return apply(fold(self.before, state), self.fact)

    @property
    def call(self) -> ToolCall | None:
        """The tool call that the fact is about; None if there is none, and for model answers."""
        return self.calls[0] if self.calls and not isinstance(self.fact, ModelAnswered) else None

    @property
    def kind(self) -> str:
        """The kind of the fact, such as `model_answered`."""
        return kind_of(self.fact)

    @property
    def step(self) -> int | None:
        """The number of the step that the event belongs to, from 1; None outside of steps."""
        key = key_of(self.fact)
        return key.step or None if key else None

    @property
    def attempt(self) -> int | None:
        """The attempt of the activity, from 1; None if the fact is not about an activity."""
        key = key_of(self.fact)
        return key.attempt if key else None

    def to_json(self) -> dict[str, JsonValue]:
        """Return the event as JSON values, as `--json` prints it.

        It contains the prompt, arguments and results. Images and files have no data: for those of
        messages and tool results, the text has their kind and size.
        """
        fact = {
            field.name: getattr(self.fact, field.name) for field in dataclasses.fields(self.fact)
        }
        data: dict[str, JsonValue] = to_jsonable_python(
            {
                **self._head(),
                **self._has_read(),
                "fact": {name: _value(value) for name, value in fact.items()},
            }
        )
        return data

    def public(self, include: Collection[Private] = ()) -> dict[str, JsonValue]:
        """Return the event as JSON values for a browser.

        It contains no prompt, instructions, arguments or results.

        Args:
            include: Private values to include: the `task`, the `arguments` of tool calls, the
                `results` of tools, and the messages of `errors` with the reasons that people
                and policies gave, and with the names of these people.

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
        data: dict[str, JsonValue] = to_jsonable_python(
            {**self._head(), **text, **self._has_read(), **shown}
        )
        return data

    def _has_read(self) -> dict[str, Any]:
        return {"read": self.read} if self.read else {}

    def _head(self) -> dict[str, Any]:
        return {
            "v": VERSION,
            "turn": self.turn_id,
            "kind": self.kind,
            "cursor": self.cursor,
            "at": self.at,
            "agent": self.agent,
            "last_agent": self.last_agent,
            "step": self.step,
            "attempt": self.attempt,
            "tool": self.call.name if self.call else None,
            "call_id": self.call.id if self.call else None,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class CaughtUp:
    """A mark after the last event that history had when watching began; later events are new."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the mark as JSON values."""
        return {"v": VERSION, "kind": "caught_up"}


def is_event(fact: Recorded) -> TypeGuard[Fact]:
    """Return whether a fact is an event of the turn, and not only about its runs."""
    is_of_runs = isinstance(fact, TurnContinued | PartCarried | TaskBegan)
    return not is_of_runs and not isinstance(key_of(fact), CarryKey)


def kind_of(fact: Fact | type[Fact]) -> str:
    """Return the kind of a fact, such as `model_answered` for `ModelAnswered`."""
    name = fact.__name__ if isinstance(fact, type) else type(fact).__name__
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def key_of(fact: Recorded) -> Key | None:
    """Return the key of the activity that a fact is about."""
    key: Key | None = getattr(fact, "key", None)
    return key


def _value(value: object) -> object:
    """Return a key in its usual form, such as `step-1.call-2`, and media without data.

    Other values are unchanged.
    """
    if isinstance(value, Key):
        return str(value)
    match value:
        case ToolOutput(media=[_, *_] as media):
            return value.model_copy(update={"media": without_data(media)})
        case TurnRequest():
            return _without_data_in(value)
        case [Text() | Media(), *_]:
            return parts_without_data(cast("UserParts", value))
        case _:
            return value


def _without_data_in(request: TurnRequest) -> TurnRequest:
    """Return the input of a turn, whose images and files have no data."""
    task = request.task
    if not isinstance(task.content, str):
        task = task.model_copy(update={"content": parts_without_data(task.content)})
    changes: dict[str, object] = {
        "task": task,
        "history": tuple(map(without_media_data, request.history)),
    }
    if request.said is not None:
        messages: tuple[Message, ...] = request.said
        changes["said"] = tuple(map(without_media_data, messages))
    return request.model_copy(update=changes)
