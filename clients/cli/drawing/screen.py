"""Output to the terminal with rich: colours, lines that fit, and changing lines at its end.

No other module of the clients writes to a terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TextIO

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from perdure.text import harmless, harmless_lines

_TICK_S = 0.25
_INDENT = 2
_ANY_WIDTH = 1_000_000


class Screen(Console):
    """rich's console for one stream.

    It has no markup, no emoji codes and no highlighting: text is shown as it is written. On a
    terminal, control characters are escaped, in case the text was not made harmless before.
    Elsewhere, lines may have any width.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        out = out or sys.stdout
        super().__init__(
            file=out,
            force_terminal=out.isatty(),
            color_system="standard" if _wants_colours(out) else None,
            markup=False,
            emoji=False,
            highlight=False,
            legacy_windows=False,
        )

    @property
    def size(self) -> ConsoleDimensions:
        """The current number of columns and lines."""
        return (
            ConsoleDimensions(*size_of(self.file))
            if self.is_terminal
            else ConsoleDimensions(_ANY_WIDTH, _ANY_WIDTH)
        )

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        raise AttributeError("the size is that of the terminal")

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Yield segments whose text contains no control characters."""
        for segment in super().render(renderable, options):
            yield (
                segment._replace(text=harmless_lines(segment.text))
                if self.is_terminal and not segment.control
                else segment
            )

    def on_broken_pipe(self) -> None:
        """Raise the usual error for a closed pipe."""
        raise


def _wants_colours(out: TextIO) -> bool:
    """Whether to use colours: on a terminal or with FORCE_COLOR, but never with NO_COLOR."""
    return bool(os.environ.get("FORCE_COLOR") or can_draw(out)) and not os.environ.get("NO_COLOR")


def can_draw(out: TextIO) -> bool:
    """Whether a stream is a terminal that supports escape sequences."""
    return out.isatty() and os.environ.get("TERM") != "dumb"


def size_of(out: object) -> os.terminal_size:
    """Return the current number of columns and lines of a terminal."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        real = os.get_terminal_size(out.fileno())  # type: ignore[attr-defined]  # an object without `fileno` is not a terminal
        if real.columns and real.lines:
            return real
    return shutil.get_terminal_size()


def shown(text: str, out: TextIO) -> str:
    """Return foreign text of several lines, escaped for a terminal, otherwise unchanged."""
    return harmless_lines(text) if out.isatty() else text


def put(text: str | Text = "", out: TextIO | None = None, *, end: str = "\n") -> None:
    """Print text in which foreign parts have been made harmless.

    The only escape sequences sent to a terminal come from the styles of a `Text`.
    """
    out = out or sys.stdout
    if isinstance(text, Text):
        Screen(out).print(text, soft_wrap=True, end=end)
        out.flush()
    else:
        print(shown(text, out), end=end, file=out, flush=True)


def note(text: str | Text) -> None:
    """Print a line to standard error, beside the result."""
    put(text, sys.stderr)


def fail(subject: str, message: str) -> None:
    """Print why a command failed.

    All lines except the first are indented, so that none can be mistaken for a line of the command.
    """
    first, *more = message.splitlines() or [""]
    note(wrapped(Text.assemble((f"{subject}:", "red"), f" {harmless(first)}"), sys.stderr, _INDENT))
    for line in more:
        note(wrapped(Text(f"{' ' * _INDENT}{harmless(line)}"), sys.stderr, _INDENT))


def lines_of(renderable: RenderableType, out: TextIO | None = None) -> list[Text]:
    """Render with rich, line by line, without trailing spaces."""
    screen = Screen(out)
    drawn = screen.render_lines(renderable, pad=False)
    lines = [
        Text.assemble(*((segment.text, segment.style or "") for segment in line)) for line in drawn
    ]
    for line in lines:
        line.rstrip()
    return lines


def cut(text: Text, columns: int) -> Text:
    """Return `text` in one line of at most `columns`, with a mark where it is cut."""
    text = text.copy()
    text.truncate(columns, overflow="ellipsis")
    return text


def wrapped(text: Text, out: TextIO, indent: int = 0) -> Text:
    """Wrap `text` at the width of the terminal, with all lines except the first indented."""
    screen = Screen(out)
    if text.cell_len <= screen.width:
        return text
    first = text.wrap(screen, screen.width)[0]
    first.rstrip()
    following = text[len(first) :]
    following = following[len(following) - len(following.plain.lstrip()) :]
    lines = [first, *following.wrap(screen, max(screen.width - indent, 1))]
    for line in lines:
        line.rstrip()
    return Text("\n" + " " * indent).join(lines)


class Live:
    """Lines at the bottom of a terminal that are redrawn when they change.

    Elsewhere they are printed once, by `last`.

    Attributes:
        is_one_line: Whether only the last line is drawn, because escape sequences are not wanted or
            not supported.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.is_one_line = bool(os.environ.get("NO_COLOR")) or not can_draw(self._out)
        self._drawn: list[Text] = []

    def erase(self) -> None:
        """Remove the lines, to print something above them."""
        columns = size_of(self._out).columns
        if self._drawn and self.is_one_line:
            print("\r" + " " * (columns - 1), end="\r", file=self._out, flush=True)
        elif self._drawn:
            # a terminal that became narrower has wrapped them
            rows = sum(max(-(-line.cell_len // columns), 1) for line in self._drawn)
            print(f"\r\x1b[{rows}A\x1b[J", end="", file=self._out, flush=True)
        self._drawn = []

    def draw(self, lines: Sequence[Text]) -> None:
        """Draw the last lines that fit on the terminal, each cut at its width."""
        if not self._out.isatty():
            return
        size = size_of(self._out)
        if self.is_one_line:
            self._replace([cut(line, size.columns - 1) for line in lines[-1:]], end="")
            return
        room = max(size.lines - 1, 1)
        if len(lines) > room:
            lines = [
                Text(f"… {len(lines) - room + 1} more lines above"),
                *lines[len(lines) - room + 1 :],
            ]
        self._replace([cut(line, size.columns) for line in lines], end="\n" if lines else "")

    def _replace(self, lines: list[Text], *, end: str) -> None:
        if lines != self._drawn:
            self.erase()
            put(Text("\n").join(lines), self._out, end=end)
            self._drawn = lines

    @contextlib.asynccontextmanager
    async def ticking(self, tick: Callable[[], None]) -> AsyncIterator[None]:
        """Call `tick` regularly, and remove the lines while a log record is written.

        They are removed at the end.
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

    def last(self, lines: Iterable[Text]) -> None:
        """Print the final lines."""
        self.erase()
        for line in lines:
            put(line, self._out)


async def _every(tick: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(_TICK_S)
        tick()
