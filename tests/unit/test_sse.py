"""Server-sent events by the rules of the WHATWG: lines, fields, and chunks of bytes that end
anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import errors, limits
from perdure.activities.providers.sse import EventReader, ServerSentEvent

from ..support.clerk import in_its_own_time


def read(*pieces: bytes) -> list[ServerSentEvent]:
    """The events of a stream with these chunks."""
    reader = EventReader("stub")
    return [event for piece in pieces for event in reader.feed(piece)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: hi\n\n", [ServerSentEvent("message", "hi")]),
        (b"data:hi\n\n", [ServerSentEvent("message", "hi")]),
        (b"data:  hi \n\n", [ServerSentEvent("message", " hi ")]),
        (b"data: a\r\ndata: b\rdata: c\n\r\n", [ServerSentEvent("message", "a\nb\nc")]),
        (
            b"event: ping\ndata: 1\n\ndata: 2\n\n",
            [ServerSentEvent("ping", "1"), ServerSentEvent("message", "2")],
        ),
        (b"event: ping\nevent: pong\ndata: 1\n\n", [ServerSentEvent("pong", "1")]),
        (b": comment\n\n: PROCESSING\ndata: 1\n: another\n\n", [ServerSentEvent("message", "1")]),
        (b"id: 7\nretry: 100\nunknown: x\ndata: 1\n\n", [ServerSentEvent("message", "1")]),
        (b"data\n\n", [ServerSentEvent("message", "")]),
        (b"data: \ndata\n\n", [ServerSentEvent("message", "\n")]),
        (b"event: ping\n\ndata: 1\n\n", [ServerSentEvent("message", "1")]),
        (b"data: a: b\n\n", [ServerSentEvent("message", "a: b")]),
        (b" data: 1\n\n", []),
        (b"\xef\xbb\xbfdata: 1\n\n", [ServerSentEvent("message", "1")]),
        (b"\xef\xbb\xbf\ndata: 1\n\n", [ServerSentEvent("message", "1")]),
        (b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n", [ServerSentEvent("message", "1")]),
        (
            "data: gr\u00fc\u00df dich \U0001f30d\u2028\n\n".encode(),
            [ServerSentEvent("message", "gr\u00fc\u00df dich \U0001f30d\u2028")],
        ),
        (b"\n\n\r\n\r\rdata: 1\r\r", [ServerSentEvent("message", "1")]),
    ],
)
def test_stream_is_read_by_the_rules(stream: bytes, events: list[ServerSentEvent]) -> None:
    """Whole, and byte by byte."""
    assert read(stream) == events
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == events


@pytest.mark.accepts("M8")
@pytest.mark.parametrize(
    "stream", [b"", b"data: 1", b"data: 1\n", b"data: 1\r\n", b"event: end\ndata: 1\n"]
)
def test_event_that_is_not_ended_is_none(stream: bytes) -> None:
    """A truncated stream has no half events."""
    assert read(stream) == []


LINES = st.lists(st.text("abc: \u00fc\U0001f30d", max_size=8), max_size=8)


@in_its_own_time
@given(LINES, st.sampled_from([b"\n", b"\r", b"\r\n"]), st.lists(st.integers(1, 5), min_size=1))
def test_pieces_and_line_ends_do_not_matter(lines: list[str], end: bytes, sizes: list[int]) -> None:
    """For any chunks and line ends, the events equal those of the whole stream with line feeds."""
    text = [f"data: {line}" if index % 3 else line for index, line in enumerate(lines)]
    whole = b"".join(line.encode() + b"\n" for line in text)
    other = b"".join(line.encode() + end for line in text)

    assert read(*cut(other, sizes)) == read(whole)


def cut(stream: bytes, sizes: list[int]) -> Iterable[bytes]:
    """The stream in chunks of these sizes, repeatedly."""
    at = turn = 0
    while at < len(stream):
        yield stream[at : at + sizes[turn % len(sizes)]]
        at, turn = at + sizes[turn % len(sizes)], turn + 1


@pytest.mark.accepts("M9")
@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: ", b"x" * limits.STREAM_LINE_BYTES],
        [b"x" * 1_000_000] * 6,
        [b"x" * 6_000_000 + b"\n"],
    ],
)
def test_line_without_an_end_is_bounded(pieces: list[bytes]) -> None:
    """Even if its end comes in the end."""
    with pytest.raises(errors.LLMUnavailableError, match="a line of more than 5000000 bytes"):
        read(*pieces)


@pytest.mark.accepts("M9")
@pytest.mark.parametrize(
    "stream", [b"data: \xff\n\n", b"data: \xf0\x9f\x8c\n\n", b"\xc3\ndata: 1\n\n"]
)
def test_bytes_that_are_no_text_are_an_error(stream: bytes) -> None:
    """As in the body of a whole reply, half a character is invalid."""
    with pytest.raises(errors.LLMUnavailableError, match="not UTF-8"):
        read(stream)
