"""The durable, deterministic part: turns, sessions, batches, and `run_turn` for other workflows."""

from perdure.workflows.agent_erasure import AgentErasure
from perdure.workflows.batch.agent_batch import AgentBatch
from perdure.workflows.batch.agent_batch_part import AgentBatchPart
from perdure.workflows.batch.agent_scheduled_batch import AgentScheduledBatch
from perdure.workflows.delivery.agent_push import AgentPush
from perdure.workflows.delivery.agent_webhook import AgentWebhook
from perdure.workflows.keyed_events.agent_events import AgentEvents
from perdure.workflows.session.agent_scheduled_message import AgentScheduledMessage
from perdure.workflows.session.agent_session import AgentSession
from perdure.workflows.turn.agent_settlement import AgentSettlement
from perdure.workflows.turn.agent_turn import AgentTurn
from perdure.workflows.turn.child_turn import run_turn

WORKFLOWS = (
    AgentTurn,
    AgentSession,
    AgentBatch,
    AgentBatchPart,
    AgentScheduledBatch,
    AgentScheduledMessage,
    AgentWebhook,
    AgentPush,
    AgentSettlement,
    AgentErasure,
    AgentEvents,
)
"""The workflows of Perdure, which a worker of agents runs."""

__all__ = [
    "AgentBatch",
    "AgentBatchPart",
    "AgentErasure",
    "AgentEvents",
    "AgentPush",
    "AgentScheduledBatch",
    "AgentScheduledMessage",
    "AgentSession",
    "AgentSettlement",
    "AgentTurn",
    "AgentWebhook",
    "run_turn",
]
