"""Reasons to refuse what is sent to a session."""

from __future__ import annotations

from temporalio import workflow

from perdure import errors
from perdure.session.facts import MessageSent
from perdure.session.state import SessionState


def closed_error(state: SessionState) -> errors.SessionClosedError:
    """Return the error for a session that is closed."""
    return errors.SessionClosedError(
        f"session {workflow.info().workflow_id!r} is closed: {state.closed or ''}"
    )


def check_agent(state: SessionState, expected: str | None) -> None:
    """Refuse a message to a session of another agent.

    Raises:
        TurnConflictError: The session belongs to another agent.
    """
    request = state.request
    if request is not None and expected not in (None, request.agent):
        raise errors.TurnConflictError(
            f"session {workflow.info().workflow_id!r} belongs to the agent {request.agent!r},"
            f" and not to {expected!r}; choose another id"
        )


def check_may_come(state: SessionState, message: MessageSent) -> None:
    """Refuse a message for which there is no budget, or that does not want to wait.

    Raises:
        TurnBudgetExceededError: The budget is spent.
        SessionBusyError: A turn runs.
    """
    if state.is_spent:
        raise errors.TurnBudgetExceededError(
            "the budget of the session is spent; add to it with session.add_budget(…)"
        )
    if message.if_busy == "reject" and state.is_busy and state.running:
        turn_id = state.running.turn_id
        raise errors.SessionBusyError(
            f"turn {turn_id!r} of the session runs", context={"turn_id": turn_id}
        )
