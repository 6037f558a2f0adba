"""The activity of workers that sends a message of a schedule to its session, as any client does."""

from __future__ import annotations

import contextlib
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from perdure import errors
from perdure.clients.sessions.handle import Session
from perdure.clients.turns.handle import Turn
from perdure.session.scheduled import MessageCall, MessageDelivery
from perdure.session.wire import Say
from perdure.temporal import failures
from perdure.temporal.acts import sources
from perdure.temporal.priorities import priority_of
from perdure.temporal.search_marks import Marks
from perdure.values.reports import Outcome

REFUSED = (
    errors.ConfigurationError,
    errors.InvalidRequestError,
    errors.SessionBusyError,
    errors.SessionClosedError,
    errors.SessionNotFoundError,
    errors.TooLargeError,
    errors.TurnBudgetExceededError,
    errors.TurnConflictError,
)
"""The errors by which a session refuses a message for good."""
_NO_FAILURE = (
    None,
    Outcome.COMPLETED,
    Outcome.TRUNCATED,
    Outcome.CANCELLED,
    Outcome.TERMINATED,
)


async def send_message(call: MessageCall) -> MessageDelivery:
    """Send a message; the same id is the same message, so it may be sent again.

    Raises:
        PerdureError: The session refuses it (`REFUSED`). After any other error it is sent again.
        ApplicationError: No worker has taken it in, and it is sent again; or the turn that read the
            message before has failed.
    """
    client = activity.client()
    queue = activity.info().task_queue
    order = priority_of(fairness=call.fairness)
    session = Session(client, queue, Marks(client), call.session_id, call.request, _no_turn, order)
    message = Say(
        text=call.text,
        if_busy=call.if_busy,
        by=call.by,
        expects=call.request.agent,
        parts=call.parts,
    )
    try:
        if call.last:
            await _check_last(session, call.last)
        with sources.through("schedule"):
            sent = await session.deliver(message, call.id)
    except errors.SessionBusyError as error:
        turn_id = error.context.get("turn_id")
        if call.if_busy != "reject" or not isinstance(turn_id, str):
            raise
        return MessageDelivery(id=call.id, turn_id=turn_id)
    except errors.ServerUnreachableError as error:
        raise ApplicationError(error.message, type="UNAVAILABLE") from error  # is retried
    return MessageDelivery(id=call.id, turn_id=sent.turn_id, disposition=sent.disposition)


async def _check_last(session: Session, message_id: str) -> None:
    """Refuse to continue after a turn that failed.

    Raises:
        ApplicationError: The turn that read this message has failed.
    """
    with contextlib.suppress(errors.SessionNotFoundError):
        for turn in await session.turns():
            if message_id in turn.messages and turn.outcome not in _NO_FAILURE:
                failed = errors.PerdureError(
                    f"turn {turn.turn_id!r}, which read the message {message_id!r}, has ended as"
                    f" {turn.outcome}",
                    context={"turn_id": turn.turn_id, "message_id": message_id},
                )
                raise failures.of_activity(failed)


def _no_turn(turn_id: str) -> Turn[Any]:
    raise errors.TurnNotFoundError(f"turn {turn_id!r} is not looked for here")
