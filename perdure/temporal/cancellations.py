"""The names of the people and programs that cancel a workflow.

Temporal's request has a reason, and the identity of the client. History keeps both, so the name is
in the identity. A worker sees the reason alone.
"""

from __future__ import annotations

from temporalio.api.history.v1 import HistoryEvent

_BY = "by:"
"""How the identity with a name begins. The SDK's own is `<process>@<host>`."""


def identity_of(by: str) -> str:
    """Return the identity of a request of this person or program."""
    return f"{_BY}{by}"


def requested(event: HistoryEvent) -> tuple[str, str | None]:
    """Return the reason and the name of the event that records a request."""
    asked = event.workflow_execution_cancel_requested_event_attributes
    by = asked.identity.removeprefix(_BY) if asked.identity.startswith(_BY) else None
    return asked.cause, by
