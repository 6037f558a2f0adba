"""The person of a simulation, who logs in at an MCP server: for a call that waits, or at any time.

Logging in answers all calls that wait for it. The server takes some logins back.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from functools import partial

from perdure.temporal.names import DECIDE, TURN
from perdure.temporal.payloads import pack
from perdure.testing.simulation.calls.logins import LOGINS, SUBJECT, PersonalServer
from perdure.testing.simulation.people import People, SentRequest
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.turn import questions
from perdure.turn.inquiries import CONSENT
from perdure.values.approvals import Decision, PendingApproval

_PLANS = ("once", "once", "once", "twice", "stale", "unanswered", "less", "never")
_DELAYS_S = (1, 0, 0.05, 5, 20, 400)
_MOMENTS = 150


class LoggingIn:
    """Logs the person in, and answers the calls that wait for that."""

    def __init__(self, server: SimulatedServer, diary: PersonalServer, people: People) -> None:
        self._server = server
        self._choices = server.choices
        self._diary = diary
        self._people = people
        self._planned: set[tuple[str, str, str]] = set()
        self._count = 0
        if self._choices.happens(8, beside=LOGINS):
            diary.log_in(())
        server.on_event.append(self._watch)

    def _watch(self, run: SimulatedRun) -> None:
        """See which calls wait for a login; at times, log in or lose the login meanwhile."""
        if run.begun.type != TURN or run.closed:
            return
        for pending, scopes in _waiting(run):
            if (place := (run.id, pending.call_id, pending.digest)) not in self._planned:
                self._planned.add(place)
                self._server.counts["logins asked for"] += 1
                self._plan(run.id, pending, scopes)
        if self._choices.happens(_MOMENTS, beside=LOGINS):
            is_in = self._diary.scopes is not None
            self._server.clock.later(0, self._end if is_in else partial(self._diary.log_in, ()))

    def _plan(self, turn_id: str, pending: PendingApproval, scopes: Collection[str]) -> None:
        plan = self._choices.pick(_PLANS, beside=LOGINS)
        if plan == "never":
            return
        log_in = partial(self._log_in, () if plan == "less" else scopes, plan != "unanswered")
        self._later(log_in)
        if plan == "twice":
            self._later(log_in)
        if plan == "stale":
            self._later(partial(self._answer, turn_id, pending))

    def _later(self, does: partial[None]) -> None:
        self._server.clock.later(self._choices.pick(_DELAYS_S, beside=LOGINS), does)

    def _log_in(self, scopes: Collection[str], answers: bool) -> None:
        """Log in. The client that has brought the person back may be lost before it answers."""
        self._server.counts["logins"] += 1
        self._diary.log_in(scopes)
        for run in self._server.runs if answers else ():
            if run.begun.type == TURN and not run.closed:
                for pending, _ in _waiting(run):
                    self._answer(run.id, pending)

    def _end(self) -> None:
        self._diary.scopes = None

    def _answer(self, turn_id: str, pending: PendingApproval) -> None:
        """Say that the person has logged in, also if the call has gone on since."""
        run = self._server.run_of(turn_id)
        if run is None:
            return
        decision = Decision(
            call_id=pending.call_id,
            digest=pending.digest,
            approve=True,
            answer=json.dumps(CONSENT),
            by=SUBJECT,
        )
        self._count += 1
        update_id = f"login-{self._count}"
        update = self._server.update(run, update_id, DECIDE, pack(decision))
        self._people.sent.append(SentRequest(turn_id, update_id, DECIDE, decision, update))


def _waiting(run: SimulatedRun) -> Iterator[tuple[PendingApproval, Collection[str]]]:
    """Yield the calls of a run that wait for a login, with the scopes that are asked for."""
    waiting = run.read.waiting
    for pending in waiting.pending if waiting else ():
        question = questions.question_of(run.read, pending.call_id) if pending.is_question else None
        if question is not None and question.login is not None:
            yield pending, question.login.scopes
