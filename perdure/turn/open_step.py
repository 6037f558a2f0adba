"""The open step: the last answer, its calls, and the failed attempts since then. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from perdure.base import replace
from perdure.errors import ErrorInfo, TurnCancelledError
from perdure.turn.approvals import OPEN, Gate
from perdure.turn.effect_values import Doubt
from perdure.turn.facts import CallFailed
from perdure.turn.inquiry_values import CallInquiry
from perdure.turn.job_values import CallJob
from perdure.turn.keys import CarryKey, ToolKey
from perdure.turn.ledger import Bill
from perdure.turn.wait_values import CallWait
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import Decision
from perdure.values.losses import CallLoss
from perdure.values.messages import ToolCall, ToolResult
from perdure.values.reports import Tried

_RESULT, _DOUBT = attrgetter("result"), attrgetter("doubt")


@dataclass(frozen=True)
class OpenCall:
    """A call of the open step: what the model asked for, its approval, and its result.

    `result` is None until the call has a result. `doubt` is set while it is found out what became
    of the call. `loss` says how the answer of its last attempt was lost, if it was. `wait` is set
    once the call waits, for a tool that waits or a job. `job` is set once there is something to
    know of the job of a tool whose result comes later, and `inquiry` once a server has asked people
    something during the call.
    """

    call: ToolCall
    gate: Gate = OPEN
    result: ToolResult | None = None
    doubt: Doubt | None = None
    loss: CallLoss | None = None
    wait: CallWait | None = None
    job: CallJob | None = None
    inquiry: CallInquiry | None = None

    @property
    def is_begun(self) -> bool:
        """Whether it was begun, so that it only waits from now on."""
        return self.wait is not None or self.job is not None

    @property
    def edited(self) -> ToolCall:
        """The call, with the arguments that a person gave it, if any."""
        return self.gate.edited(self.call)

    @property
    def is_asked(self) -> bool:
        """Whether it waits for a person: to allow it, to say what became of it, or to answer."""
        return self.is_asked_by_server or (
            self.result is None and (self.gate.status == "asked" or self.is_settled_by_people)
        )

    @property
    def is_asked_by_server(self) -> bool:
        """Whether a person has to answer what a server asks during the call."""
        has_result = self.result is not None or (self.job is not None and self.job.output)
        return self.inquiry is not None and bool(self.inquiry.questions) and not has_result

    @property
    def is_settled_by_people(self) -> bool:
        """Whether a person has to say what became of it."""
        return self.doubt is not None and self.doubt.waits

    @property
    def question(self) -> Gate:
        """Its gate, with the reason why a person is asked, if there is a special one."""
        if self.inquiry is not None and self.is_asked_by_server:
            until = self.wait.until if self.job is not None and self.wait is not None else None
            asks = {"status": "asked", "asks": True, "reason": self.inquiry.reason, "until": until}
            return self.gate.model_copy(update=asks)
        if self.doubt is None or not self.doubt.waits:
            return self.gate
        changes = {"status": "asked", "reason": self.doubt.reason, "is_unknown": True}
        return self.gate.model_copy(update=changes)


@dataclass(frozen=True)
class OpenStep:
    """The last answer and its calls. Once every call has a result, the step is closed.

    Attributes:
        answer: The last answer; None before the first, and while the turn's last is requested.
        calls: Its calls; empty once the step is closed.
        decisions: The decisions of people about the calls.
        objections: The number of consecutive answers objected to, including the current answer.
        tried: The models that did not answer before this answer.
        bill: The charge for the answer.
        unpassed: The number of middlewares that have yet to let this last answer pass.
        broken: The error of a call that ends the turn.
    """

    answer: ModelAnswer | None = None
    calls: tuple[OpenCall, ...] = ()
    decisions: tuple[Decision, ...] = ()
    objections: int = 0
    tried: tuple[Tried, ...] = ()
    bill: Bill | None = None
    unpassed: int = 0
    broken: ErrorInfo | None = None

    def find(self, position: int) -> OpenCall | None:
        """Return the call at a place, counted from 1; None if there is none."""
        return self.calls[position - 1] if 0 < position <= len(self.calls) else None

    def at(self, position: int) -> OpenCall:
        """Return the call at a place; there must be one."""
        return self.calls[position - 1]

    def place_of(self, call_id: str) -> int | None:
        """Return the place of the call with this id; None if there is none."""
        return next(
            (
                position
                for position, open_call in enumerate(self.calls, 1)
                if open_call.call.id == call_id
            ),
            None,
        )

    @property
    def unfinished(self) -> tuple[tuple[int, OpenCall], ...]:
        """The calls without a result, each with its place."""
        return tuple(
            (position, open_call)
            for position, open_call in enumerate(self.calls, 1)
            if open_call.result is None
        )

    @property
    def is_finished(self) -> bool:
        """Whether every call has a result."""
        return all(map(_RESULT, self.calls))  # `map` runs no bytecode per call

    @property
    def has_doubts(self) -> bool:
        """Whether the outcome of a call is unknown, and is being found out."""
        return any(map(_DOUBT, self.calls))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The results so far, in the order of the calls."""
        return tuple(open_call.result for open_call in self.calls if open_call.result is not None)

    def with_call(self, position: int, call: OpenCall) -> OpenStep:
        """Return the step with this call at a place."""
        return replace(self, calls=(*self.calls[: position - 1], call, *self.calls[position:]))

    def closed(self) -> OpenStep:
        """Return the step without its calls, which all have results."""
        return replace(self, calls=(), decisions=())


