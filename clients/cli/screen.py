"""What is drawn on a terminal: colours, lines, and lines at its end that change.

Nothing else of the clients writes to one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TextIO

from perdure.clients.cli.widths import cut, width
from perdure.text import harmless_lines

_STYLES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_COLOURED = re.compile(r"(\x1b\[(?:0|1|2|31|32|33|36)m)")
_TICK_S = 0.25


class Paint:
    """Colours where they are wanted: on a terminal that is not dumb, or where FORCE_COLOR is set.

    Never where NO_COLOR is.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        out = out or sys.stdout
        wanted = bool(os.environ.get("FORCE_COLOR")) or is_terminal(out)
        self._on = wanted and not os.environ.get("NO_COLOR")

    def __call__(self, style: str, text: str) -> str:
        """`text` in a style, or as it is."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._on and text else text


def is_terminal(out: TextIO) -> bool:
    """Whether a person looks at it, on something that can draw."""
    return out.isatty() and os.environ.get("TERM") != "dumb"


def size_of(out: TextIO) -> os.terminal_size:
    """Columns and lines of the terminal that this is, as they are now."""
    with contextlib.suppress(OSError, ValueError):
        real = os.get_terminal_size(out.fileno())
        if real.columns and real.lines:
            return real
    return shutil.get_terminal_size()


def columns_of(out: TextIO) -> int | None:
    """How wide the terminal is that this is; None where it is none, and nothing is cut."""
    return size_of(out).columns if out.isatty() else None


def shown(text: str, out: TextIO) -> str:
    """Anybody's text of several lines.

    On a terminal with escapes in place of what would move its cursor, elsewhere as it is.
    """
    return harmless_lines(text) if out.isatty() else text


def put(text: str = "", out: TextIO | None = None, *, end: str = "\n") -> None:
    """Print text in which foreign parts have been made harmless.

    On a terminal only line breaks, tabs and the colours of `Paint` pass in any case.
    """
    out = out or sys.stdout
    if out.isatty():
        text = "".join(
            piece if _COLOURED.fullmatch(piece) else harmless_lines(piece)
            for piece in _COLOURED.split(text)
        )
    print(text, end=end, file=out, flush=True)


def note(text: str) -> None:
    """Print a line beside the result."""
    put(text, sys.stderr)


class Live:
    """Lines at the bottom of a terminal that are drawn anew when they change.

    Elsewhere they are printed once, by `last`.

    Attributes:
        is_one_line: Where no escape sequence is wanted, or none is understood, only the last of
            them is drawn.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.is_one_line = bool(os.environ.get("NO_COLOR")) or not is_terminal(self._out)
        self._drawn: list[str] = []

    def erase(self) -> None:
        """Take the lines away, to print something above them."""
        if self._drawn and self.is_one_line:
            print(
                "\r" + " " * (size_of(self._out).columns - 1), end="\r", file=self._out, flush=True
            )
        elif self._drawn:
            columns = size_of(self._out).columns
            rows = sum(
                max(-(-width(line) // columns), 1) for line in self._drawn
            )  # a terminal that became narrower has wrapped them
            print(f"\r\x1b[{rows}A\x1b[J", end="", file=self._out, flush=True)
        self._drawn = []

    def draw(self, lines: Sequence[str]) -> None:
        """Draw as many of the last of them as the terminal has room for, each cut where it ends."""
        if not self._out.isatty():
            return
        size = size_of(self._out)
        if self.is_one_line:
            self._replace([cut(line, size.columns - 1) for line in lines[-1:]], end="")
            return
        room = max(size.lines - 1, 1)
        if len(lines) > room:
            lines = [f"… {len(lines) - room + 1} more lines above", *lines[len(lines) - room + 1 :]]
        self._replace([cut(line, size.columns) for line in lines], end="\n" if lines else "")

    def _replace(self, lines: list[str], *, end: str) -> None:
        if lines != self._drawn:
            self.erase()
            put("\n".join(lines), self._out, end=end)
            self._drawn = lines

    @contextlib.asynccontextmanager
    async def ticking(self, tick: Callable[[], None]) -> AsyncIterator[None]:
        """Have `tick` called all the time, and the lines out of the way of what is logged.

        In the end they are gone.
        """
        ticks = asyncio.create_task(_every(tick))
        try:
            with self._above_logs():
                yield
        finally:
            ticks.cancel()
            await asyncio.wait({ticks})
            self.erase()

    @contextlib.contextmanager
    def _above_logs(self) -> Iterator[None]:
        def make_room(_: logging.LogRecord) -> bool:
            self.erase()
            return True

        handlers = list(logging.getLogger().handlers)
        for handler in handlers:
            handler.addFilter(make_room)
        try:
            yield
        finally:
            for handler in handlers:
                handler.removeFilter(make_room)

    def last(self, lines: Sequence[str]) -> None:
        """Print them for good."""
        self.erase()
        for line in lines:
            put(line, self._out)


async def _every(tick: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(_TICK_S)
        tick()
