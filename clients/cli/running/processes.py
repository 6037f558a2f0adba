"""A server and a worker as child processes, for commands that need no set-up.

They end with this process, however it ends: the standard input of each is a pipe from this process
that carries no data, and a child stops when it is closed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from perdure import errors
from perdure.text import clip

_PATIENCE_S = 30.0
_LAST_OUTPUT_BYTES = 2_000


@dataclass(frozen=True)
class ChildProcess:
    """A process that this command started, with its standard error."""

    process: asyncio.subprocess.Process
    log: IO[bytes]

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    def last_output(self) -> str:
        """Return the end of its standard error."""
        self.log.seek(0)
        return clip(
            self.log.read().decode(errors="replace").strip()[-_LAST_OUTPUT_BYTES:],
            _LAST_OUTPUT_BYTES,
        )

    async def stop(self, how: signal.Signals) -> None:
        """Send a signal and wait; after a while, SIGKILL."""
        if self.process.returncode is None:
            self.process.send_signal(how)
            try:
                await asyncio.wait_for(self.process.wait(), _PATIENCE_S)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
        self.log.close()


@dataclass(frozen=True)
class TemporalServer:
    """A Temporal server, embedded or the user's own.

    `child` is its process, if this command started it; `binary` is its program.
    """

    address: str
    ui: str | None = None
    is_embedded: bool = False
    child: ChildProcess | None = None
    binary: str = ""

    async def stop(self) -> None:
        """Stop the server, if this command started it."""
        if self.child is not None:
            await self.child.stop(signal.SIGINT)


async def embedded_server(state: Path) -> TemporalServer:
    """Return the server of this state folder: a running server, or a new one.

    Raises:
        ServerUnreachableError: The server did not start.
    """
    child = await _spawn(
        "dev",
        "--json",
        "--state",
        str(state),
        environment=_without_temporal({}),
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.process.stdout is not None
    try:
        address_line = json.loads(
            await asyncio.wait_for(child.process.stdout.readline(), _PATIENCE_S)
        )
        address, ui, started, binary = (
            address_line["address"],
            address_line["ui"],
            address_line["started"],
            address_line["server"],
        )
    except (TimeoutError, ValueError, KeyError):  # a line without these values is an error message
        error = child.last_output()
        await child.stop(signal.SIGINT)
        raise errors.ServerUnreachableError(
            f"the embedded Temporal server did not start: {error or '`perdure dev` shows why'}"
        ) from None
    return TemporalServer(
        address, ui, is_embedded=True, child=child if started else None, binary=binary
    )


async def worker(app: str, server: TemporalServer, settings: Mapping[str, str]) -> ChildProcess:
    """Start a worker process for `module:name`.

    For an embedded server, Temporal's environment variables are not passed on.
    """
    environment = _without_temporal(settings) if server.is_embedded else {**os.environ, **settings}
    return await _spawn("worker", app, "--address", server.address, environment=environment)


def _without_temporal(settings: Mapping[str, str]) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")},
        **settings,
    }


async def _spawn(
    *arguments: str, environment: Mapping[str, str], stdout: int = asyncio.subprocess.DEVNULL
) -> ChildProcess:
    log = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when the child is stopped
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "perdure",
        *arguments,
        "--attached",
        stdin=asyncio.subprocess.PIPE,
        stdout=stdout,
        stderr=log,
        env=environment,
        start_new_session=True,
    )
    return ChildProcess(process, log)
