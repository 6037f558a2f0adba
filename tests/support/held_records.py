"""A codec that holds the record of a session's turn, as a slow key service would."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from perdure.temporal.names import RECORD_TURN


class HeldRecords(PayloadCodec):
    """Changes nothing, and can hold what the activity reads that records a turn.

    Attributes:
        is_held: Whether it has come to that.
        let_go: Whether it may go on.
    """

    def __init__(self) -> None:
        self.is_held, self.let_go = asyncio.Event(), asyncio.Event()
        self.let_go.set()

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        if activity.in_activity() and activity.info().activity_type == RECORD_TURN:
            if not self.let_go.is_set():
                self.is_held.set()
            await self.let_go.wait()
        return list(payloads)
