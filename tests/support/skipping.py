"""Skips the time of workflows that are no turns."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from perdure.clients import AgentClient
from perdure.temporal.histories.runs import describe
from perdure.testing import skip_time


class _Waiting(NamedTuple):
    """What is asked of a turn whose time is skipped."""

    id: str
    run: str

    async def first_run(self) -> str:
        """It has one run."""
        return self.run


async def skip_time_in(client: AgentClient, workflow_id: str, by: timedelta) -> None:
    """Skip time in a workflow that waits."""
    info = (await describe(client.temporal, workflow_id)).workflow_execution_info
    waiting = _Waiting(workflow_id, info.execution.run_id)
    await skip_time(client, waiting, by)  # type: ignore[arg-type]  # any workflow has ids
