"""The events of a turn, read from its history: reading adds nothing to it.

There is one long poll for each turn and process, shared by all watchers. It survives an outage of
the server: a failed poll is repeated from the same page, and event ids identify known events.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import (
    EventType,
    PendingActivityState,
    PendingWorkflowTaskState,
    TaskQueueType,
    WorkflowExecutionStatus,
)
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors, limits
from perdure.clients.event_context import EventContext
from perdure.clients.events import CaughtUp, Event
from perdure.clients.live_output import Ear
from perdure.errors import ErrorInfo, PerdureError
from perdure.temporal.history import HistoryReader, recorded
from perdure.temporal.names import TURN
from perdure.text import described, one_line
from perdure.turn.facts import AgentResolved, Fact, TurnEnded
from perdure.turn.fold import apply
from perdure.turn.state import TurnState
from perdure.turn.wire import Summary

logger = logging.getLogger("perdure")

V = TypeVar("V")

_POLL, _SHORT = timedelta(seconds=70), timedelta(seconds=3)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_UNCLAIMED_S = 5.0
_PAUSED = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_PAUSED
_FATAL = {
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.INVALID_ARGUMENT,
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.UNIMPLEMENTED,
}


class _Restarted:
    """One task at a time: each start cancels the one before, and leaving cancels the last."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._cancel()
        self._task = asyncio.create_task(coroutine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class Feed:
    """The recorded events of one run of a turn, shared by all watchers.

    Attributes:
        ear: The live output of the turn.
    """

    def __init__(self, client: Client, turn_id: str, run_id: str) -> None:
        self._client = client
        self._run = WorkflowExecution(workflow_id=turn_id, run_id=run_id)
        self.ear = Ear(self._describe, client.data_converter)
        self._reader = HistoryReader(client.data_converter)
        self._context = EventContext()
        self._events: list[Event] = []
        self._last_id = 0
        self._error: PerdureError | None = None
        self._news = asyncio.Event()
        self._watchers = 0
        self._pump: asyncio.Task[None] | None = None

    async def watch(
        self, after: int = 0, *, length: int | None = None
    ) -> AsyncGenerator[Event | CaughtUp, None]:
        """Yield every event after a position, future ones included, until the turn is over.

        Args:
            after: The position of a cursor, from `place`.
            length: The length of the history at the start; `CaughtUp` is yielded after that part.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
        """
        index = 0
        self._watchers += 1
        if self._pump is None or self._pump.done():
            self._error = None
            self._pump = asyncio.create_task(self._follow())
        try:
            while True:
                while index < len(self._events):
                    event = self._events[index]
                    index += 1
                    if self.place(event.cursor) > after:
                        yield event
                if length is not None and self._last_id >= length:
                    length = None
                    yield CaughtUp()
                    continue
                if self._is_over and index == len(self._events):
                    return
                if self._error is not None:
                    raise self._error
                await self._news.wait()
        finally:
            self._watchers -= 1
            if self._watchers == 0 and self._pump is not None:
                pump, self._pump = self._pump, None
                pump.cancel()
                await asyncio.wait({pump})

    async def length(self) -> int:
        """Return the current number of Temporal events in the history.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
        """
        return (await self._patiently(self._describe)).workflow_execution_info.history_length

    def place(self, cursor: str | None) -> int:
        """Return the position of a cursor in history; 0, before the first event, without a cursor.

        Raises:
            StaleCursorError: The cursor belongs to another run.
            InvalidRequestError: The value is not a cursor.
        """
        if cursor is None:
            return 0
        try:
            run_id, _, place = base64.urlsafe_b64decode(cursor.encode()).decode().rpartition(":")
        except (ValueError, binascii.Error):
            run_id, place = "", ""
        if not run_id or not re.fullmatch("[1-9][0-9]{0,8}", place):
            raise errors.InvalidRequestError(
                f"{one_line(cursor, 100)!r} is not a cursor of turn events"
            )
        if run_id != self._run.run_id:
            raise errors.StaleCursorError(
                f"the cursor belongs to another run than the one of turn {self._run.workflow_id}"
                " that is watched: the turn was reset or started again since, or the cursor belongs"
                " to another turn; read the events from the beginning",
                context={"turn_id": self._run.workflow_id},
            )
        return int(place)

    async def _follow(self) -> None:
        """Poll until the turn is over or cannot be read."""
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._client.namespace, execution=self._run, wait_new_event=True
        )
        try:
            with _Restarted() as unclaimed:
                while not self._is_over:
                    page = await self._page(request)
                    if page.history.events:
                        await self._take(page.history.events)
                        unclaimed.start(self._say_when_unclaimed(page.history.events[-1]))
                    if not page.next_page_token and (self._is_over or not await self._goes_on()):
                        break
                    request.next_page_token = page.next_page_token
            if not self._is_over:
                self._error = errors.TurnNotFoundError(
                    f"the history of {self._run.workflow_id} ends without an end of the turn"
                )
        except PerdureError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - watchers must learn of any error that ends the feed
            self._error = PerdureError(
                f"reading the history of {self._run.workflow_id}: {described(error)}"
            )
        finally:
            self._tell()

    @property
    def _is_over(self) -> bool:
        return bool(self._events) and isinstance(self._events[-1].fact, TurnEnded)

    async def _goes_on(self) -> bool:
        """Whether more events may come after a long poll has ended.

        A long poll ends at once for a workflow that an operator paused.
        """
        is_told = False
        while (
            found := (await self._patiently(self._describe)).workflow_execution_info
        ).status == _PAUSED:
            if not is_told:
                logger.warning(
                    "turn %s is paused in Temporal; `temporal workflow unpause` lets it go on",
                    self._run.workflow_id,
                )
            is_told = True
            await asyncio.sleep(_LONGEST_PAUSE_S)
        # a server may end each long poll at once, so do not poll without a pause
        await asyncio.sleep(_FIRST_PAUSE_S)
        return (
            found.status == WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING
            or found.history_length > self._last_id
        )

    async def _page(
        self, request: GetWorkflowExecutionHistoryRequest
    ) -> GetWorkflowExecutionHistoryResponse:
        """Return the next page, after an outage of any length.

        A server may refuse a page token of its own: it compares the token with the state of the
        workflow, and that state may be older than the token. Then history is read from its
        beginning without the token, and `_take` skips known events.
        """
        service = self._client.workflow_service
        try:
            return await self._patiently(
                lambda: service.get_workflow_execution_history(request, timeout=_POLL)
            )
        except errors.InvalidRequestError:
            if not request.next_page_token:
                raise
        request.next_page_token = b""
        await asyncio.sleep(_FIRST_PAUSE_S)
        return await self._patiently(
            lambda: service.get_workflow_execution_history(request, timeout=_POLL)
        )

    async def _patiently(self, ask: Callable[[], Awaitable[V]]) -> V:
        """Return the server's answer, after an outage of any length.

        Raises:
            PerdureError: The turn cannot be read.
        """
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return await ask()
            except RPCError as error:
                if error.status in _FATAL:
                    raise unreadable(self._run.workflow_id, error) from error
                if pause < _LONGEST_PAUSE_S <= pause * 2:
                    logger.warning(
                        "the Temporal server does not answer (%s); turn %s is followed on",
                        error.status.name,
                        self._run.workflow_id,
                    )
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def _take(self, events: Iterable[HistoryEvent]) -> None:
        """Store the new events.

        An event counts as known only when it is stored, because a cancel may come in between.
        """
        for event in events:
            if event.event_id <= self._last_id:
                continue
            fact = await self._reader.fact(event)
            if fact is not None:
                self._events.append(self._event(event, fact))
            self._last_id = event.event_id
        self._tell()

    def _event(self, event: HistoryEvent, fact: Fact) -> Event:
        return Event(
            self._cursor(event.event_id),
            _time(event),
            fact,
            self._run.workflow_id,
            **self._context.of(fact),
        )

    def _tell(self) -> None:
        """Wake all watchers; each waits on the `asyncio.Event` that was current when it looked."""
        self._news.set()
        self._news = asyncio.Event()

    async def _say_when_unclaimed(self, last: HistoryEvent) -> None:
        """Warn when no worker takes the pending work.

        Only a queue that no worker polls certainly needs one.
        """
        waiting = _waiting_in(last)
        if waiting is None:
            return
        await asyncio.sleep(_UNCLAIMED_S)
        name, kind = waiting
        request = DescribeTaskQueueRequest(
            namespace=self._client.namespace, task_queue=TaskQueue(name=name), task_queue_type=kind
        )
        service = self._client.workflow_service
        try:
            is_left = _is_left(await self._describe(), kind)
            pollers = (await service.describe_task_queue(request, timeout=_SHORT)).pollers
        except RPCError:
            return
        if is_left:
            logger.warning(
                "nothing has happened in turn %s for %d s: the task queue %r has work and %s",
                self._run.workflow_id,
                _UNCLAIMED_S,
                name,
                _heard_of([poller.last_access_time.ToDatetime(tzinfo=UTC) for poller in pollers]),
            )

    async def _describe(self) -> DescribeWorkflowExecutionResponse:
        return await describe(self._client, self._run.workflow_id, self._run.run_id, timeout=_SHORT)

    def _cursor(self, event_id: int) -> str:
        return base64.urlsafe_b64encode(f"{self._run.run_id}:{event_id}".encode()).decode()


