"""Assembles a streamed answer of the responses API into the body of a whole reply.

The last event holds that body: `response.completed`, `response.incomplete` or `response.failed`.
Earlier events carry the text as it is written, and the items, which some servers leave out of the
last event. An `error` event has no body.
"""

from __future__ import annotations

from typing import Any

from perdure.activities.provider import Heard
from perdure.activities.providers.lenient_json import mapping, text

_LAST = ("response.completed", "response.incomplete", "response.failed")
_WORDS = ("response.output_text.delta", "response.refusal.delta")
_ITEMS = ("response.output_item.added", "response.output_item.done")


class ResponseStream:
    """Assembles events. The text of the answer is passed to `heard` as it arrives."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._items: dict[str, Any] = {}
        self._response: dict[str, Any] | None = None
        self._error: Any = None

    def take(self, name: str, data: dict[str, Any] | None) -> bool:
        """Add an event. Unknown types are ignored."""
        event = mapping(data)
        kind = text(event.get("type")) or name
        if kind == "error" or event.get("error"):
            self._error = event.get("error") or event
        elif kind in _LAST:
            self._response = mapping(event.get("response"))
        elif kind in _ITEMS:
            self._items[str(event.get("output_index"))] = event.get("item")
        elif kind in _WORDS and (piece := text(event.get("delta"))):
            self._heard(piece)
        return self._response is not None or self._error is not None

    def body(self) -> dict[str, Any] | None:
        """Return the body of a whole reply, which may hold an error."""
        if self._error is not None:
            return {"error": self._error, "output": list(self._items.values())}
        if self._response is None:
            return None
        return {
            **self._response,
            "output": self._response.get("output") or list(self._items.values()),
        }
