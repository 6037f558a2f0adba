"""The state folder of a development server: what lies where, and whose it is.

The server process inherits the lock on `server.lock`, so the lock is held exactly as long as a
server has the database open, also when the process that started it is gone. That, not a pid, says
whether a server lives on a folder, and it keeps two servers off one database file.

The folder is usually `.perdure` in the current folder, which may be a clone of another person's
repository. So nothing in it is opened or written before it is known to belong to this user and to
hold no links, and files are created anew. Histories hold whole transcripts: only the owner may read
them.
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
    """Where a development server answers.

    Attributes:
        address: host and port of gRPC, such as "127.0.0.1:7233".
        ui: the web UI, such as "http://127.0.0.1:8233"; None without one.
        pid: the server's process.
        namespace: the namespace that is there from the start.
        moved_from: the port that was asked for, if it was taken and the next free one is used
            instead.
        binary: the server's program: version, path and origin.
    """

    address: str
    ui: str | None
    pid: int
    namespace: str = "default"
    moved_from: int | None = None
    binary: str = ""


_ADDRESS = TypeAdapter(ServerAddress)


async def running(folder: Path) -> ServerAddress | None:
    """The server that some process runs on this state folder, if one is up.

    The note of a server that is gone is removed.

    Raises:
        ConfigurationError: the folder or a file in it is a link, or belongs to another user.
    """
    state = StateFolder(folder)
    state.make_private()
    if not state.note.exists() or state.abandoned():
        return None
    address = state.noted()
    return address if address is not None and await answers(address) else None


class StateFolder:
    """The state folder of one server: what lies where, and whose it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = path / "server.json"
        self.log = path / "server.log"
        self.database = path / _DATABASE

    def make_private(self) -> None:
        """Take group and other users' rights from the folder and the files of the server in it.

        Raises:
            ConfigurationError: the folder or a file in it is a link, or belongs to another user.
        """
        _make_private(self.path, stat.S_ISDIR, _PRIVATE_FOLDER)
        for name in _FILES:
            _make_private(self.path / name, stat.S_ISREG, _PRIVATE_FILE)

    async def lock(self) -> int:
        """The lock of this folder as an open file, waiting while the server before us is still on its way out.

        Raises:
            ConfigurationError: the folder is not this user's own, or another server has it.
        """
        with contextlib.suppress(FileExistsError):
            self.path.mkdir(_PRIVATE_FOLDER, parents=True)
        self.make_private()
        deadline = time.monotonic() + _ON_ITS_WAY_OUT.total_seconds()
        while (lock := self._try_lock()) is None:
            if other := await running(self.path):
                raise errors.ConfigurationError(
                    f"A server runs on {self.path} already, at {other.address} (process"
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
        """Whether no server lives on this folder; the note of one that did is removed then."""
        if not self.path.exists():
            return True
        lock = self._try_lock()
        if lock is None:
            return False
        self.note.unlink(missing_ok=True)
        os.close(lock)
        return True

    def noted(self) -> ServerAddress | None:
        """What the note says, if there is a readable one."""
        try:
            return _ADDRESS.validate_json(self.note.read_bytes())
        except (OSError, ValueError):
            return None

    def write(self, address: ServerAddress) -> None:
        """Leave the note that `running` reads."""
        part = self.path / "server.json.part"
        with _new_file(part) as file:
            file.write(_ADDRESS.dump_json(address, indent=2, exclude={"moved_from"}))
        part.replace(self.note)

    def new_log(self) -> BinaryIO:
        """An empty log in place of the last one, open for writing."""
        return _new_file(self.log)

    def log_text(self) -> str:
        """What the server wrote since its last start."""
        return self.log.read_text(errors="replace")

    def log_tail(self) -> str:
        """The end of the log, without the stacks of a panic."""
        return self.log_text().partition("\ngoroutine ")[0][-_LOG_TAIL_CHARACTERS:].strip()

    def ports_in_use(self) -> set[int]:
        """The ports that the server could not have, by its log."""
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
        found = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        problem = "it is a symbolic link"
    elif not is_kind(found.st_mode):
        problem = "it is not a folder" if is_kind is stat.S_ISDIR else "it is not a regular file"
    elif found.st_uid != os.geteuid():
        problem = f"it belongs to another user (uid {found.st_uid})"
    elif is_kind is stat.S_ISREG and found.st_nlink > 1:
        problem = "it has another hard link"
    else:
        if stat.S_IMODE(found.st_mode) & ~mode:
            path.chmod(mode)
        return
    raise errors.ConfigurationError(
        f"{path} is not used for a Temporal server: {problem}. Remove it if you do not know where"
        " it is from, or name another folder: perdure dev --state FOLDER"
    )


async def answers(address: ServerAddress) -> bool:
    """Whether the namespace can be described at once."""
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
