"""Implements `perdure worker --check`: tests what a turn needs, without running one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from temporalio.service import RPCError

from perdure.activities import skill_folders
from perdure.activities.mcp.toolboxes import Servers
from perdure.activities.pricing import Prices
from perdure.activities.provider import Models
from perdure.activities.webhook_rules import WebhookRules
from perdure.agents.agent import Agent
from perdure.agents.mcp_servers import MCPServer
from perdure.errors import PerdureError
from perdure.temporal.connect import connect
from perdure.text import counted
from perdure.worker.agent_worker import AgentWorker
from perdure.worker.doctor import namespace
from perdure.worker.loading import load
from perdure.worker.settings import WorkerSettings
from perdure.worker.setup_checks import Finding, found


async def findings(target: str, address: str | None) -> AsyncIterator[Finding]:
    """Yield the findings of all checks, in order.

    Args:
        target: `module:name` of a worker, as for `load`.
        address: The address of Temporal; by default from its environment.
    """
    app = loaded(target)
    async for finding in of_program(target, app):
        yield finding
    async for finding in _temporal(address):
        yield finding


def loaded(target: str) -> AgentWorker | PerdureError:
    """Return the worker named by `module:name`, or why it cannot be loaded."""
    try:
        return load(target)
    except PerdureError as error:
        return error


async def of_program(target: str, app: AgentWorker | PerdureError) -> AsyncIterator[Finding]:
    """Yield the findings about a program and its settings, without Temporal."""
    subject = f"module {target}"
    if isinstance(app, PerdureError):
        yield Finding(subject, "failed", app.message)
    else:
        agents = ", ".join(app.registry.list()) or "none"
        yield Finding(subject, "ok", f"agents: {agents}")
        async for finding in _of_agents(app):
            yield finding
    for finding in _settings():
        yield finding


def _prices(app: AgentWorker) -> Iterator[Finding]:
    """Check that the models of agents with a budget in US dollars have prices."""
    models, prices = Models(app.all_providers(), app.models), Prices(app.prices)
    for agent in app.registry.agents():
        if agent.budget is None or agent.budget.usd is None:
            continue
        try:
            chain = models.resolve(agent.models)
        except PerdureError:
            return  # reported for the agent
        for model in chain:
            if prices.price(model, agent.options.extra) is None:
                yield Finding(
                    f"price {model}",
                    "failed",
                    f"unknown, and agent {agent.name} has a budget in US dollars; set it with"
                    " prices=",
                )
            else:
                yield Finding(
                    f"price {model}", "ok", f"known, for the budget of agent {agent.name}"
                )


async def _skills(app: AgentWorker, failed: set[str]) -> list[Finding]:
    async def read(agent: Agent[Any]) -> Finding:
        subject = f"skills of {agent.name}"
        try:
            skills = await asyncio.to_thread(skill_folders.read, agent)
        except PerdureError as error:
            return Finding(subject, "failed", error.message)
        return Finding(subject, "ok", ", ".join(skill.name for skill in skills))

    tried = [
        agent
        for agent in app.registry.agents()
        if agent.skills and not any(f"skills {folder}" in failed for folder in agent.skills)
    ]
    return list(await asyncio.gather(*map(read, tried)))


async def _of_agents(app: AgentWorker) -> AsyncIterator[Finding]:
    """Yield the findings about the agents. What failed at first is not tried again."""
    known = list(found(app))
    for finding in known:
        yield finding
    failed = {finding.subject for finding in known if finding.state == "failed"}
    for finding in [*_prices(app), *await _skills(app, failed), *await _servers(app, failed)]:
        yield finding


async def _servers(app: AgentWorker, failed: set[str]) -> list[Finding]:
    """Connect to each MCP server and list its tools within its own time limit."""
    by_connection = {
        server.connection: server for agent in app.registry.agents() for server in agent.servers
    }
    tried = [
        server for server in by_connection.values() if f"MCP server {server.name}" not in failed
    ]
    if not tried:
        return []
    servers = Servers(lambda tool: tool.name)

    async def ask(server: MCPServer) -> Finding:
        subject = f"MCP server {server.name}"
        if server.login:
            return Finding(subject, "ok", "not asked: it acts for people, who log in there")
        try:
            tools = (await servers.toolbox(server)).tools
        except PerdureError as error:
            return Finding(subject, "failed", error.message)
        return Finding(subject, "ok", counted(len(tools), "tool"))

    await servers.loop.open()
    try:
        return list(await asyncio.gather(*map(ask, tried)))
    finally:
        await servers.loop.close()


def _settings() -> Iterator[Finding]:
    """Check the settings from the environment; settings of webhooks are shown if there are any."""
    try:
        settings = WorkerSettings.from_environment()
        WebhookRules.of(settings.webhook_hosts, settings.webhook_secrets)
    except PerdureError as error:
        yield Finding("settings", "failed", error.message)
    else:
        if settings.webhook_hosts:
            yield Finding("webhooks", "ok", f"to {', '.join(settings.webhook_hosts)}")


async def _temporal(address: str | None) -> AsyncIterator[Finding]:
    try:
        client = await connect(address)
        yield await namespace.answering(client)
        yield await namespace.attributes(client)
    except PerdureError as error:
        yield Finding("Temporal", "failed", error.message)
    except RPCError as error:
        yield Finding("Temporal", "failed", error.message)
