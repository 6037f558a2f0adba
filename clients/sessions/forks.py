"""Forks of a session: new sessions that begin with messages of it."""

from __future__ import annotations

from perdure import errors
from perdure.session.state import SessionState
from perdure.session.wire import SessionFork, SessionRequest, SessionSnapshot


def until(
    session_id: str,
    state: SessionState,
    at_turn: int | None,
    request: SessionRequest,
    by: str | None,
) -> SessionSnapshot:
    """Return the input of a fork with the messages up to a turn.

    Raises:
        InvalidRequestError: There is no such turn, or its messages are left out.
    """
    known = len(state.starts)
    last = state.dropped + known
    number = last if at_turn is None else at_turn
    if not state.dropped <= number <= last:
        raise errors.InvalidRequestError(
            f"the session has the messages of its turns {state.dropped + 1} to {last} that are"
            f" over, and not up to turn {number}",
            context={"at_turn": number, "last": last},
        )
    turns = number - state.dropped
    end = state.starts[turns] if turns < known else len(state.messages)
    snapshot = SessionSnapshot.of_fork(
        request,
        state.agent,
        state.named,
        state.messages[:end],
        state.starts[:turns],
        SessionFork(session_id=session_id, at_turn=number, by=by),
    )
    # also what the turns after that have done: it is not undone
    own = {"effects": state.effects, "effect_scope": state.effect_scope or session_id}
    return snapshot.model_copy(update=own)
