"""Detects and logs coroutines that block their event loop."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from typing import Any
from weakref import WeakSet

from perdure.activities.error_log import log_with_trace
from perdure.agents.tracebacks import place_in, stack_of

BLOCKED_S = 3.0
"""A loop is blocked if it does not respond for this long."""
_LOOKS = 3
"""The number of checks in that time."""


class LoopWatchdog:
    """A thread that checks regularly whether a loop responds. Each task is reported once."""

    def __init__(self, name: str, blocked_s: float) -> None:
        self._name = name
        self._blocked_s = blocked_s
        self._alive_at = 0.0
        self._stopped = threading.Event()
        self._reported: WeakSet[asyncio.Task[Any]] = WeakSet()

    def start(self, loop: asyncio.AbstractEventLoop, served_by: threading.Thread) -> None:
        """LoopWatchdog `loop`, which runs on the thread `served_by`."""
        self._loop, self._thread = loop, served_by
        self._watching = threading.Thread(target=self._run, name=f"{self._name}-watch", daemon=True)
        self._watching.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._watching.join(timeout=1)

    def _run(self) -> None:
        while not self._stopped.is_set():
            asked_at = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop is closed
                return
            while not self._stopped.wait(self._blocked_s / _LOOKS) and self._alive_at < asked_at:
                if time.monotonic() - asked_at >= self._blocked_s:
                    self._report()

    def _answer(self) -> None:
        self._alive_at = time.monotonic()

    def _report(self) -> None:
        task = asyncio.current_task(self._loop)
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001 - documented, in spite of its name
        if task is None or frame is None or task in self._reported:
            return
        self._reported.add(task)
        location = place_in(frame)
        log_with_trace(
            f"the {task.get_name()} has blocked the event loop of the async tools for"
            f" {self._blocked_s:g} s{f' ({location})' if location else ''}; all other async tools"
            " wait for it: await what takes long, or declare the tool with def, which runs it in a"
            " thread",
            stack_of(frame),
            level=logging.WARNING,
        )
