"""The end of a session's turn, as readers see it before the session has recorded it.

A caller knows the end of a turn as soon as Temporal does. The session is told of it a moment later,
and its worker then records the messages. A reader in between, or without a worker, reads the
history of the turn itself, with the function that records it.
"""

from __future__ import annotations

from dataclasses import replace

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.session.facts import TurnRecorded
from perdure.session.state import SessionState, fold
from perdure.temporal.histories.runs import describe_last
from perdure.temporal.histories.turn_records import parts_of


async def with_end(client: Client, session_id: str, state: SessionState) -> SessionState:
    """Return the state with the end of the turn that was the last to begin, if it is over.

    Without its history, which may have been deleted, the state stays as it is.

    Raises:
        RPCError: Temporal does not answer.
        PayloadDecodeError: This process lacks the codec or the key of the turn.
    """
    if state.running is None:
        return state
    turn_id, number = state.running.turn_id, state.running.number
    try:
        run_id = await _over(client, session_id, turn_id)
        parts = await parts_of(client, turn_id, run_id) if run_id else ()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return state
    if not parts:
        return state
    return fold((TurnRecorded(number, part) for part in parts), replace(state, parts=()))


async def _over(client: Client, session_id: str, turn_id: str) -> str:
    """Return the last run of a turn that is over; empty while it runs.

    It is empty as well if a turn that is not of the session has the id.
    """
    info = (await describe_last(client, turn_id, "", retry=True)).workflow_execution_info
    is_over = info.HasField("close_time") and info.parent_execution.workflow_id == session_id
    return info.execution.run_id if is_over else ""
