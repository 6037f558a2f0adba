"""Lines of standard input while other things happen."""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
import threading
from concurrent.futures import CancelledError

_AHEAD = 100


class Lines:
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
