"""Processes that write lines of words, and read lines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass
class Told:
    """A process, and the lines that it wrote, split into words."""

    process: asyncio.subprocess.Process
    lines: list[list[str]] = field(default_factory=list)
    came: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def read(self) -> None:
        """Read its output."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            async with self.came:
                self.lines.append(line.decode(errors="replace").split())
                self.came.notify_all()

    def of(self, word: str) -> list[list[str]]:
        """The lines that start with this word."""
        return [line for line in self.lines if line[:1] == [word]]

    def calls(self) -> list[list[str]]:
        """The lines of model and tool calls."""
        return [*self.of("asked"), *self.of("ran")]

    async def until(self, word: str, count: int = 1) -> None:
        """Wait for this number of lines that start with this word."""
        async with self.came:
            await self.came.wait_for(lambda: len(self.of(word)) >= count)

    async def next_call(self) -> float:
        """The time of its first call."""
        async with self.came:
            await self.came.wait_for(self.calls)
        return min(float(line[-1]) for line in self.calls())

    async def say(self, line: str) -> None:
        """Write to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        await self.process.stdin.drain()


@contextlib.asynccontextmanager
async def telling(*arguments: str, **environment: str) -> AsyncIterator[Told]:
    """A process, ended with the block. Its errors are shown if `PEERS_STDERR` is set."""
    pipe = asyncio.subprocess.PIPE
    quiet = None if "PEERS_STDERR" in os.environ else asyncio.subprocess.DEVNULL
    command = (sys.executable, "-m", *arguments)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=quiet, env={**os.environ, **environment}
    )
    told = Told(process)
    reader = asyncio.create_task(told.read())
    try:
        yield told
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reader
