"""Starts the delivery of a turn's webhook when the turn ends.

The delivery is a child workflow that is abandoned, so that the turn ends without it. It reads from
history how the turn has ended, and so begins before the turn has its summary.
"""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.exceptions import FailureError

from perdure import errors
from perdure.delivery.webhook import WebhookCall
from perdure.errors import PerdureError
from perdure.temporal.names import WEBHOOK
from perdure.temporal.payloads import pack
from perdure.text import one_line
from perdure.turn.state import TurnState

_DIGITS = 12


class OnDone:
    """The webhook of one turn."""

    def __init__(self) -> None:
        self._starting: asyncio.Task[None] | None = None

    async def begin(self, state: TurnState, error: PerdureError | None = None) -> None:
        """Begin the delivery, if the turn was started with `on_done`. It begins once.

        A failure to do so does not keep the turn from ending; the worker logs it. A URL that the
        worker refused gets nothing.
        """
        url = state.request.on_done if state.request else None
        if url is None or isinstance(error, errors.WebhookRefusedError):
            return
        if self._starting is None:
            self._starting = asyncio.create_task(_start(url))
        await asyncio.shield(self._starting)  # a cancelled turn comes here again


async def _start(url: str) -> None:
    info, message = workflow.info(), workflow.uuid4().hex
    call = WebhookCall(id=f"msg_{message}", url=url, turn_id=info.workflow_id, run_id=info.run_id)
    try:
        await workflow.start_child_workflow(
            WEBHOOK,
            pack(call, "the webhook"),
            id=f"{info.workflow_id}/on_done-{message[:_DIGITS]}",
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
            static_summary=one_line(f"webhook of {info.workflow_id}", 200),
        )
    except FailureError:
        workflow.logger.warning("the webhook of the turn was not started", exc_info=True)