async def describe(
    client: Client, turn_id: str, run_id: str = "", **options: Any
) -> DescribeWorkflowExecutionResponse:
    """Describe a workflow; without a run id, the latest run of the id.

    The client's own `describe()` raises `ValueError` for a workflow that an operator paused: that
    status is newer than the client (1.35).
    """
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=turn_id, run_id=run_id)
    )
    return await client.workflow_service.describe_workflow_execution(request, **options)


async def latest_run(client: Client, turn_id: str) -> str:
    """Return Temporal's id of the latest run of a turn.

    Raises:
        TurnNotFoundError: Temporal does not have the turn, no longer has it, or has another
            workflow with this id.
        PerdureError: Temporal cannot be asked, as in `unreadable`.
    """
    try:
        found = (await describe(client, turn_id, retry=True)).workflow_execution_info
    except RPCError as error:
        raise unreadable(turn_id, error) from error
    if found.type.name != TURN:
        raise errors.TurnNotFoundError(
            f"{turn_id!r} is a workflow of type {found.type.name}, not a turn",
            context={"turn_id": turn_id},
        )
    return found.execution.run_id


async def state_of(client: Client, turn_id: str, run_id: str) -> TurnState:
    """Return the state of a run, from its history so far.

    Raises:
        PerdureError: The history cannot be read.
    """
    state = TurnState()
    async for event in past(client, turn_id, run_id):
        state = apply(state, event.fact)
    return state


