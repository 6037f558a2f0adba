"""A login at an MCP server, whose authorization server sends the browser back to this process."""

from __future__ import annotations

import asyncio
import contextlib
import webbrowser
from collections.abc import AsyncIterator
from urllib.parse import parse_qsl, urlsplit

from perdure import errors, limits
from perdure.clients.cli.drawing.screen import note
from perdure.clients.client import AgentClient
from perdure.clients.logins import LoginLink
from perdure.text import word

_PATH = "/callback"
_LINE_BYTES = 16 * 1024
_READ_S = 10.0
_DONE = "You may close this window: the command line says what became of the login."


async def log_in(
    client: AgentClient, turn_id: str, call_id: str | None, *, opens: bool, by: str | None
) -> LoginLink:
    """Log in for a call that waits, and return the login.

    Raises:
        InvalidRequestError: No call of the turn waits for a login, or several do.
        LoginError: It did not succeed, or took too long.
        PerdureError: As `AgentClient.complete_login`.
    """
    link = await client.login_link(turn_id, call_id or await _only_call(client, turn_id))
    async with _returned() as (redirect_uri, query):
        address = await client.begin_login(link, redirect_uri)
        note(f"log in as {word(link.subject)}, who gives access by it: {address}")
        if opens:
            await asyncio.to_thread(webbrowser.open, address)
        try:
            async with asyncio.timeout(limits.HTTP_LOGIN.total_seconds()):
                returned = await query
        except TimeoutError:
            raise errors.LoginError("nobody has logged in in time; begin again") from None
    return await client.complete_login(returned, by=by)


async def _only_call(client: AgentClient, turn_id: str) -> str:
    calls = [
        pending.call_id
        for pending in await client.turn(turn_id).pending_approvals()
        if pending.question and pending.question.login
    ]
    if len(calls) != 1:
        waiting = ", ".join(map(word, calls)) or "none"
        raise errors.InvalidRequestError(
            f"name the call of turn {word(turn_id)} with --call; those that wait for a login:"
            f" {waiting}"
        )
    return calls[0]


@contextlib.asynccontextmanager
async def _returned() -> AsyncIterator[tuple[str, asyncio.Future[dict[str, str]]]]:
    """Listen on loopback for the browser that comes back.

    Yields the address to come back to, and the query with which it does.
    """
    query: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, ValueError, OSError):
            async with asyncio.timeout(_READ_S):
                line = (await reader.readline()).decode("ascii", "replace").split(" ")
            target = urlsplit(line[1] if len(line) > 1 else "")
            is_return = line[0] == "GET" and target.path == _PATH
            if is_return and not query.done():
                query.set_result(dict(parse_qsl(target.query)))
            status, text = ("200 OK", _DONE) if is_return else ("404 Not Found", "")
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n{text}".encode())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=_LINE_BYTES)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}{_PATH}", query
