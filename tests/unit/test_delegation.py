"""Delegation without a workflow: tasks from any arguments, leases from any budget, and the results
of delegation calls.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import JsonValue
from pydantic_core import to_json

from perdure import Delegate, errors, limits
from perdure.agents import delegates
from perdure.agents.definitions import AgentDefinition
from perdure.agents.delegates import DELEGATE, LIST_AGENTS, SPAWN, Ancestor, Lineage, PinnedDelegate
from perdure.turn import delegation, delegation_plan, leases, reservations
from perdure.turn.decide import Done, next_move
from perdure.turn.delegation_plan import Errand
from perdure.turn.facts import (
    AgentResolved,
    ChildEnded,
    ChildRead,
    ChildScheduled,
    ChildTold,
    ModelAnswered,
    Scheduled,
    TurnStarted,
)
from perdure.turn.fold import apply, fold
from perdure.turn.keys import AgentKey, ChildKey, ModelKey, parse_key
from perdure.turn.ledger import Ledger
from perdure.turn.situation import Situation
from perdure.turn.state import TurnState
from perdure.turn.wire import ChildNews, Summary, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import DIMENSIONS, NOTHING, Budget, Spending
from perdure.values.messages import AssistantMessage, ToolCall
from perdure.values.reports import Outcome, StopReason
from perdure.values.tasks import Task

from ..support.clerk import NANO, fits, in_its_own_time, named, small_budget, spending, total
from ..support.delegating_turns import call_of, delegating, spawn

BUDGETS = (
    st.tuples(*(st.none() | st.integers(1, most) for most in (10**10, 20_000, 30, 30)))
    .filter(any)
    .map(small_budget)
)
SPENT = st.builds(spending, *(st.integers(0, most) for most in (10**9, 5_000, 8, 8)))
TASKS = st.lists(st.sampled_from(("researcher", "writer")), min_size=1, max_size=5)
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("agent", "task", "tasks", "x")), inner, max_size=3)
    ),
)
HOUR = timedelta(hours=1)
MICRO = 1_000
"""Nano-dollars. Shares of money are whole micro-dollars, where they are as much as one."""


def after(
    agent: AgentDefinition,
    *calls: ToolCall,
    budget: Budget | None = None,
    lineage: Lineage | None = None,
) -> TurnState:
    """The state of a turn whose model has made these calls."""
    request = TurnRequest(agent=agent.name, task=Task(content="go"), budget=budget, lineage=lineage)
    numbered = tuple(
        call.model_copy(update={"id": f"c{place}"}) for place, call in enumerate(calls, 1)
    )
    answer = ModelAnswer(
        message=AssistantMessage(parts=numbered), stop=StopReason.TOOL_CALLS, model="m"
    )
    return fold(
        [TurnStarted(request), AgentResolved(AgentKey(), agent), ModelAnswered(ModelKey(1), answer)]
    )


def with_ledger(state: TurnState, budget: Budget, spent: Spending, held: Spending) -> TurnState:
    """The same state with another ledger."""
    return state.with_ledger(Ledger(budget, spent).hold("something", held))


# --- leases


@in_its_own_time
@given(
    BUDGETS,
    SPENT,
    SPENT,
    st.lists(TASKS, min_size=1, max_size=3),
    st.integers(0, 3),
    st.sampled_from(("fail", "finish")),
    BUDGETS | st.none(),
)
def test_leases_and_what_the_turn_keeps_are_never_more_than_what_is_left(
    budget: Budget,
    spent: Spending,
    held: Spending,
    asked: list[list[str]],
    others: int,
    policy: Literal["fail", "finish"],
    own: Budget | None,
) -> None:
    """In every dimension with a limit, for any delegates; each of them gets something, or none is
    started.
    """
    agent = delegating(
        others=[PinnedDelegate(name="researcher"), PinnedDelegate(name="writer", budget=own)],
        on_exhausted=policy,
    )
    calls = [spawn(*agents) for agents in asked]
    state = with_ledger(after(agent, *calls), budget, spent, held)

    try:
        shared = leases.leases(state, agent, calls, others)
    except errors.TurnBudgetExceededError:
        return

    beside = [reservations.kept(state, agent), Spending(tool_calls=len(calls) + others)]
    for name in named(budget):
        if any(getattr(amount, name) for amount in beside):
            assert getattr(total([spent, held, *beside]), name) < getattr(budget, name)
    given_out = [errand.lease for errands in shared for errand in errands]
    assert fits([spent, held, *beside, *given_out], budget)
    assert all(getattr(lease, name) > 0 for lease in given_out for name in named(budget))
    assert all(
        getattr(lease, name) == 0
        for lease in given_out
        for name in set(DIMENSIONS) - set(named(budget))
    )
    assert [[errand.agent for errand in errands] for errands in shared] == asked


@in_its_own_time
@given(BUDGETS, SPENT, TASKS)
def test_shares_are_fair_and_refused_only_where_there_is_not_one_unit_for_each(
    budget: Budget, spent: Spending, asked: list[str]
) -> None:
    """Shares differ by one unit at most, and the turn itself keeps a share if there is one more
    unit.
    """
    agent = delegating()
    state = with_ledger(after(agent, spawn(*asked)), budget, spent, NOTHING)
    units = {
        name: _units(name, limit) - _units(name, getattr(spent, name)) - (name == "tool_calls")
        for name, limit in named(budget).items()
    }
    enough = all(left >= len(asked) + (name == "usd") for name, left in units.items())

    try:
        [errands] = leases.leases(state, agent, [spawn(*asked)])
    except errors.TurnBudgetExceededError:
        assert not enough
        return

    assert enough
    for name, left in units.items():
        parts = [_units(name, getattr(errand.lease, name)) for errand in errands]
        assert max(parts) - min(parts) <= (MICRO if name == "usd" and max(parts) >= MICRO else 1)
        assert left - sum(parts) >= (min(parts) if left > len(asked) else 0)


def _units(name: str, amount: Decimal | int) -> int:
    return int(amount / NANO) if name == "usd" else int(amount)


@in_its_own_time
@given(BUDGETS, BUDGETS)
def test_delegate_is_started_with_its_lease_and_with_the_limits_it_was_named_beyond(
    budget: Budget, own: Budget
) -> None:
    """A dimension without a limit in the parent is not leased, but still limits the delegate."""
    agent = delegating(others=[PinnedDelegate(name="writer", budget=own)])
    state = with_ledger(after(agent, spawn("writer")), budget, NOTHING, NOTHING)

    try:
        [[errand]] = leases.leases(state, agent, [spawn("writer")])
    except errors.TurnBudgetExceededError:
        return

    leased = {name: getattr(errand.lease, name) for name in named(budget)}
    assert errand.budget is not None
    assert named(errand.budget) == {**named(own), **leased}
    assert all(leased[name] <= limit for name, limit in named(own).items() if name in leased)


def test_turn_without_a_budget_leases_nothing() -> None:
    """Its delegates have the limits given for them."""
    agent = delegating(
        others=[
            PinnedDelegate(name="researcher"),
            PinnedDelegate(name="writer", budget=Budget(model_calls=3)),
        ]
    )

    [errands] = leases.leases(after(agent), agent, [spawn("researcher", "writer")])

    assert errands == (
        Errand("researcher", "task 0"),
        Errand("writer", "task 1", budget=Budget(model_calls=3)),
    )


# --- errands


@pytest.mark.slow
@in_its_own_time
@given(
    st.sampled_from((DELEGATE, SPAWN)),
    JSON.map(lambda value: to_json(value).decode()) | st.text(max_size=30),
)
@example(DELEGATE, "")
@example(DELEGATE, "[" * 100_000)
@example(DELEGATE, '{"agent": "a", "task": "\\ud800"}')
@example(DELEGATE, '{"agent": "a", "task": NaN}')
@example(SPAWN, '{"tasks": {"agent": "a", "task": "b"}}')
def test_whatever_the_arguments_are_they_are_errands_or_no_sense(name: str, arguments: str) -> None:
    """Each one has an agent and a task; otherwise the only error is the one for the model."""
    try:
        found = delegation_plan.asked(ToolCall(id="c1", name=name, arguments=arguments))
    except ValueError:
        return

    assert all(
        isinstance(errand, Errand) and errand.agent.strip() and errand.task.strip()
        for errand in found
    )
    assert name == SPAWN or len(found) == 1


def test_errands_are_those_of_the_call_in_its_order() -> None:
    """Other fields are ignored."""
    tasks: list[JsonValue] = [{"agent": "b", "task": "2", "why": "x"}, {"agent": "a", "task": "1"}]

    assert delegation_plan.asked(call_of(SPAWN, tasks=tasks)) == (
        Errand("b", "2"),
        Errand("a", "1"),
    )
    assert delegation_plan.asked(call_of(DELEGATE, agent="a", task="1", why="x")) == (
        Errand("a", "1"),
    )
    assert delegation_plan.asked(call_of(SPAWN, tasks=[])) == ()


# --- calls that start turns, and calls that do not

ABOVE = Ancestor(turn_id="above", key="step-1.call-1.child-1")

CALLS = st.lists(
    TASKS.map(lambda agents: spawn(*agents))
    | st.sampled_from(("researcher", "editor", "nobody", "")).map(
        lambda agent: call_of(DELEGATE, agent=agent, task="x")
    )
    | st.sampled_from(
        (call_of(LIST_AGENTS), call_of("nothing"), call_of(SPAWN, tasks=[]), spawn(*["writer"] * 6))
    ),
    min_size=1,
    max_size=6,
)


@in_its_own_time
@given(CALLS, st.booleans(), st.integers(1, 8), st.integers(0, 1))
def test_calls_have_a_result_at_once_or_start_turns_that_the_guards_let(
    calls: list[ToolCall], parallel: bool, most: int, depth: int
) -> None:
    """Calls that are open after the fold start known agents, within the limits of a call and a
    turn; evaluating it again changes nothing.
    """
    agent = delegating(parallel=parallel, most=most)
    state = after(agent, *calls, lineage=Lineage(ancestors=(ABOVE,), depth_left=depth))

    again = delegation_plan.settle(state)
    waiting = [delegation_plan.asked(one.call) for _, one in state.open_step.unfinished]

    assert again == state
    assert not any(
        other
        for errands in waiting
        for other in errands
        if other.agent not in ("researcher", "writer")
    )
    assert sum(map(len, waiting)) <= (most if depth else 0)
    assert (
        max((sum(map(len, waiting)) if parallel else max(map(len, waiting), default=0)), 0)
        <= limits.CHILDREN_AT_ONCE
    )


SUMMARIES = st.builds(
    Summary,
    agent=st.just("writer"),
    outcome=st.sampled_from(Outcome),
    output=st.text(max_size=5),
    spent=st.builds(
        spending, st.integers(0, 5), st.integers(0, 5), st.integers(0, 1), st.integers(0, 1)
    ),
    is_priced=st.just(True),
)
STARTS = st.tuples(st.integers(0, delegation.STARTS - 1), st.none() | SUMMARIES) | st.just(
    (delegation.STARTS, None)
)
"""How often a turn could not be started, and the summary of the one that was; None where none came
back.
"""


@in_its_own_time
@given(st.lists(STARTS, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_each_end_is_charged_once_and_the_call_is_answered_with_the_last_of_them(
    ends: list[tuple[int, Summary | None]], order: Random
) -> None:
    """In whatever order they end: with their spending, or the whole lease if it is unknown, or
    nothing if they never started.
    """
    agent = delegating()
    state = after(
        agent,
        spawn(*["writer"] * len(ends)),
        budget=Budget(usd="0.00001", tokens=10_000, model_calls=100, tool_calls=100),
    )
    before = state.accounts.ledger.spent
    [given_out] = leases.leases(state, agent, [one.call for one in state.open_step.calls])
    for place, errand in enumerate(given_out, 1):
        state = apply(state, scheduled(ChildKey(1, 1, place), errand))
    left = [
        (place, attempt)
        for place, (failures, _) in enumerate(ends, 1)
        for attempt in range(1, min(failures + 1, delegation.STARTS) + 1)
    ]
    order.shuffle(left)
    for place in [place for place, _ in left]:
        attempt = min(attempt for other, attempt in left if other == place)
        left.remove((place, attempt))
        failures, summary = ends[place - 1]
        key = ChildKey(1, 1, place, attempt)
        assert not state.steps
        fact = (
            ChildEnded(key, None, "why", began=False)
            if attempt <= failures
            else ChildEnded(key, summary, "why")
        )
        state = apply(state, fact)
        assert state.steps or apply(apply(state, fact), replace(fact, reason="again")) == state
        if attempt <= failures and attempt < delegation.STARTS:
            state = apply(state, scheduled(replace(key, attempt=attempt + 1), given_out[place - 1]))

    began = [
        (summary, errand)
        for (failures, summary), errand in zip(ends, given_out, strict=True)
        if failures < delegation.STARTS
    ]
    charged = [errand.lease if summary is None else summary.spent for summary, errand in began]
    assert state.accounts.ledger.spent == total([before, Spending(tool_calls=1), *charged])
    assert (state.accounts.ledger.held, state.in_flight) == ({}, {})
    assert [len(step.results) for step in state.steps] == [1]
    assert sorted(child.key.child for child in state.children) == list(range(1, len(ends) + 1))


def scheduled(key: ChildKey, errand: Errand) -> ChildScheduled:
    """The start of a turn for this task."""
    return ChildScheduled(
        key,
        f"t/writer-{key.child}",
        TurnRequest(agent=errand.agent, task=Task(content=errand.task), budget=errand.budget),
    )


def test_step_whose_calls_start_nothing_goes_on_with_the_model() -> None:
    """Every call is refused or lists agents, so the fold itself has all results."""
    state = after(delegating(), call_of(LIST_AGENTS), call_of(DELEGATE, agent="nobody", task="x"))

    assert [result.is_error for result in state.steps[0].results] == [False, True]
    assert not isinstance(next_move(Situation(state, delegating())), Done)


# --- possible delegates


def test_delegates_are_sorted_and_known_and_never_the_agent_itself() -> None:
    """The whole registry, or the given ones."""
    known = ["writer", "editor", "researcher"]
    own = Delegate("writer", inherit=False)

    assert delegates.declared("all", "editor", known) == (
        Delegate("researcher"),
        Delegate("writer"),
    )
    assert delegates.declared(
        [own, Delegate("editor"), Delegate("researcher")], "editor", known
    ) == (Delegate("researcher"), own)
    assert delegates.declared([], "editor", known) == ()
    with pytest.raises(
        errors.UnknownAgentError,
        match=(
            "delegates to 'nobody', which this worker does not know; it knows editor, researcher,"
            " writer"
        ),
    ):
        delegates.declared([Delegate("nobody")], "editor", known)


def test_tools_name_whom_they_can_be_given() -> None:
    """An agent without delegates lists none; providers would refuse an empty enum."""
    _, (_, _, schema), _ = delegates.tools([PinnedDelegate(name="writer")], 5)
    _, (_, _, empty), _ = delegates.tools([], 5)

    assert [name for name, _, _ in delegates.tools([], 5)] == list(delegates.NAMES)
    assert schema["properties"]["agent"]["enum"] == ["writer"]  # type: ignore[index,call-overload]
    assert "enum" not in empty["properties"]["agent"]  # type: ignore[index,call-overload,operator]


# --- additions to a running child


def told(state: TurnState, more: Budget) -> TurnState:
    """The state after the first child got an addition."""
    key = ChildKey(1, 1, 1)
    given_to = TurnRequest(
        agent="writer", task=Task(content="write"), budget=Budget(usd="1", tokens=100)
    )
    return fold(
        [
            ChildScheduled(key, "t/writer-1", given_to),
            ChildTold(key, ChildNews(key=str(key), added=more)),
        ],
        state,
    )


@pytest.mark.parametrize(
    ("more", "budget", "lease"),
    [
        (
            Budget(usd="2"),
            Budget(usd="12", tokens=1_000, time=HOUR),
            Spending(usd=Decimal(3), tokens=100),
        ),
        (
            Budget(usd="2", tokens=5),
            Budget(usd="12", tokens=1_005, time=HOUR),
            Spending(usd=Decimal(3), tokens=105),
        ),
        (
            Budget(time=HOUR),
            Budget(usd="10", tokens=1_000, time=2 * HOUR),
            Spending(usd=Decimal(1), tokens=100),
        ),
        (
            Budget(tool_calls=7),
            Budget(usd="10", tokens=1_000, time=HOUR),
            Spending(usd=Decimal(1), tokens=100),
        ),
        (
            Budget(usd="999999999"),
            Budget(usd="10", tokens=1_000, time=HOUR),
            Spending(usd=Decimal(1), tokens=100),
        ),
    ],
    ids=[
        "money",
        "money and tokens",
        "time",
        "what has no limit here",
        "more than a budget can be",
    ],
)
def test_what_a_child_is_given_is_new_to_the_turn_above(
    more: Budget, budget: Budget, lease: Spending
) -> None:
    """The limit grows by it, and so does the lease in its leased dimensions; an addition that is
    too large changes nothing, whatever its source is.
    """
    state = told(
        after(delegating(), spawn("writer"), budget=Budget(usd="10", tokens=1_000, time=HOUR)), more
    )

    assert state.accounts.ledger.budget == budget
    assert [child.lease for child in state.children] == [lease]
    assert state.accounts.ledger.held["step-1.call-1.child-1"] == lease


def seen(usd: str, tokens: int) -> Summary:
    """The summary of a history that was read."""
    return Summary(
        agent="writer",
        outcome=Outcome.TERMINATED,
        output="so far",
        spent=spent_of(usd, tokens),
        is_priced=True,
    )


def spent_of(usd: str, tokens: int) -> Spending:
    return Spending(usd=Decimal(usd), tokens=tokens, model_calls=3)


@pytest.mark.accepts("Y22")
@pytest.mark.parametrize(
    ("is_over", "read", "charged", "overrun"),
    [
        (True, ("0.7", 70), ("0.7", 70), False),
        (True, ("0.7", 130), ("0.7", 130), True),
        (False, ("0.7", 130), ("1", 130), False),
    ],
    ids=["within its lease", "more than its lease", "still runs"],
)
def test_history_that_was_read_corrects_the_charge_and_nothing_that_the_model_is_told(
    is_over: bool, read: tuple[str, int], charged: tuple[str, int], overrun: bool
) -> None:
    """The whole amount that was read is booked, for a running turn at least its lease; without a
    history the lease is kept.
    """
    key = ChildKey(1, 1, 1)
    budget = Budget(usd="10", tokens=1_000)
    begun = apply(after(delegating(), spawn("writer"), budget=budget), started(key))
    ended = apply(begun, ChildEnded(key, reason="it was terminated")) if is_over else begun
    place = key.read
    state = fold([Scheduled(place), ChildRead(place, seen(*read), is_over)], ended)
    failed = fold([Scheduled(place), ChildRead(place)], ended)

    [child] = state.children
    assert (child.charged, child.cost) == (spent_of(*charged), Decimal(charged[0]))
    assert state.charged == spent_of(*charged) + begun.accounts.ledger.spent
    assert (
        state.accounts.ledger.overrun,
        state.transcript.digest,
        state.steps,
        state.open_step.calls,
    ) == (overrun, ended.transcript.digest, ended.steps, ended.open_step.calls)
    assert child.report.outcome == (Outcome.TERMINATED if is_over else None)
    assert (failed.charged, failed.in_flight) == (ended.charged, ended.in_flight)
    assert apply(state, ChildRead(place, seen("5", 5))) == state
    assert parse_key(str(place)) == place


def started(key: ChildKey) -> ChildScheduled:
    """A turn with a lease of money and tokens."""
    return ChildScheduled(
        key,
        "above/writer-1",
        TurnRequest(
            agent="writer", task=Task(content="Write."), budget=Budget(usd="1", tokens=100)
        ),
    )
