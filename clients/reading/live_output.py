"""The live output of a turn's model calls and tools.

It is read from heartbeats, once for all watchers in a process.
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

from perdure.errors import PerdureError
from perdure.temporal.payloads import unpack
from perdure.turn.keys import ModelKey, ToolKey, parse_key
from perdure.turn.wire import LiveText

_FRESH_S = 0.25

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
    """Reads the heartbeats of one run of a turn."""

    def __init__(self, describe: Describe, converter: DataConverter) -> None:
        self._describe = describe
        self._converter = converter
        self._look: asyncio.Task[tuple[Heard | HeartbeatDetails, ...]] | None = None
        self._looked_at = float("-inf")

    async def listen(self) -> tuple[Heard | HeartbeatDetails, ...]:
        """Return the last output of the calls in flight; empty if Temporal does not answer."""
        if self._look is None or (
            self._look.done() and asyncio.get_running_loop().time() - self._looked_at > _FRESH_S
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
            return Heard(key, live_text.offset, live_text.text)
        return None
