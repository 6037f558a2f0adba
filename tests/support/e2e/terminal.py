"""A terminal for tests: a command on a pseudo-terminal, and the screen that it draws."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyte

_VARIES = (
    (re.compile(r" +\d+\.\d s\b"), lambda found: "N.N s".rjust(len(found[0]))),
    (re.compile(r"\d+ s ago|just now"), lambda found: "N s ago".ljust(len(found[0]))),
    (re.compile(r"\b\d+ s\b"), lambda found: "N s"),
)


class Terminal:
    """A command that runs on a terminal."""

    def __init__(
        self,
        command: list[str],
        folder: Path,
        environment: Mapping[str, str],
        columns: int = 80,
        lines: int = 24,
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.raw = b""
        self._screen = pyte.HistoryScreen(columns, lines, history=1000)
        self._stream = pyte.ByteStream(self._screen)
        self.resize(columns, lines)
        takes_it = (  # the first terminal that a new session opens is the one it gets Ctrl-C from
            f'exec "$@" < {os.ttyname(theirs)}'
        )
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", takes_it, "sh", *command],
            cwd=folder,
            env={**environment, "TERM": environment.get("TERM", "xterm")},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def resize(self, columns: int, lines: int) -> None:
        """Change its size."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._screen.resize(lines, columns)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    @property
    def text(self) -> str:
        """The text on the screen, including what has scrolled off."""
        gone = [
            "".join(line[column].data for column in range(self._screen.columns)).rstrip()
            for line in self._screen.history.top
        ]
        return "\n".join([*gone, *(line.rstrip() for line in self._screen.display)]).rstrip()

    @property
    def steady(self) -> str:
        """The same without times, which differ between runs."""
        text = self.text
        for pattern, put in _VARIES:
            text = pattern.sub(put, text)
        return text

    def wait_for(self, pattern: str, *, within_s: float = 60.0) -> re.Match[str]:
        """Wait until the screen shows this."""
        deadline = time.monotonic() + within_s
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < deadline, (
                f"not within {within_s:g} s: {pattern} in\n{self.text}"
            )
            self._read(0.2)
        return found

    def end(self, *, within_s: float = 60.0) -> int:
        """Wait for the end of the command, and return its exit code."""
        deadline = time.monotonic() + within_s
        while self._read(0.5) or self.process.poll() is None:
            assert time.monotonic() < deadline, f"the command goes on:\n{self.text}"
        return self.process.wait()

    def close(self) -> None:
        """End the command, and close the terminal."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def _read(self, patience_s: float) -> bool:
        # on Linux, a terminal whose other end is closed raises an error
        with contextlib.suppress(OSError):
            if select.select([self._ours], [], [], patience_s)[0]:
                data = os.read(self._ours, 65536)
                self.raw += data
                self._stream.feed(data)
                return bool(data)
        return False


@contextlib.contextmanager
def terminal(
    command: list[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    columns: int = 80,
    lines: int = 24,
) -> Iterator[Terminal]:
    """A command on a terminal of its own, which is ended with the block."""
    made = Terminal(command, folder, environment, columns, lines)
    try:
        yield made
    finally:
        made.close()
