"""The connections of a worker to its servers, one per server, on a single event loop.

The list of tools is fetched before each call: that costs a round trip, and shows whether the server
is alive and what has changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from mcp_types import INVALID_PARAMS
from pydantic import JsonValue

from perdure import errors, limits
from perdure.activities.mcp import inquiries, login_results, tasks
from perdure.activities.mcp.connection import (
    IDLE_S,
    AnswerLostError,
    ServerConnection,
    ServerDownError,
    ServerRefusedError,
)
from perdure.activities.mcp.login_results import LoginNeededError
from perdure.activities.mcp.logins import Person
from perdure.activities.mcp.tasks import TaskRequest
from perdure.activities.tool_compatibility import unknown_result
from perdure.agents.jobs import PendingJob
from perdure.agents.mcp_servers import ListedTool, MCPServer, name_of
from perdure.agents.tool_context import ToolContext
from perdure.text import head, size
from perdure.turn.wire import ToolOutput
from perdure.values.inquiries import GivenAnswers

logger = logging.getLogger("perdure")

_ATTEMPTS = 2
_NOTE_EVERY_S = 0.5
_NOTE_BYTES = 1_000
_CANCEL_S = 2.0


class Pool:
    """Connections by their key, opened on demand and reopened after a failure.

    Args:
        idle_s: After this time without use, a connection is closed.
        most_people: With more connections that have the login of a person, those that are not in
            use are closed, beginning with the one that was used least recently.
    """

    def __init__(
        self, idle_s: float = IDLE_S, most_people: int = limits.MCP_CONNECTIONS_OF_PEOPLE
    ) -> None:
        self._idle_s, self._most_people = idle_s, most_people
        self._kept: dict[tuple[object, ...], ServerConnection] = {}
        self._all: set[ServerConnection] = set()

    async def tools(self, server: MCPServer, person: Person | None = None) -> list[ListedTool]:
        """Return the tools that a server offers now.

        Raises:
            ConfigurationError: It cannot be started or queried; the message has its output.
            LoginNeededError: The person has to log in.
        """
        try:
            _, listed = await self._listed(server, person)
        except ServerDownError as error:
            raise errors.ConfigurationError(str(error), context={"server": server.name}) from None
        return listed

    async def tools_if_logged_in(
        self, server: MCPServer, person: Person | None
    ) -> list[ListedTool] | None:
        """Return the tools that a server offers now; None if the person has to log in.

        Raises:
            ConfigurationError: It cannot be started or queried; the message has its output.
        """
        try:
            return await self.tools(server, person)
        except LoginNeededError:
            return None

    async def call(
        self,
        server: MCPServer,
        person: Person | None,
        name: str,
        pinned: str,
        context: ToolContext[Any],
        arguments: Mapping[str, JsonValue],
    ) -> ToolOutput:
        """Call the tool that models know as `name`, if it has not changed since the turn began.

        With an empty digest in `pinned`, it may have changed: no model reads its description.
        Failures are returned as error results.
        """
        tool: ListedTool | None = None
        try:
            connection, listed = await self._listed(server, person)
            tool = next((item for item in listed if name_of(server.name, item.own) == name), None)
            if tool is None:
                return _error(
                    f"{name} was not called: the MCP server {server.name!r} does not offer it any"
                    " more"
                )
            if pinned and tool.digest != pinned:
                return _error(
                    f"{name} was not called: its description or its arguments have changed since"
                    " this turn began, and nobody accepted that"
                )
            notes = _notes(context, connection.without_secrets)
            given = context.answers if server.asks else None
            answers = None if given is None else login_results.without_login(given)
            output = await connection.call(tool.own, arguments, notes, answers)
            return await self._later(server, person, name, pinned, context.call_token, output)
        except LoginNeededError as needed:
            assert person is not None
            return login_results.asked(server, person.subject, name, needed, context.answers)
        except AnswerLostError as error:
            text = f"{name}: {error}"
            only_reads = server.trusted and tool is not None and tool.read_only
            return _error(text) if only_reads else unknown_result(text, error.loss)
        except ServerRefusedError as error:
            return _error(f"{name} failed: the MCP server {server.name!r} refused: {error}")
        except (ServerDownError, errors.ConfigurationError) as error:
            return _error(f"{name} failed: {error}")

    async def _later(
        self,
        server: MCPServer,
        person: Person | None,
        name: str,
        pinned: str,
        token: str,
        output: ToolOutput,
    ) -> ToolOutput:
        """Return a result, or the task that the turn waits for.

        A read-back, and a turn that began when the server declared no tasks, wait here.
        """
        if output.handle is None:
            return output
        if not pinned or not token:
            return await self._awaited(server, person, name, output.handle)
        if size(output.handle) <= limits.HANDLE_BYTES:
            return output  # nobody has its token: it is polled
        await self._cancel_if_possible(server, person, output.handle)
        return unknown_result(
            f"{name}: the MCP server {server.name!r} began a task, but its id is longer than"
            f" {limits.HANDLE_BYTES} bytes, so its result cannot be waited for"
        )

    async def _awaited(
        self, server: MCPServer, person: Person | None, name: str, task_id: str
    ) -> ToolOutput:
        """Wait for the result of a task. It is cancelled if the call is."""
        try:
            while isinstance(  # noqa: ASYNC110 - the server is asked
                found := await self.poll(server, person, name, task_id, None), PendingJob
            ):
                await asyncio.sleep((found.after or limits.MCP_POLL).total_seconds())
        except asyncio.CancelledError:
            await self._cancel_if_possible(server, person, task_id)
            raise
        return found

    async def _cancel_if_possible(
        self, server: MCPServer, person: Person | None, task_id: str
    ) -> None:
        with contextlib.suppress(ServerDownError, ServerRefusedError, TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                await self.cancel(server, person, task_id)

    async def poll(
        self,
        server: MCPServer,
        person: Person | None,
        name: str,
        task_id: str,
        answers: GivenAnswers | None,
    ) -> ToolOutput | PendingJob:
        """Return the result of a task; or, as long as there is none, or no answer, the reason.

        With `answers`, it may ask people something, and is told what they have answered. A person
        who has to log in is not asked here: the task waits until another call has asked.
        """
        try:
            connection = self._connection(server, person)
            request = TaskRequest.about("tasks/get", task_id, may_ask=answers is not None)
            answer = await self._asked(connection, request)
            if answers is not None and tasks.asks_user(answer):
                return await self._inquired(server, person, name, task_id, answer, answers)
        except ServerRefusedError as error:
            if error.code == INVALID_PARAMS:
                return tasks.forgotten(name, server.name, str(error))
            return PendingJob(f"the MCP server {server.name!r} refused tasks/get: {error}")
        except LoginNeededError:
            return PendingJob(f"the person has to log in at the MCP server {server.name!r}")
        except (ServerDownError, errors.ConfigurationError) as error:
            return PendingJob(str(error))
        if tasks.asks_user(answer):
            await self._cancel_if_possible(server, person, task_id)
        return tasks.result_of(answer, name, server.name, connection.without_secrets)

    async def _inquired(
        self,
        server: MCPServer,
        person: Person | None,
        name: str,
        task_id: str,
        answer: tasks.TaskAnswer,
        answers: GivenAnswers,
    ) -> ToolOutput | PendingJob:
        """Tell a task what people have answered, and return what else it asks them.

        A task names what it waits for until it has it. So an answer that it did not get, because
        the worker was killed, is sent again, and none that it has.

        Raises:
            ServerDownError: The server does not answer.
            ServerRefusedError: The server returned an error which is not about the answers.
        """
        connection, requests = self._connection(server, person), tasks.requests_in(answer)
        try:
            if responses := inquiries.responses(answers, requests):
                request = TaskRequest.about(
                    "tasks/update", task_id, may_ask=True, responses=responses
                )
                await self._asked(connection, request)
            others = {key: asked for key, asked in requests.items() if key not in responses}
            if not others:
                reason = "the task has the answers" if responses else "the task asks for nothing"
                return PendingJob(reason, tasks.pause_of(answer))
            inquiry = inquiries.read(server.name, others, connection.without_secrets)
        except ServerRefusedError as error:
            if error.code != INVALID_PARAMS:
                raise
            why = f"it refused the answer of a person: {error}"
        except ValueError as error:
            why = str(error)
        else:
            return ToolOutput(content="", inquiry=inquiry)
        await self._cancel_if_possible(server, person, task_id)
        return tasks.cancelled(name, server.name, why)

    async def cancel(self, server: MCPServer, person: Person | None, task_id: str) -> None:
        """Cancel a task, unless its server does not know it any more.

        Raises:
            ServerDownError: The server does not answer, or the person has to log in.
            ServerRefusedError: The server returned another error.
            ConfigurationError: A required environment variable is not set.
        """
        try:
            request = TaskRequest.about("tasks/cancel", task_id)
            await self._asked(self._connection(server, person), request)
        except LoginNeededError as needed:
            raise ServerDownError(f"the MCP server {server.name!r}: {needed}") from None
        except ServerRefusedError as error:
            if error.code != INVALID_PARAMS:
                raise

    async def _asked(self, connection: ServerConnection, request: TaskRequest) -> tasks.TaskAnswer:
        """Ask a server about a task. A connection that turns out to be dead is not used again."""
        try:
            return await connection.ask(request)
        except ServerDownError:
            connection.retire()
            raise

    async def close(self) -> None:
        """Close all connections concurrently."""
        if self._all:
            await asyncio.gather(*(connection.close() for connection in self._all))

    async def _listed(
        self, server: MCPServer, person: Person | None
    ) -> tuple[ServerConnection, list[ListedTool]]:
        """Return the connection and the server's tools.

        A connection that turns out to be dead is reopened once.
        """
        for attempts_left in reversed(range(_ATTEMPTS)):
            connection = self._connection(server, person)
            try:
                return connection, await connection.tools()
            except ServerDownError as error:
                connection.retire()
                if error.is_slow or not attempts_left:
                    raise
                logger.warning("%s; restarting it", error)
        raise AssertionError("unreachable")

    def _connection(self, server: MCPServer, person: Person | None) -> ServerConnection:
        place = (*server.connection, person.subject if person else None)
        connection = self._kept.pop(place, None)
        if connection is None or not connection.is_usable:
            # each person has one, so those that are over do not stay
            self._kept = {key: kept for key, kept in self._kept.items() if kept.is_usable}
            if person is not None:
                self._make_room()
            connection = ServerConnection(server, self._idle_s, person)
            self._all = {connection for connection in self._all if not connection.is_over} | {
                connection
            }
        self._kept[place] = connection  # the last one is the one that was used last
        return connection

    def _make_room(self) -> None:
        """Close connections so that that of another person is not one too many."""
        people = [kept for (*_, subject), kept in self._kept.items() if subject is not None]
        idle = [connection for connection in people if not connection.is_in_use]
        for connection in idle[: max(0, len(people) + 1 - self._most_people)]:
            connection.retire()


def _notes(context: ToolContext[Any], without_secrets: Callable[[str], str]) -> Any:
    """Return a callback that heartbeats the server's progress, at most twice a second."""
    last = 0.0

    async def note(progress: float, total: float | None, message: str | None) -> None:
        nonlocal last
        if time.monotonic() - last >= _NOTE_EVERY_S:
            last = time.monotonic()
            context.heartbeat(
                {
                    "progress": progress,
                    "total": total,
                    "message": head(without_secrets(message or ""), _NOTE_BYTES),
                }
            )

    return note


def _error(text: str) -> ToolOutput:
    return ToolOutput(content=text, is_error=True)
