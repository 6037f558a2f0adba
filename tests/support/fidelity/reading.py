"""The runs of a script on a real server, as their histories are so far."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.session import state as sessions
from perdure.session.facts import SessionFact
from perdure.session.state import SessionState
from perdure.temporal.histories.runs import run_after
from perdure.temporal.histories.session_history import SessionReader
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.temporal.names import SESSION, TURN
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.turn.facts import Recorded
from perdure.turn.fold import fold
from perdure.turn.state import TurnState

from .quiet import is_waiting
from .script import relative

_CHILD = "START_CHILD_WORKFLOW_EXECUTION_INITIATED"
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
        children: The workflows of the turns that it has started, with their parent close policies.
        ended: Those whose end it knows.
        turn: The state of a turn; of a session, that of no turn.
        facts: What it was folded from.
        session: The state of a session; None for a turn.
        session_facts: What it was folded from.
    """

    def __init__(self, client: Client, workflow_id: str, run_id: str, number: int) -> None:
        self._client = client
        self.workflow_id = workflow_id
        self._execution = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
        self.id = relative(workflow_id)
        self.number = number
        self.events: list[HistoryEvent] = []
        self.children: dict[str, int] = {}
        self.ended: set[str] = set()
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
        policy = self.children.get(child.workflow_id)
        if policy is None or child.workflow_id in self.ended:
            return False
        if self.is_over:
            is_cancelled = any(name_of(event) == _CANCEL for event in child.events)
            return policy == _REQUEST_CANCEL and not child.is_over and not is_cancelled
        return child.is_over

    async def read(self) -> None:
        """Read what has happened since it was read last."""
        if self.is_over:
            return
        for event in await self._news():
            self.events.append(event)
            if name_of(event) == _CHILD and attributes(event).workflow_type.name == TURN:
                self.children[attributes(event).workflow_id] = attributes(event).parent_close_policy
            if name_of(event) in _CHILD_ENDS:
                self.ended.add(attributes(event).workflow_execution.workflow_id)
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
        found: list[RealRun] = []
        left = [self._root]
        while left:
            runs = await self._runs_of(left.pop())
            left += {child: None for run in runs for child in run.children}
            found += runs
        return found

    def is_quiet(self) -> bool:
        """Whether nothing happens until somebody does something."""
        last = [runs[-1] for runs in self._runs.values()]
        return all(run.is_quiet for run in last) and not any(
            run.is_about_to_tell(child) for run in last for child in last
        )

    async def _runs_of(self, workflow_id: str) -> list[RealRun]:
        """The runs of a workflow; none if it has not begun."""
        if workflow_id not in self._runs:
            run_id = await self._first_run(workflow_id)
            if not run_id:
                return []
            self._runs[workflow_id] = [RealRun(self._client, workflow_id, run_id, 1)]
        runs = self._runs[workflow_id]
        while True:
            await runs[-1].read()
            run_id = run_after(runs[-1].events[-1])
            if not run_id:
                return runs
            runs.append(RealRun(self._client, workflow_id, run_id, len(runs) + 1))

    async def _first_run(self, workflow_id: str) -> str:
        """The id of the first run of a workflow; empty if it has not begun."""
        try:
            description = await self._client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return ""
        return description.raw_description.workflow_execution_info.first_run_id


def waiting(runs: Sequence[RealRun]) -> dict[str, TurnState]:
    """The turns that wait for a person."""
    return {
        run.id: run.turn
        for run in runs
        if not run.is_over and run.turn.waiting and run.turn.needs_person
    }


def session_of(runs: Sequence[RealRun]) -> SessionState | None:
    """The state of the session; None if there is none."""
    return next((run.session for run in reversed(runs) if run.session), None)
