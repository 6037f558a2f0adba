"""The money and the places of a batch, with messages that come late, twice and out of step."""

from __future__ import annotations

import random
from collections import Counter, deque
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Budget, Outcome, Task, errors
from perdure.batch import leases as batch_leases
from perdure.batch import plan as batch_plan
from perdure.batch.part import PartState
from perdure.batch.wire import BatchProgress, BatchRequest, BatchStopReason, PartNews, PartRequest
from perdure.turn.facts import ChildEnded
from perdure.turn.keys import ChildKey
from perdure.turn.wire import Summary, TurnRequest
from perdure.values.batch_items import BatchItem
from perdure.values.budgets import NOTHING, Spending

NOW = datetime(2026, 11, 23, tzinfo=UTC)
KEY = ChildKey(0, 0, 1)


class Simulation:
    """A batch and its parts, whose messages and turns end in a random order."""

    def __init__(self, seed: int, sizes: list[int], additions: int = 0, **fields: Any) -> None:
        self.random = random.Random(seed)
        self.additions = additions
        self.request = BatchRequest(
            agent="a", digest="d", items=sum(sizes), parts=len(sizes), **fields
        )
        self.progress = BatchProgress(began=NOW)
        common = TurnRequest(agent="a", task=Task(content=""))
        self.parts: dict[int, PartState] = {}
        for number, count in enumerate(sizes, 1):
            items = tuple(
                BatchItem(id=f"{number}-{index}", task=Task(content="t")) for index in range(count)
            )
            self.parts[number] = PartState(
                PartRequest(batch="b", round=1, part=number, common=common, items=items)
            )
        self.orders: dict[int, deque[Any]] = {number: deque() for number in self.parts}
        self.news: deque[Any] = deque()
        self.running: dict[str, tuple[int, BatchItem, Spending]] = {}
        self.started: Counter[str] = Counter()
        self.spent = NOTHING
        self.most = 0

    def drive(self) -> None:
        """What the batch does in one workflow task; a later run may take over in between."""
        while self.news:
            self.progress = batch_plan.heard(self.request, self.progress, self.news.popleft(), NOW)
        is_open = self.progress.stop is None and not batch_plan.is_over(self.request, self.progress)
        if self.additions and is_open and self.random.random() < 0.3:
            self.additions -= 1
            self.add(Budget(usd="0.5"))
        if self.random.random() < 0.2:
            text = self.progress.model_dump_json()
            self.progress = BatchProgress.model_validate_json(text)
        self.progress, orders = batch_plan.ordered(self.request, self.progress, NOW)
        for part, order in orders.items():
            self.orders[part].append(order)
            if self.random.random() < 0.1:
                self.orders[part].append(order)

    def add(self, more: Budget) -> None:
        """Add to the budget, as the update of the workflow does."""
        self.request = batch_plan.topped_up(self.request, self.progress, more)
        self.progress = batch_plan.with_update(self.progress, str(more))

    def step_part(self, number: int) -> None:
        part = self.parts[number]
        while self.orders[number]:
            part.take(self.orders[number].popleft())
        for item, request in part.starts(NOW):
            self.started[item.id] += 1
            budget = request.budget or Budget(usd=1)
            lease = Spending(**{name: getattr(budget, name) or 0 for name in ("usd", "tokens")})
            self.running[item.id] = (number, item, lease)
        self.most = max(self.most, len(self.running))
        self.check_money()
        if part.has_begun and part.has_news and self.random.random() < 0.7:
            report = part.report()
            self.news.append(report)
            if self.random.random() < 0.1:
                self.news.append(report)

    def end_turn(self, costs: Decimal, tokens: int) -> None:
        item_id = self.random.choice(sorted(self.running))
        number, item, lease = self.running.pop(item_id)
        exceeded = self.request.budget is not None and costs > lease.usd
        spent = (
            Spending(usd=min(costs, lease.usd), tokens=min(tokens, lease.tokens or tokens))
            if self.request.budget
            else Spending(usd=costs, tokens=tokens)
        )
        self.spent += spent
        summary = Summary(agent="a", outcome=Outcome.COMPLETED, spent=spent, is_priced=True)
        if exceeded:
            error = errors.TurnBudgetExceededError(context={"dimension": "usd"})
            summary = summary.model_copy(
                update={"outcome": Outcome.BUDGET_EXHAUSTED, "error": error.info()}
            )
        self.parts[number].end(item, ChildEnded(KEY, summary))

    def check_money(self) -> None:
        leases = batch_leases.total(lease for _, _, lease in self.running.values())
        for name in batch_leases.limited(self.request.budget):
            limit = getattr(self.request.budget, name)
            assert getattr(self.spent, name) + getattr(leases, name) <= limit

    def run(self, costs: Decimal) -> None:
        for _ in range(100_000):
            if batch_plan.is_over(self.request, self.progress):
                return
            what = self.random.choice(["batch", "part", "part", "turn"])
            if what == "batch":
                self.drive()
            elif what == "turn" and self.running:
                self.end_turn(costs * self.random.randint(1, 3), self.random.randint(1, 9))
            else:
                self.step_part(self.random.choice(sorted(self.parts)))
        raise AssertionError("the batch does not end")


