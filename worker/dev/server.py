"""The Temporal server for development: the real binary as a child process.

Facts behind the design, found by running it:

- The stock dev server limits a single run to about 10 steps a second and writes a rollback journal;
  `_FAST` and `_FAST_FILE` reduce a step on a database file from 108-160 ms to 34-44 ms.
- The binary tests a port, releases it and binds it a moment later. Two servers that start together
  may both pass the test, and the winner answers on the loser's port. A server therefore counts as
  up if its own banner is in its own log *and* the port responds.
- The parent-death signal is set by a few lines of Python that then become the server (13 ms). A
  `preexec_fn` would run every library's at-fork hooks in a process with many threads. The signal is
  tied to the thread that called `start`, so that thread should live on.
- `--search-attribute` takes effect only when the database is created: on an old file a new
  attribute is missing, and every start that uses it fails. The operator service adds attributes at
  any time, and ignores existing attributes.
- The web UI and the HTTP API respond to any `Host`, so a page that is rebound to this address by
  DNS could approve calls. The API has a setting against that, the UI is behind `ui_guard`. The gRPC
  port accepts only HTTP/2 without TLS, which browsers do not support.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Self

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client

from perdure import errors
from perdure.temporal import search_attributes
from perdure.temporal.connect import log_core
from perdure.worker.dev import server_binary
from perdure.worker.dev.server_folder import ServerAddress, StateFolder, answers, running
from perdure.worker.dev.ui_guard import UIGuard

__all__ = ["DevServer", "ServerAddress", "running"]

_log = logging.getLogger("perdure")

_IP = "127.0.0.1"
_START = timedelta(seconds=20)
_STOP = timedelta(seconds=5)
_PORTS_TRIED = 50
_BANNER = "Server:  "

_FAST = (
    "--dynamic-config-value=history.transferProcessorMaxPollRPS=2000",
    "--dynamic-config-value=history.transferProcessorMaxPollHostRPS=20000",
    "--dynamic-config-value=history.timerProcessorMaxPollRPS=2000",
)
_OF_THIS_MACHINE = (
    '--dynamic-config-value=frontend.httpAllowedHosts=["localhost","localhost:*",'
    '"127.0.0.1","127.0.0.1:*"]'
)
_FAST_FILE = ("--sqlite-pragma=journal_mode=WAL", "--sqlite-pragma=synchronous=NORMAL")

_KINDS = {
    "Text": IndexedValueType.INDEXED_VALUE_TYPE_TEXT,
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
    "Double": IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
    "Bool": IndexedValueType.INDEXED_VALUE_TYPE_BOOL,
    "Datetime": IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}

_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class DevServer:
    """A Temporal server for development, with the web UI, that ends with this process.

    On Linux it ends even if this process is killed. It has a session of its own, so that Ctrl-C in
    the terminal reaches the workers first.

    Args:
        folder: The state folder: `temporal.db`, `server.log` (of the last start), `server.json`
            (while it is up) and `server.lock`. None keeps everything in memory.
        port: The port of gRPC. If it is taken, the next free port is used and
            `ServerAddress.moved_from` is set. 0 takes any free port.
        ui: Whether to serve the web UI.
        ui_port: The port of the web UI; by default `port` + 1000, or the next free port.
        extra_args: Additional arguments of `temporal server start-dev`.
        search_attributes: Types by name, such as `{"Customer": "Keyword"}`, registered before
            `start` returns; by default Perdure's own.
        binary: The `temporal` binary; by default the result of `server_binary.find`.
        start_timeout: How long `start` waits for the server to respond.
    """

    def __init__(
        self,
        *,
        folder: Path | None,
        port: int = 7233,
        ui: bool = True,
        ui_port: int | None = None,
        extra_args: Sequence[str] = (),
        search_attributes: Mapping[str, str] = search_attributes.TYPES,
        binary: Path | None = None,
        start_timeout: timedelta = _START,
    ) -> None:
        self._in_memory = folder is None
        self._folder = StateFolder(folder.absolute()) if folder is not None else None
        self._port = port
        self._ui = ui
        self._ui_port = ui_port
        self._extra_args = extra_args
        self._search_attributes = search_attributes
        self._binary = binary
        self._start_timeout = start_timeout
        self._process: asyncio.subprocess.Process | None = None
        self._address: ServerAddress | None = None
        self._guard: UIGuard | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def address(self) -> ServerAddress:
        """The address of the server.

        Raises:
            ConfigurationError: The server is not started.
        """
        if self._address is None:
            raise errors.ConfigurationError("This server is not started.")
        return self._address

    async def start(self) -> ServerAddress:
        """Start the server and wait until it is ready.

        After `stop` or `kill` it can be started again, on the same database.

        Raises:
            ConfigurationError: There is no binary or no free port, another server uses the same
                folder, or the server exited; with the end of its log.
            ServerUnreachableError: It did not respond in time; with the end of its log.
        """
        if self._address is not None:
            raise errors.ConfigurationError(
                f"This server is already started, at {self._address.address}; stop it first."
            )
        binary = (
            server_binary.ServerBinary(self._binary, "given")
            if self._binary
            else await asyncio.to_thread(server_binary.find)
        )
        _log.info("the Temporal server is %s", binary)
        await self._ended()
        self._folder = state = self._folder or StateFolder(
            Path(tempfile.mkdtemp(prefix="perdure-"))
        )
        lock = await state.lock()
        try:
            address = await self._launch(binary, state, lock)
            if self._search_attributes:
                await _register(address, self._search_attributes)
            state.write(address)
        except BaseException:
            await self.stop()
            raise
        finally:
            os.close(lock)
        self._address = address
        return address

    async def stop(self) -> None:
        """Stop the server, if need be by force, and remove everything but its database and log."""
        self._address = None
        self._unguarded()
        if self._folder is None:
            return
        if self._process is not None and self._process.returncode is None:
            self._folder.note.unlink(missing_ok=True)
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        await self._ended()
        self._folder.abandoned()
        if self._in_memory:
            shutil.rmtree(self._folder.path, ignore_errors=True)
            self._folder = None

    def kill(self) -> None:
        """Kill the server as a crash would; `stop` or `start` cleans up."""
        self._address = None
        self._unguarded()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _launch(
        self, binary: server_binary.ServerBinary, state: StateFolder, lock: int
    ) -> ServerAddress:
        """Start the server, retrying with other ports after a race, and wait until it is ready."""
        busy: set[int] = set()
        try:
            async with asyncio.timeout(self._start_timeout.total_seconds()):
                while True:
                    port = _free_port(self._port, busy)
                    hidden = (
                        (ip := _unguessable_ip(), _free_port(0, {*busy, port}, ip))
                        if self._ui
                        else None
                    )
                    self._process = await _spawn(
                        [str(binary.path), *self._arguments(state, port, hidden)], state, lock
                    )
                    address = self._describe(port, self._process.pid, binary)
                    if await _comes_up(self._process, state, address):
                        return (
                            address
                            if hidden is None
                            else replace(address, ui=await self._guarded(hidden, port))
                        )
                    if not (taken := state.ports_in_use()):
                        raise errors.ConfigurationError(
                            f"The Temporal server exited. Its log, {state.log},"
                            f" ends:\n{state.log_tail()}"
                        )
                    busy |= taken
        except TimeoutError:
            raise errors.ServerUnreachableError(
                f"The Temporal server did not answer within {self._start_timeout}. Its log,"
                f" {state.log}, ends:\n{state.log_tail()}"
            ) from None

    async def _guarded(self, hidden: tuple[str, int], port: int) -> str:
        """Start the guard of the web UI and return its URL."""
        ui_port = self._ui_port
        if ui_port is None:
            ui_port = port + 1000 if self._port else 0
        self._guard = UIGuard(_IP, hidden)
        return f"http://{_IP}:{await self._guard.start(_ports_from(ui_port))}"

    def _unguarded(self) -> None:
        if self._guard is not None:
            self._guard.stop()
            self._guard = None

    def _arguments(
        self, state: StateFolder, port: int, hidden: tuple[str, int] | None
    ) -> list[str]:
        database = [] if self._in_memory else [f"--db-filename={state.database}", *_FAST_FILE]
        ui = (
            ["--headless"]
            if hidden is None
            else [f"--ui-ip={hidden[0]}", f"--ui-port={hidden[1]}", "--ui-disable-news-fetch"]
        )
        where = [f"--ip={_IP}", f"--port={port}", *ui, _OF_THIS_MACHINE]
        return [
            "server",
            "start-dev",
            *where,
            *database,
            "--log-level=warn",
            *_FAST,
            *self._extra_args,
        ]

    def _describe(self, port: int, pid: int, binary: server_binary.ServerBinary) -> ServerAddress:
        return ServerAddress(
            address=f"{_IP}:{port}",
            ui=None,
            pid=pid,
            moved_from=self._port if self._port not in (0, port) else None,
            binary=str(binary),
        )

    async def _ended(self) -> None:
        """Wait for the process to end, and kill it after a few seconds."""
        if self._process is None:
            return
        try:
            async with asyncio.timeout(_STOP.total_seconds()):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()


async def _spawn(
    command: Sequence[str], state: StateFolder, lock: int
) -> asyncio.subprocess.Process:
    wrapper = (
        [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
        if sys.platform == "linux"
        else []
    )
    with state.new_log() as output:
        return await asyncio.create_subprocess_exec(
            *wrapper,
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[lock],
            umask=0o077,
        )


async def _comes_up(
    process: asyncio.subprocess.Process, state: StateFolder, address: ServerAddress
) -> bool:
    """Wait until this very process is ready; return False if it exits instead."""
    while process.returncode is None:
        if _BANNER in state.log_text() and await answers(address):
            return True
        await asyncio.sleep(0.02)
    return False


async def _register(address: ServerAddress, search_attributes: Mapping[str, str]) -> None:
    if unknown := set(search_attributes.values()) - _KINDS.keys():
        raise errors.ConfigurationError(
            f"No search attribute has the type {', '.join(sorted(unknown))}. There are"
            f" {', '.join(_KINDS)}."
        )
    log_core()
    client = await Client.connect(address.address, namespace=address.namespace)
    kinds = {name: _KINDS[kind] for name, kind in search_attributes.items()}
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(namespace=address.namespace, search_attributes=kinds)
    )


def _unguessable_ip() -> str:
    """Return a loopback address that no page can guess.

    Only Linux serves all of 127.0.0.0/8; elsewhere only the port is hidden.
    """
    ip = f"127.{secrets.randbelow(254) + 1}.{secrets.randbelow(256)}.{secrets.randbelow(254) + 1}"
    return ip if sys.platform == "linux" and _bind(0, ip) else _IP


def _ports_from(first: int) -> range:
    """Return `first` and the ports to try after it; 0 means any free port."""
    return range(first, min(first + _PORTS_TRIED, 65_535) + 1) if first else range(1)


def _free_port(first: int, busy: Collection[int], ip: str = _IP) -> int:
    """Return `first` or the next free port; any free port for 0."""
    ports = _ports_from(first)
    for port in ports:
        if port not in busy and (bound := _bind(port, ip)):
            return bound
    raise errors.ConfigurationError(f"None of the ports {first} to {ports[-1]} is free.")


def _bind(port: int, ip: str) -> int | None:
    """Return the port if a server could bind it now.

    SO_REUSEADDR is set because the port of a server that was just killed is free.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ip, port))
        except OSError:
            return None
        bound: int = probe.getsockname()[1]
        return bound
