"""`perdure dev --reload`: a worker process that exits when its code changes, and its supervisor.

The worker process watches its own modules, because it knows which files they come from. If the code
cannot be loaded, the process prints the error and waits for a change without running a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

CHANGED = 75
"""The exit code of a worker process whose code has changed."""

_PAUSE_S = 0.5
_SHARE = 200
"""The watcher sleeps at least this many times its CPU time, so it uses at most half a percent."""

_INSTALLED = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__"})

Stamp = tuple[int, int]


class Watcher:
    """Watches Python files below a folder: files of imported modules, or all of them.

    Attributes:
        changed: The file that has changed, once a file has.
        seen: The files so far, with time and size.
    """

    def __init__(self, folder: Path, *, since: float) -> None:
        self.changed: Path | None = None
        self._folder = folder
        self._since_ns = int(since * 1e9)
        self.seen: dict[Path, Stamp] = {}

    def wait(self, *, for_all: bool = False) -> Path:
        """Block until a file changes, and return it.

        With `for_all`, every Python file below the folder counts, also a new file.
        """
        while self.changed is None:
            began = time.thread_time()
            files = self._files() if for_all else self._imported()
            self.changed = next(filter(self._has_changed, files), None)
            if self.changed is None:
                time.sleep(max(_PAUSE_S, _SHARE * (time.thread_time() - began)))
        return self.changed

    def _has_changed(self, file: Path) -> bool:
        """Whether a file differs from the last look, or is newer than this process at the first."""
        try:
            status = file.stat()
        except OSError:  # an editor may be writing it
            return False
        stamp = (status.st_mtime_ns, status.st_size)
        before = self.seen.setdefault(file, stamp)
        if before is not stamp:
            return before != stamp
        return self._since_ns <= status.st_mtime_ns <= time.time_ns()

    def _imported(self) -> Iterator[Path]:
        for module in list(sys.modules.values()):
            file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
            if isinstance(file, str) and file.startswith(f"{self._folder}{os.sep}"):
                path = Path(file)
                if not any(map(_is_skipped, path.relative_to(self._folder).parts[:-1])):
                    yield path

    def _files(self) -> Iterator[Path]:
        for folder, below, files in os.walk(self._folder):
            below[:] = [name for name in below if not _is_skipped(name)]
            yield from (Path(folder) / name for name in files if name.endswith(".py"))


def _is_skipped(folder: str) -> bool:
    return folder.startswith(".") or folder in _INSTALLED


@contextlib.contextmanager
def stopped_by_a_change(watcher: Watcher, say: Callable[[str], None]) -> Iterator[None]:
    """Send this process SIGTERM, which drains its worker, when a file changes."""
    is_running, lock = True, threading.Lock()

    def watch() -> None:
        changed = watcher.wait()
        with lock:
            if is_running:
                say(f"{changed.name} has changed: the worker is drained and started again")
                os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="perdure-reload", daemon=True).start()
    try:
        yield
    finally:
        with lock:
            is_running = False


def admitted(to_parent: int) -> None:
    """Tell the parent that this process may run here, and wait until it has told where."""
    with socket.socket(fileno=to_parent) as parent, contextlib.suppress(OSError):
        parent.sendall(b".")
        parent.recv(1)


async def supervise(command: Sequence[str], introduce: Callable[[], None]) -> int:
    """Run a worker process, and another when its code has changed, until SIGTERM or Ctrl-C.

    The worker process is not in the terminal's process group, so this process passes Ctrl-C on.
    `introduce` is called once, when the first process was `admitted`, and before it says anything.

    Returns:
        The exit code.
    """
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    child: asyncio.subprocess.Process | None = None

    def stop() -> None:
        stopped.set()
        if child is not None and child.returncode is None:
            child.terminate()

    is_new = True
    # Python tells outdated byte code by size and by time in whole seconds
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        while not stopped.is_set():
            ours, theirs = socket.socketpair()
            with ours:
                ours.setblocking(False)
                with theirs:
                    child = await asyncio.create_subprocess_exec(
                        *command,
                        *("--parent", str(theirs.fileno())),
                        stdin=asyncio.subprocess.PIPE,
                        env=environment,
                        start_new_session=True,
                        pass_fds=[theirs.fileno()],
                    )
                if stopped.is_set():
                    child.terminate()
                if await loop.sock_recv(ours, 1) and is_new:
                    introduce()
                    is_new = False
            code = await child.wait()
            if code != CHANGED and not stopped.is_set():
                return code if code > 0 else 1
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    return 0
