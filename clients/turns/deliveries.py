"""The deliveries of the webhooks of a turn and its delegates: list them, send one again."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.converter import WorkflowSerializationContext

from perdure import errors
from perdure.base import Value
from perdure.delivery.webhook import WebhookCall
from perdure.temporal import access
from perdure.temporal.histories.fetching import first_event
from perdure.temporal.histories.runs import describe
from perdure.temporal.histories.turn_history import raw_value
from perdure.temporal.names import MEMO_WEBHOOK, WEBHOOK
from perdure.temporal.payloads import pack, unpack
from perdure.temporal.search_attributes import keyword
from perdure.text import one_line

_STATES: dict[WorkflowExecutionStatus | None, Literal["delivering", "delivered"]] = {
    WorkflowExecutionStatus.RUNNING: "delivering",
    WorkflowExecutionStatus.COMPLETED: "delivered",
}


class WebhookDelivery(Value):
    """The delivery of a webhook of a turn, or of one of its delegates.

    Attributes:
        id: Its id below the turn, such as `on_wait-1a2b3c4d5e6f`; also the id of its workflow in
            Temporal, after that of the turn and a slash.
        event: What it tells of: `on_done` or `on_wait`.
        state: `delivering`, `delivered` or `failed`.
        status: The status of the receiver's answer, once it is delivered.
        attempts: The number of attempts, once it is delivered.
        error: Why it failed.
        began_at: When the delivery began; the last time, if it was sent again.
        ended_at: When it ended.
    """

    id: str
    event: Literal["on_done", "on_wait"]
    state: Literal["delivering", "delivered", "failed"]
    status: int | None = None
    attempts: int | None = None
    error: str = ""
    began_at: datetime
    ended_at: datetime | None = None


async def deliveries_of(client: Client, turn_id: str) -> tuple[WebhookDelivery, ...]:
    """Return the deliveries of a turn and its delegates, in the order in which they began.

    Temporal's list, from which they are read, follows a little later.

    Raises:
        TurnNotFoundError: Temporal does not have the turn.
        PayloadDecodeError: This process lacks the codec or the key.
        ServerUnreachableError: Temporal does not answer.
    """
    prefix, query = f"{turn_id}/", f"WorkflowType = '{WEBHOOK}'"
    if keyword(prefix) == prefix:  # a query finds no others, however they are quoted
        query += f" AND WorkflowId STARTS_WITH '{prefix}'"
    last: dict[str, WorkflowExecution] = {}
    with access.TURN.asking(turn_id):
        await describe(client, turn_id)
        async for run in client.list_workflows(query):
            known = last.get(run.id)
            if run.id.startswith(prefix) and (known is None or known.start_time < run.start_time):
                last[run.id] = run
        found = [await _delivery(run, run.id.removeprefix(prefix)) for run in last.values()]
    return tuple(sorted(found, key=lambda delivery: delivery.began_at))


async def _delivery(run: WorkflowExecution, own_id: str) -> WebhookDelivery:
    memo = await run.memo_value(MEMO_WEBHOOK, {})
    return WebhookDelivery(
        id=own_id,
        event="on_wait" if own_id.rpartition("/")[2].startswith("on_wait-") else "on_done",
        state=_STATES.get(run.status, "failed"),
        status=memo.get("status"),
        attempts=memo.get("attempts"),
        error=memo.get("error", "") or ("" if run.status in _STATES else "its workflow was ended"),
        began_at=run.start_time,
        ended_at=run.close_time,
    )


async def send_again(client: Client, turn_id: str, delivery_id: str) -> None:
    """Begin the delivery of a message again that was not delivered, with the same id.

    Raises:
        TurnNotFoundError: Temporal does not have the turn.
        InvalidRequestError: The turn has no such delivery, or it is delivered, or runs.
        PayloadDecodeError: This process lacks the codec or the key.
        ServerUnreachableError: Temporal does not answer.
    """
    workflow_id = f"{turn_id}/{delivery_id}"
    with access.TURN.asking(turn_id):
        await describe(client, turn_id)
    call, task_queue = await _call(client, workflow_id)
    if call is None:
        raise errors.InvalidRequestError(
            f"turn {turn_id!r} has no delivery {one_line(delivery_id, 100)!r};"
            " `turn.webhooks()` lists those that it has",
            context={"turn_id": turn_id},
        )
    run_id = await access.start(
        client,
        access.TURN,
        WEBHOOK,
        pack(call, "the webhook"),
        id=workflow_id,
        about=turn_id,
        like=turn_id,
        task_queue=task_queue,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        static_summary=one_line(f"webhook of {call.turn_id}", 200),
    )
    if run_id is None:
        raise errors.InvalidRequestError(
            f"the webhook {delivery_id!r} of turn {turn_id!r} is delivered, or is being delivered;"
            " only a delivery that has failed is begun again",
            context={"turn_id": turn_id},
        )


async def _call(client: Client, workflow_id: str) -> tuple[WebhookCall | None, str]:
    """Return the input of a delivery, None if there is none of this id, and its task queue."""
    try:
        with access.TURN.asking(workflow_id):
            first = await first_event(client, workflow_id, "")
    except errors.TurnNotFoundError:
        return None, ""
    started = first.workflow_execution_started_event_attributes
    if started.workflow_type.name != WEBHOOK:
        return None, ""
    context = WorkflowSerializationContext(namespace=client.namespace, workflow_id=workflow_id)
    raw = await raw_value(client.data_converter.with_context(context), started.input.payloads)
    return unpack(raw, WebhookCall), started.task_queue.name
