"""The sessions of a namespace, from Temporal's list."""

from __future__ import annotations

from datetime import UTC, datetime

from temporalio.api.enums.v1 import WorkflowExecutionStatus as Status
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client
from temporalio.converter import decode_typed_search_attributes

from perdure import errors
from perdure.base import Value
from perdure.clients.reading.lists import Listing
from perdure.clients.turns.filters import Filter
from perdure.clients.turns.listing import Workflows
from perdure.errors import ErrorInfo
from perdure.temporal import search_attributes
from perdure.temporal.access import SESSION
from perdure.temporal.namespace_check import Index
from perdure.values import states
from perdure.values.states import State

_ENDS = {
    Status.WORKFLOW_EXECUTION_STATUS_FAILED: "the session failed",
    Status.WORKFLOW_EXECUTION_STATUS_CANCELED: "the session was cancelled",
    Status.WORKFLOW_EXECUTION_STATUS_TERMINATED: "the session was terminated",
    Status.WORKFLOW_EXECUTION_STATUS_TIMED_OUT: "the time of the session is up",
}
"""The ends of a session that was not closed."""


class SessionEntry(Value):
    """A session in a list.

    Attributes:
        id: The session's id; `client.session(entry.id)` continues it.
        agent: The name of the agent that it was begun with; empty if the namespace lacks Perdure's
            search attributes.
        labels: The labels that it can be found by.
        state: The state, `open` or `closed`.
        is_open: Whether it is open, and takes messages.
        started_at: The time at which its current run began.
        ended_at: The time at which it was closed; None before.
        error: Why it ended other than by `close` or its idle time: it failed, or was cancelled or
            terminated. None for all other sessions.
    """

    id: str
    agent: str
    labels: dict[str, str] = {}
    state: states.OfListedSession
    is_open: bool
    started_at: datetime
    ended_at: datetime | None = None
    error: ErrorInfo | None = None


def sessions(
    client: Client, index: Index, filters: Filter, limit: int | None
) -> Listing[SessionEntry]:
    """Return the sessions that match a filter by agent and labels, open sessions first.

    Raises:
        PerdureError: As `perdure.clients.turns.listing.turns` does.
    """

    async def read(info: WorkflowExecutionInfo) -> SessionEntry | None:
        entry = _entry_of(info)
        # a store may find other cases of letters
        is_wanted = (
            filters.agent in (None, entry.agent)
            and filters.labels.items() <= entry.labels.items()
            and filters.admits_id(entry.id)
        )
        return entry if is_wanted else None

    return Listing(Workflows(client, index, filters, SESSION), limit, read)


def _entry_of(info: WorkflowExecutionInfo) -> SessionEntry:
    attributes = decode_typed_search_attributes(info.search_attributes)
    is_open = not info.HasField("close_time")  # an operator may have paused it
    return SessionEntry(
        id=info.execution.workflow_id,
        agent=search_attributes.value_of(attributes.get(search_attributes.AGENT, "")),
        labels=search_attributes.labels_of(attributes.get(search_attributes.LABELS, ())),
        state=State.OPEN if is_open else State.CLOSED,
        is_open=is_open,
        started_at=info.start_time.ToDatetime(tzinfo=UTC),
        ended_at=None if is_open else info.close_time.ToDatetime(tzinfo=UTC),
        error=_error(info),
    )


def _error(info: WorkflowExecutionInfo) -> ErrorInfo | None:
    words = _ENDS.get(info.status)
    return None if words is None else errors.SessionClosedError(words).info()
