"""What Perdure promises about batches, as checks of a simulated run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, cast

from temporalio.client import Client
from temporalio.common import RawValue

from perdure.batch import plan
from perdure.batch.leases import limited
from perdure.batch.part import PartState
from perdure.batch.wire import BatchNote, BatchRequest, part_id
from perdure.clients.batches.status import BatchResult, TaskState
from perdure.clients.finding import Finder
from perdure.temporal.names import BATCH, BATCH_PART, SCHEDULED_BATCH, TURN
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.batch_people import BatchPeople
from perdure.testing.simulation.client import HistoryClient
from perdure.testing.simulation.delivery_promises import webhooks_are_delivered_or_recorded
from perdure.testing.simulation.observations import Simulated, last_runs
from perdure.testing.simulation.reset_parts import has_reset_parts, is_left
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import RunStage, SimulatedRun
from perdure.testing.simulation.server.sdk import TASK_QUEUE
from perdure.testing.simulation.server.server import BrokenError
from perdure.testing.simulation.world import SimulatedBill
from perdure.turn import ending
from perdure.turn.facts import TurnEnded
from perdure.turn.wire import Summary

CANCEL_S = 120
"""After so many seconds, a cancel of a batch has reached its turns."""


def fold_is_state(run: SimulatedRun) -> None:
    """The memo, the orders and the news of a batch are its state, and the turns of a part are its.

    A batch that waits for the arrival of its orders is not looked at, and neither is one that goes
    on in a new run, which describes the batch anew, or that lets a workflow task pass before that:
    it looks at what comes meanwhile afterwards.
    """
    known = vars(run.core.instance.workflow) if run.core else {}
    if run.begun.type == BATCH and known.get("_request") is not None:
        _compare_batch(run, known)
    part = known.get("_part")
    if run.begun.type == BATCH_PART and part is not None and not run.part_reader.refused:
        _compare_part(run, part)


def batch_bill_within_limit(simulated: Simulated) -> None:
    """What the providers have billed for a batch is within its budget, at every moment.

    The turns of all rounds count, unless people add to the budget of a single turn. So does what
    turns that run may still spend. After a reset of a part, the money that it has given back since
    may be with others, and is not limited.
    """
    people, note = simulated.people, _note(simulated)
    if not isinstance(people, BatchPeople) or people.adds_to_turns or note is None:
        return
    if has_reset_parts(simulated):
        return
    bill = _bill(simulated)
    for dimension in limited(note.budget):
        limit = getattr(note.budget, dimension)
        billed, leased = getattr(bill, dimension, 0), _leased(simulated, dimension)
        if max(billed, leased) > limit:
            message = (
                f"{billed} {dimension} were billed for the batch, and {leased} are spent or leased:"
                f" more than {limit}"
            )
            raise BrokenError("bill within limit", message)


def turns_at_once_within_limit(simulated: Simulated) -> None:
    """A batch never has more turns at once than its limit.

    Turns of a part that an operator has terminated end by themselves, and do not count. After a
    reset of a part, its places may be with others, too, and more turns may run.
    """
    note = _note(simulated)
    if note is None or has_reset_parts(simulated):
        return
    running = list(_open_turns(simulated))
    if len(running) > note.at_once:
        ids = [run.id for run in running]
        message = f"{ids} run at once, more than {note.at_once}"
        raise BrokenError("turns at once within limit", message)


def a_batch_ends_last(simulated: Simulated) -> None:
    """A batch that is over has no turn that runs, and begins none."""
    last = _last(simulated)
    if last is None or not last.closed:
        return
    for run in _open_turns(simulated):
        raise BrokenError("a batch ends last", "its batch is over", run)


def a_batch_goes_on(simulated: Simulated) -> None:
    """A batch that is not over has a turn that runs, or something on its way.

    What only its regular look at silent parts would find is not enough, except for a part that an
    operator has terminated.
    """
    people, last = simulated.people, _last(simulated)
    if last is None or last.closed or not isinstance(people, BatchPeople) or people.terminated:
        return
    parts = [run for run in simulated.server.runs if run.begun.type == BATCH_PART]
    open_parts = [run for run in parts if not run.closed]
    if all(map(_is_quiet, (last, *open_parts))) and len(last.timers) <= 1:
        waits = [run.id for run in open_parts]
        raise BrokenError("nothing is stuck", f"nothing happens; open parts are {waits}", last)


def a_cancel_reaches_each_task(simulated: Simulated) -> None:
    """A cancel reaches each task: two minutes later none begins, and those left are cancelled."""
    people = simulated.people
    for batch in _batches(simulated):
        cancelled_s = _time_of(batch, "WORKFLOW_EXECUTION_CANCEL_REQUESTED")
        if cancelled_s is None or not isinstance(people, BatchPeople):
            continue
        for turn, runs in _turns_of_round(simulated, batch).items():
            end_s = _time_of(runs[-1], runs[-1].closed)
            began_s = _time_of(runs[0], "WORKFLOW_EXECUTION_STARTED") or 0
            is_late = end_s is None or end_s > cancelled_s + CANCEL_S
            is_reached = any(run.is_cancelled for run in runs)
            if began_s > cancelled_s + CANCEL_S or (is_late and not is_reached):
                message = f"the batch was cancelled, and {turn} was not"
                raise BrokenError("a cancel reaches each task", message, runs[-1])


def tasks_end_once(simulated: Simulated) -> None:
    """Each task of a batch ends exactly once and has one result, which agrees with its turn's end.

    The results are read as a client reads them. Their number is in the description of the batch.
    """
    note = _note(simulated)
    left = [run for run in simulated.server.runs if is_left(simulated, run)]
    if note is None or left:
        return
    results = asyncio.run(_results(simulated))
    people = simulated.people
    assert isinstance(people, BatchPeople)
    ids = sorted(result.id for result in results)
    if ids != sorted(item.id for item in people.batch.items):
        raise BrokenError("tasks end once", f"there are results of {ids}")
    for result in results:
        _check_result(simulated, result)
    states = [result.state for result in results]
    counts = states.count(TaskState.DONE), states.count(TaskState.FAILED)
    if not people.terminated and counts != (note.done, note.failed):
        message = f"{counts} tasks have an answer and not, and the batch says {note}"
        raise BrokenError("tasks end once", message)
    if not note.over:
        raise BrokenError("tasks end once", f"the batch does not say that it is over: {note}")
    _check_spent(simulated, note)


def batches_of_schedules_keep_their_limits(simulated: Simulated) -> None:
    """A batch that a schedule starts has its budget, its turns at once and its rule for errors."""
    people, runs = simulated.people, simulated.server.runs
    stored = {run.begun.run_id for run in runs if run.begun.type == SCHEDULED_BATCH}
    if not isinstance(people, BatchPeople):
        return
    for run in runs:
        if run.begun.continued not in stored:
            continue
        [payload] = attributes(run.history.events[0]).input.payloads
        request, batch = unpack(RawValue(payload), BatchRequest), people.batch
        given = request.budget, request.at_once, request.on_error, request.items
        if given != (batch.budget, batch.at_once, batch.on_error, len(batch.items)):
            raise BrokenError("limits of the caller hold", f"it has {given}, not {batch}", run)


ALWAYS: tuple[Callable[[Simulated], None], ...] = (
    batch_bill_within_limit,
    turns_at_once_within_limit,
    a_batch_ends_last,
    a_batch_goes_on,
)
"""The checks after everything that happens."""

AT_THE_END: tuple[Callable[[Simulated], None], ...] = (
    a_cancel_reaches_each_task,
    tasks_end_once,
    batches_of_schedules_keep_their_limits,
    webhooks_are_delivered_or_recorded,
)
"""The checks of a whole simulation."""


def _compare_batch(run: SimulatedRun, known: Mapping[str, Any]) -> None:
    """Compare what the workflow of a batch knows with its history."""
    progress, read = known["_progress"], run.batch
    is_over = read.note is not None and read.note.over
    is_leaving = bool(read.passing) or (known["_has_driven"] and not is_over)
    if read.in_flight or run.buffered or is_leaving:
        return
    note = plan.note_of(known["_request"], progress, over=is_over)
    _equal(run, "the description", note, read.note)
    for part, account in progress.active.items():
        _equal(run, f"the order to part {part}", account.order, read.orders.get(part))
        if part in read.news:
            _equal(run, f"the news of part {part}", account.news, read.news[part])


def _compare_part(run: SimulatedRun, part: PartState) -> None:
    read, news = run.part, part.news
    running = [turn_id for turn_id in read.begun if turn_id not in read.ends]
    _equal(run, "the number of turns that run", news.running, len(running))
    ends = read.ends.values()
    _equal(run, "the number of ended turns", news.done + news.failed, len(ends))
    answered = [end for end in ends if end.summary is not None and _has_answer(end.summary)]
    _equal(run, "the number of answers", news.done, len(answered))
    if all(end.summary is not None for end in ends):
        spent = sum((end.summary.spent.usd for end in ends if end.summary), Decimal(0))
        _equal(run, "the cost", news.spent.usd, spent)


def _has_answer(summary: Summary) -> bool:
    return ending.error_of(TurnEnded(summary.outcome, summary), None) is None


def _equal(run: SimulatedRun, what: str, state: object, read: object) -> None:
    if state != read:
        message = f"{what} is\n  {state}\nand a reader has\n  {read}"
        raise BrokenError("fold is state", message, run)


def _batches(simulated: Simulated) -> list[SimulatedRun]:
    return [run for run in simulated.server.runs if run.begun.type == BATCH]


def _last(simulated: Simulated) -> SimulatedRun | None:
    """Return the last run of the batch; None if there is none."""
    return next((run for run in reversed(simulated.server.runs) if run.begun.type == BATCH), None)


def _note(simulated: Simulated) -> BatchNote | None:
    """Return the description of the batch; None without a batch."""
    last = _last(simulated)
    return last.batch.note if last else None


def _bill(simulated: Simulated) -> SimulatedBill:
    """Return what was billed for all turns of the batch."""
    bills = simulated.world.spent.values()
    return SimulatedBill(
        sum(bill.tokens for bill in bills), sum((bill.usd for bill in bills), Decimal(0))
    )


def _leased(simulated: Simulated, dimension: str) -> Decimal | int:
    """Return what the turns that are over have spent, and the others may spend."""
    total: Decimal | int = 0
    for turn in last_runs(simulated.server):
        if turn.parent is None or turn.parent[0].begun.type != BATCH_PART or not turn.read.request:
            continue
        summary = turn.read.ended.summary if turn.closed and turn.read.ended else None
        amounts = turn.read.request.budget if summary is None else summary.spent
        total += getattr(amounts, dimension, None) or 0
    return total


def _open_turns(simulated: Simulated) -> Iterator[SimulatedRun]:
    """Yield the turns of tasks that run, without those of a terminated part."""
    for run in simulated.server.runs:
        if run.closed or run.parent is None or run.begun.type != TURN:
            continue
        parent = run.parent[0]
        is_of_part = parent.begun.type == BATCH_PART and not _is_terminated(parent)
        if is_of_part and not is_left(simulated, run):
            yield run


def _is_terminated(run: SimulatedRun) -> bool:
    return run.closed == "WORKFLOW_EXECUTION_TERMINATED" and not run.is_replaced


def _is_quiet(run: SimulatedRun) -> bool:
    """Return whether a batch or a part waits for the other, and for nothing else."""
    waits = len(run.timers) if run.part.begun else 0
    return run.stage is RunStage.NONE and not (
        run.children or run.signals or run.activities or waits
    )


def _turns_of_round(simulated: Simulated, batch: SimulatedRun) -> dict[str, list[SimulatedRun]]:
    """Return the runs of the turns of a batch's round, by their ids."""
    note = batch.batch.note
    assert note is not None
    number, current = len(note.rounds), note.rounds[-1]
    parts = {
        part_id(batch.id, number, current.digest, part) for part in range(1, current.parts + 1)
    }
    found: dict[str, list[SimulatedRun]] = {}
    for run in simulated.server.runs:
        parent = run.parent[0] if run.parent and run.begun.type == TURN else None
        is_of_part = parent is not None and parent.id in parts and not _is_terminated(parent)
        if is_of_part and not is_left(simulated, run):
            found.setdefault(run.id, []).append(run)
    return found


