"""Converts reasoning items of the responses API to thoughts of a transcript and back, losslessly.

The visible text becomes the text of the thought. The rest of the item is its signature, as JSON:
the id, the encrypted content, and the length of each visible text in its place, so that nothing is
in the history twice. Null fields are omitted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perdure.activities.providers.lenient_json import items, mapping, text
from perdure.values.messages import Thinking

_SHOWN = ("summary", "content")
_BETWEEN = "\n\n"


def thought_of(item: Mapping[str, Any]) -> Thinking | None:
    """Return the thought for an item; None if it has no visible text and cannot be sent back.

    It can be sent back if it holds what a server that stores nothing needs: the reasoning itself,
    encrypted or in plain text, and not just a summary of it.
    """
    rest = {name: value for name, value in item.items() if value is not None}
    words = _BETWEEN.join(part["text"] for part in _parts(rest))
    if not text(rest.get("encrypted_content")) and not any(
        text(mapping(part).get("text")) for part in items(rest.get("content"))
    ):
        return Thinking(text=words) if words else None
    hollow = {name: list(map(_hollow, rest[name])) for name in _SHOWN if items(rest.get(name))}
    return Thinking(
        text=words,
        signature=json.dumps({**rest, **hollow}, ensure_ascii=False, separators=(",", ":")),
    )


def item_of(thought: Thinking) -> dict[str, Any] | None:
    """Return the item for a thought; None for one that cannot be sent back."""
    try:
        item = mapping(json.loads(thought.signature or "null"))
    except (ValueError, RecursionError):
        return None
    if item.get("type") != "reasoning":
        return None
    left = thought.text
    for part in _parts(item, int):
        length = part["text"]
        part["text"], left = left[:length], left[length:].removeprefix(_BETWEEN)
    return item


def _hollow(part: Any) -> Any:
    """Return a part with its text replaced by the text's length."""
    words = mapping(part).get("text")
    return {**part, "text": len(words)} if isinstance(words, str) else part


def _parts(item: Mapping[str, Any], kind: type = str) -> list[dict[str, Any]]:
    """Return the visible parts in order, if their text is of type `kind`."""
    return [
        part
        for name in _SHOWN
        for part in items(item.get(name))
        if isinstance(mapping(part).get("text"), kind)
    ]
