"""Messages that a schedule sends to a session. Pure."""

from __future__ import annotations

from perdure.base import Wire
from perdure.session.wire import Disposition, IfBusy, SessionRequest
from perdure.turn.slot import IfRunning, Slot, with_slot
from perdure.turn.wire import TurnRequest
from perdure.values.messages import UserMessage, UserParts
from perdure.values.tasks import opening

IF_BUSY: dict[IfRunning, IfBusy] = {"skip": "reject", "queue": "queue", "cancel": "interrupt"}
"""What happens to a message if a turn of the session runs, by the rule of its schedule."""


class MessageCall(Wire):
    """Input of the activity that sends a message of a schedule to a session.

    `request` begins the session if there is none. `last` is the id of the message before, if a turn
    that failed at it pauses the schedule; empty otherwise. `fairness` is the key of the schedule,
    which a new session gets as well. `text` is empty with `parts`, as in `Say`.
    """

    session_id: str
    request: SessionRequest
    id: str
    text: str
    if_busy: IfBusy
    by: str
    last: str = ""
    fairness: str | None = None
    parts: UserParts = ()


class MessageDelivery(Wire):
    """What the session did with a message; without a disposition, it was skipped.

    `turn_id` is the turn that was to read it, or the turn that ran.
    """

    id: str
    turn_id: str
    disposition: Disposition | None = None


def message_of(request: TurnRequest, slot: Slot | None) -> UserMessage:
    """Return the message of a slot: what the first message of a turn of the schedule would be."""
    return opening(request.task, with_slot(request.context, request.schedule, slot))


def session_of(request: TurnRequest) -> SessionRequest:
    """Return the input of the session that the first message begins."""
    of_task = {"budget": request.given_budget, "allowed_tools": request.allowed}
    return SessionRequest(**{**request.passed_on(), **of_task}, agent=request.agent)
