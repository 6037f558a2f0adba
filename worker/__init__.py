"""The composition root: builds a worker from agents."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.worker.agent_worker import AgentWorker
    from perdure.worker.plugin import PerdurePlugin
    from perdure.worker.queues import ModelQueue
else:
    from perdure import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "perdure.worker.agent_worker": ["AgentWorker"],
            "perdure.worker.plugin": ["PerdurePlugin"],
            "perdure.worker.queues": ["ModelQueue"],
        },
    )

__all__ = ["AgentWorker", "ModelQueue", "PerdurePlugin"]
