"""Updates: requests of callers to a running turn.

They need a worker that runs the turn, so they have a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Coroutine, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

from pydantic import BaseModel
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors, limits
from perdure.temporal import failures
from perdure.temporal.access import Resource
from perdure.temporal.acts import sources
from perdure.temporal.histories.runs import last_run
from perdure.temporal.names import MEMO
from perdure.temporal.payloads import pack
from perdure.temporal.unretried import unretried
from perdure.values.content import MEDIA_ELSEWHERE

WAIT = timedelta(seconds=30)

PAUSE_S, _LONGEST_PAUSE_S, _TRY_S = 0.2, 1.0, 2.0
_REFUSED = (
    RPCStatusCode.ABORTED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.UNKNOWN,
)
"""The server's answers to an update that it did not take, or that got lost.

The run ends and goes on in a new one, ten updates are already in flight, or the server is away. The
same update may be sent again, because its id counts once. So may one that the run refuses for that
reason itself (`failures.RUN_ENDS`).
"""
_TASK_FAILED = "Workflow Task in failed state"
"""What the server says while it waits before it hands out a workflow task that has failed a few
times, as on a machine that is too busy for it."""
_TOO_MANY = "in-flight updates"
"""What the server says if a workflow has as many updates as it takes at the same time."""
_AT_ONCE = 5
"""The number of updates that this process sends to one workflow at the same time.

The server takes ten by default. One more does not only fail: it also aborts those in flight.
"""
_places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

_ENDED_MEANWHILE = "AcceptedUpdateCompletedWorkflow"
"""The server's type for an update that its workflow did not answer before it ended."""
_IS_OVER = ("completed", "closing workflow")
"""The server's messages for an update that comes after the end, or at the same time."""


def packed_message(client: Client, message: BaseModel) -> RawValue:
    """Return a message to a turn or a session as the input of an update.

    It may be larger if payloads are stored out of history.

    Raises:
        TooLargeError: It is too large.
        InvalidRequestError: It cannot be written as JSON.
    """
    if client.data_converter.external_storage is not None:
        return pack(message, "the message", most_bytes=limits.STORED_BYTES)
    try:
        return pack(message, "the message")
    except errors.TooLargeError as error:
        raise errors.TooLargeError(
            f"{error.message}; {MEDIA_ELSEWHERE}", context=error.context
        ) from None


async def ask(
    client: Client,
    resource: Resource,
    runs: Sequence[str],
    id: str,
    update: str,
    payload: RawValue,
    update_id: str | None = None,
) -> RawValue:
    """Send an update to the last run of a turn or a session and wait for its answer.

    If it continues in a new run meanwhile, it gets the update again, with the same id, which counts
    once.

    Args:
        client: Temporal's client.
        resource: Whether it is a turn or a session.
        runs: The known runs, in order; empty text for the latest run.
        id: The id of the turn or of the session.
        update: The name of the update.
        payload: Its input.
        update_id: Its id; a random one without it. One id takes effect once.

    Raises:
        PerdureError: The turn or the session refused the update, or Temporal does not have it.
        TurnOverError: It is over.
        TooManyRequestsError: The server did not take it, as it has too many updates of this id.
        ServerUnreachableError: No worker accepted it.
    """
    caller = asyncio.current_task()
    cancels = caller.cancelling() if caller else 0
    payload = sources.marked(payload)
    update_id, run_id = update_id or str(uuid4()), runs[-1]
    once, is_refused = unretried(client), True
    try:
        async with asyncio.timeout(WAIT.total_seconds()), places(id):
            while True:
                handle = once.get_workflow_handle(id, run_id=run_id)
                try:
                    sending = handle.execute_update(
                        update, payload, id=update_id, result_type=RawValue
                    )
                    return await in_time(answered(sending))
                except Over:
                    last = await last_run(client, id, run_id)
                    if last == run_id:
                        raise await _over(handle, update) from None
                    run_id = last
                except TooMany:
                    is_refused = True
                    await pause_at_random()
                except Busy:
                    is_refused = False
                    await asyncio.sleep(PAUSE_S)
                    run_id = await last_run(client, id, run_id)
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
        if caller is not None and caller.cancelling() > cancels:  # the SDK has one error for both
            raise asyncio.CancelledError from None
        if is_refused:
            raise errors.TooManyRequestsError(
                f"{update!r} for {id!r} was not taken within {WAIT.total_seconds():g} s: too"
                " many updates of it are under way; send fewer at once, and this one again"
            ) from error
        raise errors.ServerUnreachableError(
            f"no worker took in {update!r} for {resource.subject(id)} within"
            f" {WAIT.total_seconds():g} s; is one running?"
        ) from error
    except RPCError as error:
        raise resource.translated(id, error) from error


