"""The runs of a script on a real server, as their histories are so far."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client

from perdure.session import state as sessions
from perdure.session.facts import SessionFact
from perdure.session.state import SessionState
from perdure.temporal.histories.runs import describe, run_after
from perdure.temporal.histories.session_history import SessionReader
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.temporal.names import SESSION, TURN
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.turn.facts import Recorded
from perdure.turn.fold import fold
from perdure.turn.state import TurnState

from .acts import Scene
from .quiet import is_waiting
from .resetting import points
from .script import relative

_CHILD_STARTED = "CHILD_WORKFLOW_EXECUTION_STARTED"
_CHILD_ENDS = frozenset(
    f"CHILD_WORKFLOW_EXECUTION_{how}" for how in ("COMPLETED", "FAILED", "CANCELED", "TERMINATED")
)
_CANCEL = "WORKFLOW_EXECUTION_CANCEL_REQUESTED"
_REQUEST_CANCEL = 3
"""The parent close policy with which a child is cancelled with its parent."""
_PAGE = 20
_OVER = frozenset(
    f"WORKFLOW_EXECUTION_{how}"
    for how in ("COMPLETED", "FAILED", "CANCELED", "TERMINATED", "CONTINUED_AS_NEW")
)


class RealRun:
    """A run of a turn or a session, as far as its history was read.

    Attributes:
        id: Its id as the script names it.
        number: Its number among the runs of its workflow.
        children: The turns that it has started, each with its first run, and the events that do so.
        ended: Those of these events whose turns have an end.
        turn: The state of a turn; of a session, that of no turn.
        facts: What it was folded from.
        session: The state of a session; None for a turn.
        session_facts: What it was folded from.
    """

    def __init__(self, client: Client, workflow_id: str, run_id: str, number: int) -> None:
        self._client = client
        self.workflow_id = workflow_id
        self.run_id = run_id
        self._execution = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
        self.id = relative(workflow_id)
        self.number = number
        self.events: list[HistoryEvent] = []
        self.children: dict[tuple[str, str], int] = {}
        self.ended: set[int] = set()
        self.turn = TurnState()
        self.facts: list[Recorded] = []
        self._reader = HistoryReader(client.data_converter, is_worker=True)
        self.session: SessionState | None = None
        self.session_facts: list[SessionFact] = []
        self._session_reader = SessionReader(client.data_converter, is_worker=True)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return bool(self.events) and name_of(self.events[-1]) in _OVER

    @property
    def is_quiet(self) -> bool:
        """Whether nothing happens to it until somebody does something."""
        return self.is_over or is_waiting(self.events)

    def is_about_to_tell(self, child: RealRun) -> bool:
        """Whether a child that runs is about to be cancelled, or one that is over to be told of."""
        initiated = self.children.get((child.workflow_id, child.first_run))
        if initiated is None or initiated in self.ended:
            return False
        if not self.is_over:
            return child.is_over
        is_cancelled = any(name_of(event) == _CANCEL for event in child.events)
        is_own = child.parent_run == self.run_id  # and not that of a run before a reset
        policy = attributes(self.events[initiated - 1]).parent_close_policy
        return is_own and policy == _REQUEST_CANCEL and not child.is_over and not is_cancelled

    def _note_child(self, event: HistoryEvent) -> None:
        """Note the turns that the run has started, and which of them it knows to be over."""
        name, content = name_of(event), attributes(event)
        if name == _CHILD_STARTED and content.workflow_type.name == TURN:
            child = (content.workflow_execution.workflow_id, content.workflow_execution.run_id)
            self.children[child] = content.initiated_event_id
        elif name in _CHILD_ENDS:
            self.ended.add(content.initiated_event_id)

    @property
    def first_run(self) -> str:
        """The first run of its workflow, also if it was reset."""
        run_id: str = attributes(self.events[0]).first_execution_run_id
        return run_id

    @property
    def parent_run(self) -> str:
        """The run that has started it; empty without a parent."""
        run_id: str = attributes(self.events[0]).parent_workflow_execution.run_id
        return run_id

    async def read(self) -> None:
        """Read what has happened since it was read last."""
        if self.is_over:
            return
        for event in await self._news():
            self.events.append(event)
            self._note_child(event)
            if attributes(self.events[0]).workflow_type.name == SESSION:
                session_facts = await self._session_reader.facts(event)
                self.session_facts += session_facts
                self.session = sessions.fold(session_facts, self.session)
            else:
                facts = await self._reader.facts(event)
                self.facts += facts
                self.turn = fold(facts, self.turn)

    async def _news(self) -> list[HistoryEvent]:
        """The events that were not read yet, from the end of the history: it may be large."""
        known, read = len(self.events), list[HistoryEvent]()
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=self._client.namespace,
            execution=self._execution,
            maximum_page_size=_PAGE,
        )
        while not read or read[-1].event_id > known + 1:
            page = await self._client.workflow_service.get_workflow_execution_history_reverse(
                request
            )
            read += page.history.events
            if not page.next_page_token:
                break
            request.next_page_token = page.next_page_token
        return [event for event in reversed(read) if event.event_id > known]


class Tree:
    """A turn with its delegates, or a session with its turns."""

    def __init__(self, client: Client, root: str) -> None:
        self._client = client
        self._root = root
        self._runs: dict[str, list[RealRun]] = {}

    async def look(self) -> list[RealRun]:
        """All runs so far."""
        if not self._runs:
            found = await describe(self._client, self._root)
            self.add(self._root, found.workflow_execution_info.first_run_id)
        unread = [run for runs in self._runs.values() for run in runs]
        while unread:
            run = unread.pop()
            await run.read()
            begun = list(run.children)
            if run_id := run_after(run.events[-1]):
                begun.append((run.workflow_id, run_id))
            unread += filter(None, (self.add(*one) for one in begun))
        return [run for runs in self._runs.values() for run in runs]

    def last(self, workflow_id: str) -> RealRun:
        """The last run of a workflow."""
        return self._runs[workflow_id][-1]

    def add(self, workflow_id: str, run_id: str) -> RealRun | None:
        """Take in a run, and return it if it is new."""
        runs = self._runs.setdefault(workflow_id, [])
        if any(run.run_id == run_id for run in runs):
            return None
        runs.append(RealRun(self._client, workflow_id, run_id, len(runs) + 1))
        return runs[-1]

    def is_quiet(self) -> bool:
        """Whether nothing happens until somebody does something."""
        last = [runs[-1] for runs in self._runs.values()]
        return all(run.is_quiet for run in last) and not any(
            run.is_about_to_tell(child) for run in last for child in last
        )


def scene_of(runs: Sequence[RealRun]) -> Scene:
    """What people see of these runs."""
    opened = [run for run in runs if not run.is_over]
    return Scene(
        {run.workflow_id: run.turn for run in opened if run.turn.waiting and run.turn.needs_person},
        next((run.session for run in reversed(runs) if run.session), None),
        {run.workflow_id: list(points(run.events)) for run in opened},
    )
