"""The progress of a turn's running tools, which they report with `ctx.heartbeat`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from perdure.clients.reading.events import VERSION, Event
from perdure.clients.reading.live_output import HeartbeatDetails
from perdure.turn.facts import ApprovalNeeded, Scheduled, ToolLost, ToolReturned
from perdure.turn.keys import ToolKey


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """The progress of a tool.

    Attributes:
        step: The step in which it runs, from 1.
        attempt: The attempt of the call, from 1.
        tool: The tool's name.
        call_id: The id of the call that the model knows.
        details: The values last passed to `ctx.heartbeat`.
    """

    step: int
    attempt: int
    tool: str
    call_id: str
    details: tuple[JsonValue, ...]

    def to_json(self) -> dict[str, JsonValue]:
        """Return the progress as JSON values."""
        data: dict[str, JsonValue] = to_jsonable_python(self)
        return {"v": VERSION, "kind": "tool_progress", **data}


class RunningTools:
    """The tool calls in flight, with the last progress of each."""

    def __init__(self) -> None:
        self._running: dict[ToolKey, ToolProgress] = {}

    @property
    def is_on(self) -> bool:
        """Whether progress may come."""
        return bool(self._running)

    def see(self, event: Event) -> None:
        """Apply another event."""
        match event.fact:
            case Scheduled(ToolKey() as key) if event.call is not None:
                call = event.call
                self._running[key] = ToolProgress(key.step, key.attempt, call.name, call.id, ())
            case ToolReturned(key) | ToolLost(key) | ApprovalNeeded(key):
                self._running.pop(key, None)

    def hear(self, noted: HeartbeatDetails) -> Iterator[ToolProgress]:
        """Yield new progress."""
        known = self._running.get(noted.key)
        if known is None or known.details == noted.details:
            return
        now = self._running[noted.key] = ToolProgress(
            known.step, known.attempt, known.tool, known.call_id, noted.details
        )
        yield now
