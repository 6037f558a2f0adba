"""Trees of agents whose workers are killed at random: the bill stays within one budget, and every
child's end is reported once.

`PERDURE_TREE_SEEDS` is the number of trees, `PERDURE_TREE_FIRST_SEED` the first seed, and
`PERDURE_TREE_AGENTS` the largest number of agents.
"""

import asyncio
import itertools
import os
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from perdure import AgentReport, Budget, ChildReport, Outcome
from perdure.clients import Turn
from perdure.errors import PerdureError, TurnBudgetExceededError
from perdure.turn.facts import ChildEnded, ChildScheduled
from perdure.turn.fold import apply
from perdure.turn.state import TurnState

from ..conftest import check_history
from ..support.e2e.stories import Story
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor
from ..support.e2e.trees import Plan, Planned, plan

__all__ = ["has_supervisor"]

APP = "tests.support.e2e.trees:make"
SEEDS = int(os.environ.get("PERDURE_TREE_SEEDS", "10"))
FIRST = int(os.environ.get("PERDURE_TREE_FIRST_SEED", "0"))
AGENTS = int(os.environ.get("PERDURE_TREE_AGENTS", "15"))
TOGETHER = 10
"""The number of trees that share the workers, and their kills."""

LONG_S = 300 if AGENTS <= 15 else 1_200


def budget_of(seed: int) -> Budget:
    """The budget for the tree of a seed: some are large enough, and some are not."""
    rest = random.Random(f"budget {seed}")
    limits: list[dict[str, Any]] = [
        {"usd": Decimal(rest.randint(50, 2_000)) / 100},
        {"tokens": rest.randint(20_000, 400_000)},
        {"model_calls": rest.randint(3, 60)},
    ]
    return Budget(
        **{
            name: value
            for limit in rest.sample(limits, rest.randint(1, 3))
            for name, value in limit.items()
        }
    )


@pytest.mark.slow
@pytest.mark.timeout(LONG_S)
@pytest.mark.accepts("B12", "B13", "D12")
@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, TOGETHER))
async def test_tree_whose_workers_are_killed_keeps_its_budget_and_hears_of_every_child_once(
    perdure_server: str, tmp_path: Path, first: int, has_supervisor: bool
) -> None:
    """The provider's bill never exceeds the budget of a root, and is booked completely."""
    plans = [
        plan(seed, depth=3, fan_out=5, most=AGENTS)
        for seed in range(first, min(first + TOGETHER, FIRST + SEEDS))
    ]
    stub = Planned(plans, tmp_path / "requests.jsonl")
    async with Story(perdure_server, tmp_path, stub=stub, supervised=has_supervisor) as story:
        turns = [await _start(story, one) for one in plans]
        killing = asyncio.create_task(_kill_at_random(story, random.Random(first)))
        reports = [await _report(turn) for turn in turns]
        await killing
        for turn, one, report in zip(turns, plans, reports, strict=True):
            _check_bill(stub, one, report)
            await _check_told_once(story, turn, report)
            await check_history(story.temporal, turn.id, await turn.first_run())

    assert sum(len(report.children) for report in reports) > len(plans)


async def _start(story: Story, one: Plan) -> Turn:
    return await story.client.start(
        one.agent,
        one.task,
        id=f"{one.task}/{story.client.task_queue}",
        budget=budget_of(int(one.task.split("-")[1])),
    )


async def _report(turn: Turn) -> AgentReport:
    try:
        return await turn.result()
    except TurnBudgetExceededError as error:
        return error.report or AgentReport(turn_id=turn.id, agent="", outcome=Outcome.FAILED)
    except PerdureError as error:
        raise AssertionError(f"{turn.id} ended with {error!r}") from error


async def _kill_at_random(story: Story, moments: random.Random) -> None:
    """Two workers, which are killed in turns while the trees grow."""
    workers = [await story.worker(APP) for _ in range(2)]
    for _ in range(3):
        await asyncio.sleep(moments.uniform(2, 5))
        workers.append(await story.replace(workers.pop(0), APP))


def _check_bill(stub: Planned, one: Plan, report: AgentReport) -> None:
    """The provider's bill is within the budget, and within what was booked."""
    budget, billed = budget_of(int(one.task.split("-")[1])), stub.billed().get(one.task, Decimal(0))
    assert report.cost is not None
    assert billed <= report.cost, f"{one.task}: {billed} billed, {report.cost} booked"
    for name in ("usd", "tokens", "model_calls"):
        limit = getattr(budget, name)
        assert limit is None or getattr(report.spent, name) <= limit, (
            f"{one.task}: {name} {getattr(report.spent, name)} of {limit}"
        )


async def _check_told_once(story: Story, turn: Turn, report: AgentReport) -> None:
    """Each child that was started ended once, and its parent received that once."""
    for turn_id in (turn.id, *_ids(report.children)):
        facts = await story.facts(story.client.turn(turn_id))
        begun = [fact.key for fact in facts if isinstance(fact, ChildScheduled)]
        ended = [fact.key for fact in facts if isinstance(fact, ChildEnded)]
        assert sorted(map(str, begun)) == sorted(map(str, ended))
        assert len(set(begun)) == len(begun)
        for state in itertools.accumulate(facts, apply, initial=TurnState()):
            _check_budget(state)


def _check_budget(state: TurnState) -> None:
    """At every moment, spending and reservations are within the budget."""
    for name in ("usd", "tokens", "model_calls"):
        limit = getattr(state.accounts.ledger.budget, name, None)
        assert limit is None or getattr(state.charged, name) <= limit


def _ids(children: tuple[ChildReport, ...]) -> Iterator[str]:
    for child in children:
        yield child.turn_id
        yield from _ids(child.children)
