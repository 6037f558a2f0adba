"""One connection to a server.

Opened and closed in one task of its own, as the cancel scopes of an MCP client need it; used from
any of its loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, CallToolResult, Implementation, Tool
from pydantic import JsonValue

from perdure import errors, limits
from perdure.activities.mcp import programs
from perdure.activities.mcp.http import http_client
from perdure.activities.mcp.process import ServerProcess
from perdure.activities.mcp.results import output_of
from perdure.agents.mcp_servers import ListedTool, MCPServer
from perdure.temporal import secrets
from perdure.text import described, one_line
from perdure.turn.wire import ToolOutput

if TYPE_CHECKING:
    from mcp.server import Server

IDLE_S = 300.0
"""A connection that nobody used for so long is closed."""

_PASSED_ON = ("PATH", "HOME", "LOGNAME", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TMPDIR")
_PAGES = 50
_CHARACTERS = 2_000
_SECRET_CHARACTERS = 4
_CLOSED = ("Connection closed", "SSE stream ")
"""How the library's own errors of the code `CONNECTION_CLOSED` begin."""
_CANCEL_S = 1.0
_CLOSE_S = 12.0
"""Longer than a process takes that does not want to end."""


class ServerDownError(Exception):
    """A server could not be started, asked or reached.

    The message says which and why, without secrets. `is_slow`: it was waited for in vain.
    """

    def __init__(self, message: str, *, is_slow: bool = False) -> None:
        super().__init__(message)
        self.is_slow = is_slow


class ServerRefusedError(Exception):
    """A server answered a call with an error of its own.

    The message is what it said, without secrets.
    """


