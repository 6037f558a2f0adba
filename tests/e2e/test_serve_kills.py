"""The gateway, the worker and the Temporal server are killed while a client follows a turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..support.e2e.command_line import CommandLine, Started
from ..support.e2e.outages import Outage
from ..support.e2e.restarted_server import server
from ..support.e2e.stories import Tell, asks, says, use
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor
from ..support.gateway.served import messages

__all__ = ["has_supervisor", "server"]

_OUTAGE_S = 3.0
_STEPS = 10
TOKEN = "0123456789abcdef" * 2
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Browser:
    """A client that follows a turn, and reconnects with the last id that it knows.

    Attributes:
        gateway: The address of the gateway; another one may take its place.
        seen: The id and the data of each message with an id.
    """

    def __init__(self, gateway: str, path: str) -> None:
        self.gateway = gateway
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self._path = path

    async def follow(self) -> None:
        """Follow the turn to its end."""
        while not (self.seen and self.seen[-1][1]["kind"] == "turn_ended"):
            try:
                async with httpx.AsyncClient(
                    base_url=self.gateway, headers=BEARER, timeout=60
                ) as http:
                    last = self.seen[-1][0] if self.seen else ""
                    async for cursor, data in messages(http, self._path, last):
                        if cursor:
                            self.seen.append((cursor, data))
            except (httpx.TransportError, httpx.HTTPStatusError):
                await asyncio.sleep(0.2)  # as browsers do


async def url_of(started: Started) -> str:
    """The address that a gateway has printed."""
    return (await asyncio.to_thread(started.wait_for, r"(http://\S+); Ctrl-C"))[1]


@pytest.mark.slow
@pytest.mark.accepts("H9", "H6")
async def test_client_goes_on_after_kills_of_gateway_worker_and_server(
    tell: Tell,
    server: Outage,
    tmp_path: Path,
) -> None:
    """Each event exactly once, in the order of history; and again after every cursor."""
    story = await tell(
        *(asks(use("fetch", f"fetch {n}"), delay_s=0.3) for n in range(1, _STEPS)),
        says("done"),
        address=server.address,
    )
    worker = await story.worker()
    here, command = CommandLine(tmp_path), ("serve", "--address", server.address, "--port", "0")
    here.environment["PERDURE_TOKEN"] = TOKEN
    with here.started(*command) as first, here.started(*command) as second:
        gateways = [await url_of(one) for one in (first, second)]
        turn = await story.start()
        path = f"/v1/turns/{turn.id}/events"
        browser = Browser(gateways[0], path)
        following = asyncio.create_task(browser.follow())
        await story.asked(2)
        await story.replace(worker)
        await story.asked(len(story.log()) + 1)
        first.process.kill()
        browser.gateway = gateways[1]
        await story.asked(len(story.log()) + 1)
        await server.happen(_OUTAGE_S)
        await story.report(turn)
        await asyncio.wait_for(following, 60)
    with here.started(*command) as third:
        async with httpx.AsyncClient(
            base_url=await url_of(third), headers=BEARER, timeout=60
        ) as http:
            cursors = [cursor async for cursor, _ in messages(http, path) if cursor]
            resumed = [
                [cursor async for cursor, _ in messages(http, path, after) if cursor]
                for after in cursors[:-1]
            ]
            end = await http.get(path, headers={"Last-Event-ID": cursors[-1]})

    another = await story.connect()
    assert cursors == [event.cursor async for event in another.turn(turn.id).events()]
    assert [cursor for cursor, _ in browser.seen] == cursors
    assert resumed == [cursors[number:] for number in range(1, len(cursors))]
    assert end.status_code == 204
