"""Calls of the server about one schedule, with Perdure's errors."""

from __future__ import annotations

from temporalio.api.schedule.v1 import SchedulePatch
from temporalio.api.workflowservice.v1 import (
    DescribeScheduleResponse,
    PatchScheduleRequest,
)
from temporalio.client import Client

from perdure.temporal import schedule_updates
from perdure.temporal.access import SCHEDULE


async def described(client: Client, schedule_id: str) -> DescribeScheduleResponse:
    """Return the server's description of a schedule.

    Raises:
        ScheduleNotFoundError: There is no such schedule.
        ServerUnreachableError: Temporal does not answer.
    """
    return await SCHEDULE.asked(schedule_id, schedule_updates.described(client, schedule_id))


async def patch(client: Client, schedule_id: str, change: SchedulePatch) -> None:
    """Pause, resume or trigger a schedule.

    Raises:
        ScheduleNotFoundError: There is no such schedule.
        ServerUnreachableError: Temporal does not answer.
    """
    request = PatchScheduleRequest(
        namespace=client.namespace,
        schedule_id=schedule_id,
        patch=change,
        identity=client.identity,
    )
    await SCHEDULE.asked(schedule_id, client.workflow_service.patch_schedule(request, retry=True))
