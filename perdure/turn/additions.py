"""What people add to the limits of a turn: refuse what it cannot have. Pure."""

from __future__ import annotations

from perdure import errors
from perdure.turn.facts import BudgetAdded
from perdure.turn.state import TurnState


def check(state: TurnState, added: BudgetAdded) -> None:
    """Reject an addition to a limit that the turn does not have, or does not know yet.

    Raises:
        InvalidRequestError: There is no such limit, or the sum is too large.
    """
    try:
        state.with_added(added)
    except errors.InvalidRequestError as error:
        if not state.is_delayed:
            raise
        raise errors.InvalidRequestError(
            f"{error.message}: before a turn begins, only the limits that it was started with can"
            " be raised"
        ) from None
