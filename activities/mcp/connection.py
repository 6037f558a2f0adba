"""A connection to a server.

It is opened and closed in one task of its own, as the cancel scopes of an MCP client require, and
can be used from any task of its loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    Tool,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue

from perdure import errors, limits
from perdure.activities.mcp import inquiries, listing, logins, programs, rounds
from perdure.activities.mcp.declared import declaring
from perdure.activities.mcp.http import http_client
from perdure.activities.mcp.logins import Person, PersonalTransport
from perdure.activities.mcp.process import ServerProcess
from perdure.activities.mcp.results import output_of
from perdure.activities.mcp.tasks import CreatedTask, TaskAnswer, TaskRequest, TaskSupport
from perdure.activities.tool_compatibility import error_result
from perdure.agents.mcp_servers import ListedTool, MCPServer
from perdure.agents.mcp_tasks import TASKS
from perdure.temporal import secrets
from perdure.text import described, one_line
from perdure.turn.wire import ToolOutput
from perdure.values.inquiries import GivenAnswers
from perdure.values.losses import CallLoss, Loss

if TYPE_CHECKING:
    from mcp.client import Transport
    from mcp.server import Server

IDLE_S = 300.0
"""A connection is closed after being unused for this long."""

_PASSED_ON = ("PATH", "HOME", "LOGNAME", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TMPDIR")
_CHARACTERS = 2_000
_SECRET_CHARACTERS = 4
_TOKEN_END = 24
_CLOSED = ("Connection closed", "SSE stream ")
"""How messages of the library's own `CONNECTION_CLOSED` errors begin."""
_CANCEL_S = 1.0
_CLOSE_S = 12.0
"""Longer than the end of an unresponsive process takes."""


class ServerDownError(Exception):
    """A server could not be started, queried or reached.

    The message names the server and the reason, without secrets. `is_slow` means that a timeout
    expired.
    """

    def __init__(self, message: str, *, is_slow: bool = False) -> None:
        super().__init__(message)
        self.is_slow = is_slow


class AnswerLostError(ServerDownError):
    """A call was sent, and its answer is invalid, or the connection broke before it came."""

    def __init__(self, message: str, loss: CallLoss) -> None:
        super().__init__(message)
        self.loss = loss


