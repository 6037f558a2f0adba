"""The model of a fallback chain to ask next. Pure.

A transient error (overloaded, rate limited, too slow, unreachable) is retried once after a pause.
Then the model is benched, and the next model is asked. A pause that the provider asks for and that
is longer than a bench benches the model for that long at once, if there is another model.

If all models failed and some are unavailable, the chain begins again with these after a pause. Each
is asked once, and not before the time that its provider named. If they failed for other reasons or
for too long, the turn fails with `ModelChainExhaustedError`, or with the only model's own error.

The next model is asked without a penalty for the current model:

- after an answer without text or calls, or with more calls than are allowed in one answer;
- after the provider rejects the request or does not know the model;
- if the model cannot take the input. It is then not asked at all.

A benched model is not asked while there is another model, and the step records that. An invalid
key, an unusable setup and a refusal end the turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pydantic import JsonValue

from perdure import errors, limits, validation
from perdure.agents.definitions import Target
from perdure.base import replace
from perdure.errors import LLMError, PerdureError
from perdure.text import one_line
from perdure.turn import circuit_breaker, outages, reservations, retries
from perdure.turn.context_window import NO_CUT, Cut, cut_for, fits
from perdure.turn.facts import CallFailed
from perdure.turn.keys import Key
from perdure.turn.open_step import Attempts
from perdure.turn.situation import Situation
from perdure.turn.state import TurnState
from perdure.turn.transcript import MessagesAbsentError
from perdure.values.messages import AssistantMessage, Message, Thinking
from perdure.values.model_retry import PinnedRetry
from perdure.values.profiles import refusal
from perdure.values.reports import Tried

SKIPPED = "skipped"
"""The context key of an error for a request that was not sent: the worker has benched the model."""

EMPTY = "empty"
"""The context key of an error for an empty answer."""

_FATAL = (
    errors.LLMAuthError,
    errors.LLMBudgetExceededError,
    errors.LLMRefusedError,
    errors.UnknownPriceError,
)
_REASON_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Choice:
    """The model to ask, and the pause before it.

    `round` is the round of the call, and `number` counts the pauses. `others` is set if there is
    another model to ask should this one be benched. `limit` is set if the pause lasts until the end
    of a provider's limit, outside of the turn's time. `passed` has the models that were passed
    over, and `cut` is the part of the transcript that does not fit into the model's window.
    """

    target: Target
    delay: timedelta = timedelta()
    round: int = 0
    number: int = 0
    others: bool = False
    limit: bool = False
    passed: tuple[str, ...] = ()
    cut: Cut = NO_CUT


@dataclass(frozen=True, slots=True)
class Fallback:
    """The chain of models of a turn: which model is asked next, and after which pause."""

    situation: Situation

    def choose(self) -> Choice:
        """Return the model to ask next in this step, and the pause before it.

        Raises:
            PerdureError: The last attempt's own error, if another would not help or would be too
                late.
            ModelChainExhaustedError: The same for a chain of several models.
            TurnBudgetExceededError: The next attempt would come after the time of the turn is up.
            TurnTimeoutError: It would come after the deadline of the turn.
            MessagesAbsentError: The input has to be cut, and the transcript lacks messages.
        """
        choice = self._choose()
        cut = self._cut(choice.target)
        return replace(choice, cut=cut) if cut else choice

    def _pause(self, number: int, asked_s: float) -> timedelta:
        """Return the pause before another attempt, the first being number 1.

        `asked_s` is the pause that the provider asks for.
        """
        assert self._policy is not None
        return outages.pause(self._policy, number, self.situation.outage, asked_s)

    @property
    def _attempts(self) -> Attempts:
        return self.situation.state.attempts

    @property
    def _chain(self) -> tuple[Target, ...]:
        return self.situation.agent.chain

    @property
    def _policy(self) -> PinnedRetry | None:
        return self.situation.agent.model_retry

    def _choose(self) -> Choice:
        unfit = {target.model: reason for target in self._chain if (reason := self._unfit(target))}
        failures = self._attempts.of_round
        tried = {failure.model for failure in failures if not is_skip(failure)}
        untried = [
            target
            for target in self._of_round()
            if target.model not in tried and target.model not in unfit
        ]
        choice = self._again(failures, untried) if failures else None
        if choice is not None:
            return choice
        return self._next(untried, unfit) if untried else self._next_round(unfit)

    def _next(self, untried: Sequence[Target], unfit: Mapping[str, str]) -> Choice:
        """Return the first of the untried models that is not benched, or else the first."""
        failed = {failure.model for failure in self._attempts.of_round}
        resting = {*self.situation.benched, *self._pardoned(), *failed}
        rested = [target for target in untried if target.model not in resting]
        chosen = (rested or self._past_limits(untried) or untried)[0]
        passed = [
            f"{target.model}: {unfit.get(target.model) or 'benched'}"
            for target in self._chain[: self._chain.index(chosen)]
            if target.model not in failed
        ]
        return Choice(
            chosen,
            round=self._attempts.rounds,
            others=bool(rested) and len(untried) > 1,
            passed=tuple(passed),
        )

    def _pardoned(self) -> Iterator[str]:
        """Yield the models whose failures do not count any more, except for the budget's."""
        for failure in self._attempts.failures[: self._attempts.pardoned]:
            if failure.error.code != errors.LLMBudgetExceededError.code:
                yield failure.model

    def _past_limits(self, targets: Sequence[Target]) -> Sequence[Target]:
        """Return the models whose provider does not ask for a pause, after a wait for a limit."""
        if self._policy is None or not self._policy.waits_for_limits:
            return ()
        return [target for target in targets if not self._asked_s(target)]

    def _again(self, failures: Sequence[CallFailed], untried: Sequence[Target]) -> Choice | None:
        """Return the same model for another attempt; None if another model is next.

        Raises:
            PerdureError: Another attempt would not help with any model.
        """
        last, agent = failures[-1], self.situation.agent
        if retries.repeats_lost(failures):
            return Choice(agent.target(last.model), round=self._attempts.rounds)
        error = errors.from_info(last.error)
        may_pass = self._may_pass(failures, error)
        if last.lost or isinstance(error, _FATAL) or not (may_pass or isinstance(error, LLMError)):
            raise error
        if not may_pass:
            return None
        if self._policy is not None:
            return self._again_by_policy(self._policy, last, error)
        has_other = any(target.model not in self.situation.benched for target in untried)
        if has_other and circuit_breaker.is_long(retries.asked_pause_s(error)):
            return None
        return Choice(agent.target(last.model), retries.pause_after(error))

    def _may_pass(self, failures: Sequence[CallFailed], error: PerdureError) -> bool:
        """Return whether the last of these failures may pass, so that its model is asked again."""
        if len(self._chain) > 1 and {SKIPPED, EMPTY} & set(error.context):
            return False
        last = failures[-1]
        of_model = [
            failure
            for failure in failures
            if failure.model == last.model and (failure is last or not is_skip(failure))
        ]
        return retries.may_pass(of_model)

    def _again_by_policy(
        self, policy: PinnedRetry, last: CallFailed, error: PerdureError
    ) -> Choice | None:
        """Return the same model for another attempt; None if a pause would be long or too late."""
        asked_s = retries.asked_pause_s(error, validation.LONGEST)
        is_long = len(self._chain) > 1 and circuit_breaker.is_long(asked_s)
        if is_away(last) and (self._attempts.rounds > 0 or is_long):
            return None  # another round asks it, after the other models
        delay = self._pause(1, asked_s)
        limit = outages.is_limit(policy, asked_s, len(self._attempts.failures))
        if not limit and outages.lasts_too_long(policy, delay, self.situation.outage):
            return None
        target = self.situation.agent.target(last.model)
        return Choice(target, delay, self._attempts.rounds, number=1, limit=limit)

    def _of_round(self) -> Sequence[Target]:
        """Return the models that a round may ask.

        The first round may ask all of them. Later rounds may ask those whose provider is
        unavailable and has not asked for a pause.
        """
        if not self._attempts.rounds:
            return self._chain
        return [target for target in self._away() if not self._asked_s(target)]

    def _away(self) -> list[Target]:
        """Return the models whose provider was unavailable at their last attempt."""
        last = {failure.model: failure for failure in self._attempts.unpardoned}
        return [
            target for target in self._chain if target.model in last and is_away(last[target.model])
        ]

    def _asked_s(self, target: Target) -> float:
        """Return the rest of the pause that the provider of a model asked for; 0 without it."""
        return self.situation.outage.asked_s.get(target.model, 0.0)

    def _next_round(self, unfit: Mapping[str, str]) -> Choice:
        """Begin the chain again after a pause, if a provider is unavailable.

        Raises:
            PerdureError: No provider is unavailable, or the pause would be too long.
        """
        policy, attempts = self._policy, self._attempts
        away = [target for target in self._away() if target.model not in unfit]
        error = _exhausted(self._chain, attempts.unpardoned, unfit)
        if policy is None or not away:
            raise error
        first = min(away, key=self._asked_s)
        number, asked_s = attempts.rounds + 2, self._asked_s(first)
        delay = self._pause(number, asked_s)
        if outages.is_limit(policy, asked_s, len(attempts.failures)):
            return Choice(first, delay, attempts.rounds + 1, number, limit=True)
        delay = self._in_time(policy, delay, error)
        ready = (target for target in away if self._asked_s(target) <= delay.total_seconds())
        return Choice(next(ready, first), delay, attempts.rounds + 1, number)

    def _in_time(self, policy: PinnedRetry, delay: timedelta, error: PerdureError) -> timedelta:
        """Return the pause before another round, cut to the time left if a last answer may follow.

        Raises:
            PerdureError: The pause would be too long.
        """
        outage = self.situation.outage
        if outage.time_left is not None and self._may_finish(policy, delay):
            # time is reserved for the last answer, and a late request for it is better than none
            return min(delay, outage.time_left)
        if outages.lasts_too_long(policy, delay, outage):
            sent = sum(not is_skip(failure) for failure in self._attempts.unpardoned)
            error = outages.given_up(error, policy, delay, outage, sent)
            raise error from error.__cause__
        return delay

    def _may_finish(self, policy: PinnedRetry, delay: timedelta) -> bool:
        """Return whether a last answer may follow a pause that only the turn's time cuts off."""
        state, agent, outage = self.situation.state, self.situation.agent, self.situation.outage
        return (
            agent.on_exhausted == "finish"
            and not state.finishing
            and not outages.is_past_deadline(delay, outage)
            and not outages.is_over_elapsed(policy, delay, outage)
        )

    def _unfit(self, target: Target) -> str:
        """Return why a model cannot take the input; empty if it can, or if that is unknown."""
        media = self.situation.state.transcript.media
        refused = next(filter(None, (refusal(part, target.media) for part in media)), "")
        if refused:
            return refused
        if self._cut(target) is None:
            return f"its window of {target.window} tokens is too small"
        return ""

    def _cut(self, target: Target) -> Cut | None:
        """Return the cut for a model; None if even the shortest input is too long for it.

        Raises:
            MessagesAbsentError: The input has to be cut, and the transcript lacks messages.
        """
        state = self.situation.state
        transcript, estimate = state.transcript, state.tokens.estimate
        before = transcript.cut(target.model)
        output = state.options(self.situation.agent).max_output_tokens
        if output is None and reservations.is_limited(state.accounts.ledger):
            output = limits.OUTPUT_TOKENS
        if transcript.absent and not fits(before, estimate, target.window, output):
            raise MessagesAbsentError
        return cut_for(
            transcript.messages,
            before,
            estimate,
            target.window,
            opening=transcript.opening,
            output_tokens=output,
        )


