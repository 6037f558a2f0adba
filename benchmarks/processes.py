"""Processes that are looked at from outside, and worker processes as users run theirs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
_TICKS = os.sysconf("SC_CLK_TCK")
_OWN, _OF_ENDED_CHILDREN = (11, 12), (13, 14)


@dataclass(frozen=True)
class Process:
    """A process of this machine, which runs Linux."""

    pid: int

    def megabytes(self) -> float:
        """Its resident memory."""
        with Path(f"/proc/{self.pid}/status").open(encoding="utf-8") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def cpu(self) -> float:
        """Its CPU time in seconds."""
        return self._cpu(_OWN)

    def cpu_of_all(self) -> float:
        """Its CPU time in seconds, with that of its children, also of those that have ended."""
        seconds = self._cpu(_OWN + _OF_ENDED_CHILDREN)
        for child in self.children():
            with contextlib.suppress(OSError):  # it has just ended
                seconds += child.cpu()
        return seconds

    def children(self) -> list[Process]:
        """The processes that it has started and that run; none if it has ended."""
        with contextlib.suppress(OSError):
            pids = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            return [Process(int(pid)) for pid in pids]
        return []

    def kill(self) -> None:
        """`kill -9`."""
        os.kill(self.pid, signal.SIGKILL)

    def _cpu(self, places: tuple[int, ...]) -> float:
        with Path(f"/proc/{self.pid}/stat").open(encoding="utf-8") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return sum(int(fields[place]) for place in places) / _TICKS


@contextlib.asynccontextmanager
async def supervised_workers(
    app: str, address: str, log: Path, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`perdure worker`, which is ended with the block; its supervisor."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perdure", "worker", app, "--address", address),
            stderr=output,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):  # it was killed
            kill_all(process.pid)
        await process.wait()


def kill_all(supervisor: int) -> None:
    """`kill -9` of a supervisor and of its processes."""
    children = Process(supervisor).children()
    Process(supervisor).kill()
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            child.kill()


def times_served(log: Path) -> int:
    """How many times a worker process has begun to serve, by the log of its supervisor."""
    return log.read_text(encoding="utf-8").count("Ctrl-C drains it") if log.exists() else 0
