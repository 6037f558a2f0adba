"""The state folder of a development server.

The server process inherits the lock on `server.lock`, so the lock is held exactly as long as a
server has the database open, even after the process that started it has ended. The lock, not a pid,
decides whether a server uses a folder, and it prevents two servers from using one database file.

The folder is usually `.perdure` in the current folder, which may be a clone of another person's
repository. Nothing in it is therefore opened or written before it is known to belong to this user
and to contain no links, and files are created anew. As histories contain whole transcripts, only
the owner may read them.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from perdure import errors
from perdure.temporal.connect import log_core

_ANSWER = timedelta(seconds=2)
_ON_ITS_WAY_OUT = timedelta(seconds=10)
_LOG_TAIL_CHARACTERS = 2000
_PORT_IN_USE = re.compile(r":(\d+): bind: address already in use")
_DATABASE = "temporal.db"
_FILES = (
    *(_DATABASE + suffix for suffix in ("", "-journal", "-shm", "-wal")),
    *("server.json", "server.json.part", "server.lock", "server.log"),
)
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


@dataclass(frozen=True)
class ServerAddress:
    """The address of a development server.

    Attributes:
        address: The host and port of gRPC, such as "127.0.0.1:7233".
        ui: The URL of the web UI, such as "http://127.0.0.1:8233"; None without a UI.
        pid: The server's process.
        namespace: The namespace that exists from the start.
        moved_from: The requested port, if it was taken and the next free port is used instead.
        binary: The server's program: version, path and origin.
    """

    address: str
    ui: str | None
    pid: int
    namespace: str = "default"
    moved_from: int | None = None
    binary: str = ""


_ADDRESS = TypeAdapter(ServerAddress)


async def running(folder: Path) -> ServerAddress | None:
    """Return the address of the server that runs on this state folder; None if none runs.

    The note of a server that has ended is removed.

    Raises:
        ConfigurationError: The folder or a file in it is a link, or belongs to another user.
    """
    state = StateFolder(folder)
    state.make_private()
    if not state.note.exists() or state.abandoned():
        return None
    address = state.noted()
    return address if address is not None and await answers(address) else None


class StateFolder:
    """The state folder of one server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = path / "server.json"
        self.log = path / "server.log"
        self.database = path / _DATABASE

    def make_private(self) -> None:
        """Remove the access of other users to the folder and the server's files in it.

        Raises:
            ConfigurationError: The folder or a file in it is a link, or belongs to another user.
        """
        _make_private(self.path, stat.S_ISDIR, _PRIVATE_FOLDER)
        for name in _FILES:
            _make_private(self.path / name, stat.S_ISREG, _PRIVATE_FILE)

    async def lock(self) -> int:
        """Return the folder's lock as an open file, waiting for a previous server that is stopping.

        Raises:
            ConfigurationError: The folder does not belong to this user, or another server uses it.
        """
        with contextlib.suppress(FileExistsError):
            self.path.mkdir(_PRIVATE_FOLDER, parents=True)
        self.make_private()
        deadline = time.monotonic() + _ON_ITS_WAY_OUT.total_seconds()
        while (lock := self._try_lock()) is None:
            if other := await running(self.path):
                raise errors.ConfigurationError(
                    f"A server is already running on {self.path}, at {other.address} (process"
                    f" {other.pid})."
                )
            if time.monotonic() > deadline:
                raise errors.ConfigurationError(
                    f"Another process holds {self.path / 'server.lock'}, and no server answers"
                    " there."
                )
            await asyncio.sleep(0.05)
        self.note.unlink(missing_ok=True)
        return lock

    def abandoned(self) -> bool:
        """Return whether no server uses this folder; if so, remove the note of the last server."""
        if not self.path.exists():
            return True
        lock = self._try_lock()
        if lock is None:
            return False
        self.note.unlink(missing_ok=True)
        os.close(lock)
        return True

    def noted(self) -> ServerAddress | None:
        """Return the content of the note; None if there is no readable note."""
        try:
            return _ADDRESS.validate_json(self.note.read_bytes())
        except (OSError, ValueError):
            return None

    def write(self, address: ServerAddress) -> None:
        """Write the note that `running` reads."""
        part = self.path / "server.json.part"
        with _new_file(part) as file:
            file.write(_ADDRESS.dump_json(address, indent=2, exclude={"moved_from"}))
        part.replace(self.note)

    def new_log(self) -> BinaryIO:
        """Replace the log by an empty file, open for writing."""
        return _new_file(self.log)

    def log_text(self) -> str:
        """Return the server's output since its last start."""
        return self.log.read_text(errors="replace")

    def log_tail(self) -> str:
        """Return the end of the log, without the stacks of a panic."""
        return self.log_text().partition("\ngoroutine ")[0][-_LOG_TAIL_CHARACTERS:].strip()

    def ports_in_use(self) -> set[int]:
        """Return the ports that the server failed to bind, according to its log."""
        return {int(port) for port in _PORT_IN_USE.findall(self.log_text())}

    def _try_lock(self) -> int | None:
        lock = os.open(
            self.path / "server.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, _PRIVATE_FILE
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock


def _new_file(path: Path) -> BinaryIO:
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, _NEW, _PRIVATE_FILE), "wb")


def _make_private(path: Path, is_kind: Callable[[int], bool], mode: int) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(status.st_mode):
        problem = "it is a symbolic link"
    elif not is_kind(status.st_mode):
        problem = "it is not a folder" if is_kind is stat.S_ISDIR else "it is not a regular file"
    elif status.st_uid != os.geteuid():
        problem = f"it belongs to another user (uid {status.st_uid})"
    elif is_kind is stat.S_ISREG and status.st_nlink > 1:
        problem = "it has another hard link"
    else:
        if stat.S_IMODE(status.st_mode) & ~mode:
            path.chmod(mode)
        return
    raise errors.ConfigurationError(
        f"{path} is not used for a Temporal server: {problem}. Remove it if you do not know where"
        " it is from, or name another folder: perdure dev --state FOLDER"
    )


async def answers(address: ServerAddress) -> bool:
    """Return whether the server can describe the namespace."""
    log_core()
    try:
        async with asyncio.timeout(_ANSWER.total_seconds()):
            client = await Client.connect(address.address, namespace=address.namespace, lazy=True)
            await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=address.namespace), retry=False
            )
    except (RPCError, RuntimeError, TimeoutError):
        return False
    return True
