"""Reads the history of a turn whose parent has not recorded its end.

It is a delegate that was terminated or did not end in time, or a turn of a batch that a part has
begun before it was reset.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.temporal.histories.read_turn import read_turn
from perdure.temporal.histories.runs import awaited_run, describe_last
from perdure.temporal.names import TURN
from perdure.turn.wire import ChildRun, ParentRead, TurnRead


async def read_ended(run: ChildRun) -> TurnRead | ParentRead:
    """Return the summary of a turn from its history, as an activity that is tried again.

    Raises:
        TurnNotFoundError: The history is gone, or the turn has another parent than `run` says.
        ApplicationError: The server does not answer, or the turn with that parent is not over; this
            is tried again.
    """
    try:
        if run.parent:
            is_over = await _is_over(run)
            if run.only_parent:
                return ParentRead(has_parent=True)
            if not is_over:
                raise _not_over()
        awaited = await awaited_run(activity.client(), run.turn_id, run.run_id)
        return await read_child(run.model_copy(update={"run_id": awaited}))
    except RPCError as error:
        raise unread(run.turn_id, error) from error


async def _is_over(run: ChildRun) -> bool:
    """Return whether a turn is over.

    Raises:
        TurnNotFoundError: It has another parent than `run` says.
    """
    described = await describe_last(activity.client(), run.turn_id, run.run_id, retry=True)
    info = described.workflow_execution_info
    if info.type.name != TURN or info.parent_execution.workflow_id != run.parent:
        raise errors.TurnNotFoundError(
            f"{run.turn_id!r} is not a turn of {run.parent!r}", context={"turn_id": run.turn_id}
        )
    return info.HasField("close_time")


def _not_over() -> ApplicationError:
    return ApplicationError(
        "the turn is not over", type="UNAVAILABLE", category=ApplicationErrorCategory.BENIGN
    )


async def read_child(run: ChildRun) -> TurnRead:
    """Return the summary of a turn from its history.

    Raises:
        RPCError: The server does not have the history, or does not answer.
    """
    return await read_turn(activity.client(), run, is_worker=True)


def unread(turn_id: str, error: RPCError) -> Exception:
    """Return what an activity raises that cannot read the history of a turn.

    Returns:
        A `TurnNotFoundError` if the history is gone or its run cannot be, or else an error that is
        tried again.
    """
    if error.status is RPCStatusCode.INVALID_ARGUMENT:
        return errors.TurnNotFoundError(
            f"turn {turn_id!r} has no such run: {error.message}", context={"turn_id": turn_id}
        )
    if error.status is not RPCStatusCode.NOT_FOUND:
        return ApplicationError(error.message, type="UNAVAILABLE")
    return errors.TurnNotFoundError(
        f"the history of turn {turn_id!r} is gone: it was deleted", context={"turn_id": turn_id}
    )
