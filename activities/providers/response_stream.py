"""A streamed answer of the responses API, event by event, as the body of a whole reply.

The last event holds that body: `response.completed`, `response.incomplete` or `response.failed`.
What came before it is the words as they are written, and the items, which some servers leave out of
the last event. An event `error` comes without a body.
"""

from __future__ import annotations

from typing import Any

from perdure.activities.provider import Heard
from perdure.activities.providers.lenient_json import mapping, text

_LAST = ("response.completed", "response.incomplete", "response.failed")
_WORDS = ("response.output_text.delta", "response.refusal.delta")
_ITEMS = ("response.output_item.added", "response.output_item.done")


class ResponseStream:
    """Puts events together. `heard` is given the words of the answer."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._items: dict[str, Any] = {}
        self._response: dict[str, Any] | None = None
        self._error: Any = None

    def take(self, name: str, data: dict[str, Any] | None) -> bool:
        """One more event. Those of a type that is not known are left out."""
        event = mapping(data)
        kind = text(event.get("type")) or name
        if kind == "error" or event.get("error"):
            self._error = event.get("error") or event
        elif kind in _LAST:
            self._response = mapping(event.get("response"))
        elif kind in _ITEMS:
            self._items[str(event.get("output_index"))] = event.get("item")
        elif kind in _WORDS and (words := text(event.get("delta"))):
            self._heard(words)
        return self._response is not None or self._error is not None

    def body(self) -> dict[str, Any] | None:
        """The body of a whole reply, or of one with an error in it."""
        if self._error is not None:
            return {"error": self._error, "output": list(self._items.values())}
        if self._response is None:
            return None
        return {
            **self._response,
            "output": self._response.get("output") or list(self._items.values()),
        }
