"""The durable, deterministic part: the turn, the session, and `run_turn` for other workflows."""

from perdure.workflows.agent_session import AgentSession
from perdure.workflows.agent_turn import AgentTurn
from perdure.workflows.child_turn import run_turn

__all__ = ["AgentSession", "AgentTurn", "run_turn"]
