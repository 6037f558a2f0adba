"""The history of a run: real events, as Temporal's server writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from perdure.testing.simulation.server.clock import VirtualClock

Fields = dict[str, Any]
"""The fields of the attributes of an event."""

STARTED, COMPLETED = "WORKFLOW_TASK_STARTED", "WORKFLOW_TASK_COMPLETED"
SCHEDULED = "WORKFLOW_TASK_SCHEDULED"
RESET = 20
"""The cause of the failure with which the task begins to which a run was reset."""

COMMANDS = frozenset(
    {
        *("ACTIVITY_TASK_SCHEDULED", "ACTIVITY_TASK_CANCEL_REQUESTED", "TIMER_STARTED"),
        *("TIMER_CANCELED", "MARKER_RECORDED", "WORKFLOW_PROPERTIES_MODIFIED"),
        *("UPSERT_WORKFLOW_SEARCH_ATTRIBUTES", "START_CHILD_WORKFLOW_EXECUTION_INITIATED"),
        "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED",
        "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED",
        *("WORKFLOW_EXECUTION_UPDATE_ACCEPTED", "WORKFLOW_EXECUTION_UPDATE_COMPLETED"),
        *("WORKFLOW_EXECUTION_COMPLETED", "WORKFLOW_EXECUTION_FAILED"),
        *("WORKFLOW_EXECUTION_CANCELED", "WORKFLOW_EXECUTION_CONTINUED_AS_NEW"),
    }
)
"""The events that a workflow task writes with its completion: one for each command."""


_NAMES: dict[int, str] = {
    number: name.removeprefix("EVENT_TYPE_") for name, number in EventType.items()
}
_NUMBERS: dict[str, Any] = {name: number for number, name in _NAMES.items()}
_ATTRIBUTES = {number: f"{name.lower()}_event_attributes" for number, name in _NAMES.items()}


def name_of(event: HistoryEvent) -> str:
    """Return the name of an event's type, without the prefix that all of them have."""
    return _NAMES[event.event_type]


def attributes(event: HistoryEvent) -> Any:
    """Return the attributes of an event."""
    return getattr(event, _ATTRIBUTES[event.event_type])


def time_of(event: HistoryEvent) -> datetime:
    """Return the time of an event."""
    return event.event_time.ToDatetime(tzinfo=UTC)


def event_of(event_id: int, name: str, fields: Fields) -> HistoryEvent:
    """Return an event that has no time yet."""
    number = _NUMBERS[name]
    content: Fields = {_ATTRIBUTES[number]: fields}
    return HistoryEvent(event_id=event_id, event_type=number, **content)


def is_reset(event: HistoryEvent) -> bool:
    """Return whether a run was reset at this event."""
    return name_of(event) == "WORKFLOW_TASK_FAILED" and attributes(event).cause == RESET


class SimulatedHistory:
    """The events of a run.

    Attributes:
        events: The events, in order.
        moments_ns: When each of them happened, in nanoseconds since 1970. The time in the event is
            another one if the clock of the machine that wrote it was wrong.
        size_bytes: Their size.
    """

    def __init__(self) -> None:
        self.events: list[HistoryEvent] = []
        self.moments_ns: list[int] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.events)

    @property
    def timed(self) -> Sequence[tuple[HistoryEvent, int]]:
        """The events, each with its moment."""
        return tuple(zip(self.events, self.moments_ns, strict=True))

    def add(self, clock: VirtualClock, name: str, fields: Fields) -> HistoryEvent:
        """Write an event that happens now."""
        event = event_of(len(self.events) + 1, name, fields)
        event.event_time.FromNanoseconds(clock.written_ns)
        self.events.append(event)
        self.moments_ns.append(clock.now_ns)
        self.size_bytes += event.ByteSize()
        return event

    def copy(self, other: SimulatedHistory, count: int) -> None:
        """Begin with the first events of another history."""
        self.moments_ns += other.moments_ns[:count]
        for event in other.events[:count]:
            self.events.append(event)
            self.size_bytes += event.ByteSize()

    def take_back(self, count: int) -> None:
        """Remove the last events, which the server had not written for good."""
        for _ in range(count):
            self.moments_ns.pop()
            self.size_bytes -= self.events.pop().ByteSize()


@dataclass
class WorkflowTask:
    """A workflow task as a history has it.

    Attributes:
        news: What happened since the task before it.
        started: The event of its start.
        written: The events of its commands.
        size_bytes: The size of the history when it started.
        flags: The flags of the SDK that it used for the first time.
    """

    news: list[HistoryEvent]
    started: HistoryEvent
    written: list[HistoryEvent] = field(default_factory=list)
    size_bytes: int = 0
    flags: list[int] = field(default_factory=list)


def tasks(events: Iterable[HistoryEvent]) -> Iterator[WorkflowTask]:
    """Yield the completed workflow tasks of a history.

    What came before a task that failed belongs to the next task.
    """
    news: list[HistoryEvent] = []
    before: list[HistoryEvent] = []
    size_at_start = 0
    started: HistoryEvent | None = None
    task: WorkflowTask | None = None
    for event in events:
        name = name_of(event)
        if name == STARTED:
            started = event
            recorded = attributes(event).history_size_bytes
            size_at_start = recorded or sum(one.ByteSize() for one in before)
        elif name == COMPLETED and started is not None:
            if task is not None:
                yield task
            flags = attributes(event).sdk_metadata.lang_used_flags
            task = WorkflowTask(news, started, size_bytes=size_at_start, flags=list(flags))
            news = []
        elif name in COMMANDS and task is not None and not news:
            task.written.append(event)
        elif name != SCHEDULED:
            news.append(event)
        before.append(event)
    if task is not None:
        yield task
