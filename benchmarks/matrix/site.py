"""Where jobs run: a Temporal server, gateways, and the workers of each job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.matrix import app
from benchmarks.matrix.witness import Line, post, read_from
from benchmarks.streams import TOKEN, Gateway, gateway
from perdure.clients import AgentClient
from perdure.worker.dev import server_binary
from tests.support.e2e.outages import Outage
from tests.support.e2e.proxy import Proxy
from tests.support.e2e.stories import kill_all, supervised

ROOT = Path(__file__).parents[2]
APP = "benchmarks.matrix.app:make"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
LOOK_S = 0.05
READY_S = 90.0
_SERVES = "Ctrl-C drains it"
_HEARTBEAT = {"PERDURE_HEARTBEAT_S": "1", "PERDURE_HEARTBEAT_TOLERANCE_S": "6"}
LOST_S = 7.0
"""The time without a heartbeat after which an activity of these workers counts as lost.

With less, several jobs at a time on two busy cores lose calls although nothing was done to them.
"""


class Record:
    """What the witness has written so far, by jobs; read from where the last reading ended."""

    def __init__(self, folder: Path, addresses: dict[str, str]) -> None:
        self.folder = folder
        self.addresses = addresses
        self._lines: dict[str, list[Line]] = {}
        self._place = 0

    def of(self, job: str) -> list[Line]:
        """The lines of a job."""
        lines, self._place = read_from(self.folder, self._place)
        for line in lines:
            self._lines.setdefault(line["job"], []).append(line)
        return self._lines.get(job, [])

    async def note(self, kind: str, job: str, **fields: Any) -> None:
        """Have the witness write a line."""
        line = {"kind": kind, "job": job, **fields}
        await asyncio.to_thread(post, self.addresses["service"], "/notes", line)


@dataclass
class Site:
    """A server with its gateways.

    Attributes:
        record: What the witness has seen.
        server: The server.
        client: A client of the server itself.
        gateways: Its gateways. The first that answers is asked.
    """

    record: Record
    server: Outage
    client: AgentClient
    gateways: list[Gateway]
    folder: Path

    async def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Ask a gateway, and another one if it does not answer, for as long as it takes."""
        for number in range(10**6):
            at = self.gateways[number % len(self.gateways)]
            with contextlib.suppress(httpx.TransportError):
                answer = await request(at, method, path, body)
                if answer.status_code < 500:
                    return answer
            await asyncio.sleep(0.2)
        raise TimeoutError


async def request(at: Gateway, method: str, path: str, body: Any = None) -> httpx.Response:
    """Ask a gateway once."""
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{at.port}", headers=BEARER, timeout=40, trust_env=False
    ) as http:
        return await http.request(method, path, json=body)


_ON_A_DISK_OF_ITS_OWN = """#!/bin/sh
exec unshare --user --map-root-user --mount sh -c '
  mount -t tmpfs -o size={megabytes}m tmpfs "{folder}" && exec "{binary}" "$@"
' sh "$@"
"""
DISK_MEGABYTES = 64
_JOURNAL = ("--sqlite-pragma=journal_mode=DELETE",)
"""Each transaction needs space; a write-ahead log would have some left."""


def on_a_small_disk(folder: Path, state: Path) -> Path:
    """Return a program that runs the server in a mount namespace, where its folder is a disk of its
    own in memory. It needs no rights beyond those of namespaces of users.
    """
    path = folder / "temporal-on-a-small-disk"
    program = _ON_A_DISK_OF_ITS_OWN.format(
        megabytes=DISK_MEGABYTES, folder=state.absolute(), binary=server_binary.find().path
    )
    path.write_text(program)
    path.chmod(0o700)
    return path


def has_small_disks() -> bool:
    """Return whether this machine allows them."""
    command = (
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "mount",
        "-t",
        "tmpfs",
        "x",
        "/mnt",
    )
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@contextlib.asynccontextmanager
async def opened(
    record: Record,
    folder: Path,
    *,
    gateways: int = 1,
    has_small_disk: bool = False,
    root: Path = ROOT,
) -> AsyncIterator[Site]:
    """A site for the duration of the block; the gateways are those of the product at `root`."""
    state = folder / "state"
    async with AsyncExitStack() as stack:
        binary = on_a_small_disk(folder, state) if has_small_disk else None
        server = Outage(state, binary=binary, extra_args=_JOURNAL if has_small_disk else ())
        await server.begin()
        stack.push_async_callback(server.end)
        client = await AgentClient.connect(server.address, task_queue="matrix")
        running = [
            await stack.enter_async_context(gateway(server.address, root=root))
            for _ in range(gateways)
        ]
        yield Site(record, server, client, running, folder)


@dataclass
class Crew:
    """The workers of a job, on a task queue of its own.

    Attributes:
        proxy: What stands between them and the server.
        workers: The supervisors that were started.
    """

    queue: str
    site: Site
    root: Path
    proxy: Proxy
    environment: dict[str, str]
    workers: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def start(self, **environment: str) -> asyncio.subprocess.Process:
        """Start a supervisor with its worker, and wait until it takes work.

        On a starved machine it may give up before the server has answered; then it is started
        again, as a process manager does.
        """
        async with asyncio.timeout(READY_S):
            while True:
                process = await self._start(environment)
                if process.returncode is None:
                    return process

    async def _start(self, environment: dict[str, str]) -> asyncio.subprocess.Process:
        """Start a supervisor, and wait until its worker takes work, or it has ended."""
        addresses = self.site.record.addresses
        ours = {
            **_HEARTBEAT,
            app.MODEL: addresses["model"],
            app.SERVICE: addresses["service"],
            "PERDURE_TASK_QUEUE": self.queue,
            "PERDURE_GRACE_S": "20",
            "PYTHONPATH": f"{self.root}:{ROOT}",
            "NO_PROXY": "*",
            **self.environment,
            **environment,
        }
        log = self.site.folder / f"{self.queue}-{len(self.workers)}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "perdure", "worker", APP, "--address", self.proxy.address),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                cwd=self.root,
                env={**os.environ, **ours},
                start_new_session=True,
            )
        self.workers.append(process)
        wanted = int(ours.get("PERDURE_PROCESSES", "1"))
        while process.returncode is None:
            if log.read_text(errors="replace").count(_SERVES) >= wanted:
                break
            await asyncio.sleep(LOOK_S)
        return process

    def children(self) -> list[int]:
        """The worker processes of all supervisors."""
        return [child for worker in self.workers for child in supervised(worker.pid)]

    async def end(self) -> None:
        """Kill all of them."""
        for worker in self.workers:
            await kill_all(worker)
        await self.proxy.close()


async def crew(queue: str, site: Site, root: Path = ROOT, **environment: str) -> Crew:
    """The workers of a job; none runs yet."""
    proxy = Proxy(site.server.address)
    await proxy.start()
    return Crew(queue, site, root, proxy, environment)
