"""A command as a group of processes that ends as a whole.

The command leads a session of its own, so signals reach what it has started too. On a cancel and at
its timeout the group gets SIGTERM, and SIGKILL half a second later. When the command itself ends,
what it left in the background is killed at once: a turn leaves nothing running.

Output is read while the command runs and kept up to a limit, its beginning and its end; the middle
of more is dropped, so that a command never waits for a reader, nor fills memory.

Its limits are set by a process of Python that then becomes the command (`limited`), because a
`preexec_fn` would run in a process full of threads.
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
    "NPROC": 4096,  # of all of the user, and other containers of the same user are not seen
    "CORE": 0,
}


class Output:
    """The beginning and the end of what a command wrote, and how much it was."""

    def __init__(self) -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._bytes = 0

    def add(self, data: bytes) -> None:
        """Take in what comes next."""
        self._bytes += len(data)
        room = _HEAD - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[:-_TAIL]

    def text(self) -> str:
        """All of it, with a note where something is left out."""
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
    """Run a command without input, with its output and errors in `output`.

    The exit code, as of `subprocess`; None where time was over.

    Raises:
        OSError: It cannot be started.
    """
    # A process that leaves the group escapes the timeout, and not this: as much as all processors
    # could give it until then.
    limits = {**_LIMITS, "CPU": math.ceil(timeout_s) * (os.cpu_count() or 1) + 1}
    process = subprocess.Popen(  # noqa: S603, ASYNC220 - what is run is decided by `shell`; starting takes milliseconds, and a cancel cannot fall into it
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
    while (code := process.poll()) is None:  # noqa: ASYNC110 - asyncio's own watcher would collect the process before its group is killed
        await asyncio.sleep(_POLL_S)
    return code


async def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Ask all of the group to end, and wait for all of it, but not for long."""
    _signal(process, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_S):
            while process.poll() is None or _signal(process, 0):  # noqa: ASYNC110 - nothing tells when a group is empty
                await asyncio.sleep(_POLL_S)


def _signal(process: subprocess.Popen[bytes], number: int) -> bool:
    """Whether there was anybody in the group to be signalled.

    macOS answers with a lack of permission where only zombies are left.
    """
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class _reading(contextlib.AbstractContextManager[None]):  # noqa: N801 - read as a verb
    """Reads a pipe into `output` whenever there is something, and the rest at the end."""

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
