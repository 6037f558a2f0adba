"""The deliveries of a turn's webhooks, over HTTP: list them, and send one again."""

from __future__ import annotations

from perdure.base import Value
from perdure.clients.gateway.inputs import Body
from perdure.clients.gateway.operations import Call, operation
from perdure.clients.turns.deliveries import WebhookDelivery


class WebhookList(Value):
    """The deliveries of the webhooks of a turn and its delegates, as they began."""

    webhooks: tuple[WebhookDelivery, ...]


class SendWebhook(Body):
    """A delivery that has failed, and is begun again.

    Attributes:
        webhook: Its id, from the `webhooks` of the turn.
    """

    webhook: str


@operation("GET", "/v1/turns/{id:path}/webhooks", may="read")
async def list_webhooks(call: Call) -> WebhookList:
    """List the deliveries of a turn's webhooks, also of those that have failed."""
    return WebhookList(webhooks=await call.client.turn(call.id).webhooks())


@operation("POST", "/v1/turns/{id:path}/send-webhook", may="control")
async def send_webhook(call: Call, body: SendWebhook) -> None:
    """Begin the delivery of a webhook again that has failed, with the same message."""
    await call.client.turn(call.id).send_webhook(body.webhook)
