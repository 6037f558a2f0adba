"""Reads the state of a run at one of its steps."""

from __future__ import annotations

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.temporal.history import recorded
from perdure.turn.fold import apply
from perdure.turn.state import TurnState


async def read_origin(
    client: Client, turn_id: str, run_id: str, steps: int | None, *, is_worker: bool = False
) -> TurnState:
    """Return the state of a run when its step number `steps` was closed; None for the whole run.

    Raises:
        TurnNotFoundError: Temporal does not have the history, or no longer has it.
        InvalidRequestError: The run does not close such a step.
        PayloadDecodeError: This process lacks the codec or the key of the turn.
    """
    state = TurnState()
    try:
        async for _, fact in recorded(client, turn_id, run_id, is_worker=is_worker):
            state = state if fact is None else apply(state, fact)
            if steps is not None and _is_at(state, steps):
                return state
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise errors.TurnNotFoundError(
            f"the history of run {run_id} of turn {turn_id!r} is gone: its retention is over, or it"
            " was deleted",
            context={"turn_id": turn_id, "run_id": run_id},
        ) from error
    if steps is not None:
        raise errors.InvalidRequestError(
            f"run {run_id} of turn {turn_id!r} has no complete step {steps}",
            context={"turn_id": turn_id, "step": steps, "steps": state.step_count},
        )
    return state


def _is_at(state: TurnState, steps: int) -> bool:
    """Return whether this many steps are closed. A run that takes over a state has none before."""
    return state.request is not None and not state.awaits_parts and state.step_count == steps
