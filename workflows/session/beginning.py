"""How a run of a session takes in its input."""

from __future__ import annotations

from temporalio.common import RawValue

from perdure.errors import PerdureError
from perdure.session.facts import SessionContinued, SessionStarted
from perdure.temporal.histories import session_history
from perdure.workflows import ancestors
from perdure.workflows.session.notes import Notes

Start = SessionStarted | SessionContinued | PerdureError
"""The input of a run, or why it is none."""


def read(start: RawValue) -> Start:
    """Return the input of a run; the error of one that is not valid is raised when it is noted."""
    try:
        return session_history.started(start)
    except PerdureError as error:
        return error


def noted(notes: Notes, start: Start) -> SessionStarted | SessionContinued:
    """Note the input of a run after validation, and return its fact.

    Raises:
        InvalidRequestError: It is not the input of a session, or it is the input of a later run.
    """
    if isinstance(start, PerdureError):
        raise start
    if isinstance(start, SessionStarted):
        start.request.check_budget()
    elif not start.snapshot.is_of_a_fork:
        ancestors.check_continued("the input", patch=ancestors.MADE_UP_REFUSED)
    notes.note(start)
    return start
