"""A part of a batch: which of its turns start, what they may spend, and what it reports. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from perdure.batch import leases as batch_leases
from perdure.batch.leases import ExhaustedError
from perdure.batch.wire import BatchStopReason, PartNews, PartOrder, PartRequest
from perdure.turn import ending
from perdure.turn.facts import ChildEnded, TurnEnded
from perdure.turn.wire import TurnRequest
from perdure.values.batch_items import BatchItem
from perdure.values.budgets import NOTHING, Budget, Spending
from perdure.values.reports import Outcome

_MOMENT = timedelta(milliseconds=1)


class PartState:
    """The state of a part.

    Attributes:
        done: The number of turns with an answer.
        failed: The number of turns that ended without an answer.
    """

    def __init__(self, request: PartRequest) -> None:
        self.done = self.failed = 0
        self._request = request
        self._order = PartOrder()
        self._next = 0
        self._leases: dict[str, Spending] = {}
        self._got_the_rest: set[str] = set()
        self._spent = self._most = self._returned = NOTHING
        self._freed = 0
        self._wanted: Spending | None = None
        self._is_priced = True
        self._is_exhausted = False
        self._told = PartNews(part=request.part)

    @property
    def has_begun(self) -> bool:
        """Whether it was given a place."""
        return self._order.slots > 0

    @property
    def is_cancelled(self) -> bool:
        """Whether turns that run are to be cancelled."""
        return self._order.stop == BatchStopReason.CANCELLED

    @property
    def cancel_reason(self) -> str:
        """The reason for that."""
        return self._order.reason or "the batch was cancelled"

    @property
    def is_over(self) -> bool:
        """Whether no turn runs, and none will start."""
        return not self._leases and not self._waiting

    @property
    def _waiting(self) -> int:
        """The number of tasks that may still start."""
        stops = self._order.on_error == "stop" and self.failed
        if self._order.stop is not None or self._is_exhausted or stops:
            return 0
        return len(self._request.items) - self._next

    def take(self, order: PartOrder) -> None:
        """Take an order of the batch, which may be a repeated order."""
        before = self._order
        stays = before.stop is not None and order.stop != BatchStopReason.CANCELLED
        changes = {
            "slots": max(before.slots, order.slots),
            "given": batch_leases.largest(before.given, order.given),
            "stop": before.stop if stays else order.stop,
            "reason": before.reason if stays else order.reason,
        }
        self._order = order.model_copy(update=changes)
        self._most = batch_leases.largest(self._most, order.most)

    def has_forgotten(self, order: PartOrder) -> bool:
        """Return whether the batch has taken back more than the part knows of: it was reset."""
        return batch_leases.largest(self._returned, order.taken) != self._returned

    def remember(self, order: PartOrder) -> None:
        """Note what the batch has taken back."""
        self._returned = batch_leases.largest(self._returned, order.taken)

    def starts(self, now: datetime) -> Iterator[tuple[BatchItem, TurnRequest]]:
        """Yield the tasks that start now, each with the input of its turn.

        Places without a task are given back afterwards: until then they count for the shares of
        money, which came with them.
        """
        self._wanted = None
        while self._waiting and len(self._leases) < self._order.slots - self._freed:
            item = self._request.items[self._next]
            try:
                request = self._reserved(item, now)
            except ExhaustedError:
                self._is_exhausted = True
                break
            if request is None:
                break
            self._next += 1
            yield item, request
        self._give_back()

    def _reserved(self, item: BatchItem, now: datetime) -> TurnRequest | None:
        """Reserve money for a turn, and return its input; None if it waits for money.

        Raises:
            ExhaustedError: Nothing is left, or the time of the batch is over.
        """
        time_left = None if self._order.until is None else self._order.until - now
        if time_left is not None and time_left < _MOMENT:
            raise ExhaustedError
        turn_budget, limits = self._request.request(item).given_budget, self._order.budget
        ledger = batch_leases.ledger_of(
            limits,
            self._order.given - self._returned,
            self._spent,
            batch_leases.total(self._leases.values()),
        )
        is_all_here = self._order.taken == self._returned and not self._order.others
        is_last = is_all_here and not self._leases
        places = self._order.slots - self._freed - len(self._leases)
        share = batch_leases.share_of(ledger, places)
        if self._order.even:
            held = batch_leases.total(self._leases.values())
            share = batch_leases.even_share(share, ledger, held, places + len(self._leases))
        needed = batch_leases.wanted(ledger, share, self._most, turn_budget)
        lease = batch_leases.lease(ledger, needed, is_last=is_last)
        if lease is None:
            self._wanted = needed
            return None
        remaining = batch_leases.left_of(ledger)
        dimensions = batch_leases.limited(limits)
        if is_last and any(getattr(lease, name) == getattr(remaining, name) for name in dimensions):
            self._got_the_rest.add(item.id)
        self._leases[item.id] = lease
        return self._request.request(item, _budget(lease, limits, turn_budget, time_left))

    def end(self, item: BatchItem, ended: ChildEnded) -> None:
        """Book the end of a turn."""
        lease, summary = self._leases.pop(item.id), ended.summary
        if summary is not None:
            spent, is_priced = summary.spent, summary.is_priced or not summary.model_calls
        elif ended.began:
            spent, is_priced = lease, bool(lease.usd)
        else:
            spent, is_priced = NOTHING, True
        self._spent += spent
        self._is_priced = self._is_priced and is_priced
        self._most = batch_leases.largest(self._most, spent)
        if is_answered(ended):
            self.done += 1
        else:
            self.failed += 1
            self._learn(item, ended, lease)
        self._give_back()

    def _learn(self, item: BatchItem, ended: ChildEnded, lease: Spending) -> None:
        """Give the next turns more, if the lease of this turn did not suffice."""
        error = ended.summary.error if ended.summary else None
        if ended.summary is None or ended.summary.outcome != Outcome.BUDGET_EXHAUSTED:
            return
        dimension = error.context.get("dimension") if error else None
        if dimension not in batch_leases.limited(self._order.budget):
            return
        if item.id in self._got_the_rest:
            self._is_exhausted = True
        turn_budget = self._request.request(item).given_budget
        if getattr(turn_budget, str(dimension), None) is None:
            needed = batch_leases.needed(lease, dimension)
            self._most = batch_leases.largest(self._most, needed)

    def _give_back(self) -> None:
        """Give back the places and the money that no task needs, or can use now."""
        needed = self._waiting + len(self._leases)
        self._freed = max(self._freed, self._order.slots - needed)
        if not self._waiting or self._wanted is not None:
            held = batch_leases.total(self._leases.values())
            spare = self._order.given - self._spent - held
            self._returned = batch_leases.largest(self._returned, spare)

    @property
    def news(self) -> PartNews:
        """What the next report says, with the number of the last."""
        return PartNews(
            part=self._request.part,
            number=self._told.number,
            freed=self._freed,
            returned=self._returned,
            spent=self._spent,
            most=self._most,
            is_priced=self._is_priced,
            done=self.done,
            failed=self.failed,
            running=len(self._leases),
            waits=self._wanted is not None,
            wanted=self._wanted or NOTHING,
            exhausted=self._is_exhausted,
            over=self.is_over,
        )

    @property
    def has_news(self) -> bool:
        """Whether something has changed since the last report."""
        return self.news != self._told

    @property
    def is_urgent(self) -> bool:
        """Whether the batch needs the report now: it continues with it, or stops."""
        news, reported = self.news, self._told
        first_failure = news.failed and not reported.failed and self._order.on_error == "stop"
        names = ("freed", "waits", "exhausted", "over")
        has_changed = any(getattr(news, name) != getattr(reported, name) for name in names)
        gives_money = news.waits and (news.returned, news.wanted) != (
            reported.returned,
            reported.wanted,
        )
        return bool(has_changed or gives_money or first_failure)

    def report(self) -> PartNews:
        """Return the next report, which then counts as told."""
        self._told = self.news.model_copy(update={"number": self._told.number + 1})
        return self._told


def _budget(
    lease: Spending, limits: Budget | None, turn_budget: Budget | None, time_left: timedelta | None
) -> Budget | None:
    """Return the budget of a turn: its lease, its own limits, and the time of the batch."""
    named = batch_leases.budget_for(lease, limits, turn_budget)
    times = [
        time for time in (time_left, turn_budget.time if turn_budget else None) if time is not None
    ]
    if times:
        named["time"] = min(times)
    return Budget(**named) if named else None


def is_answered(ended: ChildEnded) -> bool:
    """Return whether a turn ended with an answer."""
    summary = ended.summary
    if summary is None:
        return False
    return ending.error_of(TurnEnded(summary.outcome, summary), None) is None
