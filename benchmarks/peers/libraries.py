"""Processes of libraries beside the workers of a bench, with the same interface, so that
`benchmarks.measures` can measure them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from temporalio.client import WorkflowHistory

from benchmarks import measures
from benchmarks.bench import SIZE, Bench, Kind, WorkerProcess
from benchmarks.peers import stores


@dataclass(frozen=True)
class Library(Kind):
    """An implementation without a workflow server: `module` is `MODULE:VARIANT:DATABASE`,
    `workflow` is `sqlite` or `postgres`.
    """


@dataclass
class LibraryProcess(WorkerProcess):
    """The process of a library, and its output."""

    url: str = ""
    ran: list[float] = field(default_factory=list)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    _ends: dict[str, asyncio.Future[str]] = field(default_factory=dict)

    async def read(self) -> None:
        """Read its output."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            match line.decode(errors="replace").split():
                case ["cpu", number]:
                    await self._cpu.put(float(number))
                case ["asked", number]:
                    self.asked.append(float(number))
                case ["ran", _, number]:
                    self.ran.append(float(number))
                case ["ready"]:
                    self.ready.set()
                case ["done", turn_id]:
                    self._ends[turn_id].set_result("done")
                case ["failed", turn_id, error]:
                    self._ends[turn_id].set_result(error)

    async def turn(self, turn_id: str, task: str) -> str:
        """The end of a turn."""
        return await self._told(f"run {turn_id} {task}\n", turn_id)

    async def again(self, turn_id: str) -> str:
        """The end of a turn that another process started."""
        return await self._told(f"again {turn_id}\n", turn_id)

    async def _told(self, line: str, turn_id: str) -> str:
        assert self.process.stdin is not None
        end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._ends[turn_id] = end
        self.process.stdin.write(line.encode())
        await self.process.stdin.drain()
        return await end


@contextlib.asynccontextmanager
async def living(module: str, url: str, **environment: str) -> AsyncIterator[LibraryProcess]:
    """A process of a library that is ready, and is ended with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.peers.library_job",
        module,
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=None if "PEERS_STDERR" in os.environ else asyncio.subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    library = LibraryProcess(module, process, url=url)
    reader = asyncio.create_task(library.read())
    try:
        await library.ready.wait()
        yield library
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reader


@dataclass
class Mixed(Bench):
    """A bench with libraries beside implementations on Temporal."""

    async def turn(self, kind: Kind, steps: int, size: int = SIZE) -> tuple[float, WorkflowHistory]:
        """Run the job once; return its duration in seconds, and a history, which is empty for a
        library.
        """
        if not isinstance(kind, Library):
            return await super().turn(kind, steps, size)
        turn_id, began = f"turn-{time.monotonic_ns()}", time.perf_counter()
        ended = await self.library(kind).turn(turn_id, f"{steps} {size} 0")
        assert ended == "done", (kind.name, ended)
        return time.perf_counter() - began, WorkflowHistory(turn_id, [])

    async def followed(self, kind: Kind, steps: int) -> tuple[float, int, list[float]]:
        """Run the job once; return its seconds, the bytes that it stores, and the times of its
        model calls.
        """
        asked = self.workers[kind.module].asked
        before, began = len(asked), time.perf_counter()
        if isinstance(kind, Library):
            stored, seconds = await self.stored(kind, steps), time.perf_counter() - began
        else:
            seconds, history = await self.turn(kind, steps)
            stored = measures.size(history)
        return seconds, stored, asked[before:]

    def library(self, kind: Kind) -> LibraryProcess:
        """The library's process."""
        process = self.workers[kind.module]
        assert isinstance(process, LibraryProcess)
        return process

    async def stored(self, kind: Library, steps: int) -> int:
        """The bytes that a turn of this number of steps stores in its database."""
        before = stores.stored_bytes(self.library(kind).url)
        await self.turn(kind, steps)
        return stores.stored_bytes(self.library(kind).url) - before


@contextlib.asynccontextmanager
async def mixed(bench: Bench, libraries: Sequence[Library], folder: Path) -> AsyncIterator[Mixed]:
    """The bench with libraries that have each run once.

    Without PostgreSQL, those that need it are left out.
    """
    async with contextlib.AsyncExitStack() as stack:
        address = (
            await stack.enter_async_context(stores.postgres(folder / "postgres"))
            if stores.binaries()
            else None
        )
        both = Mixed(bench.address, bench.client, dict(bench.workers))
        for number, kind in enumerate(libraries):
            if kind.workflow == "postgres" and address is None:
                continue
            name = f"store_{number}"
            url = (
                stores.create(address, name)
                if address and kind.workflow == "postgres"
                else f"sqlite:///{folder / name}.db"
            )
            both.workers[kind.module] = await stack.enter_async_context(living(kind.module, url))
            await both.turn(kind, 5, 100)
        yield both


def cpu_s_below(program: str) -> float:
    """CPU seconds of the processes of a program that descend from this one.

    Linux only; elsewhere 0.
    """
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = entry.read_text(encoding="utf-8").partition("(")[2].rpartition(")")
            found[int(entry.parent.name)] = (name, rest.split())
    ticks = (
        int(rest[11]) + int(rest[12])
        for pid, (name, rest) in found.items()
        if name == program and _descends(pid, found)
    )
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def _descends(pid: int, found: dict[int, tuple[str, list[str]]]) -> bool:
    while pid in found and pid != os.getpid():
        pid = int(found[pid][1][1])
    return pid == os.getpid()


def present(bench: Bench, kinds: Sequence[Library]) -> list[Library]:
    """The implementations that can run here."""
    return [kind for kind in kinds if kind.module in bench.workers]
