"""The durable, deterministic part: the turn, and `run_turn`, which starts one from a workflow."""

from perdure.workflows.agent_turn import AgentTurn
from perdure.workflows.child_turn import run_turn

__all__ = ["AgentTurn", "run_turn"]
