"""Whoever sends the results of jobs in a simulation: once, twice, too early, too late, and forged.

Their client sends an update again, with the same id, if the run has ended before it was answered.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TypeVar

from perdure.temporal.names import FINISH_CALL, TURN
from perdure.temporal.payloads import pack
from perdure.testing.simulation.calls.jobs import ABOUT_JOBS, JobService, StartedJob
from perdure.testing.simulation.choices import FORGERIES
from perdure.testing.simulation.people import SentRequest
from perdure.testing.simulation.server.runs import SimulatedRun, UpdateResponse
from perdure.testing.simulation.server.server import BrokenError, SimulatedServer
from perdure.turn import call_tokens, client_calls
from perdure.turn.job_values import FinishCall

T = TypeVar("T")

_PLANS = ("once", "once", "twice", "another", "at once", "forged", "elsewhere", "never")
_DELAYS_S = (1, 0, 0, 0.05, 0.6, 3, 3, 19.9, 25, 300)
_FORGED_AFTER_S = 0.3
_PAUSE_S = 1.5
_ATTEMPTS = 20


class ResultSenders:
    """Send results for each job that was started."""

    def __init__(self, server: SimulatedServer, service: JobService) -> None:
        self._server = server
        self._choices = server.choices
        self._service = service
        self._count = 0
        service.on_start.append(self._begun)

    def _begun(self, job: StartedJob) -> None:
        self._server.counts["jobs"] += 1
        self.plan(job.activity.run.id, job.token, has_effect=job.has_effect)

    def plan(self, turn_id: str, token: str, *, has_effect: bool = False) -> None:
        """Plan what is sent for a call, and when."""
        new_result = partial(self._result, token if has_effect else "")
        if self._choices.aims_at(FORGERIES):
            self._later(turn_id, _FORGED_AFTER_S, self._forged(token), *new_result())
        plan, first = self._pick(_PLANS), new_result()
        if plan == "never":
            return
        delay_s = self._pick(_DELAYS_S)
        later_s = delay_s if plan == "at once" else self._pick(_DELAYS_S)
        self._later(turn_id, delay_s, token, *first)
        match plan:
            case "twice":
                self._later(turn_id, later_s, token, *first)
            case "another" | "at once":
                self._later(turn_id, later_s, token, *new_result())
            case "forged":
                self._later(turn_id, later_s, self._forged(token), *new_result())
            case "elsewhere":
                content, is_error = new_result()
                send = partial(self._send_elsewhere, token, content, is_error)
                self._server.clock.later(later_s, send)

    def _pick(self, options: tuple[T, ...]) -> T:
        return self._choices.pick(options, beside=ABOUT_JOBS)

    def _result(self, token_of_effect: str) -> tuple[str, bool]:
        """Return a result that nobody has sent yet, and whether it is a failure.

        All results of a job with an effect say the same of that: the effect is there or not.
        """
        self._count += 1
        is_error = self._choices.happens(5, beside=ABOUT_JOBS)
        if token_of_effect:
            is_error = self._service.fails.setdefault(token_of_effect, is_error)
        return f"result {self._count};", is_error

    def _forged(self, token: str) -> str:
        """Return a token that names the same call, with a secret that somebody has made up."""
        parsed = call_tokens.parse(token)
        made_up = call_tokens.make("made up", parsed.turn_id, parsed.key, parsed.call)
        return self._pick((made_up, token[:-4], "call_nonsense"))

    def _later(
        self, turn_id: str, delay_s: float, token: str, content: str, is_error: bool
    ) -> None:
        self._server.clock.later(delay_s, partial(self._begin, turn_id, token, content, is_error))

    def _begin(self, turn_id: str, token: str, content: str, is_error: bool) -> None:
        """Send a result to the turn of a job."""
        run = self._server.run_of(turn_id)
        if run is not None:
            self._send(run, token, content, is_error)

    def _send_elsewhere(self, token: str, content: str, is_error: bool) -> None:
        """Send a result to a turn that its token does not name."""
        own = call_tokens.parse(token).turn_id
        open_runs = [one for one in self._server.runs if not one.closed and one.begun.type == TURN]
        others = [run for run in open_runs if run.id != own]
        if others:
            self._send(self._pick(tuple(others)), token, content, is_error)

    def _send(self, run: SimulatedRun, token: str, content: str, is_error: bool) -> None:
        finish = FinishCall(token=token, content=content, is_error=is_error, by=f"of {content}")
        text = f"{token}\n{is_error}\n{content}"
        update_id = hashlib.sha256(text.encode()).hexdigest()[:32]
        update = self._server.update(run, update_id, FINISH_CALL, pack(finish))
        sent = SentRequest(run.id, update_id, FINISH_CALL, finish, update)
        if _is_awaited(run, token):
            self._server.clock.later(_PAUSE_S, partial(self._check, run, sent))
        self._server.clock.later(_PAUSE_S, partial(self._repeat, sent, _ATTEMPTS))

    def _check(self, run: SimulatedRun, sent: SentRequest) -> None:
        """Check that a call which has waited for its client since has not refused the result.

        Raises:
            BrokenError: It has.
        """
        assert isinstance(sent.content, FinishCall)
        is_refused = sent.is_answered and sent.last.answer is not UpdateResponse.COMPLETED
        if is_refused and not run.closed and _is_awaited(run, sent.content.token):
            message = f"{sent.content.content!r} is refused, and its call still waits"
            raise BrokenError("clients run their tools", message, run)

    def _repeat(self, sent: SentRequest, attempts: int) -> None:
        """Send a result again, if its run has ended without an answer, or just so."""
        run = self._server.run_of(sent.workflow_id)
        is_missing = not sent.is_answered
        if run is None or not (is_missing or self._choices.happens(6, beside=ABOUT_JOBS)):
            return
        sent.last = self._server.update(run, sent.id, sent.name, pack(sent.content))
        if is_missing and attempts:
            self._server.clock.later(_PAUSE_S, partial(self._repeat, sent, attempts - 1))


def _is_awaited(run: SimulatedRun, token: str) -> bool:
    """Return whether a call of this token waits for the client of its turn."""
    return any(call.token == token for call in client_calls.awaited(run.read, run.id))
