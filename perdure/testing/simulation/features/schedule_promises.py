"""What Perdure promises about schedules, as checks of a simulated run."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from operator import le

from temporalio.common import RawValue

from perdure.temporal.names import SETTLE_SCHEDULE
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.features.schedule_people import SchedulePeople
from perdure.testing.simulation.observations import Simulated, last_runs
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError
from perdure.turn.schedule_account import ScheduleAccount, SettleScheduleCall
from perdure.turn.wire import TurnRequest
from perdure.values.budgets import NOTHING, Spending

LIMITS, SLOTS = "schedules keep their limits", "slots start once"


def bill_within_total(simulated: Simulated) -> None:
    """The turns of a schedule are billed at most its total budget together, at every moment."""
    account = _account(simulated)
    if account is None:
        return
    for dimension in ("tokens", "usd"):
        limit = getattr(account.total, dimension)
        billed = sum(getattr(bill, dimension) for bill in simulated.world.spent.values())
        if limit is not None and billed > limit:
            message = f"{billed} {dimension} were billed, more than the total of {limit}"
            raise BrokenError(LIMITS, message)


def turns_are_counted_once(simulated: Simulated) -> None:
    """What each turn of a schedule has spent is counted once in its total budget.

    A call that is in flight at the end of its turn counts with what was reserved for it. The
    schedule is paused once nothing is left.
    """
    account = _account(simulated)
    if account is None:
        return
    total = NOTHING
    for turn in _turns(simulated):
        told = _told(turn)
        if turn.read.ended is not None and (told is None or not account.counts(told.run_id)):
            raise BrokenError(LIMITS, "it is not counted in the total budget", turn)
        if told is not None:
            total += told.spent
            spent = turn.read.charged
            if not all(map(le, _counted(spent), _counted(told.spent))):
                raise BrokenError(LIMITS, f"it has spent {spent}, and counts {told.spent}", turn)
    if _counted(total) != _counted(account.spent):
        raise BrokenError(LIMITS, f"its turns count {total}, and the schedule {account.spent}")
    assert isinstance(simulated.people, SchedulePeople)
    was_paused = simulated.people.has_resumed or simulated.people.schedule.is_paused
    if account.spent_limit and not was_paused:
        raise BrokenError(LIMITS, f"it goes on, and its total is spent: {account.spent_limit}")


def slots_start_once(simulated: Simulated) -> None:
    """A time of a schedule starts one turn, which knows the time, in all of its runs."""
    if not isinstance(simulated.people, SchedulePeople) or simulated.people.sends_messages:
        return
    begun, turns = simulated.people.schedule.begun, list(_turns(simulated))
    ids = [turn.id for turn in turns]
    if sorted(ids) != sorted(begun):
        raise BrokenError(SLOTS, f"started were {sorted(begun)}, and there are {sorted(ids)}")
    for turn in turns:
        request, messages = turn.read.request, turn.read.transcript.messages
        if request is None or request.schedule is None or not messages:
            continue
        when = request.schedule.in_words(begun[turn.id])
        if f"Scheduled for {when}" not in str(messages[0]):
            raise BrokenError(SLOTS, f"its time is {when}, and it begins with {messages[0]}", turn)


def _turns(simulated: Simulated) -> Iterator[SimulatedRun]:
    """Yield the last run of each turn of the schedule."""
    if isinstance(simulated.people, SchedulePeople):
        begun = simulated.people.schedule.begun
        yield from (run for run in last_runs(simulated.server) if run.id in begun)


def _account(simulated: Simulated) -> ScheduleAccount | None:
    """Return the account of the schedule as it is stored now; None without a total budget."""
    if not isinstance(simulated.people, SchedulePeople):
        return None
    [payload] = simulated.people.schedule.stored.action.start_workflow.input.payloads
    return unpack(RawValue(payload), TurnRequest).account


def _told(turn: SimulatedRun) -> SettleScheduleCall | None:
    """Return what a turn tells its schedule at its end; None if it tells nothing."""
    for event in turn.history.events:
        if name_of(event) == "ACTIVITY_TASK_SCHEDULED":
            content = attributes(event)
            if content.activity_type.name == SETTLE_SCHEDULE:
                [payload] = content.input.payloads
                return unpack(RawValue(payload), SettleScheduleCall)
    return None


def _counted(spent: Spending) -> tuple[Decimal | int, ...]:
    return spent.tokens, spent.usd, spent.model_calls, spent.tool_calls


ALWAYS = (bill_within_total,)
AT_THE_END = (turns_are_counted_once, slots_start_once)
