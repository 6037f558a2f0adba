"""The composition root: agents in, a registered worker out."""

from perdure.worker.agent_worker import AgentWorker
from perdure.worker.plugin import PerdurePlugin

__all__ = ["AgentWorker", "PerdurePlugin"]
