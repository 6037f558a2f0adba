"""Registers a turn that waits for an event by key at the workflow that keeps such events."""

from __future__ import annotations

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.keyed_events.wire import Registration
from perdure.temporal import keyed_events
from perdure.temporal.names import AWAIT_EVENT
from perdure.temporal.payloads import pack
from perdure.turn.wire import Noted

_FORBIDDEN = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED)


async def register_waiter(registration: Registration) -> Noted:
    """Register a turn. The server takes it without a worker.

    Raises:
        ConfigurationError: The server does not let this worker do so.
        ApplicationError: The server does not answer; this is tried again.
    """
    start = keyed_events.start_of(registration.name, registration.key, activity.info().task_queue)
    client = activity.client()
    try:
        await client.start_workflow(
            **start, start_signal=AWAIT_EVENT, start_signal_args=[pack(registration.waiter)]
        )
    except RPCError as error:
        if error.status in _FORBIDDEN:
            raise errors.ConfigurationError(
                f"Temporal does not let this worker signal workflows: {error.message}"
            ) from error
        raise ApplicationError(error.message, type="UNAVAILABLE") from error  # is retried
    return Noted()
