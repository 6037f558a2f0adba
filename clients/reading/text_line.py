"""The text of a model call, read from the worker that generates it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from perdure.live_text import lines
from perdure.live_text.values import LiveText, TextSource
from perdure.temporal.payloads import unpack
from perdure.turn.keys import ModelKey

_CONNECT_S = 2.0
_STALE_S = 2.0
"""A line that has been silent for so long may be broken, so heartbeats are read, too."""


class TextLine:
    """A connection to the worker that generates a text.

    It ends when the text is complete, when the worker is gone, or when there is no way to it.

    Attributes:
        key: The key of the model call.
        text: The text so far.
    """

    def __init__(
        self,
        key: ModelKey,
        source: TextSource,
        converter: DataConverter,
        tell: Callable[[], None],
    ) -> None:
        self.key = key
        self.text = ""
        self._source = source
        self._converter = converter
        self._tell = tell
        self._is_let_in = False
        self._heard_at = float("-inf")
        self._reading = asyncio.create_task(self._read())

    @property
    def is_open(self) -> bool:
        """Whether the worker may send more on this line."""
        return self._is_let_in and not self._reading.done()

    @property
    def is_fresh(self) -> bool:
        """Whether the line was opened, or has brought something, a moment ago."""
        return asyncio.get_running_loop().time() - self._heard_at < _STALE_S

    async def ended(self) -> None:
        """Wait until nothing more will come."""
        await asyncio.wait({self._reading})

    async def close(self) -> None:
        """Close the connection."""
        self._reading.cancel()
        await self.ended()

    async def _read(self) -> None:
        # whatever the other side sends: history has the text in the end
        with contextlib.suppress(Exception):
            await self._follow()

    async def _follow(self) -> None:
        host, _, port = self._source.address.rpartition(":")
        async with asyncio.timeout(_CONNECT_S) as limit:
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                codes = await lines.ask(reader, writer, self._source.key)
                limit.reschedule(None)
                self._is_let_in, self._heard_at = True, asyncio.get_running_loop().time()
                async with contextlib.aclosing(lines.messages(reader, codes)) as messages:
                    async for message in messages:
                        await self._hear(message)
            finally:
                writer.close()

    async def _hear(self, message: bytes) -> None:
        [raw] = await self._converter.decode([Payload.FromString(message)], [RawValue])
        chunk = unpack(raw, LiveText)
        self.text += chunk.text
        self._heard_at = asyncio.get_running_loop().time()
        self._tell()
