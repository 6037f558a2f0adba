"""The delivery of a turn's webhook, which may take longer than the turn's caller wants to wait.

It is a workflow of its own (docs/decisions/0101). Its status in Temporal is the status of the
delivery.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import RawValue

from perdure.delivery.webhook import Delivered, Notification, WebhookCall, WebhookMessage
from perdure.errors import PerdureError
from perdure.temporal import failures
from perdure.temporal.names import END_OF_TURN, WEBHOOK
from perdure.temporal.payloads import NOTHING, pack, unpack
from perdure.workflows.delivery import deliveries


@workflow.defn(name=WEBHOOK, sandboxed=False, failure_exception_types=[PerdureError])
class AgentWebhook:
    """The workflow that delivers one message."""

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> RawValue:
        """Deliver the message.

        Raises:
            ApplicationError: It is not delivered; the error says why.
        """
        with failures.typed():
            call = unpack(start, WebhookCall)
        with deliveries.failing(call.turn_id):
            delivered = await _deliver(call)
        fields = {"status": delivered.status, "attempts": delivered.attempts}
        deliveries.record(call.turn_id, "delivered", **fields)
        return pack(delivered)


async def _deliver(call: WebhookCall) -> Delivered:
    """Send the message until it is delivered; about the end of a turn, wait for that first."""
    message = call.message or await _about_the_end(call)
    sent = Notification(id=call.id, url=call.url, message=message)
    return await deliveries.deliver(sent, message.type)


async def _about_the_end(call: WebhookCall) -> WebhookMessage:
    raw = await deliveries.read(END_OF_TURN, call, f"the end of {call.turn_id}")
    return unpack(raw, WebhookMessage)
