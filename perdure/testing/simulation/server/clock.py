"""Virtual time: what happens in a simulation, and in which order."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime

from perdure.testing.simulation.choices import Choices

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The time at which a simulation begins."""

_NS = 10**9


class VirtualClock:
    """Virtual time, and what will happen.

    Attributes:
        now_ns: The time, in nanoseconds since 1970, by which everything happens.
        wrong_ns: By how much the machine of the server that writes the next event is wrong.
        differ_s: By how many seconds the times of two events may be wrong, at most.
    """

    def __init__(self, choices: Choices) -> None:
        self.now_ns = int(START.timestamp()) * _NS
        self.wrong_ns = 0
        self.differ_s = 0.0
        self._choices = choices
        self._queue: list[tuple[int, int, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def now_s(self) -> float:
        """The seconds since the simulation began."""
        return self.now_ns / _NS - START.timestamp()

    @property
    def written_ns(self) -> int:
        """The time of an event that is written now."""
        return self.now_ns + self.wrong_ns

    def later(self, seconds: float, happens: Callable[[], None]) -> None:
        """Let something happen after this time."""
        self._count += 1
        moment_ns = self.now_ns + int(seconds * _NS)
        heapq.heappush(self._queue, (moment_ns, self._choices.below(4), self._count, happens))

    def after(self, seconds: float, happens: Callable[[], None]) -> None:
        """Let a timer of a workflow fire after this time."""
        self.later(seconds, happens)

    def step(self) -> bool:
        """Let the next thing happen; return whether anything was left to happen."""
        if not self._queue:
            return False
        self.now_ns, _, _, happens = heapq.heappop(self._queue)
        happens()
        return True
