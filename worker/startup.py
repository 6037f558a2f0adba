"""What a worker process does before it takes work, because it would hold up running turns later."""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Iterable

from perdure.agents.agent import Agent

_FOR_MODELS = "httpx"
_FOR_SERVERS = "perdure.activities.mcp.pool"


def prepare(agents: Iterable[Agent]) -> None:
    """Import what turns of these agents need, and exclude what is loaded from garbage collection.

    The imports take up to a second, in which the event loop serves nothing. A full collection goes
    through all objects of the process while no other thread runs: 60 ms for the modules alone, and
    an answer with many values starts one (docs/decisions/0049).
    """
    servers = any(agent.servers for agent in agents)
    for name in (_FOR_MODELS, *([_FOR_SERVERS] if servers else [])):
        with contextlib.suppress(ModuleNotFoundError):  # the first turn that needs it says so
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
