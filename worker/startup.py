"""Prepares a worker process before it takes work, as doing so later would delay running turns."""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Iterable

from perdure.agents.agent import Agent

_FOR_MODELS = "httpx"
_FOR_SERVERS = "perdure.activities.mcp.pool"


def prepare(agents: Iterable[Agent]) -> None:
    """Import what turns of these agents need, and exclude loaded objects from garbage collection.

    The imports block the event loop for up to a second. A full collection visits all objects of the
    process while no other thread runs: 60 ms for the modules alone, and an answer with many values
    triggers a collection (docs/decisions/archive/0049).
    """
    servers = any(agent.servers for agent in agents)
    for name in (_FOR_MODELS, *([_FOR_SERVERS] if servers else [])):
        with contextlib.suppress(ModuleNotFoundError):  # reported by the first turn that needs it
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
