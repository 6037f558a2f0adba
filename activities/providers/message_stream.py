"""Assembles a streamed answer of the messages API into the body of a whole reply.

The answer is complete with `message_stop`, if every call in it has ended. Blocks are assembled
from their deltas: text, thinking and its signature, and the JSON of a call's input, which remains
text if it is invalid (an answer cut off at its limit may end inside it).

`message_start` reports the input and a first count of the output, `message_delta` the final count.
The output therefore counts as unknown before `message_delta`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perdure import errors
from perdure.activities.provider import Heard
from perdure.activities.providers.lenient_json import mapping, parsed, text

_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""The field of a delta to append, by the delta's type.

Except for a call's input, the field of the block has the same name.
"""


class MessageStream:
    """Assembles events. The text of the answer is passed to `heard` as it arrives.

    `name` is the vendor's name in error texts.
    """

    def __init__(self, name: str, heard: Heard) -> None:
        self._name = name
        self._heard = heard
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[Any, _Block] = {}
        self._error: Any = None
        self._is_over = False

    def take(self, name: str, data: dict[str, Any] | None) -> bool:
        """Add an event. Unknown types are ignored, as the API demands."""
        event = mapping(data)
        kind = text(event.get("type")) or name
        if kind == "error" or event.get("error"):
            self._error = event.get("error") or event
        elif kind == "message_start":
            self._message = {**mapping(event.get("message"))}
            self._usage = {**mapping(self._message.get("usage")), "output_tokens": None}
        elif kind == "message_delta":
            self._message |= mapping(event.get("delta"))
            self._usage |= {
                name: value
                for name, value in mapping(event.get("usage")).items()
                if value is not None
            }
        elif kind.startswith("content_block_"):
            self._build(kind, event)
        self._is_over = kind == "message_stop"
        return self._is_over or self._error is not None

    def body(self) -> dict[str, Any] | None:
        """Return the body of a whole reply, which may hold an error."""
        is_whole = self._is_over and not any(block.is_open_call for block in self._blocks.values())
        if not is_whole and self._error is None:
            return None
        body = {
            **self._message,
            "content": [block.whole() for block in self._blocks.values()],
            "usage": self._usage,
        }
        return {**body, "error": self._error} if self._error is not None else body

    def _build(self, kind: str, event: dict[str, Any]) -> None:
        index = str(event.get("index"))
        if kind == "content_block_start":
            self._blocks[index] = _Block(mapping(event.get("content_block")))
            self._hear(text(self._blocks[index].start.get("text")))
            return
        block = self._blocks.get(index)
        if block is None:
            raise errors.LLMUnavailableError(
                f"{self._name}: the stream continues a block that was never started"
            )
        if kind == "content_block_stop":
            block.is_open = False
        else:
            self._hear(block.take(mapping(event.get("delta"))))

    def _hear(self, text: str) -> None:
        if text:
            self._heard(text)


@dataclass
class _Block:
    """A block of an answer: its start and the deltas added to it."""

    start: dict[str, Any]
    added: dict[str, list[str]] = field(default_factory=dict)
    signature: str = ""
    is_open: bool = True

    @property
    def is_open_call(self) -> bool:
        return self.is_open and self.start.get("type") == "tool_use"

    def take(self, delta: dict[str, Any]) -> str:
        """Add a delta. Returns the text that it adds to the answer."""
        self.signature = text(delta.get("signature")) or self.signature
        name = _DELTAS.get(text(delta.get("type")), "")
        piece = text(delta.get(name))
        if piece:
            self.added.setdefault(name, []).append(piece)
        return piece if name == "text" else ""

    def whole(self) -> dict[str, Any]:
        """Return the block as a whole reply has it."""
        added = {name: "".join(pieces) for name, pieces in self.added.items()}
        json, block = added.pop("partial_json", None), self.start
        block = {
            **block,
            **{name: text(block.get(name)) + pieces for name, pieces in added.items()},
        }
        if self.signature:
            block["signature"] = self.signature
        return block if json is None else {**block, "input": _input(json)}


def _input(text: str) -> Any:
    try:
        return parsed(text)
    except ValueError:
        return text
