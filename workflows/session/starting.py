"""How a session starts a turn with the messages of its queue."""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.common import RawValue, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from perdure import errors, limits
from perdure.session.facts import TurnBegan, TurnOver
from perdure.temporal import start_request, trace_ids
from perdure.temporal.names import TURN
from perdure.temporal.payloads import pack
from perdure.values.content import parts_size
from perdure.workflows.second_ids import second_id
from perdure.workflows.session.notes import Notes
from perdure.workflows.session.patches import REFUSED_FIRST

Handle = workflow.ChildWorkflowHandle[Any, RawValue]


async def start_turn(notes: Notes, number: int) -> Handle | None:
    """Start a turn under its id, or under a second id if a turn of the first one exists.

    Returns None if all messages were taken back, or the session was closed, before it could be
    started.

    Raises:
        TurnExistsError: Turns of both ids exist.
    """
    info = workflow.info()
    plain = f"{info.workflow_id}/{number}"
    for is_taken in (False, True):
        if not notes.state.queue:
            return None
        turn_id = second_id(plain) if is_taken else plain
        request = notes.state.next_turn(info.workflow_id, info.run_id)  # messages came meanwhile
        content = sum(parts_size(queued.parts) for queued in notes.state.queue)
        is_stored = content > limits.UNREAD_MEDIA_BYTES  # only external storage lets so much in
        most_bytes = limits.STORED_BYTES if is_stored else limits.PAYLOAD_BYTES
        notes.note(TurnBegan(number, turn_id))
        try:
            return await workflow.start_child_workflow(
                TURN,
                pack(request, "the input of the turn", most_bytes=most_bytes),
                id=turn_id,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,  # one of before a reset
                result_type=RawValue,
                parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
                **start_request.introduced(request, trace_ids.memo_of_caller()),
            )
        except WorkflowAlreadyStartedError:
            notes.note_refused_start(TurnOver(number, began=False))
            if notes.state.closed is not None and workflow.patched(REFUSED_FIRST):
                return None
    raise errors.TurnExistsError(
        f"a turn {plain!r} exists already, so the session cannot go on",
        context={"turn_id": plain},
    )
