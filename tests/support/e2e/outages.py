"""A Temporal server with a database file, which is killed and started again."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from perdure.worker.dev.server import DevServer


class Outage:
    """A server that can be down for a while.

    Its port is below the ephemeral range, so that the port stays free while it is down.
    """

    def __init__(
        self, folder: Path, *, extra_args: Sequence[str] = (), binary: Path | None = None
    ) -> None:
        self._folder = folder
        self._extra_args = extra_args
        self._binary = binary
        self._server = self._at(random.randrange(20_000, 30_000))
        self.address = ""

    def _at(self, port: int) -> DevServer:
        return DevServer(
            folder=self._folder,
            port=port,
            ui=False,
            extra_args=self._extra_args,
            binary=self._binary,
        )

    @property
    def pid(self) -> int:
        """The process of the server."""
        return self._server.address.pid

    async def begin(self) -> None:
        """Start it for the first time."""
        self.address = (await self._server.start()).address

    async def happen(self, lasts_s: float) -> None:
        """Kill it, and start it again later, at the same address."""
        await self.kill()
        await asyncio.sleep(lasts_s)  # the outage itself
        await self.restart()

    async def kill(self) -> None:
        """The outage begins."""
        self._server.kill()
        await self._server.stop()

    async def restart(self) -> None:
        """Start it again, at the same address."""
        self._server = self._at(int(self.address.rpartition(":")[2]))
        assert (await self._server.start()).address == self.address

    async def end(self) -> None:
        """Stop it for good."""
        await self._server.stop()
