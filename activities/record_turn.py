"""Reads the messages of a session's turn that is over, for the session to record."""

from __future__ import annotations

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from perdure import errors, limits
from perdure.activities.read_child import read_child, unread
from perdure.session.wire import RecordCall, TurnEnd, TurnPart
from perdure.temporal.history import recorded
from perdure.temporal.recent import Recent
from perdure.temporal.runs import describe_last, runs_up_to
from perdure.turn import carry, reservations, withheld
from perdure.turn.carry import Carried
from perdure.turn.fold import apply
from perdure.turn.state import TurnState
from perdure.turn.wire import ChildRun
from perdure.values.messages import Message, UserMessage, closed
from perdure.values.tasks import opening

_TURNS = 4


class TurnRecorder:
    """Reads each turn once for all of its parts, as long as this process runs the activities."""

    def __init__(self) -> None:
        self._recent = Recent[str, tuple[TurnPart, ...]](_TURNS)

    async def record_turn(self, call: RecordCall) -> TurnPart:
        """Return one part of the messages of a turn.

        Raises:
            TurnNotFoundError: The history of the turn is gone.
            InvalidRequestError: There is no such part.
        """
        parts = self._recent.get(call.run_id)
        if parts is None:
            parts = await _read(activity.client(), call)
            self._recent.put(call.run_id, parts)
        if call.part > len(parts):
            raise errors.InvalidRequestError(f"there are {len(parts)} parts, and no {call.part}")
        if call.part == len(parts):
            self._recent.drop(call.run_id)  # a session takes each part once, in order
        return parts[call.part - 1]


async def _read(client: Client, call: RecordCall) -> tuple[TurnPart, ...]:
    try:
        state = await _state(client, call)
        told = (await read_child(ChildRun(turn_id=call.turn_id, run_id=call.run_id))).summary
    except RPCError as error:
        raise unread(call.turn_id, error) from error
    end = TurnEnd(
        outcome=told.outcome,
        spent=told.spent,
        is_priced=told.is_priced,
        unread=tuple(message.id for message in state.unread if message.id is not None),
        agent=told.last_agent or told.agent,
    )
    parts = carry.split(Carried(own_messages(state), 0), limits.PART_BYTES // 2)
    return tuple(
        TurnPart(
            number=part.number,
            count=part.count,
            messages=part.messages,
            end=end if part.number == part.count else None,
        )
        for part in parts
    )


async def _state(client: Client, call: RecordCall) -> TurnState:
    """Return the state of a turn, from all of its runs that Temporal still has."""
    found = await describe_last(client, call.turn_id, call.run_id, retry=True)
    state = TurnState()
    for run in await runs_up_to(client, found):
        async for _, fact in recorded(client, call.turn_id, run, is_worker=True):
            state = state if fact is None else apply(state, fact)
    return state


def own_messages(state: TurnState) -> tuple[Message, ...]:
    """Return the messages of a turn that is over, without those that it began with.

    Answers that the checks of the agent have not let pass are withheld.
    Messages that no answer follows are left out: the session gives them to the next turn. Every
    call has a result. A turn that ended while it took over the messages before it has its task.
    """
    state = withheld.told(state)
    request = state.request
    origin = request.origin if request else None
    taken_over = origin.steps - state.transcript.absent if origin else 0
    messages = list(state.all_messages[taken_over:])
    if request is not None and not messages:
        messages = [opening(request.task, request.context)]
    while messages and _is_left_out(messages[-1]):
        messages.pop()
    return closed(messages)


def _is_left_out(message: Message) -> bool:
    if not isinstance(message, UserMessage):
        return False
    return message.id is not None or message == reservations.LAST_WORDS
