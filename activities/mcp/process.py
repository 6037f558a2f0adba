"""A server as a process of the worker, and its standard input and output as the transport of an MCP client.

The package `mcp` could start processes too. This does, because a process has to go when the worker
is killed (`guard`), a line has to be bounded, and what it says on standard error has to be at hand
when it fails.

A server that writes more than it should takes time of all turns, so little of it is read ahead, and
it is read at a limited pace: the server then waits at its full pipe.
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
"""A server that writes so many lines or bytes in a row without a message is ended."""
_RUSH = 1_500
_A_SECOND = 500
"""So many lines are read at once, and so many a second after that."""
_MARKS = (b"{", b"[", b",")
_INPUT_CLOSED_S = 1.0
_GUARD_S = 5.0

_Inbox = MemoryObjectReceiveStream[SessionMessage | Exception]
_Outbox = MemoryObjectSendStream[SessionMessage]


class ServerProcess:
    """A context in which a server runs.

    What it gives are the streams of a session. `ended` is set when the server says nothing any
    more.
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
        """The end of what it wrote to standard error; at most 2 KB."""
        return self._stderr

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs, or where it was never started."""
        return self._process.returncode if self._lifeline >= 0 else None

    async def __aenter__(self) -> tuple[_Inbox, _Outbox]:
        """Start it.

        Raises:
            OSError: The guard could not be started.
        """
        lifeline, kept = os.pipe()
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
            os.close(kept)
            raise
        finally:
            os.close(lifeline)
        self._lifeline = kept
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
        """End it: its input closes, and what does not go then is ended by the guard."""
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
        transport = self._process._transport  # type: ignore[attr-defined]  # noqa: SLF001 - nothing else closes the pipes of one that hangs
        transport.close()

    async def _is_gone(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), seconds)
        return self._process.returncode is not None

    async def _read(self) -> None:
        """What the server says, a message a line."""
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
        """Give messages to the session, until the output ends or is none of a server.

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
                    self.complaint = "it writes what is no JSON-RPC to its standard output"
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
        """Keep the end of what it says on standard error.

        If nobody read that, the server would stand still.
        """
        assert self._process.stderr is not None
        pace, loop = _Pace(), asyncio.get_running_loop()
        while chunk := await self._process.stderr.read(_CHUNK):
            self._stderr = tail(self._stderr + chunk.decode("utf-8", "replace"), _SAID_BYTES)
            await asyncio.sleep(pace.wait_s(loop.time()))


class _Pace:
    """`_RUSH` steps at once, and after that `_A_SECOND` in each second."""

    def __init__(self) -> None:
        self._due = 0.0

    def wait_s(self, now: float) -> float:
        """How long to wait after a step that was taken now."""
        self._due = max(self._due, now - _RUSH / _A_SECOND) + 1 / _A_SECOND
        return max(0.0, self._due - now)


def _message(line: bytes) -> JSONRPCMessage:
    """The message in a line.

    Raises:
        ValueError: It is none, or it has more values than may be parsed at once.
    """
    if sum(map(line.count, _MARKS)) > limits.REPLY_VALUES:
        raise ValueError("it has too many values")
    return jsonrpc_message_adapter.validate_json(line, by_name=False)


async def _lines(stream: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    """The lines of a stream.

    Raises:
        ValueError: One is longer than `limits.PROVIDER_BODY_BYTES`.
    """
    begun, size = list[bytes](), 0
    while chunk := await stream.read(_CHUNK):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join((*begun, end))
            begun, size = [], 0
        begun.append(rest)
        size += len(rest)
        if size > limits.PROVIDER_BODY_BYTES:
            raise ValueError("the line is too long")
    if size:
        yield b"".join(begun)
