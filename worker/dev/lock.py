"""A lock that allows one program of agents for each task queue of a development folder.

Two programs that poll the same task queue get each other's turns, and fail turns of agents that
they do not have. The process that runs the worker holds the lock, so it is released however the
process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from perdure import errors


@contextlib.contextmanager
def only_worker(folder: Path, queue: str, program: str) -> Iterator[None]:
    """Hold the lock of a folder's task queue for a program.

    Raises:
        ConfigurationError: Another process holds it; the message names its program.
    """
    path = folder / f"worker-{hashlib.sha256(queue.encode()).hexdigest()[:16]}.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.read(file, 1_000).decode(errors="replace")
            raise errors.ConfigurationError(
                f"`perdure dev {other}` is running in this folder and polls task queue {queue!r},"
                f" so it would get turns of {program}; stop it first, or give this one its own"
                " queue with PERDURE_TASK_QUEUE"
            ) from None
        os.ftruncate(file, 0)
        os.write(file, program.encode())
        yield
    finally:
        os.close(file)
