"""Budgets when workers are killed.

A call whose outcome is unknown is charged, so the provider's bill never exceeds what the turn has
booked; a turn that waits for budget keeps waiting.
"""

import pytest

from perdure import Budget
from perdure.testing.stub_provider import LoggedRequest, per_million
from perdure.turn.facts import WaitBegan

from ..support.e2e.stories import Tell, asks, kill, says, use
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor
from ..support.spending import until

__all__ = ["has_supervisor"]

BUDGET = 20_000


def billed(request: LoggedRequest) -> int:
    """The tokens of a request on the provider's bill."""
    return request.input_tokens + request.output_tokens


@pytest.mark.slow
@pytest.mark.accepts("B8", "B15")
async def test_attempt_that_was_killed_is_charged_whole_and_the_next_has_its_own_reservation(
    tell: Tell,
) -> None:
    """Killed during a model call: the provider bills both attempts, and the turn books more than
    that, but less than its budget.
    """
    story = await tell(asks(use("charge", "one"), delay_s=1.5), says("done"))
    story.stub._price = per_million(1, 1)  # the stub counts tokens where they cost something
    worker = await story.worker()
    turn = await story.start(budget=Budget(tokens=BUDGET))
    await story.asked(1)
    await story.replace(worker)

    report = await story.report(turn)

    lost, second, third = story.log()
    assert [report.model_calls, report.spent.model_calls, report.tool_calls] == [3, 3, 1]
    charged = report.spent.tokens - billed(second) - billed(third)
    assert lost.limit is not None
    assert lost.input_tokens + lost.limit <= charged
    assert billed(lost) + billed(second) + billed(third) < report.spent.tokens <= BUDGET
    assert second.limit is not None
    assert second.input_tokens + second.limit <= BUDGET - charged
    assert second.limit < lost.limit
    assert second.sha256 == lost.sha256


@pytest.mark.slow
@pytest.mark.accepts("E23")
async def test_wait_for_iterations_survives_the_kill_of_its_worker(tell: Tell) -> None:
    """The turn still waits after the kill, and the new worker repeats no call once iterations are
    added.
    """
    app = "tests.support.e2e.app:make_pausing"
    story = await tell(asks(use("charge", "one")), asks(use("charge", "two")), says("done"))
    worker = await story.worker(app)
    turn = await story.start(max_iterations=2)
    await until(turn, WaitBegan)
    await kill(worker)
    waits = (await turn.status()).waits
    await story.following(worker, app)
    left = await turn.add_budget(iterations=1)

    report = await story.report(turn)

    assert ([one.kind for one in waits], left.iterations) == (["iterations"], 1)
    assert (len(report.steps), story.requests()) == (3, {1: 1, 2: 1, 3: 1})
    assert story.ran() == [("one", 1), ("two", 1)]
