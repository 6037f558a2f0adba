"""Which webhooks a worker sends: hosts, ports, addresses, and signatures."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from perdure import errors
from perdure.activities.webhook_rules import WebhookRules
from perdure.worker.settings import WorkerSettings

from ..support.receiver import OLD_SECRET, SECRET

HOSTS = (
    "hooks.example.com",
    "*.example.org",
    "ports.example.com:8443",
    "private:inside.example.com",
    "private:10.2.0.7:9000",
    "private:[::1]:9000",
    "private:localhost:9000",
    "93.184.216.34",
)


def rules(*found: str) -> WebhookRules:
    """The rules of a worker for which every name has these addresses."""

    async def resolver(host: str, port: int) -> Sequence[str]:
        return found

    made = WebhookRules.of(HOSTS, [SECRET])
    return WebhookRules(made.hosts, made.secrets, resolver)


@pytest.mark.accepts("H83")
@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("https://hooks.example.com/a?b=c", ["93.184.216.34"]),
        ("https://HOOKS.example.com.:443/", ["93.184.216.34"]),
        ("https://a.b.example.org/", ["93.184.216.34", "2606:2800:220:1::1"]),
        ("https://ports.example.com:8443/", ["93.184.216.34"]),
        ("https://inside.example.com/", ["10.0.0.1", "93.184.216.34"]),
        ("https://10.2.0.7:9000/", ["10.2.0.7"]),
        ("http://[::1]:9000/", ["::1"]),
        ("http://localhost:9000/", ["127.0.0.1", "::1"]),
        ("https://93.184.216.34/", ["93.184.216.34"]),
    ],
)
async def test_allowed_hosts_are_reached(url: str, addresses: list[str]) -> None:
    """At the addresses that were checked."""
    allowed = rules(*addresses)

    assert await allowed.addresses(allowed.receiver(url)) == addresses


@pytest.mark.accepts("H83")
@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("https://example.com/", ["93.184.216.34"]),
        ("https://example.org/", ["93.184.216.34"]),
        ("https://evilexample.org/", ["93.184.216.34"]),
        ("https://hooks.example.com.evil.net/", ["93.184.216.34"]),
        ("https://hooks.example.com:8443/", ["93.184.216.34"]),
        ("https://ports.example.com/", ["93.184.216.34"]),
        ("http://hooks.example.com/", ["93.184.216.34"]),
        ("http://inside.example.com/", ["127.0.0.1"]),
        ("https://evil.net@hooks.example.com/", ["93.184.216.34"]),
        ("https://hooks.example.com@evil.net/", ["93.184.216.34"]),
        ("https://evil.net#@hooks.example.com/", ["93.184.216.34"]),
        ("https://evil.net\\@hooks.example.com/", ["93.184.216.34"]),
        ("https://10.2.0.7/", ["10.2.0.7"]),
        ("https://0x0a020007:9000/", ["10.2.0.7"]),
        ("https://169.254.169.254/", ["169.254.169.254"]),
        ("ftp://hooks.example.com/", ["93.184.216.34"]),
        ("hooks.example.com", ["93.184.216.34"]),
        ("https://hooks.example.com/", ["10.0.0.1"]),
        ("https://hooks.example.com/", ["93.184.216.34", "127.0.0.1"]),
        ("https://hooks.example.com/", ["169.254.169.254"]),
        ("https://hooks.example.com/", ["::ffff:127.0.0.1"]),
        ("https://a.example.org/", ["fd00::1"]),
        ("http://localhost:9000/", ["10.0.0.1"]),
    ],
)
async def test_other_hosts_and_private_addresses_are_refused(
    url: str, addresses: list[str]
) -> None:
    """A name that leads into a private network is refused, unless it is allowed as private."""
    allowed = rules(*addresses)

    with pytest.raises(errors.WebhookRefusedError):
        await allowed.addresses(allowed.receiver(url))


@pytest.mark.accepts("H87")
@pytest.mark.parametrize(
    ("hosts", "secrets"),
    [
        (["hooks.example.com"], []),
        ([], [SECRET]),
        *(
            ([host], [SECRET])
            for host in (
                "*",
                "*.",
                "https://hooks.example.com",
                "hooks.example.com/path",
                "user@hooks.example.com",
                "hooks.example.com:x",
                "hooks.*.com",
                "hooks..example.com",
                "bücher.example",
                "private:",
            )
        ),
        *(
            (["hooks.example.com"], [secret])
            for secret in (
                "whsec_",
                SECRET.removeprefix("whsec_"),
                "whsec_" + base64.b64encode(b"x" * 23).decode(),
                "whsec_" + base64.b64encode(b"x" * 65).decode(),
                "whsec_not base64 at all, and long enough",
            )
        ),
    ],
)
def test_wrong_settings_are_refused(hosts: list[str], secrets: list[str]) -> None:
    """With what is right; a secret is never in the message."""
    with pytest.raises(errors.ConfigurationError) as caught:
        WebhookRules.of(hosts, secrets)

    assert "PERDURE_WEBHOOK_" in caught.value.message
    assert not any(secret[6:] and secret in caught.value.message for secret in secrets)


@pytest.mark.accepts("H87")
def test_each_secret_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a receiver can change its secret while the worker has both. They are in no repr."""
    monkeypatch.setenv("PERDURE_WEBHOOK_HOSTS", "hooks.example.com, *.example.org")
    monkeypatch.setenv("PERDURE_WEBHOOK_SECRETS", f"{SECRET}, {OLD_SECRET}")
    settings = WorkerSettings.from_environment()
    made = WebhookRules.of(settings.webhook_hosts, settings.webhook_secrets)
    now = int(time.time())
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(now),
        "webhook-signature": made.signatures("msg_1", now, b'{"a": 1}'),
    }

    assert [one.name for one in made.hosts] == ["hooks.example.com", "*.example.org"]
    assert Webhook(SECRET).verify(b'{"a": 1}', headers) == {"a": 1}
    assert Webhook(OLD_SECRET).verify(b'{"a": 1}', headers) == {"a": 1}
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(b'{"a": 2}', headers)
    assert SECRET not in repr(settings)
    assert str(made.secrets[0]) not in repr(made)
