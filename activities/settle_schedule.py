"""Counts what a turn or a batch has spent in the budget of its schedule.

The schedule pauses when that is spent.
"""

from __future__ import annotations

from datetime import UTC
from typing import cast

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleDescription,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors, limits
from perdure.activities.read_child import read_child
from perdure.activities.spent_of_batch import spent_of_batch
from perdure.temporal import schedule_updates
from perdure.temporal.histories.runs import describe_last
from perdure.temporal.names import BATCHES
from perdure.temporal.payloads import pack
from perdure.turn.schedule_account import ScheduleAccount, SettleScheduleCall
from perdure.turn.wire import ChildRun, Noted, TurnRequest
from perdure.values.budgets import Spending

NOT_KEPT = (errors.ConfigurationError, errors.InvalidRequestError, errors.TooLargeError)
"""The errors after which the turn is not counted: the schedule is another program's, or is kept
from this worker.
"""
_TRIES = 10
_LEFT_NO_WORD = (
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
)
_FORBIDDEN = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED)


async def settle_schedule(call: SettleScheduleCall) -> Noted:
    """Count a turn or a batch once, however often this is called.

    Raises:
        ConfigurationError: The server does not let this worker update the schedule.
        PerdureError: Another program has made the schedule its own, or its input cannot be read.
        ApplicationError: The server does not answer; this is tried again.
    """
    client = activity.client()
    try:
        for _ in range(_TRIES):
            if await _settle(client, call):
                return Noted()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return Noted()  # the schedule was deleted
        if error.status in _FORBIDDEN:
            raise errors.ConfigurationError(
                f"Temporal does not let this worker update schedule {call.schedule_id!r}, so its"
                f" total budget is not kept: {error.message}"
            ) from error
        raise ApplicationError(error.message, type="UNAVAILABLE") from error  # is retried
    except errors.ServerUnreachableError as error:
        raise ApplicationError(error.message, type="UNAVAILABLE") from error
    raise ApplicationError("the schedule is changed all the time", type="UNAVAILABLE")


async def _settle(client: Client, call: SettleScheduleCall) -> bool:
    """Count a turn. Returns False if the schedule was changed meanwhile."""
    schedule = await client.get_schedule_handle(call.schedule_id).describe()
    request = await schedule_updates.input_of(client, schedule.raw_description)
    account = request.schedule.account if request.schedule else None
    if account is None or account.counts(call.run_id):
        return True
    account = await _with_lost(client, schedule, account, call.run_id)
    account = account.settle(call.run_id, call.spent)
    return await _update(client, schedule, request, account, is_limited=call.is_limited)


async def _with_lost(
    client: Client, schedule: ScheduleDescription, account: ScheduleAccount, own_run_id: str
) -> ScheduleAccount:
    """Count the last turns that were terminated, which ran no code at their end."""
    for action in schedule.raw_description.info.recent_actions:
        run = action.start_workflow_result
        is_old = action.actual_time.ToDatetime(tzinfo=UTC) < account.since
        if is_old or run.run_id == own_run_id or account.counts(run.run_id):
            continue
        spent = await _spent_of_lost(client, run)
        if spent is not None:
            account = account.settle(run.run_id, spent)
    return account


async def _spent_of_lost(client: Client, run: WorkflowExecution) -> Spending | None:
    """Return what a turn or batch has spent that was terminated; None for any other run."""
    described = await describe_last(client, run.workflow_id, run.run_id, retry=True)
    info = described.workflow_execution_info
    if info.type.name in BATCHES and info.HasField("close_time"):
        return await spent_of_batch(info)
    if info.status in _LEFT_NO_WORD:
        read = await read_child(ChildRun(turn_id=run.workflow_id, run_id=run.run_id))
        return read.summary.spent
    return None


async def _update(
    client: Client,
    description: ScheduleDescription,
    request: TurnRequest,
    account: ScheduleAccount,
    *,
    is_limited: bool,
) -> bool:
    """Give the schedule its account, and pause it if nothing is left. Returns False if it changed.

    What it starts is not changed otherwise.
    """
    assert request.schedule is not None
    updates = schedule_updates.following(request.schedule.updates)
    scheduled = request.schedule.model_copy(update={"account": account, "updates": updates})
    request = request.model_copy(update={"schedule": scheduled})
    has_storage = client.data_converter.external_storage is not None
    max_bytes = limits.STORED_BYTES if has_storage else limits.PAYLOAD_BYTES
    new: Schedule = description.schedule
    action = cast("ScheduleActionStartWorkflow", new.action)
    action.args = [pack(request, "the input of the turn", most_bytes=max_bytes)]
    if account.spent_limit or is_limited:
        new.state.paused = True
        new.state.note = reason(account)
    return await schedule_updates.update(
        client, description.id, description.raw_description, new, updates[-1]
    )


def reason(account: ScheduleAccount) -> str:
    """Return the reason why a schedule without a rest is paused."""
    spent = account.spent_limit
    verdict = f"is spent: {spent}" if spent else "does not suffice for another turn"
    return f"the total budget of the schedule {verdict}; raise it with change(total=…) and resume"
