"""What Perdure promises about the tools that the client of a turn runs."""

from __future__ import annotations

from perdure.temporal.names import TURN
from perdure.testing.simulation.calls.client_tools import CLIENT_TOOLS
from perdure.testing.simulation.observations import Simulated
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError
from perdure.turn.facts import WaitBegan
from perdure.turn.fold import apply
from perdure.turn.state import TurnState

PROMISE = "clients run their tools"

_NAMES = {tool.name for tool in CLIENT_TOOLS}


def clients_run_their_tools(simulated: Simulated) -> None:
    """Only the client runs its tools, for the agent that its turn was started with and no other.

    No worker is asked to, and neither delegates nor an agent that has been handed the turn have
    them. A result that the client sends while its call waits is taken.
    """
    for effect in simulated.world.effects:
        if effect.tool in _NAMES:
            message = f"a worker runs {effect.tool} ({effect.call_id})"
            raise BrokenError(PROMISE, message, effect.activity.run)
    for run in simulated.server.runs if simulated.world.client_tokens else ():
        if run.begun.type == TURN:
            _check_agents(run)


def _check_agents(run: SimulatedRun) -> None:
    """Check whose calls have waited for the client, in one run."""
    state = TurnState()
    for fact in run.facts:
        state = apply(state, fact)
        if not isinstance(fact, WaitBegan) or not any(wait.is_of_client for wait in fact.calls):
            continue
        agent, request = state.agent, state.request
        has_tools = request is not None and bool(request.client_tools)
        if request is None or agent is None or not has_tools or agent.name != request.agent:
            message = f"{agent and agent.name} calls a tool of the client"
            raise BrokenError(PROMISE, message, run)
