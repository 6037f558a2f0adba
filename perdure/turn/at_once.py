"""Which calls of a step are made at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.agents.definitions import AgentDefinition, ToolDefinition
from perdure.turn.open_step import OpenCall

Calls = Sequence[tuple[int, OpenCall]]
"""Calls of a step, each with its place."""


def is_of_client(tool: ToolDefinition | None) -> bool:
    """Return whether the client runs a tool."""
    return tool is not None and tool.job is not None and tool.job.by_client


def first(agent: AgentDefinition, calls: Calls) -> Calls:
    """Return the calls that are made now, of an agent that makes one after the other.

    It is the first; if that is the client's, then all of the client's: it is given them together.
    """
    mine = [item for item in calls if is_of_client(agent.tool(item[1].call.name))]
    return mine if calls[0] in mine else calls[:1]


def apart(agent: AgentDefinition, calls: Calls, waits: Calls) -> Calls:
    """Return the calls that may be made at once: of those with effect keys, one of each tool.

    None is made while a job of its tool runs, whose call is one of `waits`.
    """
    apart: list[tuple[int, OpenCall]] = []
    named = {open_call.call.name for _, open_call in waits}
    for position, open_call in calls:
        tool = agent.tool(open_call.call.name)
        if tool is not None and tool.effect is not None and tool.effect.has_key:
            if tool.name in named:
                continue
            named.add(tool.name)
        apart.append((position, open_call))
    return apart
