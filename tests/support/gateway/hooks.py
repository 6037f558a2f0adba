"""Senders of deliveries to hooks, which sign as GitHub, Stripe, Slack and Standard Webhooks do."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from slack_sdk.signature import SignatureVerifier
from standardwebhooks.webhooks import Webhook

from perdure import AgentReport, UserMessage
from perdure.clients.gateway import Hook, Quota, hooks_from

SECRETS = {
    "standard-webhooks": "whsec_" + base64.b64encode(bytes(range(32))).decode(),
    "github": "It's a Secret to Everybody",
    "stripe": "whsec_stripe_has_a_secret_of_text",
    "slack": "8f742231b10e8888abcd99yyyzzz85a5",
}
"""A secret for each way to sign."""
VARIABLES = {verify: f"{verify.upper().replace('-', '_')}_SECRET" for verify in SECRETS}


def _hex(secret: str, signed: bytes) -> str:
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def standard(body: bytes, id: str, at: int, secret: str) -> dict[str, str]:
    """The headers of Standard Webhooks, signed by its library."""
    signature = Webhook(secret).sign(id, datetime.fromtimestamp(at, UTC), body.decode())
    return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": signature}


def github(body: bytes, id: str, at: int, secret: str) -> dict[str, str]:
    """The headers of GitHub, for an issue."""
    return {
        "X-GitHub-Delivery": id,
        "X-GitHub-Event": "issues",
        "X-Hub-Signature-256": f"sha256={_hex(secret, body)}",
    }


def stripe(body: bytes, id: str, at: int, secret: str) -> dict[str, str]:
    """The header of Stripe; the body has the id."""
    return {"Stripe-Signature": f"t={at},v1={_hex(secret, f'{at}.'.encode() + body)},v0=00"}


def slack(body: bytes, id: str, at: int, secret: str) -> dict[str, str]:
    """The headers of Slack, signed by its library; the body has the id."""
    signature = SignatureVerifier(secret).generate_signature(timestamp=str(at), body=body)
    assert signature is not None
    return {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": signature}


SIGNED: Mapping[str, Callable[[bytes, str, int, str], dict[str, str]]] = {
    "standard-webhooks": standard,
    "github": github,
    "stripe": stripe,
    "slack": slack,
}
"""The headers of a body, an id, a time and a secret, for each way to sign."""


def body_of(verify: str, id: str, title: str = "It is broken.") -> dict[str, Any]:
    """A body as these senders make it, with the id of the delivery."""
    return {
        "id": id,
        "event_id": id,
        "type": "event_callback",
        "action": "opened",
        "title": title,
        "customer": "cus_1",
    }


async def deliver(
    http: httpx.AsyncClient,
    verify: str,
    id: str,
    body: Any = None,
    *,
    path: str | None = None,
    at: float | None = None,
    secret: str | None = None,
    **headers: str,
) -> httpx.Response:
    """Send a delivery, without a token."""
    written = body if isinstance(body, bytes) else json.dumps(body or body_of(verify, id)).encode()
    signed = SIGNED[verify](
        written, id, int(time.time() if at is None else at), secret or SECRETS[verify]
    )
    given = {"Content-Type": "application/json", **signed}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    return await http.post(
        path or f"/hooks/{verify}", content=written, headers={**given, "Authorization": ""}
    )


def task_of(report: AgentReport[Any]) -> str:
    """The first message of a turn."""
    first = report.messages[0]
    assert isinstance(first, UserMessage)
    return first.text


def table(verify: str, /, **fields: Any) -> str:
    """A table of a file of hooks, for the agent `desk`."""
    given = {
        "path": f"/hooks/{verify}",
        "verify": verify,
        "secrets": [VARIABLES[verify]],
        "template": "{/title}",
        "agent": "desk",
        **fields,
    }
    lines = [f"{name} = {_toml(value)}" for name, value in given.items() if value is not None]
    return "\n".join(["[[hook]]", *lines, ""])


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inner = (f"{json.dumps(name)} = {_toml(each)}" for name, each in value.items())
        return f"{{{', '.join(inner)}}}"
    return json.dumps(value)


class HookFiles:
    """Files of hooks in a folder, with their secrets in the environment."""

    def __init__(self, folder: Path, environment: pytest.MonkeyPatch) -> None:
        self._folder = folder
        for verify, variable in VARIABLES.items():
            environment.setenv(variable, SECRETS[verify])

    def path(self, *tables: str) -> Path:
        """A file with these tables."""
        path = self._folder / "hooks.toml"
        path.write_text("\n".join(tables), encoding="utf-8")
        return path

    def __call__(self, *tables: str, quotas: Mapping[str, Quota] | None = None) -> tuple[Hook, ...]:
        """The hooks of these tables."""
        return hooks_from(self.path(*tables), quotas)
