"""Reasoning of the responses API as a thought of a transcript, and back, field by field as it came.

What the model shows is the text of the thought. The rest of the item is its signature, as JSON: id,
encrypted content, and in place of each text that is shown its length, so that nothing stands in
history twice. Fields that are null stay out.
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
    """The thought that an item is; None where nothing is shown and it cannot go back.

    It can where it holds what a server that stores nothing needs: the reasoning, encrypted or in
    the open, and not a summary of it alone.
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
    """The item that a thought was; None for one that cannot go back."""
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
    """A part with the length of its text in place of it."""
    words = mapping(part).get("text")
    return {**part, "text": len(words)} if isinstance(words, str) else part


def _parts(item: Mapping[str, Any], kind: type = str) -> list[dict[str, Any]]:
    """The parts that are shown, in the order in which they are, whose text is of this type."""
    return [
        part
        for name in _SHOWN
        for part in items(item.get(name))
        if isinstance(mapping(part).get("text"), kind)
    ]
