"""Updates of schedules that undo no other update.

The server takes an update with the token of an earlier state, and drops it without an error. So
each update leaves its id in the input of what the schedule starts, where it is looked for
afterwards.
"""

from __future__ import annotations

import asyncio
import secrets

from temporalio.api.schedule.v1 import Schedule as StoredSchedule
from temporalio.api.workflowservice.v1 import (
    DescribeScheduleRequest,
    DescribeScheduleResponse,
    UpdateScheduleRequest,
)
from temporalio.client import Client, Schedule
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.temporal.encryption import data_subjects
from perdure.temporal.payloads import decoded, is_foreign, undecodable, unpack
from perdure.turn.wire import TurnRequest

_POLL_S = 0.02
_TAKES_AT_MOST_S = 10.0
_KEPT = 8
"""The number of updates whose ids are kept: more than can follow while one is looked for."""
_CONFLICTS = (RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.ABORTED)


def following(updates: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the ids of the last updates of a schedule, with the id of a new update as the last."""
    return (*(updates or ()), secrets.token_hex(4))[-_KEPT:]


async def described(client: Client, schedule_id: str) -> DescribeScheduleResponse:
    """Return the server's description of a schedule.

    Raises:
        RPCError: There is no such schedule, or the server does not answer.
    """
    request = DescribeScheduleRequest(namespace=client.namespace, schedule_id=schedule_id)
    return await client.workflow_service.describe_schedule(request, retry=True)


async def input_of(client: Client, description: DescribeScheduleResponse) -> TurnRequest:
    """Return the input of what a schedule of Perdure starts.

    Raises:
        InvalidRequestError: It is not a schedule of Perdure.
        PayloadDecodeError: This process lacks the codec or the key of the schedule.
    """
    payloads = description.schedule.action.start_workflow.input.payloads
    if len(payloads) != 1:
        raise errors.InvalidRequestError(f"there are {len(payloads)} inputs, and not one")
    [raw] = await decoded(client.data_converter, payloads, [RawValue])
    if is_foreign(raw.payload):
        raise undecodable(None, [raw.payload])
    return unpack(raw, TurnRequest)


async def update(
    client: Client,
    schedule_id: str,
    description: DescribeScheduleResponse,
    new: Schedule,
    update_id: str,
) -> bool:
    """Replace the schedule that was found, whose new input has the id of the update.

    Returns:
        False if the schedule has changed since; it is not replaced then.

    Raises:
        RPCError: There is no such schedule, or the server does not answer or refuses it.
        ServerUnreachableError: The server has not made the update in time.
    """
    request = UpdateScheduleRequest(
        namespace=client.namespace,
        schedule_id=schedule_id,
        schedule=await _stored(client, description, new),
        conflict_token=description.conflict_token,
        identity=client.identity,
        request_id=update_id,
    )
    try:
        await client.workflow_service.update_schedule(request, retry=True)
    except RPCError as error:
        if error.status in _CONFLICTS:
            return False
        raise
    for _ in range(round(_TAKES_AT_MOST_S / _POLL_S)):
        now = await described(client, schedule_id)
        if now.conflict_token != description.conflict_token:
            return update_id in await _updates_of(client, now)
        await asyncio.sleep(_POLL_S)
    raise errors.ServerUnreachableError(
        f"Temporal has not made the update of schedule {schedule_id!r} within"
        f" {_TAKES_AT_MOST_S:g} s",
        context={"schedule_id": schedule_id},
    )


async def _stored(
    client: Client, description: DescribeScheduleResponse, new: Schedule
) -> StoredSchedule:
    """Return a schedule as it is stored, encrypted with the key of the one that it replaces."""
    with data_subjects.writing_to(description):
        return await new._to_proto(client)  # noqa: SLF001 - the client's update has no token


async def _updates_of(client: Client, description: DescribeScheduleResponse) -> tuple[str, ...]:
    try:
        scheduled = (await input_of(client, description)).schedule
    except errors.InvalidRequestError:  # another program has made it its own
        return ()
    return (scheduled.updates if scheduled else None) or ()
