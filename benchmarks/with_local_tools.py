"""The job on Perdure with a local tool."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.with_perdure import AGENT, JobModel, fetch
from perdure import tool
from perdure.worker import AgentWorker


def make() -> AgentWorker:
    """The worker for `perdure worker`."""
    local = tool(read_only=True, local=True)(fetch.function)
    return AgentWorker(replace(AGENT, tools=[local]), providers={"job": JobModel()})
