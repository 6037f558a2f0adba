"""Follows the history of a workflow that grows, in all of its runs, and reads its events as facts.

The readers of turns, sessions and parts of batches differ only in the facts that they make of an
event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
)
from temporalio.client import Client

from perdure import errors
from perdure.temporal.access import FIRST_PAUSE_S, LONGEST_PAUSE_S, Resource
from perdure.temporal.histories.runs import describe, run_after

logger = logging.getLogger("perdure")

F = TypeVar("F")

Reader = Callable[[HistoryEvent], Awaitable[Sequence[F]]]
"""Makes facts of the events of one run, in order."""

_POLL = timedelta(seconds=70)
_SHORT = timedelta(seconds=3)
_PAUSED = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_PAUSED
_RUNNING = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING
_ENDS = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
    }
)


@dataclass(frozen=True, slots=True)
class Read(Generic[F]):
    """An event that was read.

    Attributes:
        run: The number of its run, from 0.
        event: The event.
        facts: Its facts.
        is_last: Whether it is the last event that the server has sent so far.
    """

    run: int
    event: HistoryEvent
    facts: Sequence[F]
    is_last: bool


class Follower(Generic[F]):
    """Follows a workflow. If it is stopped, it continues after the last event that it yielded.

    Attributes:
        runs: Temporal's ids of the runs, in order, as far as they are known.
        run: The number of the run that is read, from 0.
        event_id: Temporal's number of the last event of that run that was read; 0 before the first.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        id: str,
        runs: Sequence[str],
        reader: Callable[[], Reader[F]],
        *,
        about: str = "",
        waits: bool = True,
    ) -> None:
        """Follow a workflow.

        Args:
            client: Temporal's client.
            resource: What the workflow is, or is a part of.
            id: The id of the workflow.
            runs: Temporal's ids of the known runs, in order; empty text for the latest.
            reader: Returns the reader of a run.
            about: The id for errors, if it is not the id of the workflow.
            waits: Whether to wait for future events.
        """
        self.runs = list(runs)
        self.run = 0
        self.event_id = 0
        self._client = client
        self._resource = resource
        self._id = id
        self._reader = reader
        self._read = reader()
        self._about = about or id
        self._waits = waits
        self._is_over = False

    async def events(self) -> AsyncGenerator[Read[F], None]:
        """Yield the events that were not yielded before, until the workflow is over.

        It continues after an outage of the server of any length.

        Raises:
            PerdureError: The history cannot be read.
        """
        request = self._request()
        while not self._is_over:
            page, run = await self._page(request), self.run
            new = [event for event in page.history.events if event.event_id > self.event_id]
            for event in new:
                facts = await self._read(event)
                read = Read(run, event, facts, is_last=event is new[-1])
                self._pass(event)  # the caller may stop at the next event
                yield read
            if self.run != run:
                request = self._request()
                continue
            has_more = bool(page.next_page_token) or (self._waits and await self._goes_on())
            if not has_more:
                return
            request.next_page_token = page.next_page_token

    def _pass(self, event: HistoryEvent) -> None:
        """Note that an event was read, and after the last of a run begin with the next run.

        A reset may have made a next run other than the run that the event names.
        """
        self.event_id = event.event_id
        self._is_over = event.event_type in _ENDS
        if run := run_after(event):
            if self.run + 1 == len(self.runs):
                self.runs.append(run)
            self.run += 1
            self.event_id = 0
            self._read = self._reader()

    def _request(self) -> GetWorkflowExecutionHistoryRequest:
        return GetWorkflowExecutionHistoryRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecution(workflow_id=self._id, run_id=self.runs[self.run]),
            wait_new_event=self._waits,
        )

    async def _page(
        self, request: GetWorkflowExecutionHistoryRequest
    ) -> GetWorkflowExecutionHistoryResponse:
        """Return the next page.

        A server may refuse a page token of its own: it compares the token with the state of the
        workflow, and that state may be older than the token, or the workflow was reset. Then
        history is read from its beginning without the token, and the known events are skipped.
        """
        service = self._client.workflow_service

        async def ask() -> GetWorkflowExecutionHistoryResponse:
            return await service.get_workflow_execution_history(request, timeout=_POLL)

        try:
            return await self._resource.patiently(self._about, ask)
        except errors.InvalidRequestError:
            if not request.next_page_token:
                raise
        request.next_page_token = b""
        await asyncio.sleep(FIRST_PAUSE_S)
        return await self._resource.patiently(self._about, ask)

    async def _goes_on(self) -> bool:
        """Whether more events may come after a long poll has ended.

        A long poll ends at once for a workflow that an operator paused.
        """
        if self._is_over:
            return False
        is_told = False
        while (current := await self._status())[0] == _PAUSED:
            if not is_told:
                logger.warning(
                    "%s %s is paused in Temporal; `temporal workflow unpause` lets it go on",
                    self._resource.noun,
                    self._about,
                )
            is_told = True
            await asyncio.sleep(LONGEST_PAUSE_S)
        # a server may end each long poll at once, so do not poll without a pause
        await asyncio.sleep(FIRST_PAUSE_S)
        status, length = current
        return status == _RUNNING or length > self.event_id

    async def _status(self) -> tuple[WorkflowExecutionStatus.ValueType, int]:
        """Return the status of the run that is read, and the length of its history."""
        run = self.runs[self.run]
        description = await self._resource.patiently(
            self._about, lambda: describe(self._client, self._id, run, timeout=_SHORT)
        )
        info = description.workflow_execution_info
        return info.status, info.history_length
