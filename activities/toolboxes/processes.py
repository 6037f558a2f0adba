"""Runs a command as a process group that ends as a whole.

The command leads a session of its own, so signals also reach its children. On cancellation and at
the timeout, the group gets SIGTERM, and half a second later SIGKILL. When the command itself ends,
its background processes are killed at once: a turn leaves nothing running.

Output is read while the command runs. Its beginning and its end are kept up to a limit, and the
middle is dropped, so that a command neither waits for a reader nor fills the memory.

The limits are set by a Python process that then becomes the command (`limited`), because a
`preexec_fn` would run in a process with many threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_POLL_S, _GRACE_S = 0.02, 0.5
_HEAD, _TAIL = 16 * 1024, 32 * 1024
_CHUNK = 64 * 1024
_READS_AT_END = 64

_MIB = 1024 * 1024
_LIMITED = Path(__file__).with_name("limited.py")
_LIMITS = {
    "DATA": 2048 * _MIB,
    "AS": 8192 * _MIB,  # programs reserve far more than they use
    "FSIZE": 1024 * _MIB,
    "NOFILE": 1024,
    "NPROC": 4096,  # per user; other containers of the same user are not visible
    "CORE": 0,
}


class Output:
    """The beginning and the end of a command's output, and its total size."""

    def __init__(self) -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._bytes = 0

    def add(self, data: bytes) -> None:
        """Append data."""
        self._bytes += len(data)
        room = _HEAD - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[:-_TAIL]

    def text(self) -> str:
        """Return the output, with a note where the middle was dropped."""
        left_out = self._bytes - len(self._head) - len(self._tail)
        if not left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        return (
            f"{self._head.decode('utf-8', 'replace')}\n[{left_out} bytes are left out"
            f" here]\n{self._tail.decode('utf-8', 'replace')}"
        )


async def run(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    output: Output,
) -> int | None:
    """Run a command without input, collecting its output and errors in `output`.

    Returns the exit code, as of `subprocess`; None after a timeout.

    Raises:
        OSError: It cannot be started.
    """
    # A process that leaves the group escapes the timeout, but not this limit: the most that all
    # processors could give it until then.
    limits = {**_LIMITS, "CPU": math.ceil(timeout_s) * (os.cpu_count() or 1) + 1}
    process = subprocess.Popen(  # noqa: S603, ASYNC220 - `shell` decides what is run; starting takes milliseconds, and a cancellation cannot interrupt it
        [sys.executable, "-I", "-S", str(_LIMITED), json.dumps(limits), *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout, _reading(process.stdout, output):
        try:
            async with asyncio.timeout(timeout_s):
                return await _end(process)
        except TimeoutError:
            await _terminate(process)
            return None
        except asyncio.CancelledError:
            await _terminate(process)
            raise
        finally:
            _signal(process, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)


async def _end(process: subprocess.Popen[bytes]) -> int:
    while (code := process.poll()) is None:  # noqa: ASYNC110 - asyncio's watcher would reap the process before its group is killed
        await asyncio.sleep(_POLL_S)
    return code


async def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Terminate the group, and wait briefly for all of it to end."""
    _signal(process, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_S):
            while process.poll() is None or _signal(process, 0):  # noqa: ASYNC110 - there is no event for an empty group
                await asyncio.sleep(_POLL_S)


def _signal(process: subprocess.Popen[bytes], number: int) -> bool:
    """Signal the group; return whether it has any processes.

    macOS raises PermissionError if only zombies are left.
    """
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class _reading(contextlib.AbstractContextManager[None]):  # noqa: N801 - read as a verb
    """Reads a pipe into `output` whenever data is available, and the rest at the end."""

    def __init__(self, pipe: IO[bytes], output: Output) -> None:
        self._fd = pipe.fileno()
        self._output = output
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> None:
        os.set_blocking(self._fd, False)
        self._loop.add_reader(self._fd, self._read)

    def __exit__(self, *ending: object) -> None:
        for _ in range(_READS_AT_END):  # a process that left the group may still be writing
            if not self._read():
                break
        self._loop.remove_reader(self._fd)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        self._output.add(data)
        if not data:
            self._loop.remove_reader(self._fd)
        return bool(data)
