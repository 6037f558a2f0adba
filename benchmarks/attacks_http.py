"""How much do attacks on a gateway slow down the requests of other callers?

`make -C benchmarks attacks-http`, or `python -m benchmarks.attacks_http NAME …` for some of them.

Blocks of quiet requests and of requests under attack alternate on the same gateway process, so that
the conditions are the same for both. The attacker has a token of its own, or none. The results are
ratios of times. The attacker is a process of its own (`--port PORT NAME`); it shares the processor
with the gateway, so an attack of plain requests is the one to compare with.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from benchmarks.attacks import Result, p99
from benchmarks.bench import working
from benchmarks.streams import MODULE, QUEUE, WAITS, Gateway, gateway, request_ms
from perdure.clients import AgentClient
from perdure.worker.dev.server import DevServer

BLOCKS, REQUESTS, PAUSE_S = 6, 40, 0.02
GOAL = 2.0
TURNS = 100
HONEST, EVIL = "honest" * 6, "evil" * 8
TOKENS = {HONEST: None, EVIL: "evil"}
"""The tenants of the callers."""

Attack = Callable[[Gateway], Coroutine[Any, Any, None]]
HEAD = f"Host: localhost\r\nAuthorization: Bearer {EVIL}\r\n"


async def hold(at: Gateway, sent: bytes, drip: bytes = b"") -> None:
    """Hold a connection until the gateway closes it, or the attack ends."""
    reading, writing = await asyncio.open_connection("127.0.0.1", at.port)
    with contextlib.closing(writing):
        writing.write(sent)
        while not reading.at_eof():
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(1):
                    await reading.read(65_536)
                continue
            writing.write(drip)


def held(count: int, sent: Callable[[int], bytes], drip: bytes = b"") -> Attack:
    """An attack of connections that are held."""

    async def attack(at: Gateway) -> None:
        numbers = itertools.count()
        places = asyncio.Semaphore(50)

        async def one() -> None:
            while True:
                async with places:
                    await asyncio.sleep(0.05)
                with contextlib.suppress(OSError):
                    await hold(at, sent(next(numbers)), drip)

        await asyncio.gather(*(one() for _ in range(count)))

    return attack


def posts(body: bytes, at_once: int = 2, path: str = "/v1/turns", more: str = "") -> Attack:
    """An attack of requests with a body, one after the other. `more` are further headers."""
    head = f"POST {path} HTTP/1.1\r\n{HEAD}{more}Content-Type: application/json\r\n"
    sent = f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    async def attack(at: Gateway) -> None:
        async def one() -> None:
            while True:
                with contextlib.suppress(OSError):
                    await hold(at, sent)

        await asyncio.gather(*(one() for _ in range(at_once)))

    return attack


def reads(path: str, at_once: int) -> Attack:
    """An attack of requests without a token, one after the other."""
    sent = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()

    async def attack(at: Gateway) -> None:
        async def one() -> None:
            while True:
                with contextlib.suppress(OSError):
                    await hold(at, sent)

        await asyncio.gather(*(one() for _ in range(at_once)))

    return attack


def unread(path: str, count: int, requests: int) -> Attack:
    """An attack of connections that send many requests in one packet, and read nothing."""
    sent = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * requests

    async def attack(at: Gateway) -> None:
        while True:
            opened = []
            for _ in range(count):
                with contextlib.suppress(OSError):
                    _, writing = await asyncio.open_connection("127.0.0.1", at.port, limit=1)
                    writing.write(sent)
                    opened.append(writing)
            await asyncio.sleep(2)
            for writing in opened:
                writing.close()

    return attack


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\n{HEAD}\r\n".encode()


SLOW = (
    f"POST /v1/turns HTTP/1.1\r\n{HEAD}"
    "Content-Type: application/json\r\nContent-Length: 9999\r\n\r\n"
)
FLOOD = json.dumps({"agent": "job", "task": "x" * 100, "unknown": 1}).encode()
MANY = b'{"id": "b", "agent": "job", "tasks": [' + b"1," * 199_000 + b"1]}"
RPC = b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": [' + b"1," * 2_000_000 + b"1]}"
MCP = "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
DEEP = "/v1/sessions/" + "messages/" * 6_000
FIELDS = b"{" + b",".join(b'"f%d":1' % number for number in range(300_000)) + b"}"

ATTACKS: dict[str, Attack] = {
    "nothing": lambda _: asyncio.sleep(3600),
    "two callers with plain requests": posts(FLOOD),
    "ten readers of the document": reads("/openapi.json", 10),
    "300 connections that read nothing": unread("/openapi.json", 300, 60),
    "1,000 connections that read nothing": unread("/openapi.json", 1000, 60),
    "1,000 that read no small answers": unread("/healthz", 1000, 60),
    "1,000 streams of one caller": held(1000, lambda n: get(f"/v1/turns/waits-{n % TURNS}/events")),
    "2,000 silent connections": held(2000, lambda _: b""),
    "500 heads that do not end": held(500, lambda _: b"GET / HTTP/1.1\r\n", b"x: y\r\n"),
    "500 bodies, a byte a second": held(500, lambda _: SLOW.encode(), b" "),
    "two bodies of 100 MB": posts(b" " * 100_000_000),
    "two bodies of 200,000 bad tasks": posts(MANY, path="/v1/batches"),
    "two bodies of 300,000 fields": posts(FIELDS),
    "two bodies of brackets": posts(b"[" * 4_000_000),
    "two bodies of 2,000,000 values, MCP": posts(RPC, path="/mcp", more=MCP),
    "two bodies of 2,000,000 values, A2A": posts(RPC, path="/a2a/job", more="A2A-Version: 1.0\r\n"),
    "ten readers of a path of 54 kB": reads(DEEP, 10),
}


async def honest_s(at: Gateway) -> float:
    return await request_ms(at, "/v1/turns/quick", token=HONEST) / 1000


async def measure(at: Gateway, attack: str) -> Result:
    """Alternating blocks of quiet requests and of requests under attack."""
    result = Result()
    for _ in range(BLOCKS):
        for taken in (result.quiet, result.beside):
            async with under(attack, at) if taken is result.beside else contextlib.nullcontext():
                for _ in range(REQUESTS):
                    taken.append(await honest_s(at))
                    await asyncio.sleep(PAUSE_S)
    return result


@contextlib.asynccontextmanager
async def under(attack: str, at: Gateway) -> AsyncIterator[None]:
    """The attack, until the end of the block."""
    attacking = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.attacks_http", "--port", str(at.port), attack)
    )
    await asyncio.sleep(2)  # it has begun
    try:
        yield
    finally:
        attacking.kill()
        await attacking.wait()
        await asyncio.sleep(0.5)


def tokens(folder: Path) -> Path:
    """The file of tokens: each is the name of its caller."""
    path = folder / "tokens.toml"
    entries = [
        f'[[caller]]\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\nsubject = "{name}"\n'
        + (f'tenant = "{tenant}"\n' if tenant else "")
        for name, tenant in TOKENS.items()
    ]
    path.write_text("\n".join(entries), encoding="utf-8")
    return path


def published(folder: Path) -> Path:
    """The file of the agents that are served over A2A."""
    path = folder / "agents.toml"
    path.write_text('[[agent]]\nname = "job"\ndescription = "Works."\n', encoding="utf-8")
    return path


async def main(names: list[str]) -> bool:
    """Print the table; return whether the goal is met everywhere."""
    is_well = True
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-attacks-")))
        server = await stack.enter_async_context(DevServer(folder=None, port=0, ui=False))
        address = server.address.address
        client = await AgentClient.connect(address, task_queue=QUEUE)
        await stack.enter_async_context(working(MODULE, address, QUEUE))
        await client.run("job", "1 100 0", id="quick")
        for number in range(TURNS):
            await client.start("job", "1 1 0", id=f"@evil/waits-{number}", delay=WAITS)
        print(
            f"{'milliseconds of another request':<34}    quiet p50, p99   attack p50, p99   ratios"
        )
        for name in ATTACKS:
            if names and not any(wanted in name for wanted in names):
                continue
            files = ("--tokens", str(tokens(folder)), "--a2a", str(published(folder)))
            async with gateway(address, *files) as at:
                await request_ms(at, "/v1/turns/quick", token=HONEST)
                before = at.megabytes()
                result = await measure(at, name)
                print(f"{result.row(name)}   {before:.0f} -> {at.megabytes():.0f} MB", flush=True)
                is_well = is_well and p99(result.beside) <= GOAL * p99(result.quiet)
    return is_well


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--port", port, name]:
            asyncio.run(ATTACKS[name](Gateway(0, int(port))))
    sys.exit(0 if asyncio.run(main(sys.argv[1:])) else 1)
