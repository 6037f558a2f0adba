"""The durable, deterministic part: turns, sessions, batches, and `run_turn` for other workflows."""

from perdure.workflows.agent_batch import AgentBatch
from perdure.workflows.agent_batch_part import AgentBatchPart
from perdure.workflows.agent_push import AgentPush
from perdure.workflows.agent_scheduled_batch import AgentScheduledBatch
from perdure.workflows.agent_scheduled_message import AgentScheduledMessage
from perdure.workflows.agent_session import AgentSession
from perdure.workflows.agent_turn import AgentTurn
from perdure.workflows.agent_webhook import AgentWebhook
from perdure.workflows.child_turn import run_turn

WORKFLOWS = (
    AgentTurn,
    AgentSession,
    AgentBatch,
    AgentBatchPart,
    AgentScheduledBatch,
    AgentScheduledMessage,
    AgentWebhook,
    AgentPush,
)
"""The workflows of Perdure, which a worker of agents runs."""

__all__ = [
    "AgentBatch",
    "AgentBatchPart",
    "AgentPush",
    "AgentScheduledBatch",
    "AgentScheduledMessage",
    "AgentSession",
    "AgentTurn",
    "AgentWebhook",
    "run_turn",
]
