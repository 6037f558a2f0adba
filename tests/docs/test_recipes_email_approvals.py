"""Run the program of `docs/recipes/email-approvals.md` with a mail server on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import httpx
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.worker.settings import WorkerSettings

from ..support.docs.commands import commands
from ..support.docs.until import until
from ..support.ports import free_port
from .conftest import Tell

WEBHOOK_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LONG = "4711" * 1_000
ANNA = "anna@example.com"


class Mailbox:
    """A mail server, and the messages that it has accepted."""

    def __init__(self) -> None:
        self.messages: list[EmailMessage] = []

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's name
        assert isinstance(envelope.content, bytes)
        message = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.messages.append(message)
        return "250 OK"

    async def until(self, count: int) -> list[EmailMessage]:
        """The messages, once there are this many."""

        async def enough() -> list[EmailMessage] | None:
            return self.messages if len(self.messages) >= count else None

        return await until(enough, f"{count} messages, not {len(self.messages)}")


@contextlib.asynccontextmanager
async def receiving() -> AsyncIterator[tuple[Mailbox, int]]:
    """A mail server on loopback, and its port."""
    mailbox, port = Mailbox(), free_port()
    controller = Controller(mailbox, hostname="127.0.0.1", port=port)
    await asyncio.to_thread(controller.start)
    try:
        yield mailbox, port
    finally:
        await asyncio.to_thread(controller.stop)


def links(message: EmailMessage) -> dict[str, str]:
    """The links of a message by their answers."""
    return dict(re.findall(r"^(\w+): (https?://\S+)\r?$", message.get_content(), re.MULTILINE))


def wants(euros: int, ticket: str = "4711") -> ScriptedModel:
    return ScriptedModel(calls(call("refund", ticket=ticket, euros=euros)), says("Done."))


@pytest.mark.slow  # a process of the desk
@pytest.mark.accepts("D74")
async def test_refunds_are_decided_by_links_as_the_page_says(tell: Tell) -> None:
    """A link shows, its button decides once, and a link that was changed does nothing."""
    model = ByTask({"one": wants(40), "two": wants(900), "three": wants(1, LONG)})
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    settings = WorkerSettings(
        webhook_hosts=(f"private:127.0.0.1:{port}",), webhook_secrets=(WEBHOOK_SECRET,)
    )
    waits: dict[str, Any] = {"on_wait": f"{address}/waits"}
    async with receiving() as (mailbox, mail_port), tell("recipes/email-approvals") as story:
        client = await story.works(await story.defining("agent"), model, settings=settings)
        [command] = commands(await story.up_to("The program", "console"))
        story.terminal.environment |= {
            "WEBHOOK_SECRET": WEBHOOK_SECRET,
            "LINK_SECRET": "a text that nobody knows",
            "DESK_URL": address,
            "DECIDES": ANNA,
            "MAIL_FROM": "desk@example.com",
            "MAIL_HOST": "127.0.0.1",
            "MAIL_PORT": str(mail_port),
        }
        async with story.terminal.stays(command, port), httpx.AsyncClient(timeout=60) as browser:
            first = await client.start("support", "one", id="ticket-1", **waits)
            [message] = await mailbox.until(1)
            yes, no = links(message)["approve"], links(message)["deny"]
            shown = await browser.get(yes)
            [still] = await first.pending_approvals()
            changed = await browser.post(yes[:-2] + ("A" if yes[-2] != "A" else "B") + yes[-1])
            decided = await browser.post(yes)
            report = await first.result()
            again = [await browser.post(no), await browser.post(yes)]
            forged = await browser.post(f"{address}/waits", content=b"{}")
            second = await client.start("support", "two", id="ticket-2", **waits)
            await browser.post(links((await mailbox.until(2))[1])["deny"])
            denied = await second.result()
            third = await client.start("support", "three", id="ticket-3", **waits)
            [*_, long] = await mailbox.until(3)
            await third.cancel()

    assert (message["to"], message["subject"]) == (ANNA, "Please decide: refund")
    assert 'ticket-1: refund {"ticket": "4711", "euros": 40}' in message.get_content()
    assert "&quot;euros&quot;: 40" in shown.text
    assert still.tool == "refund"
    assert (changed.status_code, forged.status_code) == (404, 401)
    assert (decided.status_code, decided.text) == (200, f"ticket-1: approve by {ANNA}")
    assert [(one.status_code, "was approved" in one.text) for one in again] == [(409, False)] * 2
    assert [(one.approve, one.by) for one in report.steps[0].decisions] == [(True, ANNA)]
    assert [(one.approve, one.by) for one in denied.steps[0].decisions] == [(False, ANNA)]
    assert links(long) == {}
    assert "Its arguments are too long" in long.get_content()
