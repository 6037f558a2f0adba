"""The runs that a worker process holds, in memory that outlives it.

A worker writes down each run of a workflow that it has in its cache, or of which it runs an
activity. Its supervisor reads the list when the process has ended, and asks Temporal what was in
flight. The list only says where to look, so an entry too many costs two requests.

The memory is a file without a name. An entry is written before the byte that makes it valid, so it
is complete or absent, wherever the process is killed. It contains ids, and nothing of a turn.
"""

from __future__ import annotations

import heapq
import json
import mmap
import os
import struct
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from perdure import limits

STARTING, SERVING, LEFT, NO_SERVER = 0, 1, 2, 3
"""The state of a process: before it takes work, while it does, after it ended in order, and after
it gave up because Temporal did not answer.
"""

_HELD, _CACHED, _ACTIVE = 1, 2, 4
_HEADER_BYTES = 4_096
_ID_BYTES = 1_000
_ENTRY = struct.Struct(f"=BH36s{_ID_BYTES}s")
_PULSE = struct.Struct("=Q")
_PULSE_AT = _HEADER_BYTES - _PULSE.size
_SIZE = _HEADER_BYTES + limits.HELD_RUNS * _ENTRY.size


@dataclass(frozen=True)
class WorkerConnection:
    """The worker's name in Temporal, and its namespace.

    The address is not here: the supervisor sends its API key only where it was told to.
    """

    identity: str
    namespace: str


@dataclass(frozen=True)
class HeldRun:
    """A run of a workflow in the list.

    Attributes:
        is_cached: The process had its workflow in memory.
        is_active: It ran an activity of the run, or its workflow, or had done so a moment ago.
    """

    workflow_id: str
    run_id: str
    is_cached: bool
    is_active: bool


def create() -> int:
    """Return a file descriptor for an empty list."""
    if sys.platform == "linux":
        file = os.memfd_create("perdure-held-runs")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, _SIZE)
    return file


def state(file: int) -> int:
    """Return the state of the process: `STARTING`, `SERVING`, `LEFT` or `NO_SERVER`."""
    return os.pread(file, 1, 0)[0]


def has_served(file: int) -> bool:
    """Return whether the process has ever taken work, so that it has reached Temporal."""
    return os.pread(file, 1, 1) != b"\0"


def connection(file: int) -> WorkerConnection:
    """Return the connection of a process that has served."""
    text, _, _ = os.pread(file, _PULSE_AT - 1, 1).partition(b"\0")
    values = json.loads(text)
    return WorkerConnection(values["identity"], values["namespace"])


def pulse(file: int) -> int:
    """Return how often the process has shown that it runs."""
    count: int = _PULSE.unpack(os.pread(file, _PULSE.size, _PULSE_AT))[0]
    return count


def read(file: int) -> Sequence[HeldRun]:
    """Return the runs in the list; those with something in flight come first."""
    entries = _ENTRY.iter_unpack(os.pread(file, _SIZE, _HEADER_BYTES))
    runs = [
        HeldRun(
            workflow_id[:size].decode(errors="replace"),
            run_id.decode(errors="replace"),
            bool(flags & _CACHED),
            bool(flags & _ACTIVE),
        )
        for flags, size, run_id, workflow_id in entries
        if flags & _HELD
    ]
    return sorted(runs, key=lambda run: not run.is_active)


@dataclass
class _HeldSlot:
    slot: int
    is_cached: bool = False
    active: int = 0


class HeldRuns:
    """The list, as the worker process writes it; safe from threads.

    Runs that do not fit are left out: their heartbeats show that the process died.
    """

    def __init__(self, file: int) -> None:
        self._memory = mmap.mmap(file, _SIZE)  # a store costs less than a system call
        self._lock = threading.Lock()
        self._entries: dict[str, _HeldSlot] = {}
        self._free = list(range(limits.HELD_RUNS))
        self._is_draining = False

    def serve(self, connection: WorkerConnection) -> None:
        """Record that the process takes work from now on."""
        text = json.dumps(asdict(connection)).encode()
        if len(text) < _PULSE_AT - 1:
            self._memory[1 : 1 + len(text)] = text
            self._memory[0] = SERVING

    def beat(self, count: int) -> None:
        """Show that the process runs."""
        _PULSE.pack_into(self._memory, _PULSE_AT, count)

    def drain(self) -> None:
        """Leave every run in the list from now on.

        The SDK interrupts its polls then, so a task that Temporal has just sent may never arrive.
        """
        with self._lock:
            self._is_draining = True

    def leave(self, state: int = LEFT) -> None:
        """Record that the process ends by itself: `LEFT` or `NO_SERVER`."""
        self._memory[0] = state

    def keep(self, workflow_id: str, run_id: str) -> None:
        """Add a run whose workflow is in memory from now on."""
        with self._lock:
            entry = self._entry(workflow_id, run_id)
            if entry is not None:
                entry.is_cached = True
                self._mark(run_id, entry)

    def drop(self, run_id: str) -> None:
        """Note that the workflow of a run is not in memory any more."""
        with self._lock:
            entry = self._entries.get(run_id)
            if entry is not None:
                entry.is_cached = False
                self._mark(run_id, entry)

    def begin(self, workflow_id: str, run_id: str) -> None:
        """Note that something of a run begins: an activity, or its workflow."""
        with self._lock:
            entry = self._entry(workflow_id, run_id)
            if entry is not None:
                entry.active += 1
                self._mark(run_id, entry)

    def end(self, run_id: str) -> None:
        """Note that it has ended."""
        with self._lock:
            entry = self._entries.get(run_id)
            if entry is not None and entry.active:
                entry.active -= 1
                self._mark(run_id, entry)

    def _entry(self, workflow_id: str, run_id: str) -> _HeldSlot | None:
        """Return the entry of a run, a new entry if necessary; None if there is no room for it."""
        entry, name = self._entries.get(run_id), workflow_id.encode(errors="replace")
        if entry is not None or not self._free or len(name) > _ID_BYTES:
            return entry
        entry = self._entries[run_id] = _HeldSlot(heapq.heappop(self._free))
        _ENTRY.pack_into(self._memory, _place(entry.slot), 0, len(name), run_id.encode(), name)
        return entry

    def _mark(self, run_id: str, entry: _HeldSlot) -> None:
        is_held = entry.is_cached or entry.active > 0 or self._is_draining
        flags = _HELD * is_held | _CACHED * entry.is_cached | _ACTIVE * (entry.active > 0)
        self._memory[_place(entry.slot)] = flags
        if not is_held:
            del self._entries[run_id]
            heapq.heappush(self._free, entry.slot)


def _place(slot: int) -> int:
    return _HEADER_BYTES + slot * _ENTRY.size
