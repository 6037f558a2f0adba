"""What is drawn on a terminal: colours, lines that change, and how wide letters are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TextIO

_STYLES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Paint:
    """Colours where they are wanted: on a terminal, unless NO_COLOR is set."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._on = out.isatty() and not os.environ.get("NO_COLOR")

    def __call__(self, style: str, text: str) -> str:
        """`text` in a style, or as it is."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._on else text


class Live:
    """Lines at the bottom of a terminal that are drawn anew when they change; elsewhere they are printed once, by `last`."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._drawn = 0

    def erase(self) -> None:
        """Take the lines away, to print something above them."""
        if self._drawn:
            print(f"\x1b[{self._drawn}A\x1b[J", end="", file=self._out, flush=True)
        self._drawn = 0

    def draw(self, lines: Sequence[str]) -> None:
        """Draw as many of the last of them as the terminal has room for, each cut where it ends."""
        if not self._out.isatty():
            return
        self.erase()
        size = shutil.get_terminal_size()
        room = max(size.lines - 1, 1)
        if len(lines) > room:
            lines = [f"… {len(lines) - room + 1} more lines above", *lines[len(lines) - room + 1 :]]
        for line in lines:
            print(cut(line, size.columns), file=self._out)
        self._out.flush()
        self._drawn = len(lines)

    @contextlib.asynccontextmanager
    async def ticking(self, draw: Callable[[], None]) -> AsyncIterator[None]:
        """Have them drawn every second, too."""
        ticks = asyncio.create_task(self._tick(draw))
        try:
            yield
        finally:
            ticks.cancel()

    async def _tick(self, draw: Callable[[], None]) -> None:
        while self._out.isatty():
            await asyncio.sleep(1)
            draw()

    def last(self, lines: Sequence[str]) -> None:
        """Print them for good."""
        self.erase()
        for line in lines:
            print(line, file=self._out, flush=True)


def width(text: str) -> int:
    """How many columns a text takes: letters of Chinese two, accents that stand over others none."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 0 if unicodedata.combining(letter) else 1 for letter in text)


_PIECES = re.compile(r"\x1b\[[0-9;]*m|.", re.DOTALL)


def cut(line: str, columns: int) -> str:
    """`line`, or as much of it as so many columns hold, without its last colour running on."""
    kept: list[str] = []
    used, is_coloured = 0, False
    for piece in _PIECES.findall(line):
        if piece.startswith("\x1b"):
            is_coloured = not piece.endswith("[0m")
        else:
            used += width(piece)
            if used > columns:
                return "".join(kept) + ("\x1b[0m" if is_coloured else "")
        kept.append(piece)
    return line
