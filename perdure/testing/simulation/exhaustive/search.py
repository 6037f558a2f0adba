"""A depth-first search over all choices of a simulation, with a process for each branch.

A workflow object cannot be copied, but its process can: where there is a choice, a forked process
takes each other option and searches all that follows from it, while this one waits. So no step is
simulated twice. A state that was met before is not searched again; the table of the known states is
in memory that all of these processes share.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import mmap
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

from perdure.testing.simulation.exhaustive.states import DIGEST_BYTES

MOST_KILLS = 3
"""A search counts the interleavings with up to so many kills."""
_COUNT_BYTES = 12
_COUNTS_BYTES = (MOST_KILLS + 1) * _COUNT_BYTES
_SLOT_BYTES = DIGEST_BYTES + _COUNTS_BYTES
_UNKNOWN = 2 ** (8 * _COUNT_BYTES) - 1
_SLOTS = 2**22
_LAST_AT, _HEAD_BYTES = 128, 512
_WHOLE = 2
"""The place of what follows from the beginning, after those of the two searchers."""
MOST_BROKEN = 3
"""After so many broken promises, a search takes no further branches."""

Following = tuple[int, ...]
"""How many interleavings follow without a kill, with one kill, and so on up to those left."""


class KnownStateError(Exception):
    """A state was met before, with at least as many kills left.

    Attributes:
        following: How many interleavings follow from it.
    """

    def __init__(self, following: Following) -> None:
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

    ENDED = 0
    PRUNED = 1
    STATES = 2
    BROKEN = 3
    OVER = 4


class _SharedMemory:
    """A few counts and the table of known states, in the memory of all processes of a search.

    Only one process of each searcher runs at a time. What both searchers write is locked.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _HEAD_BYTES + _SLOTS * _SLOT_BYTES)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the search

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the processes of the other searcher waiting."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def count(self, place: _Tally) -> int:
        at = place * _COUNT_BYTES
        return int.from_bytes(self._memory[at : at + _COUNT_BYTES], "big")

    def add(self, place: _Tally) -> None:
        at = place * _COUNT_BYTES
        self._memory[at : at + _COUNT_BYTES] = (self.count(place) + 1).to_bytes(_COUNT_BYTES, "big")

    def last(self, searcher: int) -> Following:
        """Return what follows from the first state of a searcher's last process that has ended."""
        return self._counts(_LAST_AT + searcher * _COUNTS_BYTES)

    def set_last(self, searcher: int, following: Following) -> None:
        at = _LAST_AT + searcher * _COUNTS_BYTES
        self._memory[at : at + _COUNTS_BYTES] = _packed(following)

    def following(self, state: bytes) -> Following:
        """Return how many interleavings follow from a state; empty if it is not known."""
        at, is_known = self._slot(state)
        return self._counts(at + DIGEST_BYTES) if is_known else ()

    def put(self, state: bytes, following: Following) -> None:
        at, _ = self._slot(state)
        self._memory[at : at + _SLOT_BYTES] = state + _packed(following)

    def _counts(self, at: int) -> Following:
        packed = self._memory[at : at + _COUNTS_BYTES]
        places = range(0, _COUNTS_BYTES, _COUNT_BYTES)
        counts = (int.from_bytes(packed[one : one + _COUNT_BYTES], "big") for one in places)
        return tuple(itertools.takewhile(_UNKNOWN.__ne__, counts))

    def _slot(self, state: bytes) -> tuple[int, bool]:
        """Return the place of a state, and whether it is there."""
        first = int.from_bytes(state[:8], "big")
        for number in range(first, first + _SLOTS):
            at = _HEAD_BYTES + number % _SLOTS * _SLOT_BYTES
            there = self._memory[at : at + DIGEST_BYTES]
            if there == state or not any(there):
                return at, there == state
        raise MemoryError("the table of known states is full")


def _packed(following: Following) -> bytes:
    """Return counts as bytes; those with more kills than were left are unknown."""
    unknown = [_UNKNOWN] * (MOST_KILLS + 1 - len(following))
    return b"".join(count.to_bytes(_COUNT_BYTES, "big") for count in (*following, *unknown))


def _wait(process: int) -> None:
    """Wait for a process of the search.

    Raises:
        ChildProcessError: It has failed.
    """
    _, status = os.waitpid(process, 0)
    if status:
        raise ChildProcessError(f"a branch of the search has ended with {status}")


@dataclass(frozen=True)
class _Branched:
    """A choice that was made, and how many interleavings follow from the other options."""

    others: Following
    is_kill: bool

    def plus(self, following: Following) -> Following:
        """Return what follows from all options; `following` is from the one that was taken."""
        taken = (0, *following) if self.is_kill else following
        return tuple(map(sum, itertools.zip_longest(taken, self.others, fillvalue=0)))


