"""The live output of a turn's model calls and tools.

It is read once for all watchers in a process: text from the worker that generates it, as soon as a
heartbeat has named the way, and everything else, or all if there is no way, from heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue
from temporalio.api.common.v1 import Payload
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from perdure.clients.reading.text_line import TextLine
from perdure.errors import PerdureError
from perdure.live_text.values import LiveText, TextSource
from perdure.temporal.payloads import unpack
from perdure.turn.keys import ModelKey, ToolKey, parse_key

_SILENT_LINE_S = 2.0
"""How old heartbeats may be beside a line that brings nothing: it may be broken."""
_LINE_PAUSE_S = 2.0
"""The time after which a line is opened again that was broken, or could not be opened."""

Describe = Callable[[], Awaitable[DescribeWorkflowExecutionResponse]]


@dataclass(frozen=True, slots=True)
class Heard:
    """The last text of a model call, from the character at `offset` on."""

    key: ModelKey
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class HeartbeatDetails:
    """The last details that a running tool passed to `ctx.heartbeat`."""

    key: ToolKey
    details: tuple[JsonValue, ...]


class Ear:
    """Hears the live output of one turn. `tell` is called when a line has brought a piece."""

    def __init__(
        self, describe: Describe, converter: DataConverter, tell: Callable[[], None]
    ) -> None:
        self._describe = describe
        self._converter = converter
        self._tell = tell
        self._look: asyncio.Task[tuple[Heard | HeartbeatDetails, ...]] | None = None
        self._looked_at = float("-inf")
        self._line: TextLine | None = None
        self._opened_at = float("-inf")
        self._known: ModelKey | None = None

    def has_heard_of(self, key: ModelKey) -> bool:
        """Return whether there has been a heartbeat of a model call."""
        return self._known == key

    async def listen(self, within_s: float) -> tuple[Heard | HeartbeatDetails, ...]:
        """Return the last output of the calls in flight.

        Args:
            within_s: How old it may be. Output that a line brings is always new.
        """
        line = self._line
        if line is None:
            return await self._last_look(within_s)
        heard = Heard(line.key, 0, line.text)
        if line.is_open and line.is_fresh:
            return (heard,)
        return (heard, *await self._last_look(_SILENT_LINE_S if line.is_open else within_s))

    async def close(self) -> None:
        """Close the line, when nobody listens any more."""
        look, self._look = self._look, None
        if look is not None:  # it may be about to open one
            look.cancel()
            await asyncio.wait({look})
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def _last_look(self, within_s: float) -> tuple[Heard | HeartbeatDetails, ...]:
        """Return what the heartbeats say; empty if Temporal does not answer."""
        if self._look is None or (
            self._look.done() and asyncio.get_running_loop().time() - self._looked_at > within_s
        ):
            self._look = asyncio.create_task(self._listen())
        return await asyncio.shield(self._look)

    async def _listen(self) -> tuple[Heard | HeartbeatDetails, ...]:
        try:
            pending = (await self._describe()).pending_activities
        except RPCError:
            return ()
        heard = [await self._heard(activity) for activity in pending]
        self._looked_at = asyncio.get_running_loop().time()
        return tuple(item for item in heard if item is not None)

    async def _heard(self, activity: PendingActivityInfo) -> Heard | HeartbeatDetails | None:
        key, payloads = parse_key(activity.activity_id), activity.heartbeat_details.payloads
        if not payloads:
            return None
        if isinstance(key, ToolKey):
            return HeartbeatDetails(key, tuple(await self._converter.decode(payloads)))
        return await self._words(key, payloads) if isinstance(key, ModelKey) else None

    async def _words(self, key: ModelKey, payloads: Sequence[Payload]) -> Heard | None:
        [raw] = await self._converter.decode(payloads[:1], [RawValue])
        with contextlib.suppress(PerdureError):
            live_text = unpack(raw, LiveText)
            self._known = key
            if live_text.source is not None:
                await self._keep_line(key, live_text.source)
            return Heard(key, live_text.offset, live_text.text)
        return None

    async def _keep_line(self, key: ModelKey, source: TextSource) -> None:
        """Open a line to the worker, unless it is open, or was tried a moment ago."""
        now, line = asyncio.get_running_loop().time(), self._line
        was_tried = now - self._opened_at < _LINE_PAUSE_S
        if line is not None and line.key == key and (line.is_open or was_tried):
            return
        if line is not None:
            await line.close()
        self._opened_at = now
        self._line = TextLine(key, source, self._converter, self._tell)
