"""The model of a fallback chain to ask next. Pure.

A transient error (overloaded, rate limited, too slow, unreachable) is retried once after a pause.
Then the model is benched, and the next one is asked. A pause that the provider asks for and that is
longer than a bench benches the model for that long at once, if there is another model.

If all models failed and some are unavailable, the chain begins again with these after a pause. Each
is asked once, and not before the time that its provider named. If they failed for other reasons or
for too long, the turn fails with `ModelChainExhaustedError`, or with the only model's own error.

The next model is asked without a penalty for the current one:

- after an answer without text or calls, or with more calls than are allowed in one answer;
- after the provider rejects the request or does not know the model;
- if the model cannot take the input. It is then not asked at all.

A benched model is not asked while there is another one, and the step records that. An invalid key,
an unusable setup and a refusal end the turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from pydantic import JsonValue

from perdure import errors, limits, validation
from perdure.agents.definitions import AgentDefinition, Target
from perdure.errors import LLMError, PerdureError
from perdure.text import one_line
from perdure.turn import circuit_breaker, outages, reservations, retries
from perdure.turn.context_window import NO_CUT, Cut, cut_for, fits
from perdure.turn.facts import CallFailed
from perdure.turn.keys import Key
from perdure.turn.outages import NO_OUTAGE, Outage
from perdure.turn.state import TurnState
from perdure.turn.transcript import MessagesAbsentError
from perdure.values.messages import AssistantMessage, Message, Thinking
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


def choose(
    state: TurnState,
    agent: AgentDefinition,
    benched: Collection[str] = (),
    outage: Outage = NO_OUTAGE,
) -> Choice:
    """Return the model to ask next in this step. `benched` are models that this turn has benched.

    Raises:
        PerdureError: The last attempt's own error, if another would not help or would be too late.
        ModelChainExhaustedError: The same for a chain of several models.
        TurnBudgetExceededError: The next attempt would come after the time of the turn is up.
        TurnTimeoutError: It would come after the deadline of the turn.
    """
    choice = _choose(state, agent, benched, outage)
    cut = _cut(state, agent, choice.target)
    return replace(choice, cut=cut) if cut else choice


def _choose(
    state: TurnState, agent: AgentDefinition, benched: Collection[str], outage: Outage
) -> Choice:
    failures = state.attempts.of_round
    unfit = {
        target.model: reason for target in agent.chain if (reason := _unfit(state, agent, target))
    }
    tried = {failure.model for failure in failures if not is_skip(failure)}
    left = [
        target
        for target in _of_round(state, agent, outage)
        if target.model not in tried and target.model not in unfit
    ]
    again = (
        _again(state, agent, any(target.model not in benched for target in left), outage)
        if failures
        else None
    )
    if again is not None:
        return again
    if not left:
        return _next_round(state, agent, unfit, outage)
    pardoned = (
        failure.model
        for failure in state.attempts.failures[: state.attempts.pardoned]
        if failure.error.code != errors.LLMBudgetExceededError.code
    )
    resting = {*benched, *pardoned, *(failure.model for failure in failures)}
    rested = [target for target in left if target.model not in resting]
    chosen = (rested or _past_limits(agent, left, outage) or left)[0]
    before = agent.chain[: agent.chain.index(chosen)]
    passed = [
        f"{target.model}: {unfit.get(target.model) or 'benched'}"
        for target in before
        if target.model not in {one.model for one in failures}
    ]
    return Choice(
        chosen,
        round=state.attempts.rounds,
        others=bool(rested) and len(left) > 1,
        passed=tuple(passed),
    )


def _past_limits(
    agent: AgentDefinition, targets: Sequence[Target], outage: Outage
) -> Sequence[Target]:
    """Return the models whose provider does not ask for a pause, after a wait for a limit."""
    if agent.model_retry is None or not agent.model_retry.waits_for_limits:
        return ()
    return [target for target in targets if not outage.asked_s.get(target.model)]


def _again(
    state: TurnState, agent: AgentDefinition, has_other: bool, outage: Outage
) -> Choice | None:
    """Return the same model for another attempt; None if another model is next.

    Raises:
        PerdureError: Another attempt would not help with any model.
    """
    failures, policy = state.attempts.of_round, agent.model_retry
    last = failures[-1]
    error = errors.from_info(last.error)
    if retries.repeats_lost(failures):
        return Choice(agent.target(last.model), round=state.attempts.rounds)
    passes_on = len(agent.chain) > 1 and bool({SKIPPED, EMPTY} & set(error.context))
    of_model = [
        failure
        for failure in failures
        if failure.model == last.model and (failure is last or not is_skip(failure))
    ]
    may_pass = not passes_on and retries.may_pass(of_model)
    if last.lost or isinstance(error, _FATAL) or not (may_pass or isinstance(error, LLMError)):
        raise error
    if policy is None:
        asked_s = retries.asked_pause_s(error)
        wants_other = has_other and circuit_breaker.is_long(asked_s)
        return (
            Choice(agent.target(last.model), retries.pause_after(error))
            if may_pass and not wants_other
            else None
        )
    asked_s = retries.asked_pause_s(error, validation.LONGEST)
    delay = outages.pause(policy, 1, outage, asked_s)
    is_long = len(agent.chain) > 1 and circuit_breaker.is_long(asked_s)
    is_for_a_round = is_away(last) and (state.attempts.rounds > 0 or is_long)
    limit = outages.is_limit(policy, asked_s, len(state.attempts.failures))
    is_late = not limit and outages.lasts_too_long(policy, delay, outage)
    if not may_pass or is_for_a_round or is_late:
        return None
    return Choice(agent.target(last.model), delay, state.attempts.rounds, number=1, limit=limit)


def _of_round(state: TurnState, agent: AgentDefinition, outage: Outage) -> Sequence[Target]:
    """Return the models that a round may ask.

    The first round may ask all of them. Later rounds may ask those whose provider is unavailable
    and has not asked for a pause.
    """
    if not state.attempts.rounds:
        return agent.chain
    return [target for target in _away(state, agent) if not outage.asked_s.get(target.model)]


def _away(state: TurnState, agent: AgentDefinition) -> list[Target]:
    """Return the models whose provider was unavailable at their last attempt."""
    last = {failure.model: failure for failure in state.attempts.unpardoned}
    return [
        target for target in agent.chain if target.model in last and is_away(last[target.model])
    ]


def is_away(failure: CallFailed) -> bool:
    """Return whether an attempt failed because the provider was unavailable.

    This includes requests that were not sent because the worker had benched the model.
    """
    return (
        not failure.lost
        and EMPTY not in failure.error.context
        and outages.is_away(errors.from_info(failure.error))
    )


def _next_round(
    state: TurnState, agent: AgentDefinition, unfit: Mapping[str, str], outage: Outage
) -> Choice:
    """Begin the chain again after a pause, if a provider is unavailable.

    Raises:
        PerdureError: No provider is unavailable, or the pause would be too long.
    """
    failures, policy = state.attempts.unpardoned, agent.model_retry
    away = [target for target in _away(state, agent) if target.model not in unfit]
    error = _exhausted(agent, failures, unfit)
    if policy is None or not away:
        raise error
    first = min(away, key=lambda target: outage.asked_s.get(target.model, 0.0))
    number = state.attempts.rounds + 2
    asked_s = outage.asked_s.get(first.model, 0.0)
    delay = outages.pause(policy, number, outage, asked_s)
    if outages.is_limit(policy, asked_s, len(state.attempts.failures)):
        return Choice(first, delay, state.attempts.rounds + 1, number, limit=True)
    may_finish = (
        agent.on_exhausted == "finish"
        and not state.finishing
        and not outages.is_past_deadline(delay, outage)
        and not outages.is_over_elapsed(policy, delay, outage)
    )
    # time is reserved for the last answer, and a late request for it is better than none
    if may_finish and outage.time_left is not None:
        delay = min(delay, outage.time_left)
    elif outages.lasts_too_long(policy, delay, outage):
        asked = sum(not is_skip(failure) for failure in failures)
        error = outages.given_up(error, policy, delay, outage, asked)
        raise error from error.__cause__
    ready = (
        target for target in away if outage.asked_s.get(target.model, 0.0) <= delay.total_seconds()
    )
    return Choice(next(ready, first), delay, state.attempts.rounds + 1, number)


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


def _unfit(state: TurnState, agent: AgentDefinition, target: Target) -> str:
    """Return why a model cannot take the input; empty if it can, or if that is unknown."""
    refused = next(
        filter(None, (refusal(part, target.media) for part in state.transcript.media)), ""
    )
    if refused:
        return refused
    if _cut(state, agent, target) is None:
        return f"its window of {target.window} tokens is too small"
    return ""


def _cut(state: TurnState, agent: AgentDefinition, target: Target) -> Cut | None:
    """Return the cut for a model; None if even the shortest input is too long for it.

    Raises:
        MessagesAbsentError: The input has to be cut, and the transcript lacks messages.
    """
    before, output = state.transcript.cut(target.model), state.options(agent).max_output_tokens
    if output is None and reservations.is_limited(state.accounts.ledger):
        output = limits.OUTPUT_TOKENS
    estimate = state.tokens.estimate
    if state.transcript.absent and not fits(before, estimate, target.window, output):
        raise MessagesAbsentError
    return cut_for(
        state.transcript.messages,
        before,
        estimate,
        target.window,
        opening=state.transcript.opening,
        output_tokens=output,
    )


def _exhausted(
    agent: AgentDefinition, failures: tuple[CallFailed, ...], unfit: Mapping[str, str]
) -> PerdureError:
    """Return the error of a turn whose models all failed: of the chain, or of the only model."""
    last = {failure.model: errors.from_info(failure.error) for failure in failures}
    found: dict[str, PerdureError] = {}
    for target in agent.chain:
        found[target.model] = last.get(target.model) or errors.LLMInvalidRequestError(
            f"{target.model}: {unfit.get(target.model, 'not asked')}",
            context={"model": target.model},
        )
    if len(found) == 1:
        return found.popitem()[1]
    told: dict[str, JsonValue] = {
        model: {
            "code": error.code,
            "severity": error.severity.value,
            "message": one_line(error.message, _REASON_CHARACTERS),
        }
        for model, error in found.items()
    }
    reasons = "; ".join(f"{model}: {error.code}" for model, error in found.items())
    return errors.ModelChainExhaustedError(
        f"every model of the chain failed: {reasons}", context={"targets": told}
    )


def for_target(messages: tuple[Message, ...], model: str) -> Iterator[Message]:
    """Yield the messages to send to `model`.

    They contain its own thoughts, whose signatures it checks, and not those of other models.
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
    """Return the message with its thoughts marked as those of `model`, as `provider:model`."""
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
    """Return the models that did not answer before the one that did.

    Models that failed or were benched come first, in order, then those that were passed over.
    """
    failures = [failure for failure in state.attempts.failures if failure.model]
    failed = [
        Tried(model=failure.model, reason="benched" if is_skip(failure) else failure.error.code)
        for failure in failures
    ]
    if state.attempts.rounds:  # an outage of hours has hundreds of equal entries
        failed = list(dict.fromkeys(failed))
    passed = (one.partition(": ") for one in state.attempts.passed)
    return (*failed, *(Tried(model=model, reason=reason) for model, _, reason in passed))
