"""Which tools of the client of a turn an agent takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure import errors
from perdure.agents.agent import Agent
from perdure.agents.delegates import NAMES as DELEGATION_TOOLS
from perdure.agents.handoffs import HAND_OVER
from perdure.agents.skills import LOAD_SKILL
from perdure.values.client_tools import ClientTool


def taken_tools(
    agent: Agent[Any],
    tools: Sequence[ClientTool],
    offered: set[str],
    allowed: Sequence[str] | None,
) -> list[ClientTool]:
    """Return the tools of the client that a turn offers: all, or those that it allows.

    `offered` are the names of the tools that it offers without them.

    Raises:
        InvalidRequestError: There are some, and the agent takes none; or one has the name of a tool
            that the agent has.
    """
    if tools and not agent.takes_tools:
        raise errors.InvalidRequestError(
            f"agent {agent.name} takes no tools of its callers; give it the tools that it needs, or"
            " declare it with takes_tools=True"
        )
    names = {*offered, *agent.toolset(), LOAD_SKILL, HAND_OVER, *DELEGATION_TOOLS}
    same = next((tool.name for tool in tools if tool.name in names), None)
    if same is not None:
        raise errors.InvalidRequestError(
            f"agent {agent.name} has a tool named {same}; give the client's another name"
        )
    return [tool for tool in tools if allowed is None or tool.name in allowed]
