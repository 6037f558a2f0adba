"""A connection that can be cut: a TCP proxy on loopback."""

from __future__ import annotations

import asyncio
import contextlib


class Proxy:
    """Forwards connections to an address, until they are cut.

    Attributes:
        address: Where it listens, once it is started.
    """

    def __init__(self, target: str) -> None:
        self.address = ""
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._answers = asyncio.Event()
        self._answers.set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Close all connections, and listen no more."""
        self.cut()
        if self._server is not None:
            self._server.close()

    def cut(self) -> int:
        """Break all connections, and refuse others; return how many were open."""
        self._is_cut = True
        broken = list(self._open)
        for writer in broken:
            writer.transport.abort()
        return len(broken) // 2

    def mend(self) -> None:
        """Accept connections again."""
        self._is_cut = False

    def hold(self) -> None:
        """Keep back what the other side sends from now on."""
        self._answers.clear()

    def release(self) -> None:
        """Deliver it."""
        self._answers.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
            both = {writer, far_writer}
            self._open |= both
            try:
                await asyncio.gather(
                    _pump(reader, far_writer), _pump(far_reader, writer, self._answers)
                )
            finally:
                self._open -= both
                for one in both:
                    one.close()
            return
        writer.close()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may: asyncio.Event | None = None
) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            if may is not None:
                await may.wait()
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
