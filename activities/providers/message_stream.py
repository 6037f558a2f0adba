"""A streamed answer of the messages API, event by event, as the body of a whole reply.

The answer is whole with `message_stop`, if every call in it has come to its end. Blocks are put
together from their deltas: text, thinking and its signature, and the JSON of a call's input, which
stays text where it is none (an answer that was cut off at its limit may end inside it).

`message_start` tells the input and a first count of the output, `message_delta` what it came to. So
the output counts as not told before that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perdure import errors
from perdure.activities.provider import Heard
from perdure.activities.providers.lenient_json import mapping, parsed, text

_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""Which field of a delta is appended, by its type.

The field of the block has the same name, but for a call's input.
"""


class MessageStream:
    """Puts events together.

    `heard` is given the words of the answer. `name` is the vendor's, for error texts.
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
        """One more event. Those of a type that is not known are left out, as the API asks for."""
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
        """The body of a whole reply, or of one with an error in it."""
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
                f"{self._name}: the stream goes on with a block that never began"
            )
        if kind == "content_block_stop":
            block.is_open = False
        else:
            self._hear(block.take(mapping(event.get("delta"))))

    def _hear(self, words: str) -> None:
        if words:
            self._heard(words)


@dataclass
class _Block:
    """One block of an answer: how it began, and what was added since."""

    start: dict[str, Any]
    added: dict[str, list[str]] = field(default_factory=dict)
    signature: str = ""
    is_open: bool = True

    @property
    def is_open_call(self) -> bool:
        """Whether it is a call whose end has not come."""
        return self.is_open and self.start.get("type") == "tool_use"

    def take(self, delta: dict[str, Any]) -> str:
        """Add a delta. Returns the words that it adds to the answer's text."""
        self.signature = text(delta.get("signature")) or self.signature
        name = _DELTAS.get(text(delta.get("type")), "")
        words = text(delta.get(name))
        if words:
            self.added.setdefault(name, []).append(words)
        return words if name == "text" else ""

    def whole(self) -> dict[str, Any]:
        """As a whole reply has it."""
        added = {name: "".join(words) for name, words in self.added.items()}
        json, block = added.pop("partial_json", None), self.start
        block = {**block, **{name: text(block.get(name)) + words for name, words in added.items()}}
        if self.signature:
            block["signature"] = self.signature
        return block if json is None else {**block, "input": _input(json)}


def _input(words: str) -> Any:
    try:
        return parsed(words)
    except ValueError:
        return words
