"""The page before a gateway whose answers are large: many turns, and a turn of many steps.

The answers are those of a real gateway about a small turn, repeated. A server could not be asked
to run so many turns for a test of what a browser does with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from perdure.clients.gateway import static_page

ABOUT = {"version": "0", "subject": "ada", "tenant": None, "may": ["read"], "temporal_ui": None}
Event = dict[str, Any]


class Large:
    """What the gateway says.

    Attributes:
        status: The status of the turn.
        events: The events of the turn, as server-sent events.
        entries: The turns of the list.
        extra: Further events, which are sent when they come.
    """

    def __init__(self, status: Event, events: Sequence[Event], entries: Sequence[Event]) -> None:
        self.status = status
        self.events = events
        self.entries = entries
        self.extra: asyncio.Queue[Event] = asyncio.Queue()

    def app(self) -> Starlette:
        """The page, and the operations that it asks for."""
        routes = [
            Route("/v1/about", _answers(ABOUT)),
            Route("/v1/approvals", _answers({"approvals": []})),
            Route("/v1/turns", self._list),
            Route("/v1/turns/{id:path}/effects", _answers({"effects": []})),
            Route("/v1/turns/{id:path}/events", self._follow),
            Route("/v1/turns/{id:path}", _answers(self.status)),
            *static_page.routes(),
        ]
        return Starlette(routes=routes)

    async def _list(self, request: Request) -> Response:
        limit = int(request.query_params.get("limit", "50"))
        after = int(request.query_params.get("after") or 0)
        rest = after + limit
        following = str(rest) if rest < len(self.entries) else None
        return JSONResponse({"turns": self.entries[after:rest], "next": following})

    async def _follow(self, request: Request) -> Response:
        return StreamingResponse(self._messages(), media_type="text/event-stream")

    async def _messages(self) -> AsyncIterator[str]:
        yield "".join(map(_message, self.events))
        yield _message({"v": 1, "kind": "caught_up"})
        while True:
            yield _message(await self.extra.get())


def _answers(value: Any) -> Any:
    async def answer(request: Request) -> Response:
        return JSONResponse(value)

    return answer


def _message(event: Event) -> str:
    cursor = event.get("cursor")
    head = f"id: {cursor}\n" if cursor else ""
    return f"{head}data: {json.dumps(event)}\n\n"


@contextlib.asynccontextmanager
async def serving(large: Large) -> AsyncIterator[str]:
    """The address of the page during the block."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(large.app(), log_config=None, timeout_graceful_shutdown=1, ws="none")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve([listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


def repeated(events: Sequence[Event], steps: int) -> list[Event]:
    """The events of a turn of one step with a call, with so many of such steps."""
    first = [one for one in events if one["step"] == 1]
    before = events[: events.index(first[0])]
    began = datetime.now(UTC) - timedelta(seconds=steps + 10)
    all_events = list(before)
    for step in range(1, steps + 1):
        for one in first:
            calls = [
                {**call, "call_id": f"{call['call_id']}-{step}"} for call in one.get("calls", ())
            ]
            call_id = one["call_id"] and f"{one['call_id']}-{step}"
            all_events.append(
                one | {"step": step, "call_id": call_id} | ({"calls": calls} if calls else {})
            )
    apart = timedelta(seconds=steps) / len(all_events)
    return [
        one | {"cursor": f"c-{place}", "at": (began + apart * place).isoformat()}
        for place, one in enumerate(all_events)
    ]


def many(entry: Event, number: int) -> list[Event]:
    """So many entries of the last day: every tenth has failed, and the first ten still run."""
    now = datetime.now(UTC)
    entries = []
    for place in range(number):
        at = (now - timedelta(seconds=place * 8)).isoformat()
        own: Event = {
            "id": f"turn-{place}",
            "task": f"Task {place}",
            "started_at": at,
            "ended_at": at,
        }
        if place < 10:
            own |= {"ended_at": None, "outcome": None, "state": "running"}
        elif place % 10 == 0:
            own |= {"outcome": "failed", "error": {"code": "LLM_AUTH", "message": "the key"}}
        entries.append(entry | own)
    return entries
