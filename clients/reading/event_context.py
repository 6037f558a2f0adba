"""The context of events that facts do not contain: the agent, the tool calls and the text.

The fold has all of it, but each of its states has a copy of the transcript's tuple: over thousands
of steps that is seconds of work for every process that watches. This class keeps only the values
that are needed, and a test compares it with the fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.turn.calls import runs_tools
from perdure.turn.facts import (
    AgentResolved,
    Decided,
    HandedOver,
    HookEnded,
    ModelAnswered,
    PartCarried,
    Recorded,
    Said,
    Scheduled,
    TurnContinued,
    TurnEnded,
    TurnStarted,
    WaitBegan,
    WaitEnded,
)
from perdure.turn.keys import CallKey, HookKey, Key, ModelKey, parse_key
from perdure.turn.snapshot import CarriedPart, Snapshot
from perdure.turn.wire import TurnRequest
from perdure.values.messages import AssistantMessage, ToolCall, closed, with_unique_ids


class EventContext:
    """Follows the facts of a turn, in their order."""

    def __init__(self) -> None:
        self._agent = self._last_agent = ""
        self._ids: set[str] = set()
        self._calls: dict[int, tuple[ToolCall, ...]] = {}
        self._step = 0
        self._stages = 0
        self._unpassed = 0
        self._has_answer = False
        self._finishing = False
        self._said = ""
        self._last: AssistantMessage | None = None
        self._unread: list[str] = []

    def of(self, fact: Recorded) -> Mapping[str, Any]:
        """Return the `agent`, `last_agent`, `calls`, `text` and `read` of the next event."""
        read = self._read(fact)
        calls, text = self._see(fact)
        return {
            "agent": self._agent,
            "last_agent": self._last_agent or self._agent,
            "calls": calls,
            "text": text,
            "read": read,
        }

    def _read(self, fact: Recorded) -> tuple[str, ...]:
        """Return the ids of the messages that a model call reads."""
        match fact:
            case TurnStarted(request):
                self._unread = [message.id or "" for message in request.said or ()]
            case TurnContinued():
                self._unread = []
            case PartCarried(_, CarriedPart(snapshot=Snapshot() as snapshot)):
                carried = [message.id or "" for message in snapshot.inbox.unread]
                self._unread = [*carried, *self._unread]
            case Said(message_id):
                self._unread.append(message_id)
            case Scheduled(ModelKey(is_last=False)) if not self._finishing:
                read, self._unread = tuple(self._unread), []
                return read
        return ()

    def _see(self, fact: Recorded) -> tuple[tuple[ToolCall, ...], str]:
        match fact:
            case TurnStarted(request):
                self._begin(request)
            case AgentResolved(_, agent):
                self._stages = agent.answer_checks
            case ModelAnswered():
                return self._answered(fact)
            case Decided(decision):
                calls = self._calls.get(self._step, ())
                return tuple(call for call in calls if call.id == decision.call_id), ""
            case WaitBegan(calls=waits):
                return self._calls_of([wait.key for wait in waits]), ""
            case WaitEnded(woken=ends):
                return self._calls_of([end.key for end in ends]), ""
            case TurnEnded():
                return (), self._text if self._has_answer or not self._stages else ""
            case TurnContinued(continuation):
                self._agent = continuation.request.agent
                self._ids.clear()
            case PartCarried(_, part):
                self._carried(part)
            case _:
                self._note(fact)
        return self._call_of(getattr(fact, "key", None)), ""

    def _begin(self, request: TurnRequest) -> None:
        """Follow the input of a turn, whose messages may have calls already."""
        self._agent, self._last_agent = request.agent, request.handed_to or ""
        for message in closed(request.history):
            if isinstance(message, AssistantMessage):
                self._ids.update(call.id for call in message.calls)
        if request.origin is not None and request.origin.preceding is not None:
            self._ids.update(request.origin.preceding.call_ids)

    def _carried(self, part: CarriedPart) -> None:
        """Follow a part of another run's state, for a reader that has not read that run."""
        answers = [message for message in part.messages if isinstance(message, AssistantMessage)]
        self._ids.update(call.id for answer in answers for call in answer.calls)
        if answers:
            self._last = answers[-1]
        if part.agent is not None:
            self._last_agent = part.agent.name
            self._stages = part.agent.answer_checks
        if part.snapshot is not None and self._last is not None:
            self._said, self._unpassed = self._last.text, part.snapshot.open.unpassed
            self._finishing = part.snapshot.finishing
            if part.snapshot.open.gates:
                self._step = part.snapshot.steps + 1
                self._calls[self._step] = self._last.calls

    def _note(self, fact: Recorded) -> None:
        match fact:
            case HandedOver(_, agent):
                if not self._finishing:  # else it came too late
                    self._last_agent = agent.name
            case Scheduled(ModelKey(is_last=True)):
                self._finishing = True
            case HookEnded(HookKey("after"), None):
                self._unpassed = max(self._unpassed - 1, 0)

    def _answered(self, fact: ModelAnswered) -> tuple[tuple[ToolCall, ...], str]:
        if self._finishing and not fact.key.is_last:
            return (), ""  # the call was abandoned before its answer came
        message = with_unique_ids(fact.answer.message, self._ids, f"call_{fact.key.step}")
        self._ids.update(call.id for call in message.calls)
        self._step, self._calls[fact.key.step] = fact.key.step, message.calls
        is_final = self._finishing or not runs_tools(fact.answer)
        self._unpassed, self._has_answer = self._stages if is_final else 0, is_final
        self._said = message.text
        return message.calls, self._text

    @property
    def _text(self) -> str:
        return "" if self._unpassed else self._said

    def _calls_of(self, keys: Sequence[str]) -> tuple[ToolCall, ...]:
        """Return the calls with the keys of these texts."""
        return tuple(call for key in keys for call in self._call_of(parse_key(key)))

    def _call_of(self, key: Key | None) -> tuple[ToolCall, ...]:
        return (
            self._calls.get(key.step, ())[key.call - 1 : key.call]
            if isinstance(key, CallKey)
            else ()
        )