def _time_of(run: SimulatedRun, name: str) -> float | None:
    """Return when an event happened, in seconds since 1970; None if there is no such event."""
    for event, moment_ns in run.history.timed:
        if name_of(event) == name:
            return moment_ns / 1e9
    return None


async def _results(simulated: Simulated) -> list[BatchResult[Any]]:
    client = cast("Client", HistoryClient(simulated.server))
    batch = Finder(client, TASK_QUEUE).batch(_batches(simulated)[-1].id)
    return [result async for result in batch.results()]


def _check_result(simulated: Simulated, result: BatchResult[Any]) -> None:
    """Check a result against the history of its turn."""
    runs = [run for run in simulated.server.runs if run.id == result.turn_id]
    if len({run.begun.first_run_id for run in runs}) > 1:
        raise BrokenError("tasks end once", f"{result.turn_id} was begun more than once")
    ended = runs[-1].read.ended if runs else None
    state = TaskState.NOT_STARTED
    if runs:
        cancel = runs[-1].read.cancel_reason
        has_answer = ended is not None and ending.error_of(ended, cancel) is None
        state = TaskState.DONE if has_answer else TaskState.FAILED
    outcome = ended.outcome if ended else None
    if (result.state, result.outcome) != (state, outcome):
        message = f"{result} is the result, and the turn has ended with {state}, {outcome}"
        raise BrokenError("tasks end once", message, runs[-1] if runs else None)
    if any(canary in str(result) for canary in simulated.world.canaries):
        raise BrokenError("refused text leaves by no door", f"a result has it: {result}")


def _check_spent(simulated: Simulated, note: BatchNote) -> None:
    """Check that the batch has counted all that was billed."""
    billed = _bill(simulated)
    if note.is_priced and note.spent.usd < billed.usd:
        message = f"{billed.usd} USD were billed, and the batch has counted {note.spent.usd}"
        raise BrokenError("tasks end once", message)
