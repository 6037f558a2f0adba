"""The facts of a session, in the order in which its history has them."""

from __future__ import annotations

from temporalio import workflow

from perdure.session.facts import SessionFact, SteeringFailed, TurnOver, TurnRecorded
from perdure.session.state import SessionState, apply, fold

RESULTS_FIRST = "results-before-updates"
"""The patch since which results come before the updates of their workflow task."""
REFUSED_STARTS_FIRST = "refused-starts-before-updates"
"""The patch since which that is so for a turn whose id is in use, too."""


class Notes:
    """What has happened to a session, and the state that follows.

    The SDK runs the handlers of updates before the code that waits for a result, but history has
    what the server has sent before the updates of the same workflow task.
    """

    def __init__(self) -> None:
        self.state = SessionState()
        self._before = self.state
        self._news: list[SessionFact] = []
        self._results = 0
        self._length = -1

    def note(self, fact: SessionFact) -> None:
        """Note what happens now."""
        self._begin_task()
        self._news.append(fact)
        self.state = apply(self.state, fact)

    def note_end(self, fact: TurnOver) -> None:
        """Note the end of a turn, which history has before the updates of this workflow task."""
        self._begin_task()
        self._note_first(fact)

    def note_result(self, fact: TurnRecorded | SteeringFailed) -> None:
        """Note what history has before the updates of this workflow task, if there are any."""
        self._note_result(fact, RESULTS_FIRST)

    def note_refused(self, fact: TurnOver) -> None:
        """Note that a turn could not be started, as history has it before the updates."""
        self._note_result(fact, REFUSED_STARTS_FIRST)

    def _note_result(self, fact: SessionFact, patch: str) -> None:
        self._begin_task()
        if len(self._news) > self._results and workflow.patched(patch):
            self._note_first(fact)
        else:
            self.note(fact)

    def _note_first(self, fact: SessionFact) -> None:
        self._news.insert(self._results, fact)
        self._results += 1
        self.state = fold(self._news, self._before)

    def _begin_task(self) -> None:
        """Forget the facts of the workflow task before, if this is another task."""
        length = workflow.info().get_current_history_length()
        if length != self._length:
            self._length, self._before, self._news = length, self.state, []
            self._results = 0
