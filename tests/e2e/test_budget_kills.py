"""Budgets and workers that are killed: what nobody knows the outcome of is charged, so the
provider's bill is never above what was booked.
"""

import pytest

from perdure import Budget
from perdure.testing.stub_provider import LoggedRequest, per_million

from .stories import Tell, asks, kill, says, use

BUDGET = 20_000


def billed(request: LoggedRequest) -> int:
    """The tokens of a request on the provider's bill."""
    return request.input_tokens + request.output_tokens


@pytest.mark.slow
@pytest.mark.accepts("B8", "B15")
async def test_attempt_that_was_killed_is_charged_whole_and_the_next_has_its_own_reservation(
    tell: Tell,
) -> None:
    """Killed while the model thinks: the provider bills both attempts, the turn has booked more
    than that, and less than its budget.
    """
    story = await tell(asks(use("charge", "one"), delay_s=1.5), says("done"))
    story.stub._price = per_million(1, 1)  # the stub counts tokens where they cost something
    worker = await story.worker()
    turn = await story.start(budget=Budget(tokens=BUDGET))
    await story.asked(1)
    await kill(worker)
    await story.worker()

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
