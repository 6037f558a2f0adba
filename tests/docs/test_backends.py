"""Run the program of `docs/backends.md` behind a real uvicorn, with an HTTP client."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest

from perdure import Agent, tool
from perdure.testing import ByTask, ScriptedModel, call, calls, says

from ..support.docs.commands import commands
from .conftest import Tell


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


DESK = Agent(name="desk", model="main", tools=[refund], instructions="Be kind.")
EVENTS = "/turns/ticket-1/events"


def model() -> ByTask:
    return ByTask(
        {
            "It is lost.": ScriptedModel(
                calls(call("refund", euros=40), text="I pay."), says("Done.")
            ),
            "Mine too.": ScriptedModel(calls(call("refund", euros=9)), says("Done.")),
            "Answer the ticket.": ScriptedModel(says("Done.")),
        }
    )


async def told(
    http: httpx.AsyncClient, path: str, cursor: str = ""
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """The messages of a stream: id and data."""
    headers = {"Last-Event-ID": cursor} if cursor else {}
    async with http.stream("GET", path, headers=headers) as stream:
        assert (stream.status_code, stream.headers["content-type"]) == (
            200,
            "text/event-stream; charset=utf-8",
        )
        last = ""
        async for line in stream.aiter_lines():
            name, _, value = line.partition(": ")
            last = value if name == "id" else last
            if name == "data":
                yield last, json.loads(value)


async def until(http: httpx.AsyncClient, path: str, kind: str) -> list[tuple[str, dict[str, Any]]]:
    """The messages up to the first of this kind; then the client disconnects."""
    seen = []
    async with aclosing(told(http, path)) as messages:  # type: ignore[type-var]
        async for message in messages:
            seen.append(message)
            if message[1]["kind"] == kind:
                break
    return seen


@pytest.mark.accepts("E19")
async def test_backend_starts_streams_resumes_approves_and_cancels(tell: Tell) -> None:
    """As on the page; no private field reaches the browser, and errors become status codes."""
    async with tell("backends") as story:
        client = await story.works([DESK], model())
        [command] = commands(await story.up_to("The whole program", "console"))
        async with (
            story.terminal.stays(command) as (uvicorn, printed),
            httpx.AsyncClient(timeout=60) as http,
        ):
            http.base_url = httpx.URL(re.findall(r"http://\S+", printed)[0])
            begun = [
                await http.put("/tickets/1", json={"text": text})
                for text in ("It is lost.", "It is lost.", "Another.")
            ]
            waits = (await http.get("/turns/ticket-1", params={"wait": 30})).json()
            first = await until(http, EVENTS, "wait_began")
            bad = [
                await http.get(EVENTS, headers={"Last-Event-ID": cursor})
                for cursor in ("bad", await a_cursor_of_another(http))
            ]
            [wait] = waits["waits"]
            decide = f"/turns/{wait['turn_id']}/calls/{wait['call']['call_id']}"
            answers = [
                await http.post(decide, json={"approve": True, "token": token})
                for token in ("wrong", wait["call"]["token"])
            ]
            rest = [message async for message in told(http, EVENTS, first[-1][0])]
            over = (await http.get("/turns/ticket-1", params={"wait": 30})).json()
            open_one = asyncio.create_task(until(http, "/turns/ticket-2/events", "turn_ended"))
            cancelled = await http.post("/turns/ticket-2/cancel")
            ended = await open_one
            missing = await http.get("/turns/ticket-1/desk-9")
            streams = await open_stream(http)
            uvicorn.send_signal(signal.SIGTERM)
            await asyncio.wait_for(uvicorn.wait(), 60)
            streams.cancel()
        await (await story.defining("tonight"))(client, 9)
        later = await client.turn("summary-9").status()
        await client.turn("summary-9").cancel()
        await (await story.defining("of_tenant"))(client, "north", 10)
        shared = await client.turn("ticket-10").result()

    assert [(one.status_code, one.json().get("code")) for one in begun] == [
        (202, None),
        (202, None),
        (409, "TURN_CONFLICT"),
    ]
    assert (waits["state"], wait["call"]["tool"], wait["call"]["arguments"]) == (
        "waiting",
        "refund",
        '{"euros": 40}',
    )
    assert [(one.status_code, one.json()["code"]) for one in bad] == [
        (422, "INVALID_REQUEST"),
        (410, "STALE_CURSOR"),
    ]
    assert [one.status_code for one in answers] == [409, 204]
    kinds = [data["kind"] for _, data in [*first, *rest]]
    cursors = [cursor for cursor, data in [*first, *rest] if "cursor" in data]
    # it may come after the end, if the turn ended before the stream began
    facts = [kind for kind in kinds if kind != "caught_up"]
    assert (facts[0], facts[-1], len(set(cursors)), facts != kinds) == (
        "turn_started",
        "turn_ended",
        len(cursors),
        True,
    )
    assert (
        "".join(data["text"] for _, data in [*first, *rest] if data["kind"] == "text")
        == "I pay.Done."
    )
    assert [
        word
        for word in ("It is lost", "Be kind", "euros")
        if word in json.dumps([data for _, data in [*first, *rest]])
    ] == []
    assert (over["state"], over["outcome"], over["last_text"]) == ("ended", "completed", "Done.")
    assert (cancelled.json(), ended[-1][1]["outcome"]) == ({"asked": True}, "cancelled")
    assert (later.deadline is not None, shared.output) == (True, "Done.")
    assert (missing.status_code, missing.json()["code"]) == (404, "TURN_NOT_FOUND")


async def a_cursor_of_another(http: httpx.AsyncClient) -> str:
    """A cursor of the second turn, which waits."""
    assert (await http.put("/tickets/2", json={"text": "Mine too."})).status_code == 202
    return (await until(http, "/turns/ticket-2/events", "wait_began"))[-1][0]


async def open_stream(http: httpx.AsyncClient) -> asyncio.Task[object]:
    """A stream of a running turn, open once its past events have arrived."""
    assert (await http.put("/tickets/3", json={"text": "Mine too."})).status_code == 202
    caught_up = asyncio.Event()

    async def read() -> None:
        async for _, data in told(http, "/turns/ticket-3/events"):
            if data["kind"] == "caught_up":
                caught_up.set()

    task: asyncio.Task[object] = asyncio.create_task(read())
    await asyncio.wait_for(caught_up.wait(), 60)
    return task
