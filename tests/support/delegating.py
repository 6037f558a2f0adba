"""Helpers for tests of delegation: an editor that delegates to others, and models for many
concurrent turns.
"""

from typing import Any

from pydantic_core import from_json

from perdure import Agent, Price, Usage
from perdure.testing import ScriptedModel, call, calls
from perdure.testing.scripted import Reply
from perdure.values.messages import ToolResult
from perdure.worker import AgentWorker

FREE = {"scripted:*": Price.free()}
PRICED = {"scripted:*": Price(input="1000", output="1000")}
"""A tenth of a cent for a token: 300 tokens cost $0.30."""


def editor(**fields: Any) -> Agent:
    """An agent that delegates."""
    return Agent(
        **{
            "name": "editor",
            "model": "scripted:editor",
            "delegates": ["researcher", "writer"],
            **fields,
        }
    )


def researcher(**fields: Any) -> Agent:
    """A delegate."""
    return Agent(
        **{
            "name": "researcher",
            "model": "scripted:researcher",
            "description": "Finds facts.",
            **fields,
        }
    )


def writer(**fields: Any) -> Agent:
    """Another."""
    return Agent(
        **{"name": "writer", "model": "scripted:writer", "description": "Writes texts.", **fields}
    )


def app(*agents: Agent, **fields: Any) -> AgentWorker:
    """A worker with an editor of these fields and the other agents."""
    return AgentWorker([editor(**fields), *(agents or (researcher(), writer()))], prices=FREE)


def delegate(agent: str, task: str, usage: Usage | None = None) -> Reply:
    """An answer that delegates one task."""
    return calls(call("delegate_to_agent", agent=agent, task=task), usage=usage)


def spawn(*tasks: tuple[str, str], usage: Usage | None = None) -> Reply:
    """An answer that delegates several tasks."""
    return calls(
        call("spawn_agents", tasks=[{"agent": agent, "task": task} for agent, task in tasks]),
        usage=usage,
    )


def used(tokens: int) -> Usage:
    """Usage of this number of tokens."""
    return Usage(input_tokens=tokens - 10, output_tokens=10)


def results(model: ScriptedModel) -> list[ToolResult]:
    """The latest results that the model received."""
    last = model.requests[-1].messages[-1]
    return list(getattr(last, "results", ()))


def entries(model: ScriptedModel) -> list[dict[str, str]]:
    """The entries of the result of `spawn_agents`."""
    [result] = results(model)
    given: list[dict[str, str]] = from_json(result.content)
    return given
