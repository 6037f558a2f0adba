"""Counts what became of the deliveries to a hook, and logs what went wrong, but not too often."""

from __future__ import annotations

import logging
import time
from collections import Counter

from perdure.text import exact, one_line

logger = logging.getLogger("perdure")

_PAUSE_S = 60.0
_SHOWN = 300


class HookTally:
    """The deliveries to a hook since the process began.

    Attributes:
        started: The number of those that have started something, repetitions included.
        ignored: The number of those that start nothing: left out by the filter, or a test.
        refused: The number of those that were refused.
    """

    def __init__(self, name: str, pause_s: float = _PAUSE_S) -> None:
        self.started = self.ignored = self.refused = 0
        self._name = name
        self._pause_s = pause_s
        self._logged_at = -pause_s
        self._unlogged: Counter[int] = Counter()

    def accept(self, *, has_started: bool) -> None:
        """Count a delivery that was not refused."""
        self.started += has_started
        self.ignored += not has_started

    def refuse(self, status: int, reason: str) -> None:
        """Count a delivery that was refused. They are logged together, once a minute at most."""
        self.refused += 1
        self._unlogged[status] += 1
        now = time.monotonic()
        if now - self._logged_at < self._pause_s:
            return
        self._logged_at = now
        refused = ", ".join(f"{count} with {code}" for code, count in self._unlogged.items())
        logger.warning(
            "hook %s has refused deliveries: %s; the last: %s",
            self._name,
            refused,
            exact(one_line(reason, _SHOWN)),
        )
        self._unlogged.clear()
