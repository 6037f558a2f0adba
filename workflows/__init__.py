"""What is durable and deterministic: the turn, and `run_turn`, which runs one from a workflow of yours."""

from perdure.workflows.agent_turn import AgentTurn
from perdure.workflows.as_child import run_turn

__all__ = ["AgentTurn", "run_turn"]
