"""A codec whose key service does not answer: an activity of one kind is held, until it is killed.

The codec is the outermost edge that every activity has: it decodes its input, and encodes its
result. `hold` names what is held, once, and `held` waits until it is.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    DataConverter,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
)

from ...conftest import eventually

FOLDER = "E2E_GATE"
HELD_S = 60.0

Place = Literal["input", "result"]


def hold(folder: Path, kind: str, place: Place) -> None:
    """Hold the next activity of this kind before it begins, or before its result is sent."""
    (folder / f"{kind}.{place}").touch()


async def held(folder: Path, kind: str, place: Place) -> None:
    """Wait until such an activity is held."""
    file = folder / f"{kind}.{place}.held"
    await eventually(file.exists, f"{kind} is held at its {place}", within_s=HELD_S)
    file.unlink()


class HoldingCodec(PayloadCodec, WithSerializationContext):
    """Changes nothing, and holds what is to be held, in workers that have the folder."""

    def __init__(self, kind: str | None = None) -> None:
        self._kind = kind

    def with_context(self, context: SerializationContext) -> "HoldingCodec":
        """The codec of an activity knows its kind."""
        if isinstance(context, ActivitySerializationContext):
            return HoldingCodec(context.activity_type)
        return HoldingCodec()

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The first of an activity is its input."""
        await self._pass("input")
        return list(payloads)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """What an activity has encoded when it is done is its result."""
        if activity.in_activity():
            await self._pass("result")
        return list(payloads)

    async def _pass(self, place: Place) -> None:
        if self._kind is None or FOLDER not in os.environ:
            return
        file = Path(os.environ[FOLDER]) / f"{self._kind}.{place}"
        if file.exists():
            file.rename(f"{file}.held")
            await asyncio.Event().wait()


CONVERTER = DataConverter(payload_codec=HoldingCodec())