def is_away(failure: CallFailed) -> bool:
    """Return whether an attempt failed because the provider was unavailable.

    This includes requests that were not sent because the worker had benched the model.
    """
    return (
        not failure.lost
        and EMPTY not in failure.error.context
        and outages.is_away(errors.from_info(failure.error))
    )


def is_skip(failure: CallFailed) -> bool:
    """Return whether the request was not sent, because the worker had benched the model."""
    return SKIPPED in failure.error.context


def is_penalty(error: PerdureError) -> bool:
    """Return whether an error counts against the health of the model."""
    return (
        isinstance(error, LLMError)
        and error.transient
        and not {SKIPPED, EMPTY} & set(error.context)
    )


def _exhausted(
    chain: Sequence[Target], failures: Sequence[CallFailed], unfit: Mapping[str, str]
) -> PerdureError:
    """Return the error of a turn whose models all failed: of the chain, or of the only model."""
    last = {failure.model: errors.from_info(failure.error) for failure in failures}
    by_model: dict[str, PerdureError] = {}
    for target in chain:
        by_model[target.model] = last.get(target.model) or errors.LLMInvalidRequestError(
            f"{target.model}: {unfit.get(target.model, 'not asked')}",
            context={"model": target.model},
        )
    if len(by_model) == 1:
        return by_model.popitem()[1]
    targets: dict[str, JsonValue] = {
        model: {
            "code": error.code,
            "severity": error.severity.value,
            "message": one_line(error.message, _REASON_CHARACTERS),
        }
        for model, error in by_model.items()
    }
    reasons = "; ".join(f"{model}: {error.code}" for model, error in by_model.items())
    return errors.ModelChainExhaustedError(
        f"every model of the chain failed: {reasons}", context={"targets": targets}
    )


