"""How a run of a session takes in its input."""

from __future__ import annotations

from temporalio.common import RawValue

from perdure.errors import PerdureError
from perdure.session.facts import SessionContinued, SessionStarted
from perdure.temporal.histories import session_history
from perdure.workflows import ancestors
from perdure.workflows.session.notes import Notes


def noted(notes: Notes, start: RawValue) -> SessionStarted | SessionContinued:
    """Note the input of a run after validation, and return its fact.

    Raises:
        InvalidRequestError: It is not the input of a session, or it is the input of a later run.
    """
    fact = session_history.started(start)
    if isinstance(fact, SessionStarted):
        fact.request.check_budget()
    elif not fact.snapshot.is_of_a_fork:
        ancestors.check_continued("the input", patch=ancestors.MADE_UP_REFUSED)
    notes.note(fact)
    return fact


def is_without_update(start: RawValue) -> bool:
    """Return whether a run begins without a message: a fork, and a run that continues another one.

    Its first task may do nothing. Then the SDK does it once more together with the next task, or
    apart from it in a replay (temporalio/sdk-rust#1146). So an update is not to wait for the input
    of the run: that would be another order of answers.
    """
    try:
        return isinstance(session_history.started(start), SessionContinued)
    except PerdureError:
        return False
