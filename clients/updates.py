"""Updates: requests of callers to a running turn.

They need a worker that runs the turn, so they have a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

from temporalio.client import (
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.clients.feed import unreadable
from perdure.temporal import failures
from perdure.temporal.names import MEMO

WAIT = timedelta(seconds=30)

_ENDED_MEANWHILE = "AcceptedUpdateCompletedWorkflow"
"""The server's type for an update that its workflow did not answer before it ended."""
_IS_OVER = ("completed", "closing workflow")
"""The server's messages for an update that comes after the end, or at the same time."""


async def ask(
    handle: WorkflowHandle[Any, Any],
    update: str,
    given: RawValue,
    *,
    id: str | None = None,  # noqa: A002 - Temporal's word
) -> RawValue:
    """Send an update and wait for its answer.

    Raises:
        PerdureError: The turn refused the update.
        InvalidRequestError: The turn is over.
        ServerUnreachableError: No worker accepted it.
        TurnNotFoundError: Temporal does not have the turn.
    """
    caller = asyncio.current_task()
    cancels = caller.cancelling() if caller else 0
    try:
        async with asyncio.timeout(WAIT.total_seconds()):
            answer: RawValue = await handle.execute_update(
                update, given, id=id, result_type=RawValue
            )
    except WorkflowUpdateFailedError as error:
        if isinstance(error.cause, ApplicationError) and error.cause.type == _ENDED_MEANWHILE:
            raise await _over(handle, update) from None
        raise errors.from_info(failures.error_in(error.cause)) from None
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
        if caller is not None and caller.cancelling() > cancels:  # the SDK has one error for both
            raise asyncio.CancelledError from None
        raise errors.ServerUnreachableError(
            f"no worker took in {update!r} for turn {handle.id!r} within {WAIT.total_seconds():g}"
            " s; is one running?"
        ) from error
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND and any(
            words in error.message for words in _IS_OVER
        ):
            raise await _over(handle, update) from None
        raise unreadable(handle.id, error) from error
    return answer


async def _over(handle: WorkflowHandle[Any, Any], update: str) -> errors.InvalidRequestError:
    """Return the error of an update that came too late, with the outcome if Temporal has it."""
    outcome = ""
    with contextlib.suppress(RPCError):
        found = await handle.describe()
        outcome = found.status.name.lower() if found.status else ""
        with contextlib.suppress(Exception):  # this process may lack the codec
            outcome = (await found.memo_value(MEMO, {})).get("outcome", outcome)
    said = f" ({outcome})" if outcome else ""
    context = {"turn_id": handle.id, "outcome": outcome}
    return errors.InvalidRequestError(
        f"turn {handle.id!r} is over{said}; {update!r} comes too late", context=context
    )
