"""Runs a server as its child process, and ends it with all its descendants.

Usage: `guard.py LIFELINE COMMAND ARGUMENTS…`.

LIFELINE is the read end of a pipe that the worker keeps open. It closes when the worker wants the
server to end, and by itself when the worker is killed. A parent-death signal (`PR_SET_PDEATHSIG`)
would reach only the server, not its descendants. The server therefore leads a session of its own,
which is signalled as a group, and on Linux processes that have left the group are found as well:
orphans of a subreaper are re-parented to it.

This is a separate program, started for each server, so it imports little and nothing of Perdure.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_PARENT_CHECK_S = 1.0
_TERM_S = 1.0
_KILL_S = 3.0
_NAP_S = 0.02
_NOT_FOUND = 127


def main(lifeline: int, command: list[str]) -> int:
    """Run the command until it or the worker ends.

    Returns its exit code, or 143 if it was terminated.
    """
    parent = os.getppid()
    os.set_inheritable(lifeline, False)
    _control(_SET_CHILD_SUBREAPER, 1)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    terms: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: terms.append(number))
    server = os.fork()
    if server == 0:
        _become(command)
    _let_go()
    status: int | None = None
    while status is None and not terms and os.getppid() == parent:
        ready, _, _ = select.select([lifeline, woken], [], [], _PARENT_CHECK_S)
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 1024)
        status = _reaped().get(server)
        if lifeline in ready:
            break
    _end(server)
    return 128 + signal.SIGTERM if status is None else os.waitstatus_to_exitcode(status) % 256


def _become(command: list[str]) -> None:
    """Become the server, in the child. It dies with the guard."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    _control(_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the command is what the operator declared; there is no shell
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(_NOT_FOUND)


def _let_go() -> None:
    """Close the server's input and output here, where they would hide their end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)


def _end(server: int) -> None:
    """Terminate all processes, then kill those that remain."""
    for number, patience in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, _KILL_S)):
        until = time.monotonic() + patience
        _signal(server, number, _descendants())
        while time.monotonic() < until:
            _reaped()
            if not _is_group(server) and not any(_descendants()):
                return
            time.sleep(_NAP_S)
            if number == signal.SIGKILL:  # includes processes started meanwhile
                _signal(server, number, _descendants())


def _signal(group: int, number: int, processes: Iterable[int]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def _is_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # macOS raises it for zombies
    return True


def _reaped() -> dict[int, int]:
    """Reap children that have ended, including adopted orphans; return their status."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = child[1]
    return ended


def _descendants() -> list[int]:
    """Return all descendants of this process, if there is /proc."""
    children: dict[int, list[int]] = {}
    for process, parent in _processes():
        children.setdefault(parent, []).append(process)
    descendants, waiting = [], [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        descendants += below
        waiting += below
    return descendants


def _processes() -> Iterator[tuple[int, int]]:
    proc = Path("/proc")
    if not (proc / "self/stat").exists():
        return
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # the name before it may hold any characters
                fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                yield int(folder.name), int(fields[1])


def _control(option: int, value: int) -> None:
    """Call Linux's prctl; a no-op elsewhere."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
