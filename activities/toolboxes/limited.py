"""Sets resource limits for this process and then executes a command.

Usage: `python -I -S limited.py LIMITS PROGRAM ARGUMENT…`, with the limits as JSON.

They are hard limits, so neither the command nor its children can raise them. Each applies to a
single process, except the number of processes, which the system counts per user: the command may
have this many more than the user already has.
"""

import json
import os
import resource
import signal
import sys
from pathlib import Path


def set_limits(amounts: dict[str, int]) -> None:
    """Set the limits that this system supports; a limit that is already lower is kept."""
    if "NPROC" in amounts:
        amounts["NPROC"] += threads_of_this_user()
    for name, value in amounts.items():
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is None:
            continue
        hard = resource.getrlimit(number)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (allowed, allowed))


def threads_of_this_user() -> int:
    """Return the number of threads of this user, as far as /proc shows them."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == os.getuid():
                count += (folder / "task").stat().st_nlink - 2
        except OSError:
            continue  # it has ended meanwhile
    return count


if __name__ == "__main__":
    set_limits(json.loads(sys.argv[1]))
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - what is run is decided by `shell`
    except OSError as error:
        sys.exit(f"the command cannot be started: {error.strerror}")