class Connection:
    """A server, from when somebody asks for it until it is closed, dies or is of no use any more."""

    def __init__(self, server: MCPServer, idle_s: float) -> None:
        self._server = server
        self._idle_s = idle_s
        self._process: ServerProcess | None = None
        self._closing = asyncio.Event()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._in_use = 0
        self._retired = False
        self._stuck = asyncio.Event()
        self._hidden: dict[str, str] = {}
        self._idle: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._keep())

    @property
    def is_usable(self) -> bool:
        """Whether it is open, or about to be."""
        return not (self._retired or self._closing.is_set() or self._task.done())

    async def tools(self) -> list[ListedTool]:
        """What the server offers now.

        Raises:
            ServerDownError: It does not start, or does not say; or a call had to be stopped
                meanwhile, and with it the server.
            ConfigurationError: A variable that it needs is not set.
        """
        async with self._used():
            client = await self._opened()
            asking, stuck = (
                asyncio.create_task(self._asked(client)),
                asyncio.create_task(self._stuck.wait()),
            )
            try:
                await asyncio.wait({asking, stuck}, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():
                    raise await self._down("it was ended, because a call of it had to be stopped")
                return [_listed(item, self.without_secrets) for item in asking.result()]
            finally:
                asking.add_done_callback(_heard)
                asking.cancel()
                stuck.cancel()

    async def call(
        self, tool: str, arguments: Mapping[str, JsonValue], progress: ProgressFnT
    ) -> ToolOutput:
        """Call a tool by the server's own name.

        A server of ours whose call is cancelled is ended, for nothing else is sure to stop the
        call.

        Raises:
            ServerDownError: The connection broke, or the answer is none.
            ServerRefusedError: The server refused.
        """
        async with self._used():
            client = await self._opened()
            try:
                output = output_of(
                    await self._stoppable(
                        client.call_tool(tool, dict(arguments), progress_callback=progress)
                    )
                )
                return output.model_copy(update={"content": self.without_secrets(output.content)})
            except MCPError as error:
                if not _is_closed(error):
                    raise ServerRefusedError(self._words(error)) from None
                raise await self._down(
                    "it ended during the call; whether it took effect is unknown"
                ) from None
            except Exception as error:  # noqa: BLE001 - of any library below; its text is cleaned
                raise await self._down(self._words(error)) from None

    async def _stoppable(self, call: Coroutine[Any, Any, CallToolResult]) -> CallToolResult:
        """The result of a call. To tell the server of a cancel may block, so that has a limit."""
        task = asyncio.create_task(call)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._server.command:
                self._stuck.set()
                self.retire()
            task.add_done_callback(_heard)
            task.cancel()
            await asyncio.wait({task}, timeout=_CANCEL_S)
            raise

    def retire(self) -> None:
        """Use it for nothing new; close it when nobody uses it any more."""
        self._retired = True
        if not self._in_use:
            self._closing.set()

    async def close(self) -> None:
        """End it, whoever uses it."""
        self._closing.set()
        await asyncio.wait({self._task}, timeout=_CLOSE_S)
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=_CLOSE_S)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left."""
        return self._task.done()

    async def _opened(self) -> Client:
        limit = self._server.start_timeout.total_seconds()
        done, _ = await asyncio.wait({self._client}, timeout=limit)
        if not done:
            self._fail(await self._down(f"it did not start within {limit:g} s", is_slow=True))
            self._task.cancel()
        return self._client.result()

    @contextlib.asynccontextmanager
    async def _used(self) -> AsyncIterator[None]:
        self._in_use += 1
        if self._idle is not None:
            self._idle.cancel()
        try:
            yield
        finally:
            self._in_use -= 1
            if not self._in_use:
                self._idle = asyncio.get_running_loop().call_later(
                    0 if self._retired else self._idle_s, self._closing.set
                )

    async def _asked(self, client: Client) -> list[Tool]:
        """All pages of the list. While others use the server it may be slow to tell them."""
        limit = (
            limits.MCP_LONGEST_START if self._in_use > 1 else self._server.start_timeout
        ).total_seconds()
        found: list[Tool] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(limit):
                for _ in range(_PAGES if client.server_capabilities.tools else 0):
                    page = await client.list_tools(cursor=cursor)
                    found += page.tools
                    cursor = page.next_cursor
                    if cursor is None:
                        break
        except TimeoutError:
            raise await self._down(
                f"it did not tell its tools within {limit:g} s", is_slow=True
            ) from None
        except Exception as error:  # noqa: BLE001 - of any library below; its text is cleaned
            is_slow = isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT
            raise await self._down(
                f"it did not tell its tools: {self._words(error)}", is_slow=is_slow
            ) from None
        return found

    async def _keep(self) -> None:
        """The life of the connection."""
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._made(stack))
                client.session.validate_tool_result = _taken_as_it_is  # type: ignore[method-assign]
                self._client.set_result(client)
                watch = asyncio.create_task(self._ended_or_closing())
                await asyncio.wait({watch})
        except errors.ConfigurationError as error:
            self._fail(error)
        except asyncio.CancelledError:
            self._fail(ServerDownError(self._told("it was not waited for")))
            raise
        except BaseException as error:  # noqa: BLE001 - a group of exceptions, of which some may not be Exceptions
            self._fail(await self._down(self._words(error), is_over=True))
        finally:
            self._fail(
                ServerDownError(self._told("it could not be opened"))
            )  # if nothing else has been said
            self._closing.set()

    def _fail(self, error: Exception) -> None:
        if not self._client.done():
            self._client.set_exception(error)
            self._client.exception()  # somebody may have given up waiting for it

    async def _ended_or_closing(self) -> None:
        waits = [asyncio.ensure_future(self._closing.wait())]
        if self._process is not None:
            waits.append(asyncio.ensure_future(self._process.ended.wait()))
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _made(self, stack: AsyncExitStack) -> Client:
        server = self._server
        info = Implementation(name="perdure", version="1")
        if server.in_process is not None:
            return Client(cast("Server[Any]", server.in_process), client_info=info, cache=None)
        if server.command:
            if missing := programs.missing(server):
                raise errors.ConfigurationError(
                    f"the MCP server {server.name!r}: {missing}", context={"server": server.name}
                )
            named = {
                name: _variable(server, variable) for name, variable in server.variables.items()
            }
            self._hidden = named
            kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
            self._process = ServerProcess(server.command, {**kept, **named}, server.cwd)
            return Client(self._process, client_info=info, cache=None)
        self._hidden = {
            variable: secrets.read_words(variable) for variable in server.headers_env.values()
        }
        headers = {
            header: _header(header, self._hidden[variable])
            for header, variable in server.headers_env.items()
        }
        http = await stack.enter_async_context(http_client(headers, server.timeout))
        return Client(
            streamable_http_client(server.url, http_client=http), client_info=info, cache=None
        )

    async def _down(
        self, why: str, *, is_slow: bool = False, is_over: bool = False
    ) -> ServerDownError:
        """The error that says what is wrong.

        How a process ended, and what it said, may come a moment later.
        """
        if self._process is not None and self._process.ended.is_set() and not is_over:
            await asyncio.wait({self._task}, timeout=1)
        return ServerDownError(self._told(why), is_slow=is_slow)

    def _told(self, why: str) -> str:
        parts = [f"the MCP server {self._server.name!r}: {why}"]
        if self._process is not None:
            code = self._process.exit_code
            parts += [f"exit code {code}"] if code is not None else []
            parts += [self._process.complaint] if self._process.complaint else []
            parts += (
                [f"it said: {one_line(self.without_secrets(self._process.said), _CHARACTERS)}"]
                if self._process.said.strip()
                else []
            )
        return self.without_secrets("; ".join(parts))

    def _words(self, error: BaseException) -> str:
        """What an exception says, or the first of a group."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return one_line(
            self.without_secrets(str(error) if isinstance(error, MCPError) else described(error)),
            _CHARACTERS,
        )

    def without_secrets(self, text: str) -> str:
        """Words of the server without the values that it was given by the environment."""
        return secrets.without(
            text,
            {
                name: value
                for name, value in self._hidden.items()
                if len(value) >= _SECRET_CHARACTERS
            },
        )


