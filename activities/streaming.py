"""Streams the text of a live turn through the heartbeats of its activity, not through history."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from perdure import limits
from perdure.activities import heartbeats
from perdure.activities.provider import ModelRequest, Provider, listen
from perdure.temporal.payloads import pack
from perdure.text import clean, tail
from perdure.turn.wire import LiveText
from perdure.values.answers import ModelAnswer

EVERY_S = 0.25
"""The interval at which text is sent, as each heartbeat repeats as much earlier text as fits.

The SDK sends up to half as many again.
"""


async def tell(provider: Provider, request: ModelRequest) -> ModelAnswer:
    """Send the request and stream its text through the heartbeats of this activity.

    Raises:
        LLMError: As for the provider.
    """
    with _Telling(heartbeats.beat_of_this_activity()) as telling:
        return await listen(provider, request, telling.hear)


class _Telling:
    """Collects text and sends it at intervals while its block runs."""

    def __init__(self, beat: heartbeats.Beat) -> None:
        self._beat = beat
        self._offset = 0
        self._said: list[str] = []
        self._due: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._due is not None:
            self._due.cancel()

    def hear(self, text: str) -> None:
        self._said.append(clean(text))
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(EVERY_S, self._tell)

    def _tell(self) -> None:
        self._due = None
        text = "".join(self._said)
        recent = tail(text, limits.LIVE_TEXT_BYTES)
        self._offset += len(text) - len(recent)
        self._said = [recent]
        self._beat(pack(LiveText(offset=self._offset, text=recent)))
