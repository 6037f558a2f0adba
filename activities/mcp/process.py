"""A server as a child process, with its standard streams as the transport of an MCP client.

The package `mcp` could start processes too. It is not used for that, because the process has to end
when the worker is killed (`guard`), lines have to be bounded, and the output on standard error has
to be available when it fails.

A server that writes too much would take time from all turns. Little of it is therefore read ahead,
and at a limited rate: the server then blocks on its full pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter

from perdure import limits
from perdure.text import tail

GUARD = Path(__file__).with_name("guard.py")

_SAID_BYTES = 2_000
_CHUNK = 65_536
_GARBAGE_LINES = 1_000
_GARBAGE_BYTES = 1_000_000
"""A server is ended after this many consecutive lines or bytes without a message."""
_RUSH = 1_500
_A_SECOND = 500
"""The number of lines that are read at once, and of those per second after that."""
_MARKS = (b"{", b"[", b",")
_INPUT_CLOSED_S = 1.0
_GUARD_S = 5.0
_NAP_S = 0.01

_Inbox = MemoryObjectReceiveStream[SessionMessage | Exception]
_Outbox = MemoryObjectSendStream[SessionMessage]


class ServerProcess:
    """A context manager that runs a server and returns the streams of a session.

    `ended` is set when the server's output has ended.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: str = "") -> None:
        self._command = command
        self._env = env
        self._cwd = cwd
        self._process: asyncio.subprocess.Process
        self._lifeline = -1
        self._tasks: list[asyncio.Task[None]] = []
        self._stderr = ""
        self.ended = asyncio.Event()
        self.complaint = ""

    @property
    def said(self) -> str:
        """The end of its output on standard error; at most 2 KB."""
        return self._stderr

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs or if it was never started."""
        return self._process.returncode if self._lifeline >= 0 else None

    async def __aenter__(self) -> tuple[_Inbox, _Outbox]:
        """Start the server.

        Raises:
            OSError: The guard could not be started.
        """
        lifeline, own_end = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(GUARD), str(lifeline), *self._command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(self._env),
                cwd=self._cwd or None,
                pass_fds=(lifeline,),
                start_new_session=True,
                limit=_CHUNK,
            )
        except BaseException:
            os.close(own_end)
            raise
        finally:
            os.close(lifeline)
        self._lifeline = own_end
        self._to_session, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outbox, self._from_session = anyio.create_memory_object_stream[SessionMessage](0)
        self._ends = (inbox, outbox)
        self._tasks = [
            asyncio.create_task(work) for work in (self._read(), self._write(), self._listen())
        ]
        return inbox, outbox

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the server: its input is closed, and the guard ends it if it does not exit."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.close()
            await self._is_gone(_INPUT_CLOSED_S)
        finally:
            os.close(self._lifeline)
        if not await self._is_gone(_GUARD_S):
            self._process.kill()
            await self._is_gone(_GUARD_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for stream in (*self._ends, self._to_session, self._from_session):
            stream.close()
        transport = self._process._transport  # type: ignore[attr-defined]  # noqa: SLF001 - the only way to close the pipes of a hanging process
        transport.close()

    async def _is_gone(self, seconds: float) -> bool:
        """Wait for the exit. `Process.wait` would wait until all of the output is read as well."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._process.returncode is None:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(_NAP_S)
        return self._process.returncode is not None

    async def _read(self) -> None:
        """Read the server's output, one message per line."""
        assert self._process.stdout is not None
        try:
            async with self._to_session:
                await self._read_lines(self._process.stdout)
        except ValueError:
            self.complaint = (
                f"it wrote a line of more than {limits.PROVIDER_BODY_BYTES // 1_000_000} MB"
            )
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the session is over
        finally:
            self.ended.set()

    async def _read_lines(self, stdout: asyncio.StreamReader) -> None:
        """Pass messages to the session until the output ends or has too much that is not a message.

        Raises:
            ValueError: A line is too long.
        """
        garbage = garbage_bytes = 0
        pace, loop = _Pace(), asyncio.get_running_loop()
        async with contextlib.aclosing(_lines(stdout)) as lines:
            async for line in lines:
                await asyncio.sleep(pace.wait_s(loop.time()))
                try:
                    message = _message(line)
                except ValueError:
                    garbage, garbage_bytes = garbage + 1, garbage_bytes + len(line)
                    self.complaint = (
                        "it writes something that is not JSON-RPC to its standard output"
                    )
                    if garbage >= _GARBAGE_LINES or garbage_bytes >= _GARBAGE_BYTES:
                        return
                    continue
                garbage = garbage_bytes = 0
                self.complaint = ""
                await self._to_session.send(SessionMessage(message))

    async def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            async for item in self._from_session:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._process.stdin.write(text.encode("utf-8", "replace") + b"\n")
                await self._process.stdin.drain()
        except OSError:
            self.ended.set()

    async def _listen(self) -> None:
        """Keep the end of its standard error; if left unread, it would block the server."""
        assert self._process.stderr is not None
        pace, loop = _Pace(), asyncio.get_running_loop()
        while chunk := await self._process.stderr.read(_CHUNK):
            self._stderr = tail(self._stderr + chunk.decode("utf-8", "replace"), _SAID_BYTES)
            await asyncio.sleep(pace.wait_s(loop.time()))


class _Pace:
    """Rate limit: `_RUSH` steps at once, then `_A_SECOND` per second."""

    def __init__(self) -> None:
        self._due = 0.0

    def wait_s(self, now: float) -> float:
        """Return the seconds to wait after a step taken at `now`."""
        self._due = max(self._due, now - _RUSH / _A_SECOND) + 1 / _A_SECOND
        return max(0.0, self._due - now)


def _message(line: bytes) -> JSONRPCMessage:
    """Parse the message in a line.

    Raises:
        ValueError: It is not a message, or has too many values.
    """
    if sum(map(line.count, _MARKS)) > limits.REPLY_VALUES:
        raise ValueError("it has too many values")
    return jsonrpc_message_adapter.validate_json(line, by_name=False)


async def _lines(stream: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream.

    Raises:
        ValueError: A line is longer than `limits.PROVIDER_BODY_BYTES`.
    """
    begun, size = list[bytes](), 0
    while chunk := await stream.read(_CHUNK):
        *ends, unfinished = chunk.split(b"\n")
        for end in ends:
            yield b"".join((*begun, end))
            begun, size = [], 0
        begun.append(unfinished)
        size += len(unfinished)
        if size > limits.PROVIDER_BODY_BYTES:
            raise ValueError("the line is too long")
    if size:
        yield b"".join(begun)
