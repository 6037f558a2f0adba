"""Reads the history of a delegate's turn that was terminated or did not end in time."""

from __future__ import annotations

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.temporal.read_turn import read_turn
from perdure.turn.wire import ChildRun, TurnRead


async def read_ended(run: ChildRun) -> TurnRead:
    """Return the summary of a turn from its history, as an activity that is tried again.

    Raises:
        TurnNotFoundError: The history is gone.
        ApplicationError: The server does not answer; this is tried again.
    """
    try:
        return await read_child(run)
    except RPCError as error:
        raise unread(run.turn_id, error) from error


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
