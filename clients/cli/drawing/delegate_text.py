"""The text of delegates, in lines that each begin with the name of a delegate."""

from __future__ import annotations

from typing import TextIO

from rich.cells import cell_len
from rich.text import Text

from perdure.clients.cli.drawing.screen import put, shown, size_of
from perdure.clients.reading.live_text import TextBegins, TextVoid
from perdure.clients.reading.tree_text import TurnText
from perdure.text import word

_SILENT_TICKS = 4
"""The ticks after which the line of a delegate ends that says nothing more."""


class DelegateText:
    """Prints the text of the turns below a turn as it comes.

    A turn has the line until it ends it, by a line break or at the edge of the terminal, or says
    nothing for a tick. The text of the others waits for that.
    """

    def __init__(self, turn_id: str, out: TextIO) -> None:
        self._above = f"{turn_id}/"
        self._out = out
        self._waiting: dict[str, str] = {}
        self._open: str | None = None
        self._column = 0
        self._silent = 0

    @property
    def has_line(self) -> bool:
        """Whether a line has been begun, which something else would interrupt."""
        return self._open is not None

    def say(self, text: TurnText) -> None:
        """Print a piece, or note it for the next line of its turn."""
        name = word(text.turn_id.removeprefix(self._above))
        match text.piece:
            case TextBegins():
                self._end_of(name)
            case TextVoid():
                self._waiting.pop(name, None)
                self.end()
                put(Text(f"{name}  what was said does not count", "yellow"), self._out)
            case str(piece):
                self._waiting[name] = self._waiting.get(name, "") + piece
        self._print()

    def tick(self) -> None:
        """Give the line to another turn if the one that has it says nothing."""
        self._silent += 1
        if self._silent >= (1 if self._waiting else _SILENT_TICKS):
            self.end()
            self._print()

    def end(self) -> None:
        """End the line."""
        if self._open is not None:
            put("", self._out)
        self._open = None

    def flush(self) -> None:
        """Print what waits, and end the line, so that something else can be written."""
        while self._waiting:
            self.end()
            self._print()
        self.end()

    def _end_of(self, name: str) -> None:
        """Separate a text of a turn from the one that begins."""
        if self._open == name:
            self.end()
        elif name in self._waiting:
            self._waiting[name] += "\n"

    def _print(self) -> None:
        """Print what waits of the turn that has the line, and give the line to the next one."""
        while self._waiting and (self._open is None or self._open in self._waiting):
            if self._open is None:
                self._begin(next(iter(self._waiting)))
            assert self._open is not None
            line, is_over, rest = self._waiting.pop(self._open).partition("\n")
            put(shown(line, self._out), self._out, end="")
            self._column += cell_len(line)
            self._silent = 0
            if rest:
                self._waiting[self._open] = rest
            if is_over or self._column >= size_of(self._out).columns:
                self.end()

    def _begin(self, name: str) -> None:
        self._open, self._column = name, cell_len(name) + 2
        put(Text(f"{name}  ", "dim"), self._out, end="")
