"""How much do attacks on a worker slow down its ordinary turns?

`make -C benchmarks attacks`, or `python -m benchmarks.attacks NAME …` for some of them.

Each attack has its own worker process, and is repeated while ordinary turns are measured. Blocks of
quiet turns and of turns under attack alternate in the same process, so that the conditions are the
same for both. The results are ratios; the goal is a p99 of at most twice the quiet one. If an
ordinary turn does not end, it is reported as stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import math
import os
import secrets
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from benchmarks.attacked import FOLDER, QUEUE, URL
from perdure.clients import AgentClient
from perdure.worker.dev.server import DevServer

BLOCKS, TURNS = 10, 10
"""Short blocks, so that both kinds of turns meet the same load of the machine."""
WARM_UP = 5
LIMIT_S = 30.0
"""An honest turn takes a fraction of a second; one that takes as long as this is stopped."""
ATTACK_S = 10.0
"""An attack that has not ended by then is ended, and begins again."""
UP_S = 60.0
GOAL = 2.0
ALIASES = 9


def schema_bomb(levels: int) -> dict[str, Any]:
    """References with siblings, two in each definition: copies of 2^levels nodes."""
    named = {
        f"L{n}": {
            "type": "object",
            "properties": {key: {"$ref": f"#/$defs/L{n + 1}", "description": key} for key in "ab"},
        }
        for n in range(levels)
    }
    return {"$defs": {**named, f"L{levels}": {"type": "string"}}, "$ref": "#/$defs/L0"}


def all_of_bomb(levels: int) -> dict[str, Any]:
    """The same without copies: 2^levels validations."""
    named = {f"L{n}": {"allOf": [{"$ref": f"#/$defs/L{n + 1}"}] * 2} for n in range(levels)}
    return {
        "$defs": {**named, f"L{levels}": {}},
        "type": "object",
        "allOf": [{"$ref": "#/$defs/L0"}],
    }


CIRCLE = {
    "$defs": {"a": {"$ref": "#/$defs/a"}},
    "type": "object",
    "anyOf": [{"type": "string"}],
    "properties": {"x": {"$ref": "#/$defs/a"}},
}
UNIQUE = {
    "type": "object",
    "properties": {
        "x": {
            "type": "array",
            "uniqueItems": True,
            "items": {"type": "object", "properties": {"n": {"type": "integer"}}},
        }
    },
    "required": ["x"],
}


def _completion(
    text: str = "", tool: str = "", arguments: Mapping[str, object] | None = None, times: int = 1
) -> bytes:
    asked = [
        {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments or {})},
        }
        for n in range(times if tool else 0)
    ]
    message = {
        "role": "assistant",
        "content": text or None,
        **({"tool_calls": asked} if asked else {}),
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if asked else "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return json.dumps(
        {
            "id": "1",
            "object": "chat.completion",
            "model": "evil",
            "choices": [choice],
            "usage": usage,
        }
    ).encode()


BODIES: dict[str, Callable[[], bytes]] = {
    "plain": lambda: _completion('{"x": 1}'),
    "unique": lambda: _completion(json.dumps({"x": [{"n": n} for n in range(20_000)]})),
    "calls-1000": lambda: _completion(tool="look", times=1_000),
    "calls-20000": lambda: _completion(tool="unknown", times=20_000),
    "fence": lambda: _completion("Action: look\nAction Input: ```\n" + " " * 100_000 + "x"),
    "pattern": lambda: _completion(tool="list_files", arguments={"pattern": "[" * 20_000}),
    "huge": lambda: _completion(tool="huge"),
    "mcp": lambda: _completion(tool="raw__flood", arguments={"text": "x"}),
    "gzip": lambda: gzip.compress(b" " * 500_000_000, compresslevel=1),
    "large": lambda: _completion("x" * 20_000_000),
    "values": lambda: b"[" + b"[]," * 6_500_000 + b"[]]",
    "drip": lambda: _completion("slow"),
}


class _Provider(BaseHTTPRequestHandler):
    """Answers by the name of the model, with precomputed bodies."""

    protocol_version = "HTTP/1.0"
    made: dict[str, bytes] = {}

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["model"]
        body = self.made[asked]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if asked == "gzip":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        with contextlib.suppress(OSError):  # it closes the connection when the input is too long
            if asked != "drip":
                self.wfile.write(body)
            for place in range(len(body) if asked == "drip" else 0):
                self.wfile.write(body[place : place + 1])
                self.wfile.flush()
                time.sleep(0.05)

    def log_message(self, *_: object) -> None:
        """No log."""


@contextlib.contextmanager
def provider() -> Iterator[str]:
    """The base URL of a malicious provider."""
    _Provider.made = {name: make() for name, make in BODIES.items()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Provider)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()


@dataclass
class Target:
    """A worker, and the address of its health port."""

    client: AgentClient
    temporal: Client
    queue: str
    health_port: int
    process: asyncio.subprocess.Process


Attack = Callable[[Target], Awaitable[None]]


def turn_of(agent: str, schema: Mapping[str, Any] | None = None, at_once: int = 1) -> Attack:
    """Turns of an agent, started with Temporal's own client; those that have not ended in time are
    terminated.
    """

    async def start(target: Target) -> None:
        await asyncio.gather(*(one(target) for _ in range(at_once)))

    async def one(target: Target) -> None:
        given = {"agent": agent, "task": "go", **({"output_schema": schema} if schema else {})}
        name = f"evil-{secrets.token_hex(6)}"
        handle = await target.temporal.start_workflow(
            "AgentTurn", given, id=name, task_queue=target.queue
        )
        try:
            await asyncio.wait_for(handle.result(), ATTACK_S)
        except Exception:  # noqa: BLE001 - how it ends is not measured
            await asyncio.sleep(0.05)
        finally:
            with contextlib.suppress(RPCError):
                await handle.terminate("the attack is over")

    return start


async def silence(target: Target) -> None:
    """80 silent connections to the health port, held until the worker closes them.

    A probe without an answer counts as harm.
    """

    async def hold() -> None:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", target.health_port)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(), ATTACK_S)
            writer.close()

    held = asyncio.gather(*(hold() for _ in range(80)))
    reader, writer = await asyncio.open_connection("127.0.0.1", target.health_port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(LIMIT_S):
        answer = await reader.read()
    writer.close()
    await held
    if b" 200 " not in answer:
        raise HarmedError("a probe got no answer")


class HarmedError(Exception):
    """The attack had another effect than a slow turn."""


ATTACKS: dict[str, Attack] = {
    "nothing": lambda _: asyncio.sleep(1),
    "schema: 23 levels of references": turn_of("schema", schema_bomb(23)),
    "schema: 26 levels of allOf": turn_of("schema", all_of_bomb(26)),
    "schema: a circle, eight at once": turn_of("schema", CIRCLE, at_once=8),
    "answer: 20,000 unique items": turn_of("unique", UNIQUE),
    "answer: 1,000 calls at once": turn_of("many"),
    "answer: 20,000 unknown calls": turn_of("unknown"),
    "react_text: an open fence": turn_of("fence"),
    "list_files: a pattern of 20,000": turn_of("pattern"),
    "SKILL.md: aliases of aliases": turn_of("skills"),
    "MCP: a flood of lines": turn_of("mcp"),
    "health: 80 silent connections": silence,
    "provider: gzip of 500 MB": turn_of("gzip"),
    "provider: 20 MB": turn_of("large"),
    "provider: 20 MB of empty lists": turn_of("values"),
    "provider: a byte every 50 ms": turn_of("drip"),
    "tool: a result of 50 MB": turn_of("huge"),
}


@dataclass
class Result:
    """The durations of ordinary turns in seconds, and the harm, if any."""

    quiet: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    harm: str = ""

    def row(self, name: str) -> str:
        """A line of the table."""
        columns = [f"{name:<34}"]
        for taken in (self.quiet, self.beside):
            columns += [
                (
                    f"{p50(taken) * 1000:>7.0f} {p99(taken) * 1000:>7.0f}"
                    if taken
                    else f"{'-':>7} {'-':>7}"
                )
            ]
        if self.harm or not self.beside:
            return "  ".join([*columns, f"{'-':>5} {'-':>5}", self.harm])
        ratios = p50(self.beside) / p50(self.quiet), p99(self.beside) / p99(self.quiet)
        return "  ".join(
            [
                *columns,
                f"{ratios[0]:>5.2f} {ratios[1]:>5.2f}",
                "" if self.is_well else f"above the goal of {GOAL:g}",
            ]
        )

    @property
    def is_well(self) -> bool:
        """Whether the goal is met."""
        return not self.harm and p99(self.beside) <= GOAL * p99(self.quiet)


def p50(taken: list[float]) -> float:
    return statistics.median(taken)


def p99(taken: list[float]) -> float:
    return sorted(taken)[math.ceil(len(taken) * 0.99) - 1]


async def honest_turn(target: Target) -> float:
    """The duration of a turn. `TimeoutError` if it is stopped."""
    began = time.perf_counter()
    async with asyncio.timeout(LIMIT_S):
        await target.client.run("honest", "go")
    return time.perf_counter() - began


async def measure(target: Target, attack: Attack, blocks: int, turns: int) -> Result:
    """Alternating blocks of quiet turns and of turns under attack."""
    result = Result()
    for _ in range(WARM_UP):
        await honest_turn(target)
    for block in range(blocks):
        try:
            result.quiet += [await honest_turn(target) for _ in range(turns)]
            async with under(attack, target):
                for _ in range(turns):
                    result.beside.append(await honest_turn(target))
        except HarmedError as error:
            result.harm = str(error)
            return result
        except Exception as error:  # noqa: BLE001 - whatever ends an honest turn is what is told
            died = target.process.returncode is not None
            result.harm = (
                f"stopped in block {block + 1}:"
                f" {'the worker died' if died else type(error).__name__}"
            )
            return result
    return result


@contextlib.asynccontextmanager
async def under(attack: Attack, target: Target) -> AsyncIterator[None]:
    """The attack, repeated until the end of the block."""

    async def repeat() -> None:
        while True:
            await attack(target)

    task = asyncio.create_task(repeat())
    await asyncio.sleep(0.2)  # it has started
    try:
        yield
    finally:
        ended = task.done() and not task.cancelled() and task.exception()
        task.cancel()
        await asyncio.wait([task])
    if ended:
        raise ended


@contextlib.asynccontextmanager
async def target_of(address: str, url: str, folder: Path) -> AsyncIterator[Target]:
    """A fresh worker process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    queue = f"attacks-{secrets.token_hex(4)}"
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "perdure",
            "worker",
            "benchmarks.attacked:make",
            "--address",
            address,
            "--health-port",
            str(port),
        ),
        env={**os.environ, URL: url, FOLDER: str(folder), QUEUE: queue, "PERDURE_GRACE_S": "1"},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    temporal = await Client.connect(address)
    try:
        await _up(port)
        yield Target(
            AgentClient.from_temporal(temporal, task_queue=queue), temporal, queue, port, process
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _up(port: int) -> None:
    async with asyncio.timeout(UP_S):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.1)


