"""The session of a turn, which the tools of reminders ask for something."""

from __future__ import annotations

from pydantic import BaseModel
from temporalio import activity
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import RawValue

from perdure import errors
from perdure.session.wire import Reminder, UpdateResult
from perdure.temporal import failures
from perdure.temporal.acts import sources
from perdure.temporal.histories.session_history import read_session
from perdure.temporal.names import SESSION
from perdure.temporal.payloads import pack, unpack


async def session_of(turn_id: str) -> tuple[str, str]:
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


async def open_reminders(turn_id: str) -> tuple[Reminder, ...]:
    """Return the reminders of the session that are not due yet."""
    session_id, run_id = await session_of(turn_id)
    state = await read_session(activity.client(), session_id, run_id, is_worker=True)
    return state.reminders


async def ask(turn_id: str, update: str, argument: BaseModel, update_id: str) -> bool:
    """Send an update to the session, and return whether it has changed anything.

    Raises:
        PerdureError: The session has refused it.
    """
    session_id, _ = await session_of(turn_id)
    handle = activity.client().get_workflow_handle(session_id)
    with sources.through("turn"):
        payload = sources.marked(pack(argument))
    try:
        answer: RawValue = await handle.execute_update(
            update, payload, id=f"{update}-{update_id}", result_type=RawValue
        )
    except WorkflowUpdateFailedError as error:
        raise errors.from_info(failures.error_in(error.cause)) from None
    return unpack(answer, UpdateResult).done
