"""Workers that are killed while a turn is handed over, and between that and the next call."""

import pytest

from ..support.e2e.stories import Tell, asks, results, says, use
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor

__all__ = ["has_supervisor"]

APP = "tests.support.e2e.handoff_app:make"


@pytest.mark.slow
@pytest.mark.accepts("D46")
async def test_turn_is_handed_over_once_although_its_workers_are_killed(tell: Tell) -> None:
    """One dies while it resolves the other agent, the next one before that agent has answered: the
    first agent is not asked again, and the other one goes on.
    """
    over = {"name": "hand_over", "arguments": {"agent": "cashier", "message": "take the money"}}
    story = await tell(
        asks(over),  # type: ignore[arg-type]
        asks(use("charge", "one"), delay_s=1.5),
        says("done"),
    )
    first = await story.worker(APP)
    turn = await story.start()
    second = await story.following(first, APP)
    await story.asked(2)
    await story.replace(second, APP)

    report = await story.report(turn)

    assert (report.last_agent, [step.agent for step in report.steps]) == (
        "cashier",
        ["", "cashier", "cashier"],
    )
    assert results(report) == [
        "Handed over to cashier, which goes on from here.",
        "one by attempt 1",
    ]
    assert story.requests() == {1: 1, 2: 2, 3: 1}
    assert [request["model"] for request in story.stub.requests] == ["clerk", *["cashier"] * 3]
    attempts = await story.attempts(turn)
    # a poll of the dead process may take the next attempt along
    assert attempts.pop("step-1.call-1.agent") >= 2
    assert attempts.pop("step-2") >= 2
    assert attempts == {"step-1": 1, "step-2.call-1": 1, "step-3": 1}
