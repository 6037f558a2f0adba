"""The runs of workflows as the simulated server keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from temporalio.api.common.v1 import Payload, RetryPolicy
from temporalio.api.failure.v1 import Failure

from perdure.session.facts import SessionFact
from perdure.session.state import SessionState
from perdure.temporal.histories.part_history import PartReader
from perdure.temporal.histories.session_history import SessionReader
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.temporal.names import TURN
from perdure.testing.simulation.server.batch_reading import BatchRead, PartRead
from perdure.testing.simulation.server.commands import WrittenEvent
from perdure.testing.simulation.server.core import Core
from perdure.testing.simulation.server.history import Fields, SimulatedHistory, WorkflowTask
from perdure.testing.simulation.server.sdk import CONVERTER, BegunRun
from perdure.turn.facts import Recorded
from perdure.turn.state import TurnState


class RunStage(Enum):
    """What a run's workflow task does: nothing, wait for a worker, or run on a worker.

    A task for updates alone is not in history while it waits, and never is if all are rejected.
    """

    NONE = auto()
    FOR_UPDATES = auto()
    WAITS = auto()
    RUNS = auto()


class UpdateResponse(Enum):
    """What has become of an update."""

    NONE = auto()
    ACCEPTED = auto()
    COMPLETED = auto()
    FAILED = auto()
    REJECTED = auto()
    RUN_CLOSED = auto()


@dataclass(eq=False)
class Update:
    """An update of a run.

    Attributes:
        request: Its content as history has it.
        answer: What has become of it.
        failure: Why it failed or was rejected.
        is_admitted: Whether it is in history before it is accepted, as after a reset.
    """

    id: str
    request: Any
    answer: UpdateResponse = UpdateResponse.NONE
    failure: Failure | None = None
    is_sent: bool = False
    is_admitted: bool = False


@dataclass(eq=False)
class Activity:
    """An activity that has not ended.

    Attributes:
        event_id: The event that scheduled it.
        key: Its id.
        attempt: The number of its attempt, which begins anew when an operator resets it.
        is_again: Whether the attempt was scheduled later than the activity.
        handed_out: How often an attempt was scheduled.
        is_started: Whether a worker has begun the attempt.
        is_cancelled: Whether its cancellation was requested.
        is_paused: Whether an operator has paused it.
        retries: How failed attempts are followed by others.
        heartbeat_s: After how long without a heartbeat it counts as lost.
        timeout_s: How long an attempt may take; None without a limit.
        until_ns: When no further attempt begins; None without a limit.
    """

    run: SimulatedRun
    event_id: int
    key: str
    type: str
    input: Payload
    retries: RetryPolicy
    heartbeat_s: float
    timeout_s: float | None
    until_ns: int | None = None
    attempt: int = 1
    is_again: bool = False
    handed_out: int = 1
    is_started: bool = False
    is_cancelled: bool = False
    is_paused: bool = False


@dataclass(eq=False)
class SimulatedChild:
    """A child that has not ended, with the event that began it.

    Attributes:
        is_once: Whether its id may be used once.
    """

    workflow_id: str
    event_id: int
    type: str
    policy: int
    is_once: bool = False


@dataclass(eq=False)
class SimulatedRun:
    """A run of a workflow.

    Attributes:
        begun: How it was started.
        parent: The run that started it as a child, and the event that began it there.
        core: The workflow object with its worker's knowledge; None if no worker has it in memory.
        stage: What its workflow task does.
        attempt: The number of the attempt of that task.
        current: The running task, and the events that its commands will write.
        seen: The number of events that completed tasks have seen or written.
        buffered: Events that happened while a task runs, and are written when it ends.
        updates: All updates, by their ids.
        closed: The name of the event that closed it; empty while it is open.
        read: The fold of a turn's history so far, by the product's own reader.
        facts: What it was folded from.
        session: The fold of a session's history so far.
        session_facts: What it was folded from.
        base: The run that was reset, and the event of the point; None for other runs.
        is_replaced: Whether it was reset, so another run goes on instead.
        is_closing: Whether the task that it has completed last ends it.
        full_tasks: The workflow tasks that it has completed although it should have gone on in a
            new run.
        part: What the history of a part of a batch says so far.
        batch: What the history of a batch says so far.
    """

    begun: BegunRun
    parent: tuple[SimulatedRun, int] | None = None
    base: tuple[SimulatedRun, int] | None = None
    is_replaced: bool = False
    is_closing: bool = False
    full_tasks: int = 0
    history: SimulatedHistory = field(default_factory=SimulatedHistory)
    core: Core | None = None
    stage: RunStage = RunStage.NONE
    attempt: int = 1
    current: tuple[WorkflowTask, list[WrittenEvent]] | None = None
    seen: int = 0
    buffered: list[tuple[str, Fields]] = field(default_factory=list)
    updates: dict[str, Update] = field(default_factory=dict)
    activities: dict[int, Activity] = field(default_factory=dict)
    timers: set[int] = field(default_factory=set)
    children: dict[int, SimulatedChild] = field(default_factory=dict)
    signals: int = 0
    is_cancelled: bool = False
    closed: str = ""
    read: TurnState = field(default_factory=TurnState)
    facts: list[Recorded] = field(default_factory=list)
    session: SessionState = field(default_factory=SessionState)
    session_facts: list[SessionFact] = field(default_factory=list)
    part: PartRead = field(default_factory=PartRead)
    batch: BatchRead = field(default_factory=BatchRead)
    read_events: int = 0
    reader: HistoryReader = field(default_factory=lambda: HistoryReader(CONVERTER, is_worker=True))
    session_reader: SessionReader = field(
        default_factory=lambda: SessionReader(CONVERTER, is_worker=True)
    )
    part_reader: PartReader = field(default_factory=lambda: PartReader(CONVERTER))

    @property
    def id(self) -> str:
        """The id of the workflow."""
        return self.begun.workflow_id

    @property
    def root(self) -> SimulatedRun:
        """The first run of the turn at the root of the tree, or a later run of it."""
        return self if self.parent is None else self.parent[0].root

    @property
    def is_left(self) -> bool:
        """Whether it or a run above it was reset, so nobody waits for its end."""
        return self.is_replaced or (self.parent is not None and self.parent[0].is_left)

    @property
    def account(self) -> str:
        """Where the bills of a turn and its delegates are noted; a reset opens another account."""
        return self.root.begun.account or self.root.begun.first_run_id

    @property
    def is_delegate(self) -> bool:
        """Whether it is a turn that works for another turn."""
        is_turn = self.begun.type == TURN and not self.takes_back
        return is_turn and self.parent is not None and self.parent[0].begun.type == TURN

    @property
    def takes_back(self) -> bool:
        """Whether it is a turn that takes back the effect of a call."""
        return self.read.request is not None and self.read.request.undo is not None

    @property
    def unanswered(self) -> list[Update]:
        """The updates that no worker has taken in."""
        return [one for one in self.updates.values() if one.answer is UpdateResponse.NONE]

    @property
    def is_idle(self) -> bool:
        """Whether nothing will happen to it unless somebody sends it something."""
        return not (
            self.closed
            or self.stage is not RunStage.NONE
            or self.activities
            or self.timers
            or self.children
            or self.signals
        )

    def note_answer(self, response: Any) -> None:
        """Note what a workflow task has answered to an update."""
        update = self.updates[response.protocol_instance_id]
        match response.WhichOneof("response"):
            case "accepted":
                update.answer = UpdateResponse.ACCEPTED
            case "completed":
                update.answer = UpdateResponse.COMPLETED
            case _:
                update.answer, update.failure = UpdateResponse.FAILED, response.rejected

    def evict(self) -> None:
        """Remove the workflow object from its worker's memory."""
        if self.core is not None:
            self.core.evict()
            self.core = None
