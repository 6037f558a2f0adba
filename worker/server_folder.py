"""The state folder of a development server: what lies where, and whose it is.

The server process inherits the lock on `server.lock`, so the lock is held exactly as long as a server has the database open, also when the
process that started it is gone. That, not a pid, says whether a server lives on a folder, and it keeps two servers off one database file.
"""

import asyncio
import fcntl
import os
import re
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pydantic import TypeAdapter
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from perdure import errors

_ANSWER = timedelta(seconds=2)
_ON_ITS_WAY_OUT = timedelta(seconds=10)
_LOG_TAIL_CHARACTERS = 2000
_PORT_IN_USE = re.compile(r":(\d+): bind: address already in use")


@dataclass(frozen=True)
class ServerAddress:
    """Where a development server answers.

    Attributes:
        address: host and port of gRPC, such as "127.0.0.1:7233".
        ui: the web UI, such as "http://127.0.0.1:8233"; None without one.
        pid: the server's process.
        namespace: the namespace that is there from the start.
        moved_from: the port that was asked for, if it was taken and the next free one is used instead.
    """

    address: str
    ui: str | None
    pid: int
    namespace: str = "default"
    moved_from: int | None = None


_ADDRESS = TypeAdapter(ServerAddress)


async def running(folder: Path) -> ServerAddress | None:
    """The server that some process runs on this state folder, if one is up; the note of a server that is gone is removed."""
    state = StateFolder(folder)
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

    async def lock(self) -> int:
        """The lock of this folder as an open file, waiting while the server before us is still on its way out."""
        self.path.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + _ON_ITS_WAY_OUT.total_seconds()
        while (lock := self._try_lock()) is None:
            if other := await running(self.path):
                raise errors.ConfigurationError(f"A server runs on {self.path} already, at {other.address} (process {other.pid}).")
            if time.monotonic() > deadline:
                raise errors.ConfigurationError(f"Another process holds {self.path / 'server.lock'}, and no server answers there.")
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
        part.write_bytes(_ADDRESS.dump_json(address, indent=2, exclude={"moved_from"}))
        part.replace(self.note)

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
        lock = os.open(self.path / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock


async def answers(address: ServerAddress) -> bool:
    """Whether the namespace can be described at once."""
    try:
        async with asyncio.timeout(_ANSWER.total_seconds()):
            client = await Client.connect(address.address, namespace=address.namespace, lazy=True)
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=address.namespace), retry=False)
    except (RPCError, RuntimeError, TimeoutError):
        return False
    return True
