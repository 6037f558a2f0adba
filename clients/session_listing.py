"""The sessions of a namespace, from Temporal's list."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.client import Client
from temporalio.converter import decode_typed_search_attributes

from perdure.base import Value
from perdure.clients import listing
from perdure.clients.filters import Filter
from perdure.temporal import search_attributes
from perdure.temporal.namespace_check import Index

_RUNNING = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING


class SessionEntry(Value):
    """A session in a list.

    Attributes:
        id: The session's id; `client.session(entry.id)` goes on with it.
        agent: The name of the agent that it was begun with; empty if the namespace lacks Perdure's
            search attributes.
        labels: The labels that it can be found by.
        is_open: Whether it takes messages.
        started_at: The time at which its current run began.
        ended_at: The time at which it was closed; None before.
    """

    id: str
    agent: str
    labels: dict[str, str] = {}
    is_open: bool
    started_at: datetime
    ended_at: datetime | None = None


async def sessions(
    client: Client, index: Index, wanted: Filter, limit: int | None
) -> AsyncIterator[SessionEntry]:
    """Yield the sessions that match a filter by agent and labels, open ones first.

    Raises:
        PerdureError: As `perdure.clients.listing.turns` does.
    """
    shown = 0
    async for info in listing.workflows(client, index, wanted, limit):
        attributes = decode_typed_search_attributes(info.search_attributes)
        agent = search_attributes.value_of(attributes.get(search_attributes.AGENT, ""))
        labels = search_attributes.labels_of(attributes.get(search_attributes.LABELS, ()))
        if wanted.agent not in (None, agent) or not wanted.labels.items() <= labels.items():
            continue  # a store may find other cases of letters
        is_open = info.status == _RUNNING
        yield SessionEntry(
            id=info.execution.workflow_id,
            agent=agent,
            labels=labels,
            is_open=is_open,
            started_at=info.start_time.ToDatetime(tzinfo=UTC),
            ended_at=None if is_open else info.close_time.ToDatetime(tzinfo=UTC),
        )
        shown += 1
        if shown == limit:
            return
