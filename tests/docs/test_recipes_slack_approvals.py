"""Run the program of `docs/recipes/slack-approvals.md` with a fake Slack on loopback."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.worker.settings import WorkerSettings

from ..support.docs.commands import commands
from ..support.docs.until import until
from ..support.ports import free_port
from .conftest import Tell

WEBHOOK_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
ANNA = {"id": "U042", "username": "anna"}
LONG = "4711" * 1_000


class Slack:
    """What it was sent, by path."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.url = ""

    def at(self, path: str) -> list[dict[str, Any]]:
        return [body for where, body in self.sent if where == path]

    async def until(self, path: str, count: int) -> list[dict[str, Any]]:
        """The requests to a path, once there are this many."""

        async def enough() -> list[dict[str, Any]] | None:
            return self.at(path) if len(self.at(path)) >= count else None

        return await until(enough, f"{count} requests to {path}, not {self.sent}")


@contextlib.contextmanager
def faked() -> Iterator[Slack]:
    """A Slack that accepts everything."""
    slack = Slack()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            key = {"key": self.headers["authorization"]} if self.headers["authorization"] else {}
            slack.sent.append((self.path, {**body, **key}))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"ok": true}')

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        slack.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield slack
        server.shutdown()


def signed(body: bytes, *, at: float | None = None, secret: str = SECRET) -> dict[str, str | bytes]:
    """The headers with which Slack sends a body."""
    sent = str(int(time.time() if at is None else at))
    digest = hmac.new(secret.encode(), f"v0:{sent}:{body.decode()}".encode(), hashlib.sha256)
    return {
        "content-type": "application/x-www-form-urlencoded",
        "x-slack-request-timestamp": sent,
        "x-slack-signature": f"v0={digest.hexdigest()}",
    }


def press(slack: Slack, message: dict[str, Any], name: str) -> bytes:
    """The body that Slack sends when this button of a message is pressed."""
    [button] = [one for one in message["blocks"][1]["elements"] if one["action_id"] == name]
    payload = {
        "type": "block_actions",
        "user": ANNA,
        "actions": [{"action_id": name, "value": button["value"]}],
        "response_url": f"{slack.url}/answer",
    }
    return urlencode({"payload": json.dumps(payload)}).encode()


def wants(euros: int, ticket: str = "4711") -> ScriptedModel:
    return ScriptedModel(calls(call("refund", ticket=ticket, euros=euros)), says("Done."))


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [one["blocks"][0]["text"]["text"] for one in messages]


@pytest.mark.slow  # two processes of the desk
@pytest.mark.accepts("D72", "D73")
async def test_refunds_are_decided_in_slack_as_the_page_says(tell: Tell) -> None:
    """Once, by the person whom Slack names; nothing that Slack has not signed decides anything."""
    model = ByTask({"one": wants(40), "two": wants(900), "three": wants(1, LONG), "four": wants(5)})
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    waits: dict[str, Any] = {"on_wait": f"{address}/waits"}
    settings = WorkerSettings(
        webhook_hosts=(f"private:127.0.0.1:{port}",), webhook_secrets=(WEBHOOK_SECRET,)
    )
    with faked() as slack:
        async with tell("recipes/slack-approvals") as story:
            agent = await story.defining("agent")
            client = await story.works(agent, model, settings=settings)
            [command] = commands(await story.up_to("The program", "console"))
            story.terminal.environment |= {
                "SLACK_API": f"{slack.url}/",
                "SLACK_CHANNEL": "C1",
                "SLACK_BOT_TOKEN": "xoxb-1",
                "SLACK_SIGNING_SECRET": SECRET,
                "WEBHOOK_SECRET": WEBHOOK_SECRET,
            }

            @contextlib.asynccontextmanager
            async def desk() -> AsyncIterator[Callable[..., Any]]:
                async with (
                    story.terminal.stays(command, port),
                    httpx.AsyncClient(base_url=address, timeout=60) as http,
                ):
                    yield lambda body, headers: http.post("/slack", content=body, headers=headers)

            async with desk() as send:
                first = await client.start("support", "one", id="ticket-1", **waits)
                [message] = await slack.until("/chat.postMessage", 1)
                yes, forged = press(slack, message, "approve"), press(slack, message, "deny")
                refused = [
                    await send(yes, signed(yes, at=time.time() - 301)),
                    await send(yes, signed(yes, secret="another")),
                    await send(forged, signed(yes)),
                    await send(yes, {**signed(yes), "x-slack-signature": "v0=ä".encode()}),
                    await send(yes, {}),
                ]
                async with httpx.AsyncClient(base_url=address, timeout=60) as nobody:
                    refused.append(await nobody.post("/waits", content=b"{}"))
                pressed = await send(yes, signed(yes))
                report = await first.result()
                await slack.until("/answer", 1)
                await send(yes, signed(yes))
                answers = await slack.until("/answer", 2)
                second = await client.start("support", "two", id="ticket-2", **waits)
                no = press(slack, (await slack.until("/chat.postMessage", 2))[1], "deny")
                await send(no, signed(no))
                denied = await second.result()
                third = await client.start("support", "three", id="ticket-3", **waits)
                [*_, long] = await slack.until("/chat.postMessage", 3)
                await third.cancel()
            fourth = await client.start("support", "four", id="ticket-4", **waits)
            await fourth.wait(60)  # the desk is away
            async with desk() as send:
                [*_, late] = await slack.until("/chat.postMessage", 4)
                yes = press(slack, late, "approve")
                await send(yes, signed(yes))
                await fourth.result()

    by = "anna (U042) in Slack"
    assert (message["channel"], message["key"]) == ("C1", "Bearer xoxb-1")
    assert texts([message]) == ['ticket-1: refund {"ticket": "4711", "euros": 40}']
    assert [one.status_code for one in [*refused, pressed]] == [401] * 6 + [200]
    assert [one.content for one in report.steps[0].results] == ["40 euros for ticket 4711"]
    assert [(one.approve, one.by) for one in report.steps[0].decisions] == [(True, by)]
    assert answers[0] == {"replace_original": True, "text": f"ticket-1: approve by {by}"}
    assert answers[1]["replace_original"] is False
    assert [(one.approve, one.by) for one in denied.steps[0].decisions] == [(False, by)]
    assert texts([long]) == [
        "ticket-3: refund. Its arguments are too long: perdure approvals ticket-3"
    ]
    assert len(long["blocks"]) == 1
    assert texts([late]) == ['ticket-4: refund {"ticket": "4711", "euros": 5}']
