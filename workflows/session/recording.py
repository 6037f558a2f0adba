"""The messages of a session's turn, which an activity reads for the history of the session."""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from perdure import limits
from perdure.session.facts import TurnRecorded
from perdure.session.wire import RecordCall
from perdure.temporal.histories import session_history
from perdure.temporal.histories.session_history import record_key
from perdure.temporal.names import RECORD_TURN
from perdure.temporal.payloads import pack
from perdure.workflows import heartbeats
from perdure.workflows.session.notes import Notes
from perdure.workflows.session.patches import CANCELLED_RECORDING


async def record(notes: Notes, number: int, run_id: str) -> None:
    """Record the messages of a turn that is over, part by part.

    Raises:
        CancelledError: The session was cancelled meanwhile.
    """
    assert notes.state.running is not None
    turn_id, part = notes.state.running.turn_id, 1
    while notes.state.running is not None:
        call = RecordCall(turn_id=turn_id, run_id=run_id, part=part)
        try:
            fact = await _recorded(number, call)
        except ActivityError as error:
            # a cancel of the session arrives as one of the activity, and would be lost here
            if is_cancelled_exception(error) and workflow.patched(CANCELLED_RECORDING):
                raise asyncio.CancelledError from error
            fact = TurnRecorded(number, None)
        notes.note_result(fact)
        part += 1


async def _recorded(number: int, call: RecordCall) -> TurnRecorded:
    """Return one part of the messages of a turn.

    An activity of a server or worker that is away is tried again for as long as it takes.

    Raises:
        ActivityError: The turn cannot be read, or the session was cancelled.
    """
    result: RawValue = await workflow.execute_activity(
        RECORD_TURN,
        pack(call),
        result_type=RawValue,
        activity_id=record_key(number, call.part),
        start_to_close_timeout=limits.CARRY_CALL,
        heartbeat_timeout=heartbeats.timeout(),
        retry_policy=RetryPolicy(maximum_interval=limits.BENCH),
        summary=f"the messages of turn {number}",
    )
    return session_history.recorded_turn(number, result)
