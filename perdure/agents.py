"""Agents: what people declare, and the definition that a running turn is pinned to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from pydantic import JsonValue
from pydantic_core import to_json

from perdure import errors, limits
from perdure.tools import NAME, AnyTool, Toolbox, as_tools
from perdure.values import Wire


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A declarative value: who the agent is, which model it asks, which tools it has, how far it may go.

    Attributes:
        name: 1 to 64 of A-Z, a-z, 0-9, _ and -.
        model: `provider:model`, or an alias that the worker resolves.
        description: What it is for, in a line.
        instructions: The system prompt.
        tools: Tools or plain functions, offered in this order.
        toolboxes: Named sets of tools, offered after `tools`.
        max_iterations: Model calls of one turn, at least 1; `"unlimited"` only when asked for by name.

    Raises:
        ConfigurationError: A value that cannot work, said when the agent is built.
    """

    name: str
    model: str
    description: str = ""
    instructions: str = ""
    tools: Sequence[AnyTool | Callable[..., Any]] = ()
    toolboxes: Sequence[Toolbox] = ()
    max_iterations: int | Literal["unlimited"] = limits.MAX_ITERATIONS

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise errors.ConfigurationError(f"agent name {self.name!r}: use 1 to 64 of A-Z, a-z, 0-9, _ and -")
        if not self.model:
            raise errors.ConfigurationError(f"agent {self.name}: name a model, such as model='openai:gpt-5-mini'")
        if self.max_iterations != "unlimited" and self.max_iterations < 1:
            raise errors.ConfigurationError(
                f"agent {self.name}: max_iterations must be at least 1, not {self.max_iterations}; 'unlimited' lifts the limit"
            )
        object.__setattr__(self, "tools", as_tools(self.tools))
        object.__setattr__(self, "toolboxes", tuple(self.toolboxes))

    def toolset(self) -> dict[str, AnyTool]:
        """Every tool by name, in the order offered.

        Raises:
            DuplicateToolError: Two tools of one name; the message names both sources.
        """
        found: dict[str, AnyTool] = {}
        sources: dict[str, str] = {}
        for source, item in self._sources():
            if item.name in found:
                raise errors.DuplicateToolError(
                    f"agent {self.name}: the tool {item.name!r} comes from {sources[item.name]} and from {source}; rename one with @tool(name=…)",
                    context={"agent": self.name, "tool": item.name, "sources": [sources[item.name], source]},
                )
            found[item.name], sources[item.name] = item, source
        return found

    def _sources(self) -> Iterator[tuple[str, AnyTool]]:
        yield from (("the agent's tools", item) for item in as_tools(self.tools))
        for box in self.toolboxes:
            yield from ((f"toolbox {box.name!r}", item) for item in as_tools(box.tools))


class ToolDefinition(Wire):
    """A tool as a turn is pinned to it.

    `activity` is the activity type that runs it. `timeout_s` is in seconds. `schema_digest` tells whether the deployed tool still takes the
    same arguments.
    """

    name: str
    description: str
    parameters: dict[str, JsonValue]
    activity: str
    is_idempotent: bool
    timeout_s: float
    schema_digest: str

    @property
    def timeout(self) -> timedelta:
        """After this a call is stopped."""
        return timedelta(seconds=self.timeout_s)


class AgentDefinition(Wire):
    """An agent as a turn is pinned to it: a later deploy changes nothing of a running turn. `max_iterations` is None for no limit."""

    name: str
    instructions: str
    model: str
    tools: tuple[ToolDefinition, ...] = ()
    max_iterations: int | None = limits.MAX_ITERATIONS

    def tool(self, name: str) -> ToolDefinition | None:
        """The tool of this name, if it was offered."""
        return next((item for item in self.tools if item.name == name), None)


def define(agent: Agent, *, model: str, activity_of: Callable[[AnyTool], str]) -> AgentDefinition:
    """The definition of `agent` with its model resolved. `activity_of` says which activity type runs a tool.

    Raises:
        DuplicateToolError: Two tools of one name.
        ConfigurationError: A tool whose signature cannot be described.
    """
    return AgentDefinition(
        name=agent.name,
        instructions=agent.instructions,
        model=model,
        tools=tuple(define_tool(item, activity_of(item)) for item in agent.toolset().values()),
        max_iterations=None if agent.max_iterations == "unlimited" else agent.max_iterations,
    )


def define_tool(item: AnyTool, activity: str) -> ToolDefinition:
    """The definition of one tool."""
    return ToolDefinition(
        name=item.name,
        description=item.description,
        parameters=item.arguments.schema,
        activity=activity,
        is_idempotent=item.idempotent,
        timeout_s=item.timeout.total_seconds(),
        schema_digest=schema_digest(item),
    )


def schema_digest(item: AnyTool) -> str:
    """Changes when the arguments change: the first 16 hexadecimal digits of SHA-256 over the schema."""
    return hashlib.sha256(to_json(item.arguments.schema)).hexdigest()[:16]
