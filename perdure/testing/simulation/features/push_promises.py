"""What Perdure promises about push notifications, as a check of a simulated run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

from temporalio.common import RawValue

from perdure.delivery.push import ASKS, PushCall, PushMessage, end_of_task
from perdure.temporal.names import MEMO_WEBHOOK, PUSH
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.observations import Simulated
from perdure.testing.simulation.reading import memo_of
from perdure.testing.simulation.server.history import attributes, time_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError
from perdure.testing.simulation.world import URL, ReceivedMessage
from perdure.turn import ending

PROMISE = "push notifications tell each change once"


def push_tells_each_change_once(simulated: Simulated) -> None:
    """A receiver is told once of a wait for a person, and last, once, how the task has ended.

    Each attempt has the same id. Of a receiver that refuses a message, the failure is recorded, and
    it gets no further one; one that the worker refuses gets nothing. What it is told later is the
    later change, as far as the clocks of the server agree.
    """
    differ = timedelta(seconds=simulated.server.clock.differ_s)
    last = {run.id: run for run in simulated.server.runs if run.begun.type == PUSH}
    for push in last.values():
        received = [one for one in simulated.world.received if one.delivery == push.id]
        call = _call_of(push)
        if received and call.url != URL:
            raise BrokenError(PROMISE, f"{call.url} is refused, and was sent a message", push)
        if call.url == URL:
            _check_end(simulated, push, _check_messages(push, received, differ))


def _call_of(push: SimulatedRun) -> PushCall:
    [payload] = attributes(push.history.events[0]).input.payloads
    return unpack(RawValue(payload), PushCall)


def _check_messages(
    push: SimulatedRun, received: Sequence[ReceivedMessage], differ: timedelta
) -> list[PushMessage]:
    """Check that a receiver was sent one message after the other, and return them."""
    messages: dict[str, PushMessage] = {}
    for one in received:
        assert isinstance(one.message, PushMessage)
        is_last = not messages or one.id == list(messages)[-1]
        if one.id in messages and (messages[one.id] != one.message or not is_last):
            raise BrokenError(PROMISE, f"an attempt has another message: {one}", push)
        messages[one.id] = one.message
    told = list(messages.values())
    for before, after in pairwise(told):
        if before.state != ASKS or after.timestamp + differ <= before.timestamp:
            raise BrokenError(PROMISE, f"it tells {before}, and then {after}", push)
    return told


def _check_end(simulated: Simulated, push: SimulatedRun, told: Sequence[PushMessage]) -> None:
    """Check that the last message tells the end of the turn, or that its failure is recorded."""
    if push.closed == "WORKFLOW_EXECUTION_CANCELED":
        return
    if push.closed != "WORKFLOW_EXECUTION_COMPLETED":
        record = json.loads(memo_of(push)[MEMO_WEBHOOK].data)
        if record["state"] != "failed":
            raise BrokenError(PROMISE, f"it has ended with {push.closed}: {record}", push)
        return
    ends = [
        (_state_of(run), time_of(run.history.events[-1]))
        for run in simulated.server.runs
        if run.id == _call_of(push).turn_id and run.read.ended is not None
    ]
    if not told or (told[-1].state, told[-1].timestamp) not in ends:
        raise BrokenError(PROMISE, f"it has told {list(told)}, and the turn ended: {ends}", push)


def _state_of(run: SimulatedRun) -> str:
    assert run.read.ended is not None
    error = ending.error_of(run.read.ended, run.read.cancel_reason)
    return end_of_task(run.read.ended.outcome, None if error is None else error.code)
