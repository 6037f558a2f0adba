"""Waits for events by key: the turn is registered at the workflow that keeps the events.

A local activity does that, with a signal that also starts that workflow: history has one event of
it, and no workflow task. The event itself comes as a signal, now or later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import FailureError, is_cancelled_exception

from perdure import limits
from perdure.keyed_events.wire import EventWaiter, Registration
from perdure.temporal import failures
from perdure.temporal.names import REGISTER_WAITER
from perdure.temporal.payloads import pack
from perdure.turn import event_keys
from perdure.turn.state import TurnState
from perdure.turn.wait_values import CallWait
from perdure.workflows.turn.turn_context import Board

_Asked = tuple[str, str, datetime | None]
"""The name and the key of an event, and the moment after which one is waited for."""


async def register(
    board: Board, waits: Callable[[], Sequence[CallWait]]
) -> dict[tuple[str, str], str]:
    """Register the turn for the events by key that it is about to wait for.

    A call beside them may get such an event meanwhile: the turn then waits for the next.

    Args:
        board: The context of the turn.
        waits: Returns the waits that are to begin.

    Returns:
        Why it cannot wait for some of the names and keys.
    """
    asked: set[_Asked] = set()
    refusals: dict[tuple[str, str], str] = {}
    while True:
        new = {
            place: until
            for place, until in _places(board.state, waits()).items()
            if place not in asked and place[:2] not in refusals
        }
        if not new:
            return refusals
        reasons = await asyncio.gather(*(_refusal(*place, until) for place, until in new.items()))
        asked.update(new)
        refusals |= {
            place[:2]: reason for place, reason in zip(new, reasons, strict=True) if reason
        }


def _places(state: TurnState, waits: Sequence[CallWait]) -> dict[_Asked, datetime]:
    """Return what is waited for, each with the moment at which the last of its waits ends."""
    places: dict[_Asked, datetime] = {}
    for wait in waits:
        if wait.event_key:
            last = event_keys.last_event(state, wait.event, wait.event_key)
            place = (wait.event, wait.event_key, last.at if last else None)
            places[place] = max(wait.until, places.get(place, wait.until))
    return places


async def _refusal(name: str, key: str, after: datetime | None, until: datetime) -> str:
    """Register the turn; return why that is refused, empty if it is not."""
    turn_id = workflow.info().workflow_id
    registration = Registration(
        name=name,
        key=event_keys.tenant_prefix(turn_id) + key,
        waiter=EventWaiter(turn_id=turn_id, until=until, after=after),
    )
    try:
        await workflow.execute_local_activity(
            REGISTER_WAITER,
            pack(registration),
            result_type=RawValue,
            start_to_close_timeout=limits.REGISTRATION,
            retry_policy=RetryPolicy(maximum_interval=limits.BENCH),
            summary=f"event {name}",
        )
    except FailureError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from error
        return failures.error_in(error.cause or error).message
    return ""
