"""Checks of a worker's setup that neither start nor send anything.

A worker logs these findings as warnings when it starts, because a turn that needs the faulty part
may come much later. `perdure worker --check` shows them too.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from perdure.activities.mcp import programs
from perdure.activities.provider import CheckedProvider, Models
from perdure.agents.definitions import Target, define
from perdure.agents.delegates import declared
from perdure.agents.handoffs import check_known
from perdure.agents.versions import address
from perdure.errors import PerdureError
from perdure.schemas.tool_arguments import StatedArguments

if TYPE_CHECKING:
    from perdure.agents.agent import Agent
    from perdure.agents.mcp_servers import MCPServer
    from perdure.agents.tools import Tool
    from perdure.worker.agent_worker import AgentWorker

State = Literal["ok", "skipped", "warning", "failed"]


@dataclass(frozen=True)
class Finding:
    """The result of checking one part of the setup.

    Attributes:
        subject: The part that was checked.
        state: What came of it.
        words: The details.
        remedy: What to do about it; empty where there is nothing to do, or `words` say it.
    """

    subject: str
    state: State
    words: str
    remedy: str = ""

    def __str__(self) -> str:
        return "; ".join(filter(None, [f"{self.subject}: {self.words}", self.remedy]))

    @property
    def is_problem(self) -> bool:
        """Whether it needs attention."""
        return self.state in ("warning", "failed")


def found(app: AgentWorker) -> Iterator[Finding]:
    """Yield the distinct findings of a worker."""
    yield from dict.fromkeys(_found(app))


def _found(app: AgentWorker) -> Iterator[Finding]:
    models = Models(app.all_providers(), app.models)
    for name in app.registry.list():
        entry = app.registry.entry(name)
        if callable(entry):
            yield Finding(f"agent {name}", "skipped", "created by a factory for each turn")
    for agent in app.registry.agents():
        yield from _of_agent(agent, app, models)
    try:
        app.registry.roll_out(app.rollouts)
    except PerdureError as error:
        yield Finding("rollouts", "failed", error.message)


def _of_agent(agent: Agent[Any], app: AgentWorker, models: Models) -> Iterator[Finding]:
    findings = [*_agent(agent, models), *_others(agent, app.registry.list())]
    yield from findings
    if not any(finding.is_problem for finding in findings):
        yield from _models(agent, models)
        for item in agent.toolset().values():
            yield from _tool(item, has_lifespan=app.lifespan is not None)
    for server in agent.servers:
        yield from _server(server)
    for folder in agent.skills:
        if isinstance(folder, Path) and not folder.is_dir():
            yield Finding(f"skills {folder}", "failed", f"there is no folder {folder.absolute()}")


def _agent(agent: Agent[Any], models: Models) -> Iterator[Finding]:
    try:
        chain = models.resolve(agent.models)
        definition = define(
            agent,
            chain=[Target(model=model) for model in chain],
            activity_of=lambda item: item.name,
        )
    except PerdureError as error:
        yield Finding(f"agent {address(agent.name, agent.version)}", "failed", error.message)
    else:
        yield Finding(
            f"agent {address(agent.name, agent.version)}",
            "ok",
            f"{', '.join(chain)}; tools:"
            f" {', '.join(tool.name for tool in definition.tools) or 'none'}",
        )


def _others(agent: Agent[Any], known: Sequence[str]) -> Iterator[Finding]:
    """Find delegates and handoffs that this worker does not know."""
    try:
        declared(agent.delegates, agent.name, known)
        check_known(agent.handoffs, agent.name, known)
    except PerdureError as error:
        yield Finding(f"agent {address(agent.name, agent.version)}", "failed", error.message)


def _models(agent: Agent[Any], models: Models) -> Iterator[Finding]:
    """Check that the providers of an agent's models have what they need, such as a key."""
    for model in models.resolve(agent.models):
        provider, _ = models.find(model)
        try:
            if isinstance(provider, CheckedProvider):
                provider.check_setup()
        except PerdureError as error:
            yield Finding(f"model {model}", "failed", error.message)
        else:
            yield Finding(
                f"model {model}",
                "ok",
                f"the provider {model.partition(':')[0]} is set up; nothing was sent",
            )


def _unannotated(item: Tool, subject: str) -> Iterator[Finding]:
    hidden = ("self", item.context_parameter)
    for name, parameter in inspect.signature(item.function).parameters.items():
        if parameter.annotation is parameter.empty and name not in hidden:
            yield Finding(
                subject,
                "warning",
                f"its parameter {name} has no annotation, so a model may send any JSON for it",
            )


def _tool(item: Tool, *, has_lifespan: bool) -> Iterator[Finding]:
    """Check for missing descriptions of a tool, and for a missing lifespan."""
    function = inspect.unwrap(getattr(item.function, "__func__", item.function))
    if str(getattr(function, "__module__", "")).partition(".")[0] == "perdure":
        return
    subject = f"tool {item.name}"
    if not item.description:
        yield Finding(subject, "warning", "it has no docstring, so a model knows only its name")
    if not isinstance(item.arguments, StatedArguments):
        yield from _unannotated(item, subject)
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    if item.context_parameter and not has_lifespan and "deps" in names:
        yield Finding(
            subject,
            "warning",
            "it uses ctx.deps, which is None, because this worker has no lifespan",
        )


def _server(server: MCPServer) -> Iterator[Finding]:
    """Check the program and the environment variables of an MCP server."""
    subject = f"MCP server {server.name}"
    for variable in (*server.variables.values(), *server.headers_env.values()):
        if variable not in os.environ:
            yield Finding(
                subject,
                "failed",
                f"the environment variable {variable} is not set; the server needs it",
            )
    if missing := programs.missing(server):
        yield Finding(subject, "failed", missing)
