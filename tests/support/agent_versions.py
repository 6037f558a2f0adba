"""An agent with two versions, for tests: each says who it is, also by the result of its tool."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any

from perdure import Agent, Price, Rollout, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.activities.rollouts import tally
from perdure.agents.tools import Tool
from perdure.agents.versions import Tally
from perdure.clients import AgentClient, Turn
from perdure.testing import FunctionModel, call, calls, fails, says
from perdure.testing.scripted import Reply
from perdure.values.messages import ToolMessage
from perdure.worker import AgentWorker

FREE = {"scripted:*": Price.free()}
NEW = {"support": Rollout({"v2": 1.0}, default="v1")}
"""Every turn gets the new version."""
OLD = {"support": Rollout({"v2": 0.0}, default="v1")}
HALF = {"support": Rollout({"v2": 0.5}, default="v1")}


def look(version: str, **options: Any) -> Tool:
    """A tool that has the same name in each version."""

    def look() -> str:
        """Look something up."""
        return f"{version} looked"

    return tool(**options)(look)


def support(version: str, **fields: Any) -> Agent:
    """A version of the agent."""
    given = {"name": "support", "model": "scripted:support", "tools": [look(version)]}
    return Agent(**{**given, "version": version, "instructions": f"You are {version}.", **fields})


def worker(*others: Agent, rollouts: Mapping[str, Rollout] = NEW, **fields: Any) -> AgentWorker:
    """A worker with both versions."""
    agents = [support("v1", **fields), support("v2", **fields), *others]
    return AgentWorker(agents, rollouts=rollouts, prices=FREE)


def looks() -> FunctionModel:
    """A model that looks once, and answers with its instructions and what it has found."""
    return FunctionModel(_looks)


def _looks(request: ModelRequest) -> Reply:
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return says(f"{request.system} {last.results[0].content}")
    return calls(call("look"))


def names() -> FunctionModel:
    """A model that answers with its instructions."""
    return FunctionModel(lambda request: says(request.system))


def fails_as(*versions: str) -> FunctionModel:
    """A model that fails in these versions, and otherwise answers with its instructions."""

    def reply(request: ModelRequest) -> Reply:
        if any(version in request.system for version in versions):
            return fails(errors.LLMAuthError("no"))
        return says(request.system)

    return FunctionModel(reply)


def new_id(prefix: str = "turn") -> str:
    """An id that no other test has."""
    return f"{prefix}-{secrets.token_hex(6)}"


def chosen(id: str) -> str:
    """The version that half of all turns get, by the id that it is chosen by."""
    return HALF["support"].choice("support", id)


async def version_of(turn: Turn[Any]) -> str:
    """The version of the agent that a turn was started with."""
    return (await turn.status()).version


async def run_turns(client: AgentClient, agent: str, version: str, count: int) -> None:
    """Run turns of a version, whatever becomes of them."""
    turns = [await client.start(agent, "go", version=version) for _ in range(count)]
    for turn in turns:
        await turn.wait()


async def counted(client: AgentClient, agent: str, version: str, expected: Tally) -> None:
    """Wait until Temporal's list has these turns, which it writes asynchronously."""
    async with asyncio.timeout(60):
        while await tally(client.temporal, agent, version) != expected:  # noqa: ASYNC110 - a list is polled
            await asyncio.sleep(0.05)
