"""Calls of the server about one schedule, with Perdure's errors."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from temporalio.api.schedule.v1 import SchedulePatch
from temporalio.api.workflowservice.v1 import (
    DescribeScheduleResponse,
    PatchScheduleRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError

from perdure import errors
from perdure.clients.reading.server_errors import translated
from perdure.errors import PerdureError
from perdure.temporal import schedule_updates
from perdure.text import one_line

A = TypeVar("A")
_SHOWN = 100


async def described(client: Client, schedule_id: str) -> DescribeScheduleResponse:
    """Return the server's description of a schedule.

    Raises:
        ScheduleNotFoundError: There is no such schedule.
        ServerUnreachableError: Temporal does not answer.
    """
    return await asked(schedule_id, schedule_updates.described(client, schedule_id))


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
    await asked(schedule_id, client.workflow_service.patch_schedule(request, retry=True))


async def asked(schedule_id: str, call: Awaitable[A]) -> A:
    """Return the answer of a call about a schedule.

    Raises:
        PerdureError: The server refuses it, or does not answer.
    """
    try:
        return await call
    except RPCError as error:
        raise unreadable(schedule_id, error) from error


def unreadable(schedule_id: str, error: RPCError) -> PerdureError:
    """Translate Temporal's error about a schedule, or without an id about all schedules."""
    name = one_line(schedule_id, _SHOWN)
    subject = f"schedule {name!r}" if schedule_id else "schedules"
    context = {"schedule_id": name} if schedule_id else {}
    missing = errors.ScheduleNotFoundError(
        f"there is no {subject}; `perdure schedule list` shows those that there are",
        context=context,
    )
    return translated(error, subject, missing, context)