async def _taken_as_it_is(name: str, result: CallToolResult) -> None:
    """In place of the library's check of a result by the schema that its own server sent, which can take any time."""


def _heard(task: asyncio.Task[Any]) -> None:
    """Nobody waits for its end any more.

    Asyncio would complain of an exception that nobody looked at.
    """
    if not task.cancelled():
        task.exception()


def _is_closed(error: MCPError) -> bool:
    """Whether the connection ended.

    Servers use the same code for errors of their own, so the library is known by its words.
    """
    return error.code == CONNECTION_CLOSED and error.message.startswith(_CLOSED)


def _listed(item: Tool, without_secrets: Callable[[str], str]) -> ListedTool:
    hints: Any = item.annotations
    parameters = {
        "type": "object",
        "properties": {},
        **{name: value for name, value in item.input_schema.items() if name != "$schema"},
    }
    return ListedTool(
        own=item.name,
        description=without_secrets(item.description or item.title or ""),
        parameters=_mapped(parameters, without_secrets),
        read_only=bool(hints and hints.read_only_hint),
        idempotent=bool(hints and hints.idempotent_hint),
    )


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """JSON with each string in it changed."""
    if isinstance(value, dict):
        return {change(name): _mapped(one, change) for name, one in value.items()}
    if isinstance(value, list):
        return [_mapped(one, change) for one in value]
    return change(value) if isinstance(value, str) else value


def _variable(server: MCPServer, name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise errors.ConfigurationError(
            f"the environment variable {name} is not set; the MCP server {server.name!r} needs it",
            context={"variable": name, "server": server.name},
        )
    return value


def _header(name: str, value: str) -> str:
    return f"Bearer {value}" if name.lower() == "authorization" and " " not in value else value
