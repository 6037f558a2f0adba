"""`perdure serve` as a process."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import time
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from perdure import Agent, limits
from perdure.testing import ScriptedModel, says

from ..conftest import Runtime
from ..support.e2e.command_line import CommandLine, InProcess, Started

TOKEN = "0123456789abcdef" * 2
BEARER = f"Bearer {TOKEN}"
SECRET = "fedcba9876543210" * 2
TOKENS = f"""
[[caller]]
sha256 = "{hashlib.sha256(SECRET.encode()).hexdigest()}"
subject = "anna"
tenant = "acme"
"""


@pytest.fixture
def perdure(perdure_server: str, tmp_path: Path) -> CommandLine:
    """The command line beside a server."""
    here = CommandLine(tmp_path)
    here.environment["TEMPORAL_ADDRESS"] = perdure_server
    (here.folder / "tokens.toml").write_text(TOKENS, encoding="utf-8")
    (here.folder / "tokens.toml").chmod(0o600)
    return here


@pytest.fixture
def here(perdure: CommandLine) -> InProcess:
    """The same, in this process."""
    here = InProcess(perdure.folder)
    here.environment = perdure.environment
    return here


async def url_of(started: Started) -> str:
    """The address that the command has printed."""
    printed = await asyncio.to_thread(started.wait_for, r"(http://\S+); Ctrl-C stops it")
    return printed[1].replace("0.0.0.0", "127.0.0.1")


@pytest.mark.accepts("H3", "H10")
async def test_gateway_serves_callers_by_their_tokens_until_it_is_stopped(
    perdure: CommandLine, runtime: Runtime
) -> None:
    """With a stream open; what a program sends cannot forge a line of the log."""
    agent = Agent(name="desk", model="scripted:x")
    async with runtime(agent, model=ScriptedModel(says("Yes."))) as client:
        turn = await client.start(agent, "Help.", id="@acme/serve-1", delay=timedelta(days=7))
        arguments = ("serve", "--tokens", "tokens.toml", "--host", "0.0.0.0", "--port", "0")
        with perdure.started(*arguments) as started:
            async with httpx.AsyncClient(base_url=await url_of(started), timeout=60) as http:
                strange = await http.get("/v1/turns/serve-1%0AINFO: forged")
                bare = await http.get("/v1/turns/serve-1")
                http.headers["Authorization"] = f"Bearer {SECRET}"
                found = await http.get("/v1/turns/serve-1")
                async with http.stream("GET", "/v1/turns/serve-1/events") as stream:
                    began = time.monotonic()
                    started.process.send_signal(signal.SIGTERM)
                    rest = "".join([line async for line in stream.aiter_lines()])
            code = await asyncio.to_thread(started.process.wait, 30)
            took = time.monotonic() - began
            said = started.stderr
        await turn.cancel()

    assert [one.status_code for one in (strange, bare, found)] == [404, 401, 200]
    assert found.json()["id"] == "@acme/serve-1"
    assert "turn_started" in rest
    assert (code, took < 10) == (0, True)
    assert len(said.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.accepts("H125")
async def test_gateway_without_a_file_of_tokens_makes_one_and_prints_it_once(
    perdure: CommandLine,
) -> None:
    """In the address of the page; its requests and those of others add nothing to the log. A token
    that is given is not printed, and two processes share it.
    """
    with perdure.started("serve", "--host", "0.0.0.0", "--port", "0") as made:
        printed = await asyncio.to_thread(made.wait_for, r"page +(http://\S+)/ui/#token=(\S+)")
        url, token = printed[1].replace("0.0.0.0", "127.0.0.1"), printed[2]
        refused = [await _status(url, who) for who in ("", "Bearer x", f"Basic {token}")]
        served = [await _status(url, f"Bearer {token}")]
    command = ("serve", "--port", "0")
    with (
        perdure.started(*command, PERDURE_TOKEN=TOKEN) as one,
        perdure.started(*command, PERDURE_TOKEN=TOKEN) as other,
    ):
        served += [await _status(await url_of(given), BEARER) for given in (one, other)]

    assert (refused, served) == ([401] * 3, [200] * 3)
    assert len(token) >= limits.TOKEN_CHARACTERS
    assert made.stderr.count(token) == 1
    assert [given.stderr.count("\n") for given in (made, one, other)] == [2, 1, 1], one.stderr
    assert TOKEN not in one.stderr


async def _status(url: str, authorization: str) -> int:
    async with httpx.AsyncClient(
        base_url=url, headers={"Authorization": authorization}, timeout=60
    ) as http:
        return (await http.get("/v1/about")).status_code


@pytest.mark.slow  # it waits for the time limit of a request's head
@pytest.mark.accepts("H17")
async def test_connections_that_send_no_request_are_closed(
    perdure: CommandLine, runtime: Runtime
) -> None:
    """Also between two requests, and one that sends a head slowly; a stream stays open."""
    agent = Agent(name="desk", model="scripted:x")
    async with runtime(agent, model=ScriptedModel()) as client:
        turn = await client.start(agent, "Help.", id="silent-1", delay=timedelta(days=7))
        with perdure.started("serve", "--port", "0", PERDURE_TOKEN=TOKEN) as started:
            port = int((await url_of(started)).rpartition(":")[2])
            begun = time.monotonic()
            stream = await _connected(port, _request("/v1/turns/silent-1/events"))
            silent = await _connected(port, b"")
            used = await _connected(port, _request("/healthz"))
            await used[0].readuntil(b"ok")
            used[1].write(b"G")  # else it would be closed earlier, as one that is kept alive
            slow = await _connected(port, b"GET /healthz HTTP/1.1\r\n")
            dripping = asyncio.create_task(_drip(slow[1]))
            async with asyncio.timeout(60):
                rest = [await one.read() for one, _ in (silent, slow, used)]
            took = time.monotonic() - begun
            await asyncio.wait({dripping})
            stream[1].write(b"")
            first = await stream[0].readuntil(b"turn_started")
            is_open = not stream[0].at_eof()
            for _, writing in (stream, silent, used, slow):
                writing.close()
        await turn.cancel()

    assert rest[:2] == [b"", b""]
    assert limits.HTTP_HEAD.total_seconds() <= took < limits.HTTP_HEAD.total_seconds() + 10
    assert (first.startswith(b"HTTP/1.1 200"), is_open) == (True, True)


@pytest.mark.accepts("H17")
async def test_idle_connections_make_room_for_others(
    perdure: CommandLine, runtime: Runtime
) -> None:
    """The one that has waited longest is closed first; if all are used, a new one is refused."""
    agent = Agent(name="desk", model="scripted:x")
    async with runtime(agent, model=ScriptedModel()) as client:
        turn = await client.start(agent, "Help.", id="room-1", delay=timedelta(days=7))
        options = ("serve", "--port", "0", "--max-connections", "2")
        with perdure.started(*options, PERDURE_TOKEN=TOKEN) as started:
            port = int((await url_of(started)).rpartition(":")[2])
            first, second = [await _connected(port, b"") for _ in range(2)]
            stream = await _connected(port, _request("/v1/turns/room-1/events"))
            closed = await first[0].read()
            await stream[0].readuntil(b"turn_started")
            other = await _connected(port, _request("/v1/turns/room-1/events"))
            replaced = await second[0].read()
            await other[0].readuntil(b"turn_started")
            third = await _connected(port, b"")
            refused = await third[0].read()
            for _, writing in (first, second, third, stream, other):
                writing.close()
        await turn.cancel()

    assert (closed, replaced) == (b"", b"")
    assert refused.startswith(b"HTTP/1.1 503 ")


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _connected(port: int, sent: bytes) -> Ends:
    """A connection on which this was sent."""
    reading, writing = await asyncio.open_connection("127.0.0.1", port)
    writing.write(sent)
    return reading, writing


def _request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {BEARER}\r\n\r\n".encode()


async def _drip(writing: asyncio.StreamWriter) -> None:
    """Send headers that do not end, until the connection is closed."""
    while not writing.is_closing():
        writing.write(b"x: y\r\n")
        await asyncio.sleep(0.5)


@pytest.mark.accepts("H10")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--a2a", "nothing.toml"), "the agents of nothing.toml cannot be read"),
        (("--tokens", "nothing.toml"), "the tokens of nothing.toml cannot be read"),
        (("--host", "192.0.2.1", "--tokens", "tokens.toml"), "cannot listen on 192.0.2.1"),
        (("--port", "70000"), "Invalid value for '--port'"),
    ],
    ids=str,
)
@pytest.mark.table(1)
def test_gateway_that_is_not_safe_or_not_valid_is_refused(
    here: InProcess, arguments: tuple[str, ...], words: str
) -> None:
    """In one line, with the exit code of a mistake."""
    done = here("serve", *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
