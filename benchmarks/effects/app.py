"""The worker whose process is killed: `perdure worker benchmarks.effects.app:make`."""

from __future__ import annotations

from benchmarks.effects.episodes import worker_of
from benchmarks.effects.tools import CONFIGURATIONS
from perdure.worker import AgentWorker


def make() -> AgentWorker:
    """A worker with the agents of all configurations."""
    return worker_of(CONFIGURATIONS)
