"""Trees of ledgers: a child's lease is a reservation of its parent, and the child's budget.

They are compared with the providers' bills.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.turn.ledger import Ledger
from perdure.values.budgets import DIMENSIONS, Budget, Spending

from ..support.clerk import BUDGETS, NANO, fits, in_its_own_time, named, spending, total

DEPTH = 3
ORDERS = int(os.environ.get("PERDURE_LEDGER_ORDERS", "200"))


@dataclass
class Agent:
    """An agent of a tree: its ledger, its open calls, and its children with their leases."""

    ledger: Ledger
    parent: Agent | None = None
    key: str = "root"
    calls: dict[str, Spending] = field(default_factory=dict)
    children: dict[str, Agent] = field(default_factory=dict)
    count: int = 0

    @property
    def depth(self) -> int:
        return 1 + self.parent.depth if self.parent else 1

    def family(self) -> Iterator[Agent]:
        """This agent and all below it."""
        yield self
        for child in self.children.values():
            yield from child.family()

    def line(self) -> Iterator[Agent]:
        """This agent and all above it."""
        yield self
        if self.parent:
            yield from self.parent.line()

    def next_key(self) -> str:
        self.count += 1
        return f"{self.key}/{self.count}"


class Tree:
    """Agents that call and delegate at random, and the bills of providers, whether their answers
    arrived or not.
    """

    def __init__(self, budget: Budget, seed: int) -> None:
        self.rng = random.Random(seed)
        self.root = Agent(Ledger(budget))
        self.bills: list[Spending] = []
        self.lost = 0
        self.deepest = 1

    @property
    def budget(self) -> Budget:
        assert self.root.ledger.budget is not None
        return self.root.ledger.budget

    def step(self) -> None:
        """A random event for one of the agents."""
        agent = self.rng.choice(list(self.root.family()))
        happenings = {
            self.call: 4,
            self.answer: 4,
            self.lose_call: 1,
            self.delegate: 4,
            self.end: 2,
            self.lose: 1,
            self.add: 1,
        }
        self.rng.choices(list(happenings), list(happenings.values()))[0](agent)

    def call(self, agent: Agent) -> None:
        key, amount = agent.next_key(), self.some(agent, 3)
        if not agent.ledger.lacking(amount):
            agent.ledger = agent.ledger.reserve(key, amount)
            agent.calls[key] = amount

    def answer(self, agent: Agent) -> None:
        for key in list(agent.calls)[:1]:
            agent.ledger = agent.ledger.settle(key, self.bill(agent.calls.pop(key)))

    def lose_call(self, agent: Agent) -> None:
        """Lose the answer to a call, which the provider bills."""
        for key in list(agent.calls)[:1]:
            self.bill(agent.calls.pop(key))
            agent.ledger = agent.ledger.charge(key)
            self.lost += 1

    def delegate(self, agent: Agent) -> None:
        lease = self.some(agent, 2)
        limits = {name: getattr(lease, name) for name in named(self.budget)}
        if agent.depth == DEPTH or not all(limits.values()) or agent.ledger.lacking(lease):
            return
        key = agent.next_key()
        agent.ledger = agent.ledger.reserve(key, lease)
        agent.children[key] = Agent(Ledger(Budget.model_validate(limits)), agent, key)
        self.deepest = max(self.deepest, agent.depth + 1)

    def end(self, agent: Agent) -> None:
        """End a child and all below it; unspent amounts return to the parent."""
        for child in list(agent.children.values()):
            self.end(child)
        while agent.calls:
            self.answer(agent)
        if agent.parent:
            del agent.parent.children[agent.key]
            agent.parent.ledger = agent.parent.ledger.settle(agent.key, agent.ledger.spent)

    def lose(self, agent: Agent) -> None:
        """Lose a child with all below it."""
        if agent.parent:
            for amount in [amount for member in agent.family() for amount in member.calls.values()]:
                self.bill(amount)
            del agent.parent.children[agent.key]
            agent.parent.ledger = agent.parent.ledger.charge(agent.key)
            self.lost += 1

    def add(self, agent: Agent) -> None:
        """Add budget to any agent of the tree: all above it get the addition, the root first, and
        the leases grow by it.
        """
        amounts = {name: NANO if name == "usd" else 1 for name in named(self.budget)}
        for member in reversed(list(agent.line())):
            if member.parent:
                held = member.parent.ledger.held[member.key]
                member.parent.ledger = member.parent.ledger.add(
                    Budget.model_validate(amounts)
                ).hold(member.key, held + Spending(**amounts))
                self.check()
        agent.ledger = agent.ledger.add(Budget.model_validate(amounts))

    def some(self, agent: Agent, share: int) -> Spending:
        """A part of what the agent has left in each dimension, sometimes a little more."""
        left = [agent.ledger.remaining(name) for name in DIMENSIONS]
        units = [
            5 if value is None else int(value / NANO if isinstance(value, Decimal) else value)
            for value in left
        ]
        return spending(*(self.rng.randint(0, unit // share + 1) for unit in units))

    def bill(self, reserved: Spending) -> Spending:
        """A provider's bill, at most the reservation."""
        units = (
            int(reserved.usd / NANO),
            reserved.tokens,
            reserved.model_calls,
            reserved.tool_calls,
        )
        self.bills.append(spending(*(self.rng.randint(0, unit) for unit in units)))
        return self.bills[-1]

    def check(self) -> None:
        """No agent exceeds its lease, and all bills and open calls together do not exceed the
        budget of the root.
        """
        family = list(self.root.family())
        for agent in family:
            assert agent.ledger.budget is not None
            assert fits([agent.ledger.spent, agent.ledger.reserved], agent.ledger.budget)
            assert not agent.ledger.overrun
        assert fits(
            [*self.bills, *(amount for agent in family for amount in agent.calls.values())],
            self.budget,
        )


