"""Starts the deliveries of a turn's webhooks: when it waits for a person, and when it ends.

A delivery is a child workflow that is abandoned, so that the turn goes on without it. About the end
of a turn, it reads from history how the turn has ended, and so begins before the turn has its
summary. About a wait, it is given the message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from temporalio import workflow
from temporalio.exceptions import (
    FailureError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

from perdure import errors, limits
from perdure.delivery.webhook import WaitMessage, WebhookCall, WebhookWait
from perdure.errors import PerdureError
from perdure.temporal.names import WEBHOOK
from perdure.temporal.payloads import pack
from perdure.text import one_line
from perdure.turn import questions
from perdure.turn.facts import WaitBegan
from perdure.turn.state import TurnState
from perdure.values.approvals import PendingApproval

_DIGITS = 12
_TELLS_OF_WAITS = 6
"""The first rules of turns that tell of their waits."""
_OTHER_REFUSED = "end-told-after-refused-on-wait"
_CANCEL_COUNTS = "cancelled-while-a-wait-is-told"
"""The patch id of turns that are cancelled also while they tell of a wait."""
_TAKEN = "webhook-with-another-id"
"""The patch id of turns that begin a delivery with another id if the first one is in use."""


class OnDone:
    """The webhook about the end of one turn."""

    def __init__(self) -> None:
        self._starting: asyncio.Task[None] | None = None

    async def begin(self, state: TurnState, error: PerdureError | None = None) -> None:
        """Begin the delivery, if the turn was started with `on_done`. It begins once.

        A failure to do so does not keep the turn from ending; the worker logs it. A URL that the
        worker refused gets nothing.
        """
        url = state.request.on_done if state.request else None
        if url is None or _is_of_on_done(error):
            return
        if self._starting is None:
            self._starting = asyncio.create_task(_start(url, "on_done"))
        await asyncio.shield(self._starting)  # a cancelled turn comes here again


def _is_of_on_done(error: PerdureError | None) -> bool:
    """Return whether the worker has refused the URL of `on_done`, and not only that of `on_wait`.

    An earlier release did not say which, and told nothing in either case.
    """
    if not isinstance(error, errors.WebhookRefusedError):
        return False
    return error.context.get("option") != "on_wait" or not workflow.patched(_OTHER_REFUSED)


async def tell_of_wait(state: TurnState, wait: WaitBegan) -> None:
    """Begin the delivery about a wait, if the turn was started with `on_wait`.

    A failure to do so does not keep the turn from waiting; the worker logs it. A wait that is over
    before its delivery has begun is not told, and neither are those of a turn that a worker has
    begun which did not know `on_wait`.
    """
    request = state.request
    if request is None or request.on_wait is None or _is_of_earlier(state):
        return
    info = workflow.info()
    run_id = state.carried.first_run or info.run_id
    data = WebhookWait(
        id=info.workflow_id,
        root=request.lineage.ancestors[0].turn_id if request.lineage else info.workflow_id,
        agent=request.agent,
        last_agent=state.last_agent,
        kind=wait.kind,
        reason=wait.reason,
        until=wait.until,
        pending=tuple(_told(state, run_id, wait.pending)),
        labels=request.labels,
        schedule=request.schedule.id if request.schedule else None,
    )
    message = WaitMessage(type="turn.waiting", timestamp=workflow.now(), data=data)
    await _start(request.on_wait, "on_wait", message)


def _is_of_earlier(state: TurnState) -> bool:
    """Return whether a release has begun the turn that did not know `on_wait`."""
    return state.agent is not None and state.agent.rules < _TELLS_OF_WAITS


def _told(
    state: TurnState, run_id: str, pending: Sequence[PendingApproval]
) -> Iterator[PendingApproval]:
    """Yield the calls with their tokens, and with their questions as long as these have room."""
    room = limits.SUMMARY_BYTES
    for call in pending:
        question = questions.question_of(state, call.call_id)
        size = len(question.model_dump_json()) if question else 0
        is_told = size <= room
        room -= size if is_told else 0
        yield call.of_run(run_id, call.arguments, call.reason, question if is_told else None)


async def _start(
    url: str, what: Literal["on_done", "on_wait"], message: WaitMessage | None = None
) -> None:
    try:
        if not await _started(url, what, message):
            workflow.logger.warning("the webhook of the turn was not started: its id is in use")
    except FailureError as error:
        # so the SDK reports a cancel of the turn itself
        if is_cancelled_exception(error) and workflow.patched(_CANCEL_COUNTS):
            raise asyncio.CancelledError from error
        workflow.logger.warning("the webhook of the turn was not started", exc_info=True)


async def _started(
    url: str, what: Literal["on_done", "on_wait"], message: WaitMessage | None
) -> bool:
    """Start the delivery; returns False if its ids are in use.

    Right after a reset to a task that has got updates, the SDK has still the random numbers of the
    run before, which has used the first id. The second one is of the next task.
    """
    for is_taken in (False, True):
        if is_taken and not workflow.patched(_TAKEN):
            return False
        try:
            await _deliver(url, what, message)
        except WorkflowAlreadyStartedError:
            continue
        return True
    return False


async def _deliver(
    url: str, what: Literal["on_done", "on_wait"], message: WaitMessage | None
) -> None:
    info, message_id = workflow.info(), workflow.uuid4().hex
    call = WebhookCall(
        id=f"msg_{message_id}",
        url=url,
        turn_id=info.workflow_id,
        run_id=info.run_id,
        message=message,
    )
    delivery = await workflow.start_child_workflow(
        WEBHOOK,
        pack(call, "the webhook"),
        id=f"{info.workflow_id}/{what}-{message_id[:_DIGITS]}",
        parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
        static_summary=one_line(f"webhook of {info.workflow_id}", 200),
    )
    delivery.add_done_callback(_ignored)  # it says itself how it has ended


def _ignored(delivery: asyncio.Task[Any]) -> None:
    if not delivery.cancelled():
        delivery.exception()
