"""An in-process MCP server made of functions, for tests."""

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
    """A fake MCP server that replaces a server of an agent.

    `local_runtime(agent, mcp={"github": FakeMCPServer(list_issues)})`.

    The worker uses it like any other server, but without a process or a network. Use a separate
    instance for each runtime.

    Args:
        functions: The tools, sync or async, named by their functions. The signature is the schema,
            the docstring the description. An exception becomes an error result with its message.

    Attributes:
        calls: The name and the arguments of each call, in order.
        is_down: Set it to make every request fail, as if the server were unreachable.

    Raises:
        ConfigurationError: The package `mcp` is not installed.
    """

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.is_down = False
        self._server = _server(functions, self._on_request)

    @property
    def server(self) -> mcp.server.MCPServer[Any]:
        """The server of the package `mcp`, for features that this class lacks, such as hints.

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
    """Wrap a function so that the library reports the messages of its exceptions."""
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
    """An agent's server declaration backed by a fake."""

    fake: FakeMCPServer

    @property
    def in_process(self) -> object:
        return self.fake.server


def check_names(fakes: Mapping[str, FakeMCPServer], registry: Registry) -> None:
    """Reject a fake that replaces nothing, because the real server would be used.

    Agents made by factories are not known yet.

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
    """Return the agent with the named servers replaced by fakes."""
    boxes = [
        _faked(box, fakes[box.name]) if isinstance(box, MCPServer) and box.name in fakes else box
        for box in agent.toolboxes
    ]
    return dataclasses.replace(agent, toolboxes=boxes)


def _faked(server: MCPServer, fake: FakeMCPServer) -> MCPServer:
    fields = {field.name: getattr(server, field.name) for field in dataclasses.fields(MCPServer)}
    return _InProcess(**fields, fake=fake)