class ServerRefusedError(Exception):
    """A server answered a request with an error, whose message is given without secrets."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class ServerConnection:
    """A connection from its first use until it is closed, fails or is retired.

    `person` is the one whose login its requests have, if the server acts for a person.
    """

    def __init__(self, server: MCPServer, idle_s: float, person: Person | None = None) -> None:
        self._server = server
        self._person = person
        self._idle_s = idle_s
        self._process: ServerProcess | None = None
        self._closing = asyncio.Event()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._has_tasks = False
        self._in_use = 0
        self._retired = False
        self._stuck = asyncio.Event()
        self._hidden: dict[str, str] = {}
        self._token = ""
        self._idle: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._keep())

    @property
    def is_usable(self) -> bool:
        """Whether it is open or opening."""
        return not (self._retired or self._closing.is_set() or self._task.done())

    @property
    def is_in_use(self) -> bool:
        """Whether a request of it has no answer yet."""
        return self._in_use > 0

    async def tools(self) -> list[ListedTool]:
        """Return the tools that the server offers now.

        Raises:
            ServerDownError: It does not start or does not list its tools; or the server was stopped
                meanwhile because a call was cancelled.
            ConfigurationError: A required environment variable is not set.
            LoginNeededError: The person has to log in.
        """
        async with self._used():
            client = await self._opened()
            asking = asyncio.create_task(self._list_tools(client))
            stuck = asyncio.create_task(self._stuck.wait())
            try:
                await asyncio.wait({asking, stuck}, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():
                    raise await self._down("it was ended, because a call of it had to be stopped")
                return [
                    listing.listed(item, self.without_secrets, may_be_task=self._has_tasks)
                    for item in asking.result()
                ]
            finally:
                asking.add_done_callback(_ignore_result)
                asking.cancel()
                stuck.cancel()

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, JsonValue],
        progress: ProgressFnT,
        answers: GivenAnswers | None = None,
    ) -> ToolOutput:
        """Call a tool by the server's own name.

        If the server answers with a task, its id is the handle in the result. With `answers`, it
        may ask people something first, and is told what they have answered.

        If the call is cancelled, a server that runs as our child process is ended, as nothing else
        reliably stops the call.

        Raises:
            AnswerLostError: The connection broke during the call, or the answer is invalid.
            ServerDownError: The connection cannot be opened.
            ServerRefusedError: The server returned an error.
            LoginNeededError: The person has to log in, and the call was not carried out.
        """
        async with self._used():
            client = await self._opened()
            loss = CallLoss.at(Loss.NO_ANSWER, datetime.now(UTC))
            try:
                may_ask = answers if self._server.in_process is None else None
                result = await self._stoppable(
                    rounds.call(client, tool, arguments, progress, may_ask)
                )
                if isinstance(result, CreatedTask):
                    return ToolOutput(content="", handle=result.task_id)
                if isinstance(result, InputRequiredResult):
                    return self._inquired(tool, result, is_allowed=may_ask is not None)
                output = output_of(result)
                return output.model_copy(update={"content": self.without_secrets(output.content)})
            except MCPError as error:
                if (needed := logins.needed_by(error)) is not None:
                    raise needed from None
                if not _is_closed(error):
                    raise ServerRefusedError(self._text_of(error), error.code) from None
                down = await self._down(
                    f"it ended during the call{loss.after}; whether it took effect is unknown"
                )
                raise AnswerLostError(str(down), loss) from None
            except Exception as error:  # noqa: BLE001 - from any library below; secrets are removed
                down = await self._down(
                    f"{self._text_of(error)}{loss.after}; whether it took effect is unknown"
                )
                raise AnswerLostError(str(down), loss) from None

    def _inquired(self, tool: str, result: InputRequiredResult, *, is_allowed: bool) -> ToolOutput:
        """Return what the server asks people, or why it does not get to ask them."""
        requests = result.model_dump(by_alias=True, mode="json", exclude_none=True)["inputRequests"]
        try:
            if not is_allowed:
                raise ValueError("it asks its user something, which it cannot here")
            inquiry = inquiries.read(
                self._server.name, requests, self.without_secrets, result.request_state or ""
            )
        except ValueError as error:
            return error_result(
                f"{tool} was not finished: the MCP server {self._server.name!r} does not go on,"
                f" because {error}"
            )
        return ToolOutput(content="", inquiry=inquiry)

    async def ask(self, request: TaskRequest) -> TaskAnswer:
        """Return the answer to a request about a task.

        Raises:
            ServerDownError: The connection cannot be opened, broke, or had an answer that is no
                result.
            ServerRefusedError: The server returned an error.
            LoginNeededError: The person has to log in.
        """
        async with self._used():
            client = await self._opened()
            try:
                return await client.session.send_request(request, TaskAnswer)
            except MCPError as error:
                if (needed := logins.needed_by(error)) is not None:
                    raise needed from None
                if not _is_closed(error):
                    raise ServerRefusedError(self._text_of(error), error.code) from None
                raise await self._down(f"it ended during {request.method}") from None
            except Exception as error:  # noqa: BLE001 - from any library below; secrets are removed
                raise await self._down(f"{request.method}: {self._text_of(error)}") from None

    async def _stoppable(self, call: Coroutine[Any, Any, rounds.Answer]) -> rounds.Answer:
        """Await a call. Announcing a cancellation to the server may block, so that has a limit."""
        task = asyncio.create_task(call)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._server.command:
                self._stuck.set()
                self.retire()
            task.add_done_callback(_ignore_result)
            task.cancel()
            await asyncio.wait({task}, timeout=_CANCEL_S)
            raise

    def retire(self) -> None:
        """Accept no new calls, and close when the last call has ended."""
        self._retired = True
        if not self._in_use:
            self._closing.set()

    async def close(self) -> None:
        """Close it, even while it is in use."""
        self._closing.set()
        await asyncio.wait({self._task}, timeout=_CLOSE_S)
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=_CLOSE_S)

    @property
    def is_over(self) -> bool:
        """Whether it is closed."""
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

    async def _list_tools(self, client: Client) -> list[Tool]:
        """Return all pages of the list. The limit is longer while calls keep the server busy."""
        longest = limits.MCP_LONGEST_START if self._in_use > 1 else self._server.start_timeout
        limit = longest.total_seconds()
        try:
            async with asyncio.timeout(limit):
                return await listing.all_pages(client)
        except TimeoutError:
            raise await self._down(
                f"it did not list its tools within {limit:g} s", is_slow=True
            ) from None
        except Exception as error:  # noqa: BLE001 - from any library below; secrets are removed
            if (needed := logins.needed_by(error)) is not None:
                raise needed from None
            is_slow = isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT
            raise await self._down(
                f"it did not list its tools: {self._text_of(error)}", is_slow=is_slow
            ) from None

    async def _keep(self) -> None:
        """Open the connection and keep it until it is closed."""
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._new_client(stack))
                client.session.validate_tool_result = _taken_as_it_is  # type: ignore[method-assign]
                self._has_tasks = self._declares_tasks(client)
                self._client.set_result(client)
                watch = asyncio.create_task(self._ended_or_closing())
                await asyncio.wait({watch})
        except errors.ConfigurationError as error:
            self._fail(error)
        except asyncio.CancelledError:
            self._fail(ServerDownError(self._message("it was not waited for")))
            raise
        except BaseException as error:  # noqa: BLE001 - an exception group may hold more than Exceptions
            needed = logins.needed_by(error)
            self._fail(needed or await self._down(self._text_of(error), is_over=True))
        finally:
            # has no effect after an earlier error
            self._fail(ServerDownError(self._message("it could not be opened")))
            self._closing.set()

    def _fail(self, error: Exception) -> None:
        if not self._client.done():
            self._client.set_exception(error)
            self._client.exception()  # its waiters may have given up

    async def _ended_or_closing(self) -> None:
        waits = [asyncio.ensure_future(self._closing.wait())]
        if self._process is not None:
            waits.append(asyncio.ensure_future(self._process.ended.wait()))
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _new_process(self, server: MCPServer) -> ServerProcess:
        """Return the process of a server that is not started yet.

        Raises:
            ConfigurationError: Its program or one of its variables is missing.
        """
        if missing := programs.missing(server):
            raise errors.ConfigurationError(
                f"the MCP server {server.name!r}: {missing}", context={"server": server.name}
            )
        self._hidden = {
            name: _variable(server, variable) for name, variable in server.variables.items()
        }
        inherited = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return ServerProcess(server.command, {**inherited, **self._hidden}, server.cwd)

    def _declares_tasks(self, client: Client) -> bool:
        """Return whether the server may answer a call with a task."""
        declared = client.server_capabilities.extensions or {}
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        return bool(self._server.longest_task) and is_modern and TASKS in declared

    async def _new_client(self, stack: AsyncExitStack) -> Client:
        transport = await self._transport(stack)
        return Client(
            transport,
            client_info=Implementation(name="perdure", version="1"),
            cache=None,
            extensions=[TaskSupport()] if self._server.longest_task else None,
        )

    async def _transport(self, stack: AsyncExitStack) -> Server[Any] | Transport:
        """Return what a client connects to: a server in this process, a process, or an address."""
        server = self._server
        if server.in_process is not None:
            return cast("Server[Any]", server.in_process)
        if server.command:
            self._process = self._new_process(server)
            return declaring(self._process)
        self._hidden = {
            variable: secrets.read_words(variable) for variable in server.headers_env.values()
        }
        headers = {
            header: _header(header, self._hidden[variable])
            for header, variable in server.headers_env.items()
        }
        transport = None
        if self._person is not None:
            transport = PersonalTransport(self._person, server.url, self._hide_token)
        http = await stack.enter_async_context(http_client(headers, server.timeout, transport))
        return declaring(streamable_http_client(server.url, http_client=http))

    def _hide_token(self, token: str) -> None:
        """Remove the present token of the person from texts of the server.

        Its encodings are recognized by their end: the pattern of a whole token takes seconds.
        """
        self._token = token
        self._hidden = {**self._hidden, "token": token[-_TOKEN_END:]}

    async def _down(
        self, why: str, *, is_slow: bool = False, is_over: bool = False
    ) -> ServerDownError:
        """Return the error for a failure.

        A process's exit code and output may arrive a moment later.
        """
        if self._process is not None and self._process.ended.is_set() and not is_over:
            await asyncio.wait({self._task}, timeout=1)
        return ServerDownError(self._message(why), is_slow=is_slow)

    def _message(self, why: str) -> str:
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

    def _text_of(self, error: BaseException) -> str:
        """Return the message of an exception, or of the first exception in a group."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return one_line(
            self.without_secrets(str(error) if isinstance(error, MCPError) else described(error)),
            _CHARACTERS,
        )

    def without_secrets(self, text: str) -> str:
        """Return text of the server without the secrets that were passed to it."""
        return secrets.without(
            text.replace(self._token, "[token]") if self._token else text,
            {
                name: value
                for name, value in self._hidden.items()
                if len(value) >= _SECRET_CHARACTERS
            },
        )


async def _taken_as_it_is(name: str, result: CallToolResult) -> None:
    """Skip the library's validation of results by the server's schema, which may take any time."""


def _ignore_result(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of an abandoned task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


def _is_closed(error: MCPError) -> bool:
    """Return whether the connection was closed.

    Servers use the same code for their own errors, so the library's are recognized by their text.
    """
    return error.code == CONNECTION_CLOSED and error.message.startswith(_CLOSED)


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
