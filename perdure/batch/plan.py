"""What a batch does next: which part gets places and money, and which part is told to stop. Pure.

Parts begin in order. The last part that has begun gets every free place, and all the money that is
left. It gives places back when it has fewer tasks than places, and then the next part begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from perdure import errors
from perdure.batch.leases import bounded, covers, has_any, has_some, largest, limited, total
from perdure.batch.wire import (
    BatchNote,
    BatchProgress,
    BatchRequest,
    BatchStopReason,
    PartAccount,
    PartNews,
    PartOrder,
)
from perdure.turn.wire import TurnRequest
from perdure.values.batch_items import ScheduledBatch
from perdure.values.budgets import NOTHING, Budget, Spending

_UPDATES = 50
"""The number of additions to the budget that are known again in a later run."""
_CLOSED_AT_ONCE = 50
"""The number of parts that are told at once that they will not begin."""

Orders = dict[int, PartOrder]


def is_of_reset_part(progress: BatchProgress, news: PartNews) -> bool:
    """Return whether news come from another run of a part than the news before."""
    account = progress.active.get(news.part)
    known = account.news.run if account else ""
    return bool(news.run and known) and news.run != known


def heard(
    request: BatchRequest,
    progress: BatchProgress,
    news: PartNews,
    now: datetime,
    *,
    is_reset: bool = False,
) -> BatchProgress:
    """Return the state after news from a part. News of other parts, and old news, are ignored.

    A part that was reset numbers its news anew (`is_reset`). It does not know what it has given
    back since, which other parts may have.
    """
    account = progress.active.get(news.part)
    if account is None:
        return progress
    if is_reset:
        given_back = {
            "freed": max(news.freed, account.news.freed),
            "returned": largest(news.returned, account.news.returned),
        }
        news = news.model_copy(update=given_back)
    elif news.number <= account.news.number:
        return progress
    known = account.model_copy(update={"news": news, "silent_since": now})
    changes: dict[str, Any] = {
        "active": {**progress.active, news.part: known},
        "most": largest(progress.most, news.most),
    }
    if news.over:
        changes |= _closed(progress, news)
    progress = progress.model_copy(update=changes)
    if news.exhausted:
        return stopped(progress, BatchStopReason.BUDGET)
    if news.failed and request.on_error == "stop":
        return stopped(progress, BatchStopReason.FAILED)
    return progress


def lost(progress: BatchProgress, part: int) -> BatchProgress:
    """Return the state without a part that is gone. What its turns may have spent is charged.

    Without a limit of the cost, that is not known.
    """
    account = progress.active.get(part)
    if account is None:
        return progress
    known = {
        "spent": account.news.spent + _kept(account),
        "is_priced": account.news.is_priced and "usd" in limited(account.order.budget),
        "running": 0,
    }
    news = account.news.model_copy(update=known)
    changes = _closed(progress, news) | {"lost": progress.lost + 1}
    return progress.model_copy(update=changes)


def _closed(progress: BatchProgress, news: PartNews) -> dict[str, Any]:
    """Return the fields that change when a part is over."""
    return {
        "active": {part: account for part, account in progress.active.items() if part != news.part},
        "done": progress.done + news.done,
        "failed": progress.failed + news.failed,
        "spent": progress.spent + news.spent,
        "is_priced": progress.is_priced and news.is_priced,
    }


def stopped(progress: BatchProgress, why: BatchStopReason, reason: str = "") -> BatchProgress:
    """Return the state of a batch that starts nothing more. A cancellation overrides the others."""
    if progress.stop is not None and why != BatchStopReason.CANCELLED:
        return progress
    return progress.model_copy(update={"stop": why, "reason": reason})


def topped_up(request: BatchRequest, progress: BatchProgress, more: Budget | None) -> BatchRequest:
    """Return the batch with an addition to its budget.

    Raises:
        InvalidRequestError: It is over, starts no more turns, or has no such limit.
    """
    if is_over(request, progress):
        raise errors.InvalidRequestError("the batch is over, so nothing can be added")
    if progress.stop is not None:
        raise errors.InvalidRequestError(
            f"the batch starts no more turns ({progress.stop.value}); add to its budget with"
            " batch.retry(more) when it is over"
        )
    if more is None or request.budget is None:
        raise errors.InvalidRequestError("the batch has no such limit, so nothing can be added")
    return request.model_copy(update={"budget": request.budget.plus(more)})


def with_update(progress: BatchProgress, update_id: str) -> BatchProgress:
    """Return the state after an addition to the budget, which the server may repeat."""
    updates = (*progress.updates, update_id)[-_UPDATES:]
    return progress.model_copy(update={"updates": updates})


def is_over(request: BatchRequest, progress: BatchProgress) -> bool:
    """Return whether every part has ended, or will not begin."""
    return not progress.active and progress.next_part > request.parts


def ordered(
    request: BatchRequest, progress: BatchProgress, now: datetime
) -> tuple[BatchProgress, Orders]:
    """Return the orders that are due, and the state after them.

    While a part has a task that waits for money, it gets all that comes back, and no part gets a
    place.
    """
    if progress.stop is not None:
        return _stop_orders(request, progress, progress.stop)
    short = next((part for part, each in progress.active.items() if each.news.waits), None)
    target = _front(request, progress) if short is None else short
    if target is None:
        return progress, {}
    account = progress.active.get(target)
    before = account.order if account else PartOrder()
    spare = request.at_once - sum(each.slots for each in progress.active.values())
    money, has_others = _spare_money(request, progress), _has_others(request, progress, target)
    if short is not None and not _suffices(
        request, progress.active[short], money, has_others=has_others
    ):
        return progress, {}  # until more comes back
    order = before.model_copy(
        update={
            "slots": before.slots + (max(spare, 0) if short is None else 0),
            "given": before.given + money,
            "taken": account.news.returned if account else NOTHING,
            "others": has_others,
            "most": progress.most,
            "budget": request.budget,
            "on_error": request.on_error,
            "until": _until(request, progress),
            "even": bool(progress.updates),
        }
    )
    if not order.slots or _is_known(account, order):
        return progress, {}
    return _given(progress, target, order, now), {target: order}


def _given(progress: BatchProgress, part: int, order: PartOrder, now: datetime) -> BatchProgress:
    """Return the state after an order to a part, which may be its first."""
    account = progress.active.get(part)
    known = (
        account.model_copy(update={"order": order})
        if account
        else PartAccount(order=order, news=PartNews(part=part), silent_since=now)
    )
    active = {**progress.active, part: known}
    changes = {"active": active, "next_part": max(progress.next_part, part + 1)}
    return progress.model_copy(update=changes)


def _suffices(
    request: BatchRequest, account: PartAccount, money: Spending, *, has_others: bool
) -> bool:
    """Return whether a turn that waits for money can start with this amount, or gets no more."""
    if not has_others and not has_any(_kept(account), request.budget):
        return True
    return covers(money, account.news.wanted) and has_some(money, request.budget)


def _is_known(account: PartAccount | None, order: PartOrder) -> bool:
    """Return whether a part has an order already.

    A change of `most` or `even` alone does not make an order new.
    """
    return account is not None and account.order == order.model_copy(
        update={"most": account.order.most, "even": account.order.even}
    )


def _front(request: BatchRequest, progress: BatchProgress) -> int | None:
    """Return the part that gets free places: the last, or the next if the last has enough."""
    last = progress.active.get(progress.next_part - 1)
    if last is not None and not last.news.freed:
        return progress.next_part - 1
    has_room = sum(account.slots for account in progress.active.values()) < request.at_once
    return progress.next_part if progress.next_part <= request.parts and has_room else None


def _has_others(request: BatchRequest, progress: BatchProgress, front: int) -> bool:
    """Return whether money of other parts may come back."""
    accounts = [account for part, account in progress.active.items() if part != front]
    return any(has_any(_kept(account), request.budget) for account in accounts)


def _stop_orders(
    request: BatchRequest, progress: BatchProgress, stop: BatchStopReason
) -> tuple[BatchProgress, Orders]:
    due = {"stop": stop, "reason": progress.reason}
    active = {
        part: account.model_copy(update={"order": account.order.model_copy(update=due)})
        for part, account in progress.active.items()
    }
    orders = {
        part: account.order
        for part, account in active.items()
        if account.order != progress.active[part].order
    }
    end = min(progress.next_part + _CLOSED_AT_ONCE, request.parts + 1)
    orders |= {part: PartOrder(stop=stop) for part in range(progress.next_part, end)}
    return progress.model_copy(update={"active": active, "next_part": end}), orders


def silent(progress: BatchProgress, now: datetime, limit: timedelta) -> Orders:
    """Return the orders of the parts of which nothing was heard for this time, to repeat them."""
    return {
        part: account.order
        for part, account in progress.active.items()
        if now - account.silent_since >= limit
    }


def _kept(account: PartAccount) -> Spending:
    """Return the money that a part has and has not spent."""
    return bounded(account.order.given - account.news.spent - account.news.returned)


def spent_of(request: BatchRequest, progress: BatchProgress) -> Spending:
    """Return what a batch has spent in all rounds, as far as its parts have told."""
    parts = [account.news.spent for account in progress.active.values()]
    return total([request.spent, progress.spent, *parts])


def _spare_money(request: BatchRequest, progress: BatchProgress) -> Spending:
    """Return what is left of the budget and not given to a part."""
    gone = spent_of(request, progress) + total(
        _kept(account) for account in progress.active.values()
    )
    return Spending(
        **{
            name: max(getattr(request.budget, name) - getattr(gone, name), 0)
            for name in limited(request.budget)
        }
    )


def _until(request: BatchRequest, progress: BatchProgress) -> datetime | None:
    time = request.budget.time if request.budget else None
    return None if time is None else progress.began + time


def unstored(request: TurnRequest) -> BatchNote:
    """Return the description of a batch of a schedule before its tasks are stored."""
    batch = (request.schedule and request.schedule.batch) or ScheduledBatch()
    return BatchNote(
        agent=request.agent,
        items=len(batch.items),
        at_once=batch.at_once,
        on_error=batch.on_error,
        rounds=(),
        budget=request.budget,
    )


def note_of(request: BatchRequest, progress: BatchProgress | None, *, over: bool) -> BatchNote:
    """Return the description of a batch for its memo."""
    note = BatchNote(
        agent=request.agent,
        items=request.items,
        at_once=request.at_once,
        on_error=request.on_error,
        rounds=request.rounds,
        done=request.answered,
        spent=request.spent,
        is_priced=request.is_priced,
        budget=request.budget,
        retried_by=request.by,
    )
    if progress is None:
        return note
    news = [account.news for account in progress.active.values()]
    are_priced = all(part.is_priced for part in news)
    changes = {
        "began": progress.began,
        "done": request.answered + progress.done + _count(news, "done"),
        "failed": progress.failed + _count(news, "failed"),
        "running": _count(news, "running"),
        "spent": spent_of(request, progress),
        "is_priced": request.is_priced and progress.is_priced and are_priced,
        "stop": progress.stop,
        "reason": progress.reason,
        "lost": progress.lost,
        "over": over,
    }
    return note.model_copy(update=changes)


def _count(news: Iterable[PartNews], name: str) -> int:
    return sum(getattr(part, name) for part in news)