class DepthFirstSearch:
    """A search, as each of its processes knows it.

    Whether something is killed is decided in favour of no kill first. So a state is searched with
    all kills that are left before it is met with fewer. A second searcher, for another core, takes
    the other options in another order, and both skip what one of them has searched.

    Without pruning, it goes on from known states, too, which shows that pruning leaves nothing out.
    """

    def __init__(self, kills: int, *, prunes: bool = True) -> None:
        self._kills = kills
        self._prunes = prunes
        self._memory = _SharedMemory()
        self._broken = tempfile.TemporaryFile("a+", encoding="utf-8")  # noqa: SIM115
        self._searcher = 0
        self._is_root, self._is_branch = True, False
        self._path: list[bytes | _Branched] = []

    @contextmanager
    def progress(self, every_s: float, show: Callable[[str], None]) -> Iterator[None]:
        """Show in a process of its own how far the search is, at intervals."""
        own = os.getpid()
        process = os.fork()
        if not process:
            while os.getppid() == own:
                time.sleep(every_s)
                counts = {one: self._memory.count(one) for one in _Tally if one != _Tally.OVER}
                show(", ".join(f"{count} {one.name.lower()}" for one, count in counts.items()))
            os._exit(0)
        try:
            yield
        finally:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)

    @contextmanager
    def helped(self, simulated: Callable[[], BrokenChoices | None]) -> Iterator[None]:
        """Let a second searcher search the same, until one of them is done."""
        process = os.fork()
        if not process:
            self._searcher, self._is_branch = 1, True
            self.run(simulated)
        try:
            yield
        finally:
            self._end(())
            _wait(process)

    @property
    def _is_over(self) -> bool:
        """Whether nothing is left to search, or enough was found."""
        memory = self._memory
        return bool(memory.count(_Tally.OVER)) or memory.count(_Tally.BROKEN) >= MOST_BROKEN

    def _order(self, count: int, is_kill: bool) -> list[int]:
        """Return the options in the order in which they are taken."""
        if is_kill:
            return [0, 1]
        return [0, *range(count - 1, 0, -1)] if self._searcher else [*range(1, count), 0]

    def branch(self, count: int, *, is_kill: bool = False) -> int:
        """Return which of so many options this process takes; other processes take the others."""
        options = self._order(count, is_kill)
        others: Following = ()
        for option in options[:-1]:
            if self._is_over:
                return option
            process = os.fork()
            if not process:
                self._is_root, self._is_branch, self._path = False, True, []
                return option
            _wait(process)
            others = _Branched(others, is_kill=False).plus(self._memory.last(self._searcher))
        self._kills -= is_kill
        self._path.append(_Branched(others, is_kill))
        return options[-1]

    def meet(self, state: bytes) -> None:
        """Note a state.

        Raises:
            KnownStateError: It was met before.
        """
        if self._memory.count(_Tally.OVER):
            raise KnownStateError(())
        with self._memory.locked():
            following = self._memory.following(state)
        if len(following) > self._kills and self._prunes:
            raise KnownStateError(following[: self._kills + 1])
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
            following = met.plus(following) if isinstance(met, _Branched) else following
            if isinstance(met, bytes):
                self._note(met, following)
        self._memory.set_last(self._searcher, following)
        if self._is_root:
            self._end(following)
        if self._is_branch:
            os._exit(0)
        return self._searched(sum(self._memory.last(_WHOLE)))

    def _end(self, following: Following) -> None:
        """End the search with all that follows from its beginning, unless it is over."""
        with self._memory.locked():
            if not self._memory.count(_Tally.OVER):
                self._memory.set_last(_WHOLE, following)
                self._memory.add(_Tally.OVER)

    def _note(self, state: bytes, following: Following) -> None:
        """Note what follows from a state, unless that is known for more kills."""
        with self._memory.locked():
            if self._memory.count(_Tally.OVER):
                return
            known = self._memory.following(state)
            if not known:
                self._memory.add(_Tally.STATES)
            if len(known) < len(following):
                self._memory.put(state, following)

    def _ended(self, simulated: Callable[[], BrokenChoices | None]) -> Following:
        """Simulate to the end; return how many interleavings follow from the last state."""
        try:
            broken = simulated()
        except KnownStateError as known:
            self._add(_Tally.PRUNED)
            return known.following
        self._add(_Tally.ENDED)
        if broken is not None:
            self._add(_Tally.BROKEN)
            line = [broken.choices, broken.promise, broken.message]
            self._broken.write(f"{json.dumps(line)}\n")
            self._broken.flush()
        return (1, *[0] * self._kills)

    def _add(self, place: _Tally) -> None:
        with self._memory.locked():
            self._memory.add(place)

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
