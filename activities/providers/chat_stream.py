"""Assembles a streamed answer of the chat completions API into the body of a whole reply.

The answer is complete once its choice has a `finish_reason`: without a `finish_reason` it was cut
off, even if `[DONE]` follows, which some gateways write in any case. The chunk with the usage comes
after it, so reading continues to `[DONE]` or the end of the stream.

Servers implement the format loosely. A call without an index, or with the index of another call but
a different id, is a separate call: Gemini gives parallel calls the same index. The id and the name
may be repeated with every piece of a call. An error may be a chunk with `error`, an event of that
name, or an object of that type (vLLM).

The usage that some servers report midway is not what they bill, so only usage from the end of the
answer onwards is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from perdure.activities.provider import Heard
from perdure.activities.providers import lenient_json
from perdure.activities.providers.lenient_json import items, joined, mapping, text

_NAME_CHARACTERS = 1_000
_WORDS = ("reasoning_content", "reasoning", "refusal")


class ChatStream:
    """Assembles chunks. The text of the answer is passed to `heard` as it arrives."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._has_begun = False
        self._model = ""
        self._finish: Any = None
        self._usage: Any = None
        self._error: Any = None
        self._words: dict[str, list[str]] = {name: [] for name in _WORDS}
        self._content: list[_Run] = []
        self._calls = _StreamedCalls()

    def take(self, name: str, data: dict[str, Any] | None) -> bool:
        """Add a chunk; None is `[DONE]`."""
        if data is None:
            return True
        choice = _first_choice(data)
        self._error = _error_in(name, data, choice)
        if self._error:
            return True
        self._model = self._model or text(data.get("model"))
        if choice:
            self._choose(choice)
        if self._finish:
            self._usage = _usage_in(data) or self._usage
        return False

    def body(self) -> dict[str, Any] | None:
        """Return the body of a whole reply, which may hold an error."""
        if not self._finish and not self._error:
            return None
        body: dict[str, Any] = {"model": self._model}
        if self._has_begun:
            body["choices"] = [
                {"index": 0, "message": self._message(), "finish_reason": self._finish}
            ]
        body["usage"] = self._usage
        return {**body, "error": self._error} if self._error else body

    def _choose(self, choice: dict[str, Any]) -> None:
        self._has_begun = True
        self._finish = choice.get("finish_reason") or self._finish
        delta = mapping(choice.get("delta"))
        for name in _WORDS:
            if piece := joined(delta.get(name)):
                self._words[name].append(piece)
        for kind, piece in _runs(delta.get("content")):
            self._say(kind, piece)
        if refusal := text(delta.get("refusal")):
            self._heard(refusal)
        for item in items(delta.get("tool_calls")):
            self._calls.take(mapping(item))

    def _say(self, kind: str, piece: str) -> None:
        if not self._content or self._content[-1].kind != kind:
            self._content.append(_Run(kind))
        self._content[-1].pieces.append(piece)
        if kind == "text":
            self._heard(piece)

    def _message(self) -> dict[str, Any]:
        texts = {name: "".join(pieces) for name, pieces in self._words.items() if pieces}
        content: Any = [run.whole() for run in self._content]
        if all(run.kind == "text" for run in self._content):
            content = "".join(chunk["text"] for chunk in content)
        calls = self._calls.whole()
        return {
            "role": "assistant",
            **texts,
            "content": content,
            **({"tool_calls": calls} if calls else {}),
        }


@dataclass
class _Run:
    """Consecutive pieces of one kind, `text` or `thinking`."""

    kind: str
    pieces: list[str] = field(default_factory=list)

    def whole(self) -> dict[str, Any]:
        content = "".join(self.pieces)
        return (
            {"type": "text", "text": content}
            if self.kind == "text"
            else {"type": "thinking", "thinking": [{"type": "text", "text": content}]}
        )


def _runs(content: Any) -> Iterator[tuple[str, str]]:
    """Yield (kind, words) of a delta: a string, or chunks (Mistral), some of which are thinking."""
    for chunk in map(mapping, content if isinstance(content, list) else [{"text": content}]):
        for kind in ("text", "thinking"):
            if piece := joined(chunk.get(kind)):
                yield kind, piece


@dataclass
class _StreamedCall:
    """A call received in pieces."""

    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def take(self, item: dict[str, Any]) -> None:
        """Add a piece. A name stops growing once it is longer than the name of any tool."""
        function = mapping(item.get("function"))
        name = text(function.get("name"))
        self.id = self.id or text(item.get("id"))
        if name != self.name and len(self.name) <= _NAME_CHARACTERS:
            self.name += name
        if function.get("arguments") is not None:
            self.arguments.append(lenient_json.arguments(function["arguments"]))

    def whole(self) -> dict[str, Any]:
        arguments = "".join(self.arguments) if self.arguments else None
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": arguments},
        }


class _StreamedCalls:
    """The calls of an answer, in order of their first piece."""

    def __init__(self) -> None:
        self._calls: list[_StreamedCall] = []
        self._latest: dict[Any, _StreamedCall] = {}

    def take(self, item: dict[str, Any]) -> None:
        """Add a piece to the call that is open under its index, or start a new call."""
        index, call_id = item.get("index"), text(item.get("id"))
        call = self._latest.get(index) if isinstance(index, int) else self._last(item)
        if call is None or (call_id and call.id and call_id != call.id):
            call = _StreamedCall(call_id)
            self._calls.append(call)
        if isinstance(index, int):
            self._latest[index] = call
        call.take(item)

    def whole(self) -> list[dict[str, Any]]:
        """Return the calls as a whole reply has them."""
        return [call.whole() for call in self._calls]

    def _last(self, item: dict[str, Any]) -> _StreamedCall | None:
        """Return the last call if `item` continues it; a name without its id starts another."""
        last = self._calls[-1] if self._calls else None
        is_new = text(mapping(item.get("function")).get("name")) and (
            last is None or not item.get("id") or item["id"] != last.id
        )
        return None if is_new else last


def _first_choice(data: dict[str, Any]) -> dict[str, Any]:
    choices = map(mapping, items(data.get("choices")))
    return next((choice for choice in choices if not choice.get("index")), {})


def _usage_in(data: dict[str, Any]) -> Any:
    return data.get("usage") or mapping(data.get("x_groq")).get("usage")


def _error_in(name: str, data: dict[str, Any], choice: dict[str, Any]) -> Any:
    """Return the error that a chunk holds or is."""
    error = data.get("error") or choice.get("error")
    return error or (data if name == "error" or data.get("object") == "error" else None)
