"""Streams the text of a live turn past history: to readers of this process, and by heartbeats.

The heartbeats name the way to this process. They carry the text itself, too, for readers that have
no way to it.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from temporalio import activity

from perdure import limits
from perdure.activities import heartbeats
from perdure.activities.live_text import LiveTexts, TextOfCall
from perdure.activities.provider import ModelRequest, Provider, listen
from perdure.temporal.payloads import pack
from perdure.text import clean
from perdure.values.answers import ModelAnswer

EVERY_S = 0.25
"""The interval at which text is sent, as each heartbeat repeats as much earlier text as fits.

The SDK sends up to half as many again.
"""


async def tell(provider: Provider, request: ModelRequest, texts: LiveTexts) -> ModelAnswer:
    """Send the request and stream its text, to readers and through heartbeats of this activity.

    Raises:
        LLMError: As for the provider.
    """
    with (
        texts.text(activity.client().data_converter) as text,
        _TextHeartbeats(heartbeats.beat_of_this_activity(), text) as beating,
    ):
        return await listen(provider, request, beating.hear)


class _TextHeartbeats:
    """Sends the end of a text at intervals while its block runs."""

    def __init__(self, beat: heartbeats.Beat, text: TextOfCall) -> None:
        self._beat = beat
        self._text = text
        self._due: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        if self._text.source is not None:
            self._send()  # readers know the way before there is a text
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._due is not None:
            self._due.cancel()

    def hear(self, piece: str) -> None:
        self._text.add(clean(piece))
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(EVERY_S, self._send)

    def _send(self) -> None:
        self._due = None
        self._beat(pack(self._text.end(limits.LIVE_TEXT_BYTES)))
