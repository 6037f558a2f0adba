"""Tools that a turn is offered after a call: those of a server at which a person logs in. Pure.

Like all tools they are pinned: their definitions are in the result of that call.
"""

from __future__ import annotations

from perdure.base import replace
from perdure.turn import reservations
from perdure.turn.facts import ToolReturned
from perdure.turn.state import TurnState


def offered(state: TurnState, fact: ToolReturned) -> TurnState:
    """Return the state in which the agent has the tools that a call has brought.

    A tool that the agent has, or that the turn does not allow, is not added. None is removed: the
    answer that made the call may have made others.
    """
    agent = state.agent
    if agent is None:
        return state
    new = tuple(
        tool
        for tool in fact.output.tools
        if agent.tool(tool.name) is None and (agent.allowed is None or tool.name in agent.allowed)
    )
    if not new:
        return state
    state = replace(state, agent=agent.model_copy(update={"tools": (*agent.tools, *new)}))
    return replace(state, tokens=state.tokens.of_another(reservations.known_tokens(state)))