@dataclass(frozen=True)
class Attempts:
    """The failed attempts since the last answer, of model calls, policies and tools.

    Attributes:
        failures: The failures, in their order.
        pardoned: The number of earliest failures that do not count, because the turn was resumed.
        rounds: The number of times that the chain of models has begun again since.
        round_at: The number of failures before the last round.
        passed: The models that were passed over for the last model call, as `model: reason`.
        stopped: The number of model calls that were stopped, so that the model reads a message of
            the user; they are not among the failures.
    """

    failures: tuple[CallFailed, ...] = ()
    pardoned: int = 0
    rounds: int = 0
    round_at: int = 0
    passed: tuple[str, ...] = ()
    stopped: int = 0

    @property
    def unpardoned(self) -> tuple[CallFailed, ...]:
        """The failures that count."""
        return self.failures[self.pardoned :]

    @property
    def of_round(self) -> tuple[CallFailed, ...]:
        """The failures of the current round."""
        return self.failures[max(self.pardoned, self.round_at) :]

    def count(self, step: int, call: int) -> int:
        """Return the number of failed attempts of a call, or of the model call if `call` is 0."""
        failed = sum(
            1 for failure in self.failures if (failure.key.step, failure.key.call) == (step, call)
        )
        return failed if call else failed + self.stopped

    def has_lost(self, key: ToolKey) -> bool:
        """Return whether an attempt of this call was lost."""
        return any(
            failure.lost and (failure.key.step, failure.key.call) == (key.step, key.call)
            for failure in self.failures
            if isinstance(failure.key, ToolKey)
        )

    def plus(self, failure: CallFailed) -> Attempts:
        """Return the attempts with another failure."""
        return replace(self, failures=(*self.failures, failure))

    def without(self, call: int) -> Attempts:
        """Return the attempts without the failures of a call that has a result now."""
        if not self.failures:
            return self
        failures = tuple(failure for failure in self.failures if failure.key.call != call)
        return replace(self, failures=failures, pardoned=min(self.pardoned, len(failures)))

    def without_carries(self) -> Attempts:
        """Return the attempts except of activities that carried over a part of a state."""
        failures = tuple(
            failure for failure in self.failures if not isinstance(failure.key, CarryKey)
        )
        return replace(self, failures=failures, pardoned=min(self.pardoned, len(failures)))

    def interrupted(self) -> Attempts:
        """Return the attempts without the calls that were stopped. The model is asked anew."""
        failures = tuple(
            failure for failure in self.failures if failure.error.code != TurnCancelledError.code
        )
        stopped = self.stopped + len(self.failures) - len(failures)
        return replace(self, failures=failures, stopped=stopped).pardon()

    def pardon(self) -> Attempts:
        """Return the attempts with no failure counted."""
        return replace(self, pardoned=len(self.failures), rounds=0, round_at=0)

    def of_call(self, number: int, passed: tuple[str, ...]) -> Attempts:
        """Return the attempts at a model call in round `number` that passes these models over."""
        passed = passed or self.passed
        if number > self.rounds:
            return replace(self, rounds=number, round_at=len(self.failures), passed=passed)
        return self if passed == self.passed else replace(self, passed=passed)
