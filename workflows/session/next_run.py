"""When a session goes on in a new run of its workflow, and with which input."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from temporalio import workflow
from temporalio.common import RawValue

from perdure import errors, limits
from perdure.session.state import SessionState
from perdure.session.wire import Answered, Receipt
from perdure.temporal.payloads import pack
from perdure.turn.history_limits import run_events


def is_due(turns_of_run: int) -> bool:
    """Return whether the current run is long enough."""
    info = workflow.info()
    return (
        turns_of_run >= limits.SESSION_RUN_TURNS
        or info.get_current_history_length()
        >= min(limits.SESSION_RUN_EVENTS, run_events(info.task_timeout))
        or info.get_current_history_size() >= limits.RUN_BYTES
        or info.is_continue_as_new_suggested()
    )


def input_of(
    state: SessionState, receipts: Mapping[str, Receipt], idle_since: datetime | None
) -> RawValue | None:
    """Return the input of the next run. No turn may be running.

    `idle_since` is the time since which the session has waited for a message, None if it does not.
    None if it is too large, because of images and files in the queue: a turn reads them first.
    """
    last = list(receipts.items())[-limits.SESSION_RECEIPTS :]
    answered = tuple(Answered(id=message_id, receipt=receipt) for message_id, receipt in last)
    try:
        snapshot = state.snapshot(answered).model_copy(update={"idle_since": idle_since})
        return pack(snapshot, "the next run's input")
    except errors.TooLargeError:
        return None
