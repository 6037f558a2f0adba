"""The choices of an exhaustive search: those of the order and of the kills are open, and no others.

What a seed draws besides does not happen: each of those choices is the first option.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.server.clock import VirtualClock
from perdure.testing.simulation.server.runs import SimulatedRun


class Branch(Protocol):
    """Returns which of so many options is taken."""

    def __call__(self, count: int, *, is_kill: bool = False) -> int:
        """Return a number below `count`; with `is_kill`, 1 kills something and 0 does not."""


class OpenChoices(Choices):
    """Choices of which a search takes every option.

    Attributes:
        made: The open choices so far.
        kills: How many more times something may be killed.
        detours: How many more times another event than the oldest may happen first; None without
            a limit. What the people do at some moment is no detour.
    """

    def __init__(self, branch: Branch, kills: int, detours: int | None) -> None:
        super().__init__(0, ())
        self.kills = kills
        self.detours = detours
        self._branch = branch

    def below(self, count: int, *, beside: str = "") -> int:
        """Return 0: what a seed draws does not happen."""
        return 0

    def _draws(self, feature: str, one_in: int, sequence: str) -> bool:
        """Return False: a simulation has no feature that not all of them have."""
        return False

    def event(self, count: int, *, is_last_free: bool) -> int:
        """Return which of the pending events happens next; 0 is the oldest.

        Each other one is a detour, except for the last one if it is free.
        """
        if self.detours == 0:
            return (count - 1) * self._made(2) if count > 1 and is_last_free else 0
        made = self._made(count) if count > 1 else 0
        is_detour = made > 0 and not (is_last_free and made == count - 1)
        if is_detour and self.detours is not None:
            self.detours -= 1
        return made

    def kill(self) -> bool:
        """Return whether something is killed here."""
        if self.kills == 0:
            return False
        is_killed = bool(self._made(2, is_kill=True))
        self.kills -= is_killed
        return is_killed

    def _made(self, count: int, *, is_kill: bool = False) -> int:
        made = self._branch(count, is_kill=is_kill)
        self.made.append(made)
        return made


@dataclass(frozen=True, eq=False)
class Pending:
    """Something that may happen next.

    Attributes:
        happens: What it does.
        run: The run that it is of, if it has no effect on any other one; None if it may have.
    """

    happens: Callable[[], None]
    run: SimulatedRun | None


class OpenClock(VirtualClock):
    """Pending events, of which any may be the next. How long something takes is open.

    Time passes only when a timer of a workflow fires, which is when nothing else is pending.

    Attributes:
        pending: What may happen, the oldest first.
        timers: The moments of timers in nanoseconds, with their numbers and what they do.
        free: What may happen at any moment without a detour; None if there is no such event.
    """

    def __init__(self, choices: OpenChoices, *, are_delegates_apart: bool) -> None:
        super().__init__(choices)
        self.pending: list[Pending] = []
        self.timers: list[tuple[int, int, Callable[[], None]]] = []
        self.free: Pending | None = None
        self._open = choices
        self._are_delegates_apart = are_delegates_apart
        self._timers = 0

    def later(self, seconds: float, happens: Callable[[], None]) -> None:
        """Let something happen at any moment from now on."""
        self.pending.append(Pending(happens, None))

    def within(self, run: SimulatedRun, happens: Callable[[], None]) -> None:
        """Let something happen at any moment that has no effect outside of a run."""
        self.pending.append(Pending(happens, run))

    def after(self, seconds: float, happens: Callable[[], None]) -> None:
        """Let a timer of a workflow fire after this time."""
        self._timers += 1
        moment_ns = self.now_ns + int(seconds * 10**9)
        heapq.heappush(self.timers, (moment_ns, self._timers, happens))

    def step(self) -> bool:
        """Let one of the pending things happen; return whether anything was left to happen."""
        if self.pending:
            options = self._options()
            is_last_free = options[-1] is self.free
            chosen = options[self._open.event(len(options), is_last_free=is_last_free)]
            self.pending.remove(chosen)
            happens = chosen.happens
        elif self.timers:
            self.now_ns, _, happens = heapq.heappop(self.timers)
        else:
            return False
        happens()
        return True

    def _options(self) -> list[Pending]:
        """Return what may be the next.

        If nobody can send anything to a delegate, what happens within it commutes with everything
        else. So it happens first.
        """
        of_delegates = [one for one in self.pending if one.run and one.run.parent is not None]
        if self._are_delegates_apart and of_delegates:
            return of_delegates
        return sorted(self.pending, key=lambda one: one is self.free)
