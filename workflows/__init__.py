"""What is durable and deterministic: the turn."""

from perdure.workflows.agent_turn import AgentTurn

__all__ = ["AgentTurn"]
