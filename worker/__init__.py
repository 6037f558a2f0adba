"""The composition root: agents in, a registered worker out."""

from perdure.worker.agent_worker import AgentWorker
from perdure.worker.plugin import PerdurePlugin
from perdure.worker.queues import ModelQueue

__all__ = ["AgentWorker", "ModelQueue", "PerdurePlugin"]
