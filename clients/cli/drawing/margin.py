"""Text of a model on a terminal, beside a margin."""

from __future__ import annotations

import re
from typing import TextIO

from rich.cells import cell_len, chop_cells

from perdure.clients.cli.drawing.screen import put, size_of
from perdure.text import harmless

_MARGIN = "  "
_PIECES = re.compile(r"\n|[^\S\n]+|\S+")


class Margin:
    """Prints text as it comes, in lines that begin after a margin and end before the edge.

    What begins at the left edge of the terminal is therefore never such text. A word is printed
    when it is complete.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._word = ""
        self._gap = ""
        self._column = 0

    def write(self, text: str) -> None:
        """Print more of the text."""
        *complete, self._word = _PIECES.findall(self._word + text) or [""]
        for piece in complete:
            self._piece(piece)

    def end(self) -> None:
        """Print the last word, and end its line."""
        self._piece(self._word)
        self._word = self._gap = ""
        if self._column:
            self.new_line()

    def interrupted(self) -> None:
        """End the line, so that something else can be written; the text continues below it."""
        if self._column:
            self.new_line()
        self._gap = ""

    def new_line(self) -> None:
        """End the line."""
        self._column = 0
        put("", self._out)

    def at_left_edge(self) -> None:
        """Note that the cursor has been moved to the beginning of a line, by a key."""
        self._column = 0

    @property
    def _room(self) -> int:
        return max(size_of(self._out).columns - len(_MARGIN) - 1, 1)

    def _piece(self, piece: str) -> None:
        if piece == "\n":
            self.new_line()
            self._gap = ""
        elif piece.isspace():
            self._gap = " " * len(piece.expandtabs(4))
        elif piece:
            self._print(harmless(piece))

    def _print(self, word: str) -> None:
        gap, self._gap = self._gap[: self._room // 2], ""
        if self._column and self._column + len(gap) + cell_len(word) > self._room:
            self.new_line()
            gap = ""
        first, *more = chop_cells(word, self._room - self._column - len(gap))
        self._put(gap + first)
        for part in more:
            self.new_line()
            self._put(part)

    def _put(self, text: str) -> None:
        put(text if self._column else f"{_MARGIN}{text}", self._out, end="")
        self._column += cell_len(text)
