"""Incremental parser for server-sent events.

It follows the WHATWG's rules (html.spec.whatwg.org, "Interpreting an event stream"). Lines end with
LF, CR or CRLF, and a piece may end anywhere: inside a character, or between CR and LF. An event is
complete with the blank line after it; an incomplete event at the end of a stream is dropped.
Comments, ids and reconnection times are ignored.

It is stricter than the rules in one respect: invalid UTF-8 is an error, as in the body of a whole
reply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from perdure import errors, limits

_LINE_END = re.compile(rb"\r\n|\n|\r")
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """An event; `name` defaults to `message`, and multiple lines of data are joined by LF."""

    name: str
    data: str


class EventReader:
    """A parser for one stream. `name` is the vendor's name in error texts."""

    def __init__(self, name: str) -> None:
        self._vendor = name
        self._begun = bytearray()
        self._is_first = True
        self._is_after_cr = False
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that this piece completes.

        Raises:
            LLMUnavailableError: A line is longer than `limits.STREAM_LINE_BYTES`, or not UTF-8.
        """
        if self._is_after_cr and piece:
            piece = piece.removeprefix(b"\n")
            self._is_after_cr = False
        *lines, unfinished = _LINE_END.split(piece)
        for line in lines:
            event = self._take(self._whole(line))
            if event is not None:
                yield event
        if lines:
            self._is_after_cr = piece.endswith(b"\r")
        self._begun += unfinished
        self._check(len(self._begun))

    def _whole(self, end: bytes) -> bytes:
        """Return a whole line, given its last piece."""
        line = bytes(self._begun) + end if self._begun else end
        self._begun.clear()
        self._check(len(line))
        if self._is_first:
            self._is_first = False
            return line.removeprefix(_MARK)
        return line

    def _check(self, size: int) -> None:
        if size > limits.STREAM_LINE_BYTES:
            raise errors.LLMUnavailableError(
                f"{self._vendor}: the stream has a line of more than {limits.STREAM_LINE_BYTES}"
                " bytes"
            )

    def _completed(self) -> ServerSentEvent | None:
        """Return the event that an empty line completes; None if it has no data."""
        name, data = self._name or "message", self._data
        self._name, self._data = "", []
        return ServerSentEvent(name, "\n".join(data)) if data else None

    def _take(self, line: bytes) -> ServerSentEvent | None:
        """Process a line; return the event that it completes, if any."""
        if not line:
            return self._completed()
        if line.startswith(b":"):
            return None
        try:
            field, _, value = line.decode().partition(":")
        except UnicodeDecodeError:
            raise errors.LLMUnavailableError(f"{self._vendor}: the stream is not UTF-8") from None
        if field == "data":
            self._data.append(value.removeprefix(" "))
        elif field == "event":
            self._name = value.removeprefix(" ")
        return None
