"""Counts what became of the deliveries to a hook, and logs what went wrong, but not too often."""

from __future__ import annotations

import logging
import time
from collections import Counter

from perdure.text import exact, one_line

logger = logging.getLogger("perdure")

_PAUSE_S = 60.0
_SHOWN = 300


class Tally:
    """The deliveries to a hook since the process began.

    Attributes:
        counts: The number of deliveries by the status of their answer: 202 for those that have
            started something, 204 for those that the filter has left out.
    """

    def __init__(self, name: str, pause_s: float = _PAUSE_S) -> None:
        self.counts: Counter[int] = Counter()
        self._name = name
        self._pause_s = pause_s
        self._logged_at = -pause_s
        self._unlogged: Counter[int] = Counter()

    def accept(self, status: int) -> None:
        """Count a delivery that was not refused."""
        self.counts[status] += 1

    def refuse(self, status: int, reason: str) -> None:
        """Count a delivery that was refused. They are logged together, once a minute at most."""
        self.counts[status] += 1
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
