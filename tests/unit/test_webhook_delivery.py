"""The attempts of a webhook over TLS, to an address that was checked."""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from perdure import Outcome, errors
from perdure.activities.webhook_rules import WebhookRules
from perdure.activities.webhooks import Webhooks
from perdure.delivery.webhook import Delivered, Notification, message_about
from perdure.temporal.names import NOTIFY
from perdure.temporal.payloads import pack
from perdure.turn.facts import TurnEnded
from perdure.turn.state import TurnState
from perdure.turn.wire import Summary, TurnRequest
from perdure.values.tasks import Task
from perdure.worker.assembly import deliveries
from perdure.worker.internals import activity_name

from ..support.certificates import certificate
from ..support.receiver import SECRET, receiving

__all__ = ["certificate"]

SUMMARY = Summary(agent="desk", outcome=Outcome.COMPLETED, output="Done.")
STATE = dataclasses.replace(
    TurnState(),
    request=TurnRequest(agent="desk", task=Task(content="go")),
    ended=TurnEnded(Outcome.COMPLETED, SUMMARY),
)


class Names:
    """A resolver for which every name has these addresses, one list for each request."""

    def __init__(self, *found: Sequence[str]) -> None:
        self._found = list(found)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The addresses."""
        return self._found.pop(0)


def sent(url: str) -> Notification:
    message = message_about("hook-1", STATE, SUMMARY, datetime.now(UTC))
    return Notification(id="msg_1", url=url, message=message)


def sending(hosts: Sequence[str], names: Names) -> Webhooks:
    made = WebhookRules.of(hosts, [SECRET])
    return Webhooks(WebhookRules(made.hosts, made.secrets, names))


@pytest.mark.accepts("H83")
async def test_certificate_is_for_the_name_though_the_address_is_connected_to(
    certificate: ssl.SSLContext,
) -> None:
    """The next address is tried where there is no connection."""
    told = list[str | None]()
    certificate.sni_callback = lambda _, name, __: told.append(name)
    with receiving(certificate) as receiver:
        port = receiver.port
        names = Names(["127.0.0.3", "127.0.0.1"], ["127.0.0.1"])
        hosts = [f"private:{name}.test:{port}" for name in ("shop", "other")]
        webhooks, env = sending(hosts, names), ActivityEnvironment()
        done = await env.run(webhooks.notify, sent(f"https://shop.test:{port}/a"))
        with pytest.raises(ApplicationError, match=r"other\.test: ConnectError") as caught:
            await env.run(webhooks.notify, sent(f"https://other.test:{port}/a"))
        [hook] = receiver.hooks

    assert done == Delivered(status=204)
    assert told == ["shop.test", "other.test"]
    assert hook.headers["host"] == f"shop.test:{port}"
    assert hook.verified()["type"] == "turn.completed"
    assert not caught.value.non_retryable


@pytest.mark.accepts("H83")
async def test_name_that_leads_inside_later_gets_nothing() -> None:
    """It is resolved for each attempt."""
    with receiving() as receiver:
        webhooks = sending([f"hooks.test:{receiver.port}"], Names(["127.0.0.1"]))
        with pytest.raises(errors.WebhookRefusedError, match="not public"):
            await ActivityEnvironment().run(
                webhooks.notify, sent(f"https://hooks.test:{receiver.port}/")
            )

    assert receiver.hooks == []


@pytest.mark.accepts("Y72")
async def test_delivery_is_tried_again_after_a_bug_and_not_after_a_refusal() -> None:
    """As the worker has the activity: a bug may be mended by the time of the next attempt."""

    async def broken(host: str, port: int) -> Sequence[str]:
        raise LookupError(host)

    webhooks = Webhooks(
        WebhookRules(WebhookRules.of(["hooks.test"], [SECRET]).hosts, (b"key",), broken)
    )
    [notify] = [one for one in deliveries(webhooks) if activity_name(one) == NOTIFY]
    failed = {}
    for url in ("https://hooks.test/", "https://other.test/"):
        with pytest.raises(ApplicationError) as caught:
            await ActivityEnvironment().run(notify, pack(sent(url)))
        failed[url] = (caught.value.type, caught.value.non_retryable)

    assert failed == {
        "https://hooks.test/": ("PERDURE_ERROR", False),
        "https://other.test/": ("WEBHOOK_REFUSED", True),
    }
