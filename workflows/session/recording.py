"""The messages of a session's turn, which an activity reads for the history of the session."""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy

from perdure import limits
from perdure.session.facts import TurnRecorded
from perdure.session.wire import RecordCall
from perdure.temporal.histories import session_history
from perdure.temporal.histories.session_history import record_key
from perdure.temporal.names import RECORD_TURN
from perdure.temporal.payloads import pack
from perdure.workflows import heartbeats


async def recorded(number: int, call: RecordCall) -> TurnRecorded:
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