def skill_with_aliases(folder: Path) -> None:
    """A name that expands to 10^9 items through its aliases."""
    levels = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, ALIASES)]
    skill = folder / "skills" / "bomb"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "\n".join(["---", *levels, f"name: *l{ALIASES - 1}", "description: x", "---", "x"]),
        encoding="utf-8",
    )


async def main(names: list[str], blocks: int = BLOCKS, turns: int = TURNS) -> bool:
    """Print the table; return whether the goal is met everywhere."""
    chosen = {
        name: attack
        for name, attack in ATTACKS.items()
        if not names or any(wanted in name for wanted in names)
    }
    header = (
        f"{'milliseconds of an honest turn':<34}  {'quiet p50':>9} {'p99':>5}  {'attack p50':>9}"
        f" {'p99':>4}  {'p50':>5} {'p99':>5}"
    )
    print(header, flush=True)
    is_well = True
    with tempfile.TemporaryDirectory(prefix="perdure-attacks-") as scratch, provider() as url:
        skill_with_aliases(Path(scratch))
        async with DevServer(folder=None, port=0, ui=False) as server:
            for name, attack in chosen.items():
                async with target_of(server.address.address, url, Path(scratch)) as target:
                    result = await measure(target, attack, blocks, turns)
                print(result.row(name), flush=True)
                is_well = is_well and result.is_well
    return is_well


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(sys.argv[1:])) else 1)
