"""Updates: what a caller tells a turn, and what it answers. They need a worker that runs the turn, so they have a deadline."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.activities import failures
from perdure.clients.feed import unreadable

WAIT = timedelta(seconds=30)

_ENDED_MEANWHILE = "AcceptedUpdateCompletedWorkflow"
"""The server's type for an update that its workflow did not answer before it ended."""


async def ask(handle: WorkflowHandle[Any, Any], update: str, given: RawValue, *, id: str | None = None) -> RawValue:  # noqa: A002 - Temporal's word
    """Send an update and wait for its answer.

    Raises:
        PerdureError: What the turn says about it.
        InvalidRequestError: The turn is over.
        ServerUnreachableError: Nobody took it in.
        TurnNotFoundError: Temporal does not have the turn.
    """
    try:
        async with asyncio.timeout(WAIT.total_seconds()):
            answer: RawValue = await handle.execute_update(update, given, id=id, result_type=RawValue)
    except WorkflowUpdateFailedError as error:
        if isinstance(error.cause, ApplicationError) and error.cause.type == _ENDED_MEANWHILE:
            raise errors.InvalidRequestError(f"turn {handle.id!r} ended before it could take in {update!r}") from None
        raise errors.from_info(failures.error_in(error.cause)) from None
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
        raise errors.ServerUnreachableError(
            f"no worker took in {update!r} for turn {handle.id!r} within {WAIT.total_seconds():g} s; is one running?"
        ) from error
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND and "completed" in error.message:
            raise errors.InvalidRequestError(f"turn {handle.id!r} is over; {update!r} comes too late") from None
        raise unreadable(handle.id, error) from error
    return answer