def grown(budget: Budget, seed: int, steps: int) -> Tree:
    """A tree after this number of steps, checked after each, with all agents ended."""
    tree = Tree(budget, seed)
    for _ in range(steps):
        tree.step()
        tree.check()
    tree.end(tree.root)
    tree.check()
    return tree


@in_its_own_time
@given(BUDGETS, st.integers(0, 2**32))
def test_whole_tree_stays_within_the_budget_of_its_root(budget: Budget, seed: int) -> None:
    """With parallel and lost children, every bill is booked once, and more is booked only for a
    lost child.
    """
    tree = grown(budget, seed, steps=60)

    booked, billed = tree.root.ledger.spent, total(tree.bills)
    assert tree.root.ledger.held == {}
    assert booked == billed or tree.lost
    assert all(getattr(booked, name) >= getattr(billed, name) for name in named(tree.budget))


@pytest.mark.slow
def test_long_lives_of_large_trees_stay_within_it_too() -> None:
    """Seeded, and known to be deep, with many bills and with losses: returned amounts are leased
    again.
    """
    budget = Budget(usd="50", tokens=10**9, model_calls=2_000, tool_calls=2_000)
    trees = [grown(budget, seed, steps=400) for seed in range(8)]

    assert {tree.deepest for tree in trees} == {DEPTH}
    assert min(len(tree.bills) for tree in trees) > 20
    assert min(tree.lost for tree in trees) > 2


@pytest.mark.slow
def test_many_orders_of_events_keep_the_budget() -> None:
    """Each short run has another order of events, seeded so that a failure can be reproduced;
    `make -C benchmarks soak` tries a hundred thousand.
    """
    for seed in range(ORDERS):
        tree = grown(Budget(usd="5", tokens=10**6, model_calls=100, tool_calls=100), seed, steps=20)
        assert tree.root.ledger.held == {}


def test_unspent_part_of_a_lease_returns_to_the_parent() -> None:
    """A child that ended returns what it did not use, a lost one nothing."""
    parent = (
        Ledger(Budget(usd="1"))
        .reserve("done", Spending(usd=Decimal("0.40")))
        .reserve("lost", Spending(usd=Decimal("0.40")))
    )
    child = (
        Ledger(Budget(usd="0.40"))
        .reserve("1.0", Spending(usd=Decimal("0.30")))
        .settle("1.0", Spending(usd=Decimal("0.05")))
    )

    parent = parent.settle("done", child.spent).charge("lost")

    assert parent == Ledger(Budget(usd="1"), spent=Spending(usd=Decimal("0.45")))
    assert parent.remaining("usd") == Decimal("0.55")


def test_child_that_was_billed_above_its_lease_stops_its_parent_too() -> None:
    """The bill is booked completely on every level."""
    child = (
        Ledger(Budget(tokens=10))
        .reserve("1.0", Spending(tokens=10))
        .settle("1.0", Spending(tokens=15))
    )

    parent = (
        Ledger(Budget(tokens=100))
        .reserve("writer-1", Spending(tokens=10))
        .settle("writer-1", child.spent)
    )

    assert (child.overrun, parent.overrun, parent.spent) == (True, True, Spending(tokens=15))