async def failed_unknown(client: Client, turn_id: str) -> bool:
    """Whether the latest turn of this id failed because no worker knew its agent.

    Such a turn has made no model call and no tool call.

    Raises:
        PerdureError: The history cannot be read.
    """
    found = (await describe(client, turn_id, retry=True)).workflow_execution_info
    if (
        found.type.name != TURN
        or found.status != WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_FAILED
    ):
        return False
    async with contextlib.aclosing(past(client, turn_id, found.execution.run_id)) as events:
        async for event in events:
            match event.fact:
                case AgentResolved():
                    return False
                case TurnEnded(
                    summary=Summary(error=ErrorInfo(code=errors.UnknownAgentError.code))
                ):
                    return True
    return False


async def past(client: Client, turn_id: str, run_id: str) -> AsyncGenerator[Event, None]:
    """Yield the events that a run has recorded so far. They have no cursor.

    Raises:
        PerdureError: The history cannot be read.
    """
    try:
        async for event, fact in recorded(client, turn_id, run_id):
            if fact is not None:
                yield Event("", _time(event), fact, turn_id)
    except RPCError as error:
        raise unreadable(turn_id, error) from error


def _waiting_in(last: HistoryEvent) -> tuple[str, TaskQueueType.ValueType] | None:
    """Return the queue, with its kind, into which the last event put work."""
    if last.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED:
        queue = last.workflow_task_scheduled_event_attributes.task_queue
        return queue.normal_name or queue.name, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    if last.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        return (
            last.activity_task_scheduled_event_attributes.task_queue.name,
            TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
    return None


def _is_left(found: DescribeWorkflowExecutionResponse, kind: TaskQueueType.ValueType) -> bool:
    """Whether no worker has taken the pending work.

    History has the start of an activity only after its end. A workflow that an operator paused, or
    that is over, has no pending work.
    """
    if (
        found.workflow_execution_info.status
        != WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING
    ):
        return False
    if kind == TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW:
        return (
            found.pending_workflow_task.state
            == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
        )
    scheduled = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    return any(pending.state == scheduled for pending in found.pending_activities)


def _heard_of(polls: Sequence[datetime]) -> str:
    """Describe the workers of a queue by their last polls.

    A busy worker does not poll, so it cannot be distinguished from one that has stopped.
    """
    if not polls:
        return "no worker polls it; start a worker with `perdure worker module:name`"
    ago = max((datetime.now(UTC) - max(polls)).total_seconds(), 0)
    return (
        f"no worker has taken it; one asked for work {ago:.0f} s ago, so its workers are busy, or"
        " have stopped since"
    )


def _time(event: HistoryEvent) -> datetime:
    return event.event_time.ToDatetime(tzinfo=UTC)


def unreadable(turn_id: str, error: RPCError) -> PerdureError:
    """Translate Temporal's error about a turn."""
    name = one_line(turn_id, limits.TURN_ID_CHARACTERS)
    if error.status == RPCStatusCode.NOT_FOUND and "namespace" in error.message.lower():
        return errors.ConfigurationError(
            f"Temporal's error: {error.message.rstrip('.')}; `perdure setup --namespace NAME"
            " --create-namespace` creates one"
        )
    if error.status == RPCStatusCode.NOT_FOUND:
        return errors.TurnNotFoundError(
            f"there is no turn {name!r}, or its retention is over", context={"turn_id": name}
        )
    if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED):
        return errors.ConfigurationError(
            f"Temporal does not let this client ask about turn {name!r}: {error.message}"
        )
    if error.status == RPCStatusCode.INVALID_ARGUMENT:
        return errors.InvalidRequestError(
            f"turn {name!r}: {error.message}", context={"turn_id": name}
        )
    return errors.ServerUnreachableError(
        f"Temporal cannot be asked about turn {name!r}: {error.message}", context={"turn_id": name}
    )
