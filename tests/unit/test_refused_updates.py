"""An update that is refused leaves no trace in history: a replay does without it.

The SDK looks at the conditions of a workflow once more for it, before the other events of its
workflow task: time, and the length of the history, have changed then.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure import errors
from perdure.session.wire import SessionReason, SessionRequest, Unqueue
from perdure.temporal.names import INTERRUPT, SESSION, STEER, TURN, UNQUEUE
from perdure.testing.simulation.server.clock import START
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.turn.history_limits import run_events
from perdure.turn.wire import Origin, TurnRequest
from perdure.values.tasks import Task
from perdure.workflows.moving import ONE_TASK

from ..support.scripted_server import ScriptedRun

SHORT = timedelta(seconds=0.15)
"""A workflow task timeout, which limits the length of a run."""
IDLE = timedelta(seconds=100)
LONG_NAME = SessionReason(by="a" * 2000)
"""What a session refuses, and a turn as a message."""


def nearly_full() -> ScriptedRun:
    """A session that waits, and is full with the next event."""
    made = ScriptedRun(SESSION, SessionRequest(agent="first", idle=IDLE), SHORT)
    while len(made.events) + 3 < run_events(SHORT):
        made.update(UNQUEUE, Unqueue(id="none"))
        made.work()
    return made


@pytest.mark.accepts("S52", "S54")
def test_session_that_is_idle_for_too_long_as_it_is_full() -> None:
    """It ends, with the update as without."""
    made = nearly_full()
    made.later(IDLE.total_seconds())
    made.fires(IDLE)
    made.refused(INTERRUPT, LONG_NAME)

    made.replay()
    assert name_of(made.events[-1]) == "WORKFLOW_EXECUTION_COMPLETED"


@pytest.mark.accepts("S52")
def test_session_goes_on_in_a_new_run_once_it_is_full() -> None:
    """After an update that it accepts."""
    made = nearly_full()
    made.refused(INTERRUPT, LONG_NAME)
    assert not made.has_timer(ONE_TASK)
    made.update(INTERRUPT, SessionReason())
    made.work()
    made.fires(ONE_TASK)
    made.work()

    made.replay()
    assert name_of(made.events[-1]) == "WORKFLOW_EXECUTION_CONTINUED_AS_NEW"


@pytest.mark.accepts("S53")
def test_fork_whose_time_is_up_before_it_has_the_messages() -> None:
    """It ends as timed out, and not with the failure after which it was to read them again."""
    origin = Origin(turn_id="other", run_id="run", steps=1, digest="0")
    task, before = Task(content="Go."), timedelta(seconds=9.5)
    deadline = START + before + timedelta(seconds=0.5)
    made = ScriptedRun(
        TURN, TurnRequest(agent="first", task=task, origin=origin, deadline=deadline)
    )
    made.later(before.total_seconds())
    made.loses("carry-1")
    made.work()
    made.later(0.5)
    made.fires(before + timedelta(seconds=0.5))
    made.refused(STEER, LONG_NAME)

    made.replay()
    [failed] = made.written("WORKFLOW_EXECUTION_FAILED")
    kind = attributes(failed).failure.application_failure_info.type
    assert kind == errors.TurnTimeoutError.code
