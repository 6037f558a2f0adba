"""What is being said in a turn right now: a look at the heartbeats of its model calls, which all who listen in one process share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from perdure.activities.payloads import unpack
from perdure.errors import PerdureError
from perdure.facts import Key
from perdure.wire import LiveText

_FRESH_S = 0.25

Describe = Callable[[], Awaitable[DescribeWorkflowExecutionResponse]]


@dataclass(frozen=True, slots=True)
class Heard:
    """The end of what was said in a model call, from the character at `offset` on."""

    key: Key
    offset: int
    text: str


class Ear:
    """Listens to one run of a turn."""

    def __init__(self, describe: Describe, converter: DataConverter) -> None:
        self._describe = describe
        self._converter = converter
        self._look: asyncio.Task[tuple[Heard, ...]] | None = None
        self._looked_at = float("-inf")

    async def listen(self) -> tuple[Heard, ...]:
        """What the calls in flight have said; nothing where Temporal does not answer."""
        if self._look is None or (self._look.done() and asyncio.get_running_loop().time() - self._looked_at > _FRESH_S):
            self._look = asyncio.create_task(self._listen())
        return await asyncio.shield(self._look)

    async def _listen(self) -> tuple[Heard, ...]:
        try:
            pending = (await self._describe()).pending_activities
        except RPCError:
            return ()
        heard = [await self._heard(activity) for activity in pending]
        self._looked_at = asyncio.get_running_loop().time()
        return tuple(one for one in heard if one is not None)

    async def _heard(self, activity: PendingActivityInfo) -> Heard | None:
        key, payloads = Key.parse(activity.activity_id), activity.heartbeat_details.payloads
        if key is None or not key.is_model_call or not payloads:
            return None
        [raw] = await self._converter.decode(payloads[:1], [RawValue])
        with contextlib.suppress(PerdureError):
            told = unpack(raw, LiveText)
            return Heard(key, told.offset, told.text)
        return None
