"""A depth-first search over all choices of a simulation, with a process for each branch.

A workflow object cannot be copied, but its process can: where there is a choice, a forked process
takes each other option and searches all that follows from it, while this one waits. So no step is
simulated twice. A state that was met before is not searched again; the table of the known states is
in memory that all of these processes share.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from perdure.testing.simulation.exhaustive.states import DIGEST_BYTES

_COUNT_BYTES = 16
_SLOT_BYTES = DIGEST_BYTES + _COUNT_BYTES
_SLOTS = 2**22
_HEAD_BYTES = 256
MOST_BROKEN = 3
"""After so many broken promises, a search takes no further branches."""


class KnownStateError(Exception):
    """A state was met before.

    Attributes:
        following: How many interleavings follow from it.
    """

    def __init__(self, following: int) -> None:
        super().__init__()
        self.following = following


@dataclass(frozen=True)
class BrokenChoices:
    """The choices of an interleaving that breaks a promise, and the promise with a message."""

    choices: tuple[int, ...]
    promise: str
    message: str


@dataclass(frozen=True)
class Searched:
    """What a search has found.

    Attributes:
        interleavings: The number of all interleavings.
        ended: How many of them were simulated to their end. Each of the others has met a known
            state, and is from there on the same as one of these.
        pruned: How often a known state was met.
        states: The number of different states.
        broken: Interleavings that break a promise; not all of them, if there are many.
    """

    interleavings: int
    ended: int
    pruned: int
    states: int
    broken: tuple[BrokenChoices, ...]


class _Tally(IntEnum):
    """The places of counts in the shared memory."""

    LAST = 0
    ENDED = 1
    PRUNED = 2
    STATES = 3
    BROKEN = 4


class _SharedMemory:
    """A few counts and the table of known states, in the memory of all processes of a search.

    Only one of the processes runs at a time, so nothing is locked.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _HEAD_BYTES + _SLOTS * _SLOT_BYTES)

    def count(self, place: _Tally) -> int:
        at = place * _COUNT_BYTES
        return int.from_bytes(self._memory[at : at + _COUNT_BYTES], "big")

    def set(self, place: _Tally, value: int) -> None:
        at = place * _COUNT_BYTES
        self._memory[at : at + _COUNT_BYTES] = value.to_bytes(_COUNT_BYTES, "big")

    def add(self, place: _Tally) -> None:
        self.set(place, self.count(place) + 1)

    def following(self, state: bytes) -> int | None:
        """Return how many interleavings follow from a state; None if it is not known."""
        at, is_known = self._slot(state)
        content = self._memory[at + DIGEST_BYTES : at + _SLOT_BYTES]
        return int.from_bytes(content, "big") if is_known else None

    def put(self, state: bytes, following: int) -> None:
        at, _ = self._slot(state)
        self._memory[at : at + _SLOT_BYTES] = state + following.to_bytes(_COUNT_BYTES, "big")

    def _slot(self, state: bytes) -> tuple[int, bool]:
        """Return the place of a state, and whether it is there."""
        first = int.from_bytes(state[:8], "big")
        for number in range(first, first + _SLOTS):
            at = _HEAD_BYTES + number % _SLOTS * _SLOT_BYTES
            there = self._memory[at : at + DIGEST_BYTES]
            if there == state or not any(there):
                return at, there == state
        raise MemoryError("the table of known states is full")


class DepthFirstSearch:
    """A search, as each of its processes knows it.

    Without pruning, it goes on from known states, too, which shows that pruning leaves nothing out.
    """

    def __init__(self, *, prunes: bool = True) -> None:
        self._prunes = prunes
        self._memory = _SharedMemory()
        self._broken = tempfile.TemporaryFile("a+", encoding="utf-8")  # noqa: SIM115
        self._is_branch = False
        self._path: list[bytes | int] = []

    def branch(self, count: int) -> int:
        """Return which of so many options this process takes; other processes take the others."""
        others = 0
        for option in range(1, count):
            if self._memory.count(_Tally.BROKEN) >= MOST_BROKEN:
                break
            process = os.fork()
            if not process:
                self._is_branch, self._path = True, []
                return option
            _, status = os.waitpid(process, 0)
            if status:
                raise ChildProcessError(f"a branch of the search has ended with {status}")
            others += self._memory.count(_Tally.LAST)
        self._path.append(others)
        return 0

    def meet(self, state: bytes) -> None:
        """Note a state.

        Raises:
            KnownStateError: It was met before.
        """
        following = self._memory.following(state)
        if following is not None and self._prunes:
            raise KnownStateError(following)
        self._path.append(state)

    def run(self, simulated: Callable[[], BrokenChoices | None]) -> Searched:
        """Search everything that may happen in a simulation.

        It returns the promise that it breaks, and lets a `KnownStateError` pass.
        """
        try:
            following = self._ended(simulated)
        except BaseException:
            if self._is_branch:
                os._exit(1)
            raise
        for met in reversed(self._path):
            if isinstance(met, bytes):
                if self._memory.following(met) is None:
                    self._memory.add(_Tally.STATES)
                self._memory.put(met, following)
            else:
                following += met
        self._memory.set(_Tally.LAST, following)
        if self._is_branch:
            os._exit(0)
        return self._searched(following)

    def _ended(self, simulated: Callable[[], BrokenChoices | None]) -> int:
        """Simulate to the end; return how many interleavings follow from the last state."""
        try:
            broken = simulated()
        except KnownStateError as known:
            self._memory.add(_Tally.PRUNED)
            return known.following
        self._memory.add(_Tally.ENDED)
        if broken is not None:
            self._memory.add(_Tally.BROKEN)
            line = [broken.choices, broken.promise, broken.message]
            self._broken.write(f"{json.dumps(line)}\n")
            self._broken.flush()
        return 1

    def _searched(self, interleavings: int) -> Searched:
        self._broken.seek(0)
        lines = map(json.loads, self._broken.read().splitlines())
        self._broken.close()
        return Searched(
            interleavings,
            self._memory.count(_Tally.ENDED),
            self._memory.count(_Tally.PRUNED),
            self._memory.count(_Tally.STATES),
            tuple(BrokenChoices(tuple(made), promise, text) for made, promise, text in lines),
        )
