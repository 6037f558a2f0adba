"""Pauses in long-running threads, for the sake of other turns.

Python runs one thread at a time, and takes the interpreter from a busy thread only after 5 ms. A
worker's event loop releases it at every network wait, dozens of times per turn, so one busy thread
makes turns several times slower. Work whose length depends on a model, a provider or a tool
therefore pauses by itself (docs/decisions/archive/0049).
"""

from __future__ import annotations

import time

_SLICE_S = 0.0003
_PAUSE_S = 0.00001
"""Not 0, because `sleep(0)` takes the interpreter back before a waiting thread is awake."""


class Yielder:
    """Briefly pauses the calling thread, at most every 0.3 ms and at most half of the time."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._slice_s = _SLICE_S

    def __call__(self) -> None:
        """Let other threads run if this thread has not paused for a while.

        Not for use on the thread of an event loop.
        """
        now = time.perf_counter()
        if now - self._since > self._slice_s:
            time.sleep(_PAUSE_S)
            self._since = time.perf_counter()
            # on a busy machine, half of the time is left for the work
            self._slice_s = max(_SLICE_S, self._since - now)