async def ask_and_start(
    client: Client,
    operation: WithStartWorkflowOperation[Any, Any],
    update: str,
    payload: RawValue,
    subject: str,
    update_id: str | None = None,
) -> RawValue:
    """Start a workflow, unless it runs, with an update to it, and wait for the answer.

    Args:
        client: Temporal's client.
        operation: The workflow.
        update: The name of the update.
        payload: Its input.
        subject: What the workflow is, for errors.
        update_id: The id of the update; a random one without it.

    Raises:
        PerdureError: The workflow refused the update.
        ServerUnreachableError: No worker accepted it.
        WorkflowAlreadyStartedError: The policy of the operation does not allow another run.
        RPCError: Temporal does not answer, or refused it.
    """
    caller = asyncio.current_task()
    cancels = caller.cancelling() if caller else 0
    try:
        async with asyncio.timeout(WAIT.total_seconds()):
            answer: RawValue = await client.execute_update_with_start_workflow(
                update,
                sources.marked(payload),
                start_workflow_operation=operation,
                id=update_id,
                result_type=RawValue,
            )
    except WorkflowUpdateFailedError as error:
        raise errors.from_info(failures.error_in(error.cause)) from None
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
        if caller is not None and caller.cancelling() > cancels:  # the SDK has one for both
            raise asyncio.CancelledError from None
        raise errors.ServerUnreachableError(
            f"no worker took in {subject} within {WAIT.total_seconds():g} s; is one running?"
        ) from None
    return answer


class Over(Exception):  # noqa: N818 - the turn may continue in another run
    """The run is over, so it does not answer the update."""


class Busy(Exception):  # noqa: N818 - the update is sent again
    """The server or the run did not take the update."""


class TooMany(Exception):  # noqa: N818 - the update is sent again
    """The server did not take the update, as too many of the workflow are in flight."""


def places(id: str) -> asyncio.Semaphore:
    """Return the places of the updates that this process sends to a workflow at the same time."""
    return _places.setdefault(id, asyncio.Semaphore(_AT_ONCE))


async def pause_at_random() -> None:
    """Wait before an update is sent again that the server did not take, as too many came."""
    await asyncio.sleep(random.uniform(PAUSE_S, _LONGEST_PAUSE_S))  # noqa: S311 - jitter


async def in_time(sending: Coroutine[Any, Any, RawValue]) -> RawValue:
    """Return the answer to an update, unless it takes so long that it is better sent again.

    For a run that is being closed the server refuses an update, and Temporal's client repeats it
    there for longer than the next run needs to begin.
    """
    task = asyncio.create_task(sending)
    try:
        await asyncio.wait({task}, timeout=_TRY_S)
        if task.done():
            return task.result()
        raise Busy
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            with contextlib.suppress(Exception, asyncio.CancelledError):
                task.result()


async def answered(sending: Awaitable[RawValue]) -> RawValue:
    """Return the answer to an update that is sent.

    Raises:
        PerdureError: The workflow refused it.
        Over: The run is over.
        Busy: The server or the run did not take it.
        TooMany: The server did not take it, as too many are in flight.
        RPCError: Temporal does not answer, or refused it.
    """
    try:
        answer = await sending
    except WorkflowUpdateFailedError as error:
        type_ = error.cause.type if isinstance(error.cause, ApplicationError) else None
        if type_ == _ENDED_MEANWHILE:
            raise Over from None
        if type_ == failures.RUN_ENDS:
            raise Busy from None
        raise errors.from_info(failures.error_in(error.cause)) from None
    except RPCError as error:
        is_over = any(text in error.message for text in _IS_OVER)
        if error.status == RPCStatusCode.NOT_FOUND and is_over:
            raise Over from None
        if error.status is RPCStatusCode.RESOURCE_EXHAUSTED and _TOO_MANY in error.message:
            raise TooMany from None
        if error.status in _REFUSED or _TASK_FAILED in error.message:
            raise Busy from None
        raise
    return answer


async def _over(handle: WorkflowHandle[Any, Any], update: str) -> errors.TurnOverError:
    """Return the error of an update that came too late, with the outcome if Temporal has it."""
    outcome = ""
    with contextlib.suppress(RPCError):
        description = await handle.describe()
        outcome = description.status.name.lower() if description.status else ""
        with contextlib.suppress(Exception):  # this process may lack the codec
            outcome = (await description.memo_value(MEMO, {})).get("outcome", outcome)
    suffix = f" ({outcome})" if outcome else ""
    context = {"turn_id": handle.id, "outcome": outcome}
    return errors.TurnOverError(
        f"turn {handle.id!r} is over{suffix}; {update!r} comes too late: fork the turn, or resume"
        " it if it has no answer",
        context=context,
    )
