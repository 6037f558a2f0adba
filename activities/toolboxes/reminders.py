"""The tools with which a turn of a session has the session send a message to itself later."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError
from temporalio import activity
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import RawValue

from perdure import errors
from perdure.agents.tool_context import ToolContext
from perdure.agents.tools import Tool, tool
from perdure.session.wire import ForgetReminder, Remind, UpdateResult
from perdure.temporal import failures
from perdure.temporal.histories.session_history import read_session
from perdure.temporal.names import FORGET_REMINDER, REMIND, SESSION
from perdure.temporal.payloads import pack, unpack
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
    session_id, _ = await _session(ctx.turn_id)
    moment = _moment(at)
    reminder_id = ctx.idempotency_key[:_ID_CHARACTERS]
    await _ask(session_id, REMIND, Remind(at=moment, text=text), reminder_id)
    return f"The reminder {reminder_id} comes at {in_words(moment)}."


async def reminders(ctx: ToolContext[Any]) -> list[dict[str, str]]:
    """List the reminders of this conversation that are not due yet, each with its id."""
    session_id, run_id = await _session(ctx.turn_id)
    state = await read_session(activity.client(), session_id, run_id, is_worker=True)
    return [
        {"id": reminder.id, "at": in_words(reminder.at), "text": reminder.text}
        for reminder in state.reminders
    ]


async def forget_reminder(ctx: ToolContext[Any], id: str) -> str:  # noqa: D417 - for the model
    """Give a reminder up that is not due yet.

    Args:
        id: The id of the reminder.
    """
    session_id, _ = await _session(ctx.turn_id)
    was_there = await _ask(session_id, FORGET_REMINDER, ForgetReminder(id=id), ctx.idempotency_key)
    return f"The reminder {id} is given up." if was_there else f"There is no reminder {id}."


def _moment(text: str) -> datetime:
    now = activity.info().started_time
    try:
        moment = absolute(_MOMENT.validate_python(text), now)
    except (ValidationError, OverflowError):
        raise errors.InvalidRequestError(
            "at is neither a date with a time zone, such as 2030-12-01T18:00:00Z, nor a time from"
            " now, such as PT2H"
        ) from None
    assert moment is not None
    return moment.astimezone(UTC)


async def _session(turn_id: str) -> tuple[str, str]:
    """Return the id and the run of the session that a turn belongs to.

    Raises:
        InvalidRequestError: It belongs to none.
    """
    client = activity.client()
    described = await client.get_workflow_handle(turn_id).describe()
    parent = described.raw_description.workflow_execution_info.parent_execution
    if parent.workflow_id:
        above = await client.get_workflow_handle(
            parent.workflow_id, run_id=parent.run_id
        ).describe()
        if above.workflow_type == SESSION:
            return parent.workflow_id, parent.run_id
    raise errors.InvalidRequestError("this turn belongs to no session, so nothing can come later")


async def _ask(session_id: str, update: str, argument: Any, update_id: str) -> bool:
    handle = activity.client().get_workflow_handle(session_id)
    try:
        answer: RawValue = await handle.execute_update(
            update, pack(argument), id=f"{update}-{update_id}", result_type=RawValue
        )
    except WorkflowUpdateFailedError as error:
        raise errors.from_info(failures.error_in(error.cause)) from None
    return unpack(answer, UpdateResult).done
