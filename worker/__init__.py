"""The composition root: agents in, a registered worker out."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.worker.agent_worker import AgentWorker
    from perdure.worker.plugin import PerdurePlugin
    from perdure.worker.queues import ModelQueue
else:
    from perdure.lazy import public as _public

    __getattr__, __dir__ = _public(
        __name__,
        {
            "perdure.worker.agent_worker": ["AgentWorker"],
            "perdure.worker.plugin": ["PerdurePlugin"],
            "perdure.worker.queues": ["ModelQueue"],
        },
    )

__all__ = ["AgentWorker", "ModelQueue", "PerdurePlugin"]
