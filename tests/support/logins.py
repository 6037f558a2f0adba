"""An agent with a calendar for which people log in, its worker, and the people."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import Agent, MCPServer
from perdure.activities.provider import Provider
from perdure.clients import AgentClient, Turn
from perdure.testing import FakeIssuer, ScriptedModel, call, calls, says
from perdure.values.approvals import PendingApproval
from perdure.values.inquiries import LoginRequest
from perdure.worker import AgentWorker

from .approving import send
from .data_subjects import Home
from .mcp.guarded_calendar import Calendar, calendar_of, logged_in

BACK = "http://127.0.0.1:1/back"
LOG_IN = calls(call("calendar__log_in"))
SEND = calls(call("send", to="bert"))
LUNCH = calls(call("calendar__add_event", title="Lunch"))
DONE = says("noted")


@dataclass
class Office:
    """A task queue of its own, with an authorization server and a calendar."""

    home: Home
    issuer: FakeIssuer
    calendar: Calendar

    def server(self, **options: Any) -> MCPServer:
        """The calendar, as agents have it."""
        return MCPServer.http("calendar", self.calendar.url, **{"login": True, **options})

    def worker(
        self,
        *answers: Any,
        agents: Sequence[Agent[Any]] = (),
        model: Provider | None = None,
        **options: Any,
    ) -> AgentWorker:
        """A worker of a secretary with the calendar, and of other agents."""
        secretary = Agent(
            name="secretary",
            model="scripted:secretary",
            toolboxes=[self.server(**options)],
            tools=[send],
        )
        return AgentWorker(
            [*agents] or secretary,
            task_queue=f"test-{self.home.id}",
            providers={"scripted": model or ScriptedModel(*answers)},
        )

    async def client(self) -> AgentClient:
        """A connection of its own."""
        return await self.home.client()

    async def start(self, client: AgentClient, **options: Any) -> Turn[str]:
        """Start a turn of the secretary for the data subject."""
        id = f"login-{secrets.token_hex(6)}"
        given = {"id": id, "subject": self.home.subject, **options}
        return await client.start("secretary", "Note it.", **given)

    async def log_in(self, client: AgentClient, turn: Turn[Any], tool: str = "") -> LoginRequest:
        """Log in for the call of a turn that waits, as a person does in a browser."""
        waiting, asked = await login_of(turn, tool)
        link = await client.login_link(turn.id, waiting.call_id)
        await client.complete_login(await logged_in(await client.begin_login(link, BACK)))
        return asked


async def login_of(turn: Turn[Any], tool: str = "") -> tuple[PendingApproval, LoginRequest]:
    """The call of a turn that waits for a login, once there is one, and what is asked for."""
    found: list[tuple[PendingApproval, LoginRequest]] = []

    async def waits() -> bool:
        found[:] = [
            (one, one.question.login)
            for one in await turn.pending_approvals()
            if one.question and one.question.login and one.tool.endswith(tool)
        ]
        return bool(found)

    await until(waits)
    return found[0]


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait for a condition that asks the server."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.fixture
def office(home: Home) -> Iterator[Office]:
    """An office whose calendar and authorization server run during the test."""
    with FakeIssuer() as issuer, calendar_of(issuer) as calendar:
        yield Office(home, issuer, calendar)
