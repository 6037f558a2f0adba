"""Turns that delegate, without a workflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import JsonValue
from pydantic_core import to_json

from perdure import limits
from perdure.agents import delegates
from perdure.agents.definitions import AgentDefinition, ToolDefinition
from perdure.agents.delegates import SPAWN, PinnedDelegate
from perdure.values.messages import ToolCall
from perdure.values.prices import Price

PRICE = Price(input="3", output="15")


def delegating(
    *,
    others: Sequence[PinnedDelegate] = (),
    on_exhausted: Literal["fail", "finish"] = "fail",
    parallel: bool = False,
    most: int = limits.CHILDREN,
) -> AgentDefinition:
    """An editor that delegates to a researcher and a writer."""
    given_to = tuple(others) or (
        PinnedDelegate(name="researcher", description="Finds facts."),
        PinnedDelegate(name="writer"),
    )
    tools = tuple(
        ToolDefinition(
            name=name,
            description=said,
            parameters=schema,
            activity="",
            is_idempotent=True,
            timeout_s=0,
            schema_digest="",
        )
        for name, said, schema in delegates.tools(given_to, limits.CHILDREN_AT_ONCE)
    )
    return AgentDefinition(
        name="editor",
        instructions="",
        model="m:m",
        price=PRICE,
        tools=tools,
        delegates=given_to,
        on_exhausted=on_exhausted,
        parallel_tools=parallel,
        max_children=most,
    )


def call_of(name: str, **arguments: JsonValue) -> ToolCall:
    """A call with these arguments."""
    return ToolCall(id=name, name=name, arguments=to_json(arguments).decode())


def spawn(*agents: str) -> ToolCall:
    """A call that gives a task to each of them."""
    return call_of(
        SPAWN,
        tasks=[{"agent": agent, "task": f"task {place}"} for place, agent in enumerate(agents)],
    )