@pytest.mark.accepts("E77", "E78")
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    at_once=st.integers(1, 12),
    usd=st.none() | st.sampled_from(["0.01", "1", "5", "100"]),
)
def test_places_and_money_are_never_exceeded(
    seed: int, sizes: list[int], at_once: int, usd: str | None
) -> None:
    """Each task starts at most once, no more than `at_once` run, and what is spent and reserved is
    within the budget at every moment; the batch ends.
    """
    budget = None if usd is None else Budget(usd=usd, tokens=10_000)
    batch = Simulation(seed, sizes, at_once=at_once, budget=budget)

    batch.run(Decimal("0.1"))

    assert set(batch.started.values()) <= {1}
    assert batch.most <= at_once
    assert not batch.running
    if budget is None or usd == "100":
        assert len(batch.started) == sum(sizes)
        assert batch.progress.done == sum(sizes)
    elif len(batch.started) < sum(sizes):
        assert batch.progress.stop == BatchStopReason.BUDGET
    assert batch.progress.spent == batch.spent


@pytest.mark.accepts("E78", "E167")
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    at_once=st.integers(1, 12),
)
def test_budget_that_is_added_is_not_exceeded_either(
    seed: int, sizes: list[int], at_once: int
) -> None:
    """Whenever it is added. The batch ends, and stops only if it has spent nearly the first sum."""
    budget = Budget(usd="1", tokens=10_000)
    batch = Simulation(seed, sizes, additions=3, at_once=at_once, budget=budget)

    batch.run(Decimal("0.1"))

    assert not batch.running
    assert batch.progress.spent == batch.spent
    if len(batch.started) < sum(sizes):
        assert batch.progress.stop == BatchStopReason.BUDGET
        assert batch.spent.usd > Decimal("0.5")


@pytest.mark.accepts("E167")
def test_update_that_the_server_repeats_in_a_later_run_is_known() -> None:
    """The last fifty of them; and a batch that stops takes none."""
    progress = BatchProgress(began=NOW)
    for number in range(60):
        progress = batch_plan.with_update(progress, str(number))
    request = BatchRequest(agent="a", digest="d", items=1, parts=1, at_once=1, budget=Budget(usd=1))

    assert progress.updates == tuple(str(number) for number in range(10, 60))
    with pytest.raises(errors.InvalidRequestError, match=r"starts no more turns \(failed\)"):
        batch_plan.topped_up(
            request, batch_plan.stopped(progress, BatchStopReason.FAILED), Budget(usd=1)
        )


@pytest.mark.accepts("E78")
def test_nearly_all_of_a_budget_is_used() -> None:
    """Turns that do not fit into an equal share of the rest wait for each other."""
    batch = Simulation(7, [30], at_once=10, budget=Budget(usd="2"))

    batch.run(Decimal("0.1"))

    assert batch.progress.stop == BatchStopReason.BUDGET
    assert batch.spent.usd > Decimal("1.6")


@pytest.mark.accepts("E78")
@pytest.mark.parametrize("sizes", [[1] * 9, [9], [2, 1, 6]])
def test_turns_of_all_parts_share_equally(sizes: list[int]) -> None:
    """A part with fewer tasks than places takes no more of the money than its turns need."""
    batch = Simulation(1, sizes, at_once=5, budget=Budget(usd="10"))

    for _ in range(20):
        batch.drive()
        for number in batch.parts:
            batch.step_part(number)

    assert [lease.usd for _, _, lease in batch.running.values()] == [Decimal(2)] * 5


