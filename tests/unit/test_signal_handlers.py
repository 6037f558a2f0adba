"""The handlers of a turn's signals: the turn may end while one of them waits."""

from __future__ import annotations

from inspect import iscoroutinefunction

import pytest
from temporalio.workflow import HandlerUnfinishedPolicy, _Definition

from perdure.workflows.turn.agent_turn import AgentTurn


@pytest.mark.accepts("S51")
def test_handlers_that_wait_are_dropped_with_their_turn() -> None:
    """They have noted what has come before they wait, so the SDK has nothing to warn of."""
    handlers = _Definition.must_from_class(AgentTurn).signals.values()
    waiting = [handler for handler in handlers if iscoroutinefunction(handler.fn)]

    assert len(waiting) == 3
    assert {handler.unfinished_policy for handler in waiting} == {HandlerUnfinishedPolicy.ABANDON}
