"""Long work in a thread that leaves room for the threads of other turns.

Python lets one thread run at a time, and takes the interpreter away from a busy one after 5 ms
only. The event loop of a worker gives it up whenever it waits for the network, some dozens of times
a turn, so one busy thread makes a turn several times slower. Work whose length a model, a provider
or a tool decides therefore pauses on its own (docs/decisions/0049).
"""

from __future__ import annotations

import time

_SLICE_S = 0.0003
_PAUSE_S = 0.00001
"""Longer than 0, because `sleep(0)` takes the interpreter back before a thread that waits for it is awake."""


class Yielder:
    """Pauses the thread that calls it, for some microseconds, not more often than every 0.3 ms, and not for more than half of the time."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._slice_s = _SLICE_S

    def __call__(self) -> None:
        """Let other threads run, if this one has not for a while.

        Not for the thread of an event loop.
        """
        now = time.perf_counter()
        if now - self._since > self._slice_s:
            time.sleep(_PAUSE_S)
            self._since = time.perf_counter()
            self._slice_s = max(
                _SLICE_S, self._since - now
            )  # on a busy machine half of the time is left for the work
