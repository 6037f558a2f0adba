"""What an agent may do at all.

Two layers: what it may not call is not offered, and calling it all the same ends the turn. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure import errors
from perdure.agents.definitions import AgentDefinition
from perdure.text import head
from perdure.values.messages import ToolCall


def violation(agent: AgentDefinition, calls: Sequence[ToolCall]) -> ToolCall | None:
    """The first call of a tool that is not allowed."""
    if agent.allowed is None:
        return None
    return next((call for call in calls if call.name not in agent.allowed), None)


def check(agent: AgentDefinition, calls: Sequence[ToolCall]) -> None:
    """Check all calls of an answer before any of them runs.

    Raises:
        AutonomyBoundaryError: One of them is not allowed.
    """
    call = violation(agent, calls)
    if call is not None:
        name = head(call.name, 100)
        allowed = ", ".join(agent.allowed or ()) or "none"
        raise errors.AutonomyBoundaryError(
            f"the model of {agent.name} called {name!r}, which this turn does not allow (allowed:"
            f" {allowed}); none of its calls was run",
            context={"violation": "tool_not_allowed", "tool": name, "agent": agent.name},
        )
