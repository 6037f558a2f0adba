"""The tools with which a turn of a session has the session send a message to itself later."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from perdure import errors
from perdure.agents.tool_context import ToolContext
from perdure.agents.tools import Tool, tool
from perdure.session.wire import ForgetReminder, Remind
from perdure.temporal.names import FORGET_REMINDER, REMIND
from perdure.values.moments import AMoment, absolute, in_words

_MOMENT: TypeAdapter[Any] = TypeAdapter(AMoment)
_ID_CHARACTERS = 8


def reminder_tools() -> tuple[Tool[..., Any], ...]:
    """Return `remind`, `reminders` and `forget_reminder`, which only turns of sessions have."""
    tools = (
        tool(idempotent=True)(remind),
        tool(read_only=True)(reminders),
        tool(idempotent=True)(forget_reminder),
    )
    for item in tools:
        item.needs_session = True
    return tools


async def remind(ctx: ToolContext[Any], at: str, text: str) -> str:  # noqa: D417 - for the model
    """Have a text come back to you as a message in this conversation, at a later time.

    You may end your answer after that: you are woken when it is due.

    Args:
        at: A date with a time zone, such as 2030-12-01T18:00:00Z, or a time from now, such as PT2H
            or P1D.
        text: What you want to be told then.
    """
    from perdure.activities.toolboxes.session_of_turn import ask

    moment = _moment(at)
    reminder_id = ctx.idempotency_key[:_ID_CHARACTERS]
    await ask(ctx.turn_id, REMIND, Remind(at=moment, text=text), reminder_id)
    return f"The reminder {reminder_id} comes at {in_words(moment)}."


async def reminders(ctx: ToolContext[Any]) -> list[dict[str, str]]:
    """List the reminders of this conversation that are not due yet, each with its id."""
    from perdure.activities.toolboxes.session_of_turn import open_reminders

    return [
        {"id": reminder.id, "at": in_words(reminder.at), "text": reminder.text}
        for reminder in await open_reminders(ctx.turn_id)
    ]


async def forget_reminder(ctx: ToolContext[Any], id: str) -> str:  # noqa: D417 - for the model
    """Give a reminder up that is not due yet.

    Args:
        id: The id of the reminder.
    """
    from perdure.activities.toolboxes.session_of_turn import ask

    was_there = await ask(ctx.turn_id, FORGET_REMINDER, ForgetReminder(id=id), ctx.idempotency_key)
    return f"The reminder {id} is given up." if was_there else f"There is no reminder {id}."


def _moment(text: str) -> datetime:
    try:
        moment = absolute(_MOMENT.validate_python(text), datetime.now(UTC))
    except (ValidationError, OverflowError):
        raise errors.InvalidRequestError(
            "at is neither a date with a time zone, such as 2030-12-01T18:00:00Z, nor a time from"
            " now, such as PT2H"
        ) from None
    assert moment is not None
    return moment.astimezone(UTC)
