"""Reads the state of a run at one of its steps."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.temporal.histories.fetching import recorded
from perdure.temporal.histories.session_history import messages_before
from perdure.turn import take_over
from perdure.turn.fold import apply
from perdure.turn.state import TurnState


async def points(
    client: Client, turn_id: str, run_id: str, *, is_worker: bool = False
) -> AsyncGenerator[TurnState, None]:
    """Yield the state of a run where it begins and after each of its complete steps, in order.

    A run that takes over messages begins when it has all of them. One that takes over an open step
    begins when that step is closed.

    Raises:
        TurnNotFoundError: Temporal does not have the history, or no longer has it.
        InvalidRequestError: There can be no such run.
        PayloadDecodeError: This process lacks the codec or the key of the turn.
    """
    state, last = TurnState(), -1
    try:
        async for _, fact in recorded(client, turn_id, run_id, is_worker=is_worker):
            state = state if fact is None else apply(state, fact)
            if state.transcript.absent:
                state = await with_session(client, turn_id, state, is_worker=is_worker)
            if _is_complete(state) and state.step_count > last:
                last = state.step_count
                yield state
    except RPCError as error:
        raise _unreadable(turn_id, run_id, error) from error


def _unreadable(turn_id: str, run_id: str, error: RPCError) -> Exception:
    """Translate Temporal's error about a history; an error that may pass is returned as it is."""
    context = {"turn_id": turn_id, "run_id": run_id}
    if error.status is RPCStatusCode.NOT_FOUND:
        return errors.TurnNotFoundError(
            f"the history of run {run_id} of turn {turn_id!r} is gone: its retention is over, or it"
            " was deleted",
            context=context,
        )
    if error.status is RPCStatusCode.INVALID_ARGUMENT:
        return errors.InvalidRequestError(
            f"run {run_id} of turn {turn_id!r}: {error.message}", context=context
        )
    return error


async def read_origin(
    client: Client, turn_id: str, run_id: str, steps: int | None, *, is_worker: bool = False
) -> TurnState:
    """Return the state of a run when its step number `steps` was closed; None for the whole run.

    Raises:
        TurnNotFoundError: Temporal does not have the history, or no longer has it.
        InvalidRequestError: The run does not close such a step, or there can be no such run.
        PayloadDecodeError: This process lacks the codec or the key of the turn.
    """
    if steps is None:
        return await _whole(client, turn_id, run_id, is_worker=is_worker)
    last = 0
    async with contextlib.aclosing(points(client, turn_id, run_id, is_worker=is_worker)) as states:
        async for state in states:
            last = state.step_count
            if last >= steps:
                break
    if last == steps:
        return state
    raise errors.InvalidRequestError(
        f"run {run_id} of turn {turn_id!r} has no complete step {steps}",
        context={"turn_id": turn_id, "step": steps, "steps": last},
    )


async def _whole(client: Client, turn_id: str, run_id: str, *, is_worker: bool) -> TurnState:
    state = TurnState()
    try:
        async for _, fact in recorded(client, turn_id, run_id, is_worker=is_worker):
            state = state if fact is None else apply(state, fact)
    except RPCError as error:
        raise _unreadable(turn_id, run_id, error) from error
    return await with_session(client, turn_id, state, is_worker=is_worker)


async def with_session(
    client: Client, turn_id: str, state: TurnState, *, is_worker: bool = False
) -> TurnState:
    """Return the state with the messages of the session before the turn, if it lacks them.

    Raises:
        TurnNotFoundError: Temporal does not have the history of the session, or no longer has it.
        TranscriptMismatchError: The session has other messages than the turn says.
        PayloadDecodeError: This process lacks the codec or the key of the turn.
    """
    origin = state.origin
    if not state.transcript.absent or origin is None:
        return state
    try:
        messages = await messages_before(client, origin, turn_id, is_worker=is_worker)
    except RPCError as error:
        raise _unreadable(origin.turn_id, origin.run_id, error) from error
    return take_over.complete(state, messages)


def _is_complete(state: TurnState) -> bool:
    """Return whether every step is closed, and every message that the run takes over is there."""
    return bool(state.request and not state.awaits_parts and not state.open_step.calls)