@pytest.mark.accepts("E167")
def test_turns_after_an_addition_share_it() -> None:
    """The first place that is free does not take all that was added."""
    batch = Simulation(1, [9], at_once=2, budget=Budget(usd="4"))
    batch.drive()
    batch.step_part(1)
    batch.add(Budget(usd="96"))

    batch.drive()
    before, after = set(batch.running), dict[str, Decimal]()
    for _ in range(7):
        batch.end_turn(Decimal(1), 0)
        batch.step_part(1)
        after |= {key: lease.usd for key, (_, _, lease) in batch.running.items()}

    assert all(after[key] > 45 for key in after.keys() - before)


@pytest.mark.accepts("E80")
def test_no_turn_starts_after_a_failure_of_its_part() -> None:
    """With `stop`, also before the batch knows of it."""
    batch = Simulation(1, [5], at_once=1, on_error="stop")
    batch.drive()
    batch.step_part(1)
    [(number, item, _)] = batch.running.values()
    batch.parts[number].end(item, ChildEnded(KEY, reason="it was terminated"))
    batch.running.clear()

    batch.step_part(1)

    assert (batch.running, batch.parts[1].is_over, batch.parts[1].failed) == ({}, True, 1)


def test_part_that_is_gone_is_charged_with_what_its_turns_may_have_spent() -> None:
    """The next part goes on with its places."""
    batch = Simulation(1, [3, 2], at_once=2, budget=Budget(usd="4"))
    batch.drive()

    batch.progress = batch_plan.lost(batch.progress, 1)

    assert (batch.progress.lost, batch.progress.spent.usd) == (1, Decimal(4))
    batch.progress, orders = batch_plan.ordered(batch.request, batch.progress, NOW)
    assert [(part, order.slots) for part, order in orders.items()] == [(2, 2)]


@pytest.mark.accepts("Y133")
def test_cost_of_a_part_that_is_gone_is_known_with_a_limit_only() -> None:
    """What its turns have spent since its last news is in no account of the batch."""
    priced = {}
    for budget in (None, Budget(model_calls=9), Budget(usd="4")):
        batch = Simulation(1, [2], at_once=2, budget=budget)
        batch.drive()
        progress = batch_plan.lost(batch.progress, 1)
        note = batch_plan.note_of(batch.request, progress, over=True)
        priced[budget] = note.is_priced

    assert list(priced.values()) == [False, False, True]


def test_silent_part_is_asked() -> None:
    """Its last order is repeated, which changes nothing if the part is there."""
    batch = Simulation(1, [3], at_once=2)
    batch.drive()
    limit = timedelta(minutes=10)

    assert batch_plan.silent(batch.progress, NOW + limit / 2, limit) == {}
    assert list(batch_plan.silent(batch.progress, NOW + limit, limit)) == [1]


@pytest.mark.accepts("E144")
def test_news_of_a_part_that_was_reset_count_from_the_beginning() -> None:
    """What it had given back stays given back, and no place or money is given out twice."""
    batch = Simulation(1, [3, 2], at_once=2, budget=Budget(usd="4"))
    batch.drive()
    usd = Spending(usd=Decimal(1))
    before = PartNews(part=1, run="a", number=7, done=2, freed=1, returned=usd, spent=usd)
    batch.progress = batch_plan.heard(batch.request, batch.progress, before, NOW)

    late = PartNews(part=1, run="a", number=6, done=1)
    batch.progress = batch_plan.heard(batch.request, batch.progress, late, NOW)
    ignored = batch.progress.active[1].news
    after = PartNews(part=1, run="b", number=2, done=1)
    resets = [batch_plan.is_of_reset_part(batch.progress, news) for news in (before, late, after)]
    batch.progress = batch_plan.heard(batch.request, batch.progress, after, NOW, is_reset=True)

    assert ignored == before
    assert resets == [False, False, True]
    kept = {"freed": 1, "returned": usd}
    assert batch.progress.active[1].news == after.model_copy(update=kept)


@pytest.mark.accepts("E144")
def test_part_that_was_reset_learns_what_it_had_given_back() -> None:
    """From the next order, so it does not spend that."""
    batch = Simulation(1, [3], at_once=2, budget=Budget(usd="4"))
    batch.drive()
    [order] = batch.orders[1]
    usd = Spending(usd=Decimal(3))
    later, part = order.model_copy(update={"taken": usd}), batch.parts[1]
    part.take(later)
    forgotten = [part.has_forgotten(order), part.has_forgotten(later)]
    part.remember(later)

    assert forgotten == [False, True]
    assert not part.has_forgotten(later)
    [*requests] = [request for _, request in batch.parts[1].starts(NOW)]

    assert sum(one.budget.usd or 0 for one in requests if one.budget) == Decimal(1)
