"""One program of agents for each task queue of a development folder.

Two programs that poll one task queue get each other's turns, and fail those of agents that they do
not have. The lock is held by the process that runs the worker, so it is free again however that
ends.
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
    """Hold the task queue of a folder for a program.

    Raises:
        ConfigurationError: Another process of this folder holds it; the message names its program.
    """
    path = folder / f"worker-{hashlib.sha256(queue.encode()).hexdigest()[:16]}.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.read(file, 1_000).decode(errors="replace")
            raise errors.ConfigurationError(
                f"`perdure dev {other}` runs in this folder and polls task queue {queue!r}, so it"
                f" would get turns of {program}; stop it first, or give this one a queue of its own"
                " with PERDURE_TASK_QUEUE"
            ) from None
        os.ftruncate(file, 0)
        os.write(file, program.encode())
        yield
    finally:
        os.close(file)
