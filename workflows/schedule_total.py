"""The total budget of the schedule that starts a turn or a batch.

Nothing begins without a rest of it, and what was spent is counted before the turn or batch ends.
"""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError

from perdure import errors, limits
from perdure.temporal.names import SETTLE_SCHEDULE
from perdure.temporal.payloads import pack
from perdure.turn.schedule_account import SettleScheduleCall
from perdure.turn.slot import ScheduledBy
from perdure.turn.state import TurnState
from perdure.turn.wire import TurnRequest
from perdure.values.budgets import Budget, Spending
from perdure.values.reports import Outcome
from perdure.workflows import heartbeats

_MADE_UP_NOT_COUNTED = "made-up-spending-is-not-counted"
"""The patch since which a turn that refuses the input of a later run counts nothing of it."""


def check(request: TurnRequest) -> None:
    """Refuse a turn or a batch of a schedule whose total budget is spent.

    Raises:
        TurnBudgetExceededError: It is.
    """
    spent = request.account.spent_limit if request.account else ""
    if request.schedule is not None and spent:
        raise errors.TurnBudgetExceededError(
            f"the total budget of schedule {request.schedule.id!r} is spent: {spent}; raise it with"
            " Schedule.change(total=…)",
            context={"schedule_id": request.schedule.id},
        )


async def settle(state: TurnState, outcome: Outcome) -> None:
    """Count what the turn has spent. The next turn of the schedule starts after that.

    What a made-up input says that the runs before have spent is not counted.
    """
    is_made_up = bool(state.carried.first_run) and workflow.info().continued_run_id is None
    if is_made_up and workflow.patched(_MADE_UP_NOT_COUNTED):
        return
    schedule = state.request.schedule if state.request else None
    budget = state.accounts.ledger.budget
    is_spent = outcome is Outcome.BUDGET_EXHAUSTED
    await count(schedule, state.charged, budget, is_spent=is_spent)


async def count(
    schedule: ScheduledBy | None, spent: Spending, budget: Budget | None, *, is_spent: bool
) -> None:
    """Count what this turn or batch of a schedule has spent.

    A failure to do so does not keep it from ending; the worker logs it. `is_spent` is set if its
    own `budget` has ended it.
    """
    if schedule is None or schedule.account is None:
        return
    account = schedule.account
    call = SettleScheduleCall(
        schedule_id=schedule.id,
        run_id=workflow.info().first_execution_run_id,
        spent=spent,
        is_limited=is_spent and (bool(account.spent_limit) or account.limits(budget)),
    )
    try:
        await asyncio.shield(_counted(call))
    except ActivityError:
        workflow.logger.warning("the total budget of schedule %r is not kept", call.schedule_id)


async def _counted(call: SettleScheduleCall) -> RawValue:
    result: RawValue = await workflow.execute_activity(
        SETTLE_SCHEDULE,
        pack(call),
        result_type=RawValue,
        start_to_close_timeout=limits.CARRY_CALL,
        heartbeat_timeout=heartbeats.timeout(),
        retry_policy=RetryPolicy(maximum_interval=limits.BENCH),
        summary="the total budget of the schedule",
    )
    return result