def for_target(messages: tuple[Message, ...], model: str) -> Iterator[Message]:
    """Yield the messages to send to `model`.

    They contain its own thoughts, whose signatures it checks, and not the thoughts of other models.
    """
    for message in messages:
        if not isinstance(message, AssistantMessage) or not any(
            _is_foreign(part, model) for part in message.parts
        ):
            yield message
            continue
        parts = tuple(part for part in message.parts if not _is_foreign(part, model))
        if parts:
            yield message.model_copy(update={"parts": parts})


def _is_foreign(part: object, model: str) -> bool:
    return isinstance(part, Thinking) and part.by is not None and part.by != model


def with_author(message: AssistantMessage, model: str) -> AssistantMessage:
    """Return the message with its thoughts marked as thoughts of `model`, as `provider:model`."""
    if not any(isinstance(part, Thinking) for part in message.parts):
        return message
    marked = (
        part.model_copy(update={"by": model}) if isinstance(part, Thinking) else part
        for part in message.parts
    )
    return message.model_copy(update={"parts": tuple(marked)})


def target_of(state: TurnState, key: Key) -> Target | None:
    """Return the model of a call in flight; None before the agent is known."""
    if state.agent is None:
        return None
    return state.agent.target(state.in_flight.get(key, ""))


def tried(state: TurnState) -> tuple[Tried, ...]:
    """Return the models that did not answer before the model that did.

    Models that failed or were benched come first, in order, then those that were passed over.
    """
    failures = [failure for failure in state.attempts.failures if failure.model]
    failed = [
        Tried(model=failure.model, reason="benched" if is_skip(failure) else failure.error.code)
        for failure in failures
    ]
    if state.attempts.rounds:  # an outage of hours has hundreds of equal entries
        failed = list(dict.fromkeys(failed))
    passed = (entry.partition(": ") for entry in state.attempts.passed)
    return (*failed, *(Tried(model=model, reason=reason) for model, _, reason in passed))
