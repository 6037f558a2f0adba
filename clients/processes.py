"""The server and the worker as processes of their own, for commands that bring everything they need."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perdure import errors

_PATIENCE_S = 30.0

Process = asyncio.subprocess.Process


@dataclass(frozen=True)
class Server:
    """Where a Temporal server is; `process` where this command started it."""

    address: str
    ui: str | None
    process: asyncio.subprocess.Process | None = None

    async def stop(self) -> None:
        """Stop it, if this command started it."""
        if self.process is not None:
            await stop(self.process, signal.SIGINT)


async def embedded_server(state: Path) -> Server:
    """The server on this state folder: the one that runs already, or a new one.

    Raises:
        ServerUnreachableError: It did not start.
    """
    process = await _spawn("dev", "--json", "--state", str(state), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), _PATIENCE_S)
        found = json.loads(line)
    except (TimeoutError, ValueError):
        await stop(process, signal.SIGINT)
        raise errors.ServerUnreachableError("the embedded Temporal server did not start; `perdure dev` shows why") from None
    reused = await _ended_soon(process)
    return Server(found["address"], found["ui"], None if reused else process)


async def worker(app: str, address: str, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    """A worker process for `module:name`."""
    return await _spawn("worker", app, "--address", address, environment=environment)


async def stop(process: asyncio.subprocess.Process, how: signal.Signals) -> None:
    """Send a signal and wait; after a while, SIGKILL."""
    if process.returncode is None:
        process.send_signal(how)
        try:
            await asyncio.wait_for(process.wait(), _PATIENCE_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _spawn(
    *arguments: str, stdout: int | None = asyncio.subprocess.DEVNULL, environment: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "perdure",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=None if os.environ.get("PERDURE_SHOW_PROCESSES") else asyncio.subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )


async def _ended_soon(process: asyncio.subprocess.Process) -> bool:
    """`perdure dev --json` ends at once where a server runs already."""
    try:
        await asyncio.wait_for(process.wait(), 0.3)
    except TimeoutError:
        return False
    return True
