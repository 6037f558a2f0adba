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
    fields = {name: value for name, value in item.items() if value is not None}
    plain = _BETWEEN.join(part["text"] for part in _parts(fields))
    if not text(fields.get("encrypted_content")) and not any(
        text(mapping(part).get("text")) for part in items(fields.get("content"))
    ):
        return Thinking(text=plain) if plain else None
    hollow = {name: list(map(_hollow, fields[name])) for name in _SHOWN if items(fields.get(name))}
    return Thinking(
        text=plain,
        signature=json.dumps({**fields, **hollow}, ensure_ascii=False, separators=(",", ":")),
    )


def item_of(thought: Thinking) -> dict[str, Any] | None:
    """Return the item for a thought; None for a thought that cannot be sent back."""
    try:
        item = mapping(json.loads(thought.signature or "null"))
    except (ValueError, RecursionError):
        return None
    if item.get("type") != "reasoning":
        return None
    remaining = thought.text
    for part in _parts(item, int):
        length = part["text"]
        part["text"], remaining = remaining[:length], remaining[length:].removeprefix(_BETWEEN)
    return item


def _hollow(part: Any) -> Any:
    """Return a part with its text replaced by the text's length."""
    content = mapping(part).get("text")
    return {**part, "text": len(content)} if isinstance(content, str) else part


def _parts(item: Mapping[str, Any], kind: type = str) -> list[dict[str, Any]]:
    """Return the visible parts in order, if their text is of type `kind`."""
    return [
        part
        for name in _SHOWN
        for part in items(item.get(name))
        if isinstance(mapping(part).get("text"), kind)
    ]
