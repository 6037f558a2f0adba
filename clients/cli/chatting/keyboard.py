"""Lines of standard input while other things happen."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import io
import os
import signal
import sys
import termios
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import NamedTuple, TextIO

from rich.cells import cell_len

_AHEAD = 100
_ENTER, _ERASE, _KILL, _WORD, _END, _ESCAPE = "\n\r", "\x7f\b", "\x15", "\x17", "\x04", "\x1b"


class InputLines:
    """The lines of standard input, from a terminal, a pipe or a file.

    A thread reads them, because the event loop cannot wait for a file. The thread ends with the
    process.
    """

    def __init__(self) -> None:
        self._read: asyncio.Queue[str | None] = asyncio.Queue(_AHEAD)
        self._loop = asyncio.get_running_loop()
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        threading.Thread(target=self._run, name="standard input", daemon=True).start()

    async def next(self) -> str | None:
        """Return the next line without its end; None if there are no more."""
        return await self._read.get()

    @property
    def is_ahead(self) -> bool:
        """Whether there is a line that was not asked for yet."""
        return not self._read.empty()

    def _run(self) -> None:
        with contextlib.suppress(CancelledError, RuntimeError):  # the loop is closed
            with contextlib.suppress(OSError):  # the terminal is gone
                for line in sys.stdin or ():
                    self._put(line.rstrip("\r\n"))
            self._put(None)

    def _put(self, line: str | None) -> None:
        asyncio.run_coroutine_threadsafe(self._read.put(line), self._loop).result()


class Typed(NamedTuple):
    """A line that was typed, and whether it was shown while it was."""

    line: str
    was_shown: bool


class Keyboard:
    """The lines that are typed on a terminal while other text is written to it.

    The terminal does not echo, so that nothing lands in the middle of that text. What is typed
    meanwhile is kept: `ask` draws it after the prompt, from where on each key is shown. The keys
    are as on the terminal's own line: erase, Ctrl-W, Ctrl-U, Enter and Ctrl-D.
    """

    def __init__(self, prompt: str, out: TextIO) -> None:
        self._prompt = prompt
        self._out = out
        self._typed: asyncio.Queue[Typed | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""
        self._sequence = ""
        self._is_shown = False

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Read keys until the end of the block, which gives the terminal back as it was."""
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)

        def quiet() -> None:
            mode = termios.tcgetattr(terminal)
            mode[3] &= ~(termios.ICANON | termios.ECHO)
            mode[3] |= termios.NOFLSH  # Ctrl-C does not cost what was typed before it
            termios.tcsetattr(terminal, termios.TCSANOW, mode)

        def end() -> None:
            termios.tcsetattr(terminal, termios.TCSANOW, before)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)

        quiet()
        self._loop.add_signal_handler(signal.SIGTERM, end)
        self._loop.add_signal_handler(signal.SIGCONT, quiet)  # a shell has had the terminal
        threading.Thread(target=self._run, name="keyboard", args=[terminal], daemon=True).start()
        try:
            yield
        finally:
            for number in (signal.SIGCONT, signal.SIGTERM):
                self._loop.remove_signal_handler(number)
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(terminal, termios.TCSANOW, before)

    async def next(self) -> Typed | None:
        """Return the next line; None if there are no more."""
        return await self._typed.get()

    @property
    def is_ahead(self) -> bool:
        """Whether there is a line that was not asked for yet."""
        return not self._typed.empty()

    def ask(self) -> None:
        """Draw the prompt with what was typed so far, and show what is typed from now on."""
        self._is_shown = True
        self._write(f"{self._prompt}{self._line}")

    def hide(self) -> None:
        """Show nothing more of the line, because something else is going to be written."""
        if self._is_shown:
            self._write("\n" if self._line else "\r")
        self._is_shown = False

    def _run(self, terminal: int) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # the terminal or the loop is closed
            while keys := os.read(terminal, 1024):
                self._loop.call_soon_threadsafe(self._take, keys)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._typed.put_nowait, None)

    def _take(self, keys: bytes) -> None:
        for key in self._decoder.decode(keys):
            self._press(key)

    def _press(self, key: str) -> None:
        if self._sequence or key == _ESCAPE:
            self._skip(key)
        elif key in _ENTER:
            self._enter()
        elif key in _ERASE:
            self._keep(len(self._line) - 1)
        elif key == _KILL:
            self._keep(0)
        elif key == _WORD:
            self._keep(self._line.rstrip().rfind(" ") + 1)
        elif key == _END:
            if not self._line:
                self._typed.put_nowait(None)
        elif key.isprintable():
            self._line += key
            self._echo(key)

    def _skip(self, key: str) -> None:
        """Read over an escape sequence, such as the sequence of an arrow key."""
        self._sequence += key
        begins = len(self._sequence) < 2 or (len(self._sequence) == 2 and key in "[O")
        if not begins and (len(self._sequence) == 2 or "@" <= key <= "~"):
            self._sequence = ""

    def _enter(self) -> None:
        self._echo("\n")
        self._typed.put_nowait(Typed(self._line, self._is_shown))
        self._line, self._is_shown = "", False

    def _keep(self, length: int) -> None:
        """Erase all but the first characters of the line."""
        gone = self._line[max(length, 0) :]
        self._line = self._line[: len(self._line) - len(gone)]
        self._echo("\b \b" * cell_len(gone))

    def _echo(self, text: str) -> None:
        if self._is_shown:
            self._write(text)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
