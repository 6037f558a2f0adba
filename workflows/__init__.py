"""What is durable and deterministic.

The turn, and `run_turn`, which runs one from a workflow of yours.
"""

from perdure.workflows.agent_turn import AgentTurn
from perdure.workflows.child_turn import run_turn

__all__ = ["AgentTurn", "run_turn"]
