"""Workers that are killed with `kill -9` between a change of the shared state and its record."""

from __future__ import annotations

import pytest

from ..support.e2e.stories import Tell, asks, says, use
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor

__all__ = ["has_supervisor"]

APP = "tests.support.e2e.app:make_keeping"


@pytest.mark.slow
@pytest.mark.accepts("F35")
async def test_change_counts_with_the_result_that_is_recorded(tell: Tell) -> None:
    """That of the attempt that returned: the first one has changed it, too, and was killed."""
    story = await tell(asks(use("keep", "one")), asks(use("keep", "two", first_s=60)), says("done"))
    story.app = APP
    worker = await story.worker()
    turn = await story.start(shared_state={"zero": 0})
    await story.begun("two")
    before = await turn.shared_state()
    await story.replace(worker)

    report = await story.report(turn)

    assert before == {"zero": 0, "one": 1}
    assert report.shared_state == {"zero": 0, "one": 1, "two": 2}
    assert story.ran() == [("one", 1), ("two", 1), ("two", 2)]


@pytest.mark.slow
@pytest.mark.accepts("F35")
async def test_call_without_a_result_has_changed_nothing(tell: Tell) -> None:
    """Its outcome is unknown, and it is not made again."""
    story = await tell(asks(use("keep_once", "one", first_s=60)), says("done"))
    story.app = APP
    worker = await story.worker()
    turn = await story.start()
    await story.begun("one")
    await story.replace(worker)

    report = await story.report(turn)

    assert report.shared_state == {}
    assert [call.tool for call in report.unsettled] == ["keep_once"]
