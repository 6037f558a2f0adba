"""A server of the Model Context Protocol made of functions, in the process of the test."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure import errors
from perdure.agents.agent import Agent
from perdure.agents.mcp_servers import MCPServer
from perdure.agents.registry import Registry

if TYPE_CHECKING:
    import mcp.server


class FakeMCPServer:
    """An MCP server for tests, in place of one that an agent names.

    `local_runtime(agent, mcp={"github": FakeMCPServer(list_issues)})`.

    The worker speaks to it as to any other, but without a process and without a network. Give one
    to each runtime.

    Args:
        functions: The tools, sync or async, each under the name of its function. Its signature is
            the schema, its docstring the description. An exception is an error result with its
            message.

    Attributes:
        calls: The name and the arguments of each call, in order.
        is_down: Set it to have the server answer nothing but errors, as if it could not be reached.

    Raises:
        ConfigurationError: The package `mcp` is not installed.
    """

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.is_down = False
        self._server = _server(functions, self._on_request)

    @property
    def server(self) -> mcp.server.MCPServer[Any]:
        """The server of the package `mcp`, for what this class does not offer, such as hints.

        `fake.server.add_tool(…)`.
        """
        return self._server

    async def _on_request(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        from mcp import MCPError
        from mcp_types import INTERNAL_ERROR

        if self.is_down:
            raise MCPError(INTERNAL_ERROR, "the fake server is down")
        if context.method == "tools/call":
            self.calls.append((context.params["name"], dict(context.params.get("arguments") or {})))
        return await call_next(context)


def _server(
    functions: tuple[Callable[..., Any], ...], on_request: Any
) -> mcp.server.MCPServer[Any]:
    try:
        import mcp.server
        from mcp.server.mcpserver.exceptions import ToolError
    except ModuleNotFoundError as error:
        raise errors.ConfigurationError(
            f"FakeMCPServer needs the package {error.name}: pip install 'perdure[mcp]'"
        ) from None
    server: mcp.server.MCPServer[Any] = mcp.server.MCPServer("fake", middleware=[on_request])
    for function in functions:
        server.add_tool(_with_words(function, ToolError))
    return server


def _with_words(function: Callable[..., Any], error: type[Exception]) -> Callable[..., Any]:
    """The function, whose exceptions the library would otherwise tell without their words."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def called(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except Exception as cause:
                raise error(str(cause)) from cause

        return called

    @functools.wraps(function)
    def called_in_thread(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as cause:
            raise error(str(cause)) from cause

    return called_in_thread


@dataclass(frozen=True, kw_only=True)
class _InProcess(MCPServer):
    """The declaration of an agent, with a fake behind it."""

    fake: FakeMCPServer

    @property
    def in_process(self) -> object:
        return self.fake.server


def check_names(fakes: Mapping[str, FakeMCPServer], registry: Registry) -> None:
    """Refuse a fake that replaces nothing, because the real server would be asked.

    What factories make is not known yet.

    Raises:
        ConfigurationError: No agent has a server of this name.
    """
    agents = registry.agents()
    known = {server.name for agent in agents for server in agent.servers}
    unknown = sorted(set(fakes) - known)
    if unknown and len(agents) == len(registry.list()):
        raise errors.ConfigurationError(
            f"mcp: no agent has an MCP server named {unknown[0]!r}; they have"
            f" {', '.join(sorted(known)) or 'none'}"
        )


def with_fakes(agent: Agent[Any], fakes: Mapping[str, FakeMCPServer]) -> Agent[Any]:
    """The agent with fakes behind those of its servers that are named."""
    boxes = [
        _faked(box, fakes[box.name]) if isinstance(box, MCPServer) and box.name in fakes else box
        for box in agent.toolboxes
    ]
    return dataclasses.replace(agent, toolboxes=boxes)


def _faked(server: MCPServer, fake: FakeMCPServer) -> MCPServer:
    fields = {field.name: getattr(server, field.name) for field in dataclasses.fields(MCPServer)}
    return _InProcess(**fields, fake=fake)
