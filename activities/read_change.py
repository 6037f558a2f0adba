"""Reads the last change of a task of A2A from the history of its turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.api.history.v1 import HistoryEvent
from temporalio.service import RPCError, RPCStatusCode

from perdure.activities.read_child import unread
from perdure.delivery.push import ASKS, ChangeCall, PushCall, PushMessage, TaskChange, end_of_task
from perdure.temporal.histories.runs import Read, end_of_run, last_recorded, last_run
from perdure.turn import ending
from perdure.turn.facts import TurnContinued
from perdure.turn.fold import apply
from perdure.turn.state import TurnState


async def read_change(call: ChangeCall) -> TaskChange:
    """Return the last change of a task that its client is told of.

    Raises:
        ApplicationError: The server does not answer; this is tried again.
    """
    client, turn_id = activity.client(), call.push.turn_id
    try:
        run_id = await last_run(client, turn_id, "")
        if call.is_ending:
            await end_of_run(client, turn_id, run_id)
        return _change(call.push, await last_recorded(client, turn_id, run_id, is_worker=True))
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return TaskChange()  # the turn has not begun
        raise unread(turn_id, error) from error


def _change(push: PushCall, history: list[Read]) -> TaskChange:
    state, wait = TurnState(), None
    waited_since: datetime | None = None
    for event, fact in history:
        was_needed = state.needs_person
        if isinstance(fact, TurnContinued):  # the run before may have begun the wait
            waited_since = fact.continuation.waits_since
        state = state if fact is None else apply(state, fact)
        if state.needs_person and not was_needed:
            wait = event
        if was_needed and not state.needs_person:
            waited_since = None
    last, _ = history[-1]
    if state.ended is not None:
        error = ending.error_of(state.ended, state.cancel_reason)
        name = end_of_task(state.ended.outcome, None if error is None else error.code)
        return TaskChange(message=_message(push, name, last), place=_place(last), is_last=True)
    is_told = wait is not None and (
        _place(wait) == push.told or _is_told_since(push.told, waited_since)
    )
    if state.needs_person and wait is not None and not is_told:
        return TaskChange(message=_message(push, ASKS, wait), place=_place(wait))
    return TaskChange()


def _message(push: PushCall, state: str, event: HistoryEvent) -> PushMessage:
    at = event.event_time.ToDatetime(tzinfo=UTC)
    return PushMessage(task=push.task, context=push.context, state=state, timestamp=at)


def _place(event: HistoryEvent) -> str:
    """Return what tells an event from all other events, also of other runs: its time and its id."""
    return f"{event.event_time.ToNanoseconds()}-{event.event_id}"


def _is_told_since(told: str, moment: datetime | None) -> bool:
    """Return whether the last change that was told has come since a moment."""
    if not told or moment is None:
        return False
    since_us = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return int(told.partition("-")[0]) // 1000 >= since_us
