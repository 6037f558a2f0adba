"""Tools that change the shared state of their turn, and an agent with them."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from perdure import Agent, ToolContext, tool
from perdure.testing import call
from perdure.values.messages import ToolCall


@tool
def put(ctx: ToolContext[None], name: str, value: JsonValue) -> str:
    """Set a field of the shared state, and say what is in it."""
    ctx.change_shared_state({name: value})
    return ", ".join(sorted(ctx.shared_state))


@tool(read_only=True, local=True)
def tick(ctx: ToolContext[None], name: str) -> str:
    """Count, within the workflow task."""
    before = ctx.shared_state.get(name, 0)
    assert isinstance(before, int)
    ctx.change_shared_state({name: before + 1})
    return f"{before + 1}"


@tool
def fail(ctx: ToolContext[None]) -> str:
    """Change the shared state, and raise."""
    ctx.change_shared_state({"failed": True})
    raise ValueError("no")


def putting(name: str, value: JsonValue) -> ToolCall:
    """A call of `put`."""
    return call("put", name=name, value=value)


def keeper(**fields: Any) -> Agent:
    """An agent with these tools."""
    given = {"name": "keeper", "model": "scripted:keeper", "tools": [put, tick, fail]}
    return Agent(**{**given, **fields})
