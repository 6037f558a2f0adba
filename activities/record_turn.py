"""Records the messages of a session's turn that is over, part by part."""

from __future__ import annotations

from temporalio import activity
from temporalio.service import RPCError

from perdure import errors
from perdure.activities.read_child import unread
from perdure.session.wire import RecordCall, TurnPart
from perdure.temporal.histories.turn_records import parts_of
from perdure.temporal.recent import Recent

_TURNS = 4


class TurnRecorder:
    """Reads each turn once for all of its parts, as long as this process runs the activities."""

    def __init__(self) -> None:
        self._recent = Recent[str, tuple[TurnPart, ...]](_TURNS)

    async def record_turn(self, call: RecordCall) -> TurnPart:
        """Return a part of the messages of a turn.

        Raises:
            TurnNotFoundError: The history of the turn is gone.
            InvalidRequestError: There is no such part.
        """
        parts = self._recent.get(call.run_id)
        if parts is None:
            parts = await _read(call)
            self._recent.put(call.run_id, parts)
        if call.part > len(parts):
            raise errors.InvalidRequestError(f"there are {len(parts)} parts, and no {call.part}")
        if call.part == len(parts):
            self._recent.drop(call.run_id)  # a session takes each part once, in order
        return parts[call.part - 1]


async def _read(call: RecordCall) -> tuple[TurnPart, ...]:
    try:
        return await parts_of(activity.client(), call.turn_id, call.run_id, is_worker=True)
    except RPCError as error:
        raise unread(call.turn_id, error) from error
