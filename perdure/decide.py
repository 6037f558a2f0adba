"""What a turn does next. Pure: the same state, the same move."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from perdure import errors, limits
from perdure.agents import AgentDefinition
from perdure.errors import PerdureError
from perdure.facts import Key
from perdure.fold import TurnState, runs_tools
from perdure.messages import ToolCall
from perdure.reports import Outcome, StopReason
from perdure.wire import ModelAnswer

RETRY_DELAY = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Ask:
    """Call the model, after a pause where an attempt failed."""

    key: Key
    delay: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class Act:
    """Run one tool call."""

    key: Key
    call: ToolCall


@dataclass(frozen=True, slots=True)
class Done:
    """End with an output."""

    outcome: Outcome
    output: str
    risk: str | None = None


def next_move(state: TurnState, agent: AgentDefinition) -> Ask | Act | Done:
    """The next move of a turn whose agent is resolved.

    Raises:
        MaxIterationsError: The agent may not call the model again.
        LLMError: The last attempt failed and is not repeated, or the answer is none.
    """
    index = state.next_call
    if index is not None:
        return Act(_next_attempt(state, call=index), state.calls[index - 1])
    if state.answer is not None and not runs_tools(state.answer):
        return _finish(state.answer)
    return _ask(state, agent)


def check_history(size_bytes: int, events: int) -> None:
    """End a turn typed before the server terminates its workflow for its size.

    Raises:
        TooLargeError: The history is close to what the server allows.
    """
    if size_bytes > limits.HISTORY_BYTES or events > limits.HISTORY_EVENTS:
        raise errors.TooLargeError(
            f"the turn's history has {size_bytes} bytes in {events} events, close to what the server allows; continue in a new turn",
            context={"bytes": size_bytes, "events": events},
        )


def _ask(state: TurnState, agent: AgentDefinition) -> Ask:
    if agent.max_iterations is not None and len(state.steps) >= agent.max_iterations:
        raise errors.MaxIterationsError(
            f"{agent.name} made {len(state.steps)} model calls without an answer, which is its max_iterations; "
            "raise it, or continue from the report's messages",
            context={"max_iterations": agent.max_iterations},
        )
    return Ask(_next_attempt(state), retry_delay(state))


def retry_delay(state: TurnState) -> timedelta:
    """How long to wait before the next attempt; zero for a first one.

    Raises:
        PerdureError: The last attempt's own error, where another attempt would not help.
    """
    if not state.failures:
        return timedelta()
    last = state.failures[-1]
    error = errors.from_info(last.error)
    lost = sum(failure.lost for failure in state.failures)
    if last.lost and lost < limits.LOST_ATTEMPTS:
        return timedelta()
    if last.lost or not error.transient or len(state.failures) - lost > limits.TRANSIENT_RETRIES:
        raise error
    return _asked_for(error) or RETRY_DELAY


def _asked_for(error: PerdureError) -> timedelta | None:
    """The pause that the provider asked for, as far as we go along with it."""
    seconds = error.context.get("retry_after_s")
    if not isinstance(seconds, int | float) or not seconds > 0:
        return None
    return timedelta(seconds=min(seconds, limits.RETRY_AFTER.total_seconds()))


def _finish(answer: ModelAnswer) -> Done:
    text = answer.message.text
    match answer.stop:
        case StopReason.REFUSED:
            raise errors.LLMRefusedError(f"{answer.model} declined to answer" + (f": {text}" if text else ""), context={"model": answer.model})
        case StopReason.MAX_TOKENS:
            return Done(Outcome.TRUNCATED, text, risk="truncated")
        case StopReason.OTHER:
            return Done(Outcome.COMPLETED, text, risk="unknown_stop_reason")
        case _:
            return Done(Outcome.COMPLETED, text)


def _next_attempt(state: TurnState, call: int = 0) -> Key:
    key = Key(step=len(state.steps) + 1, call=call)
    return replace(key, attempt=state.attempts(key) + 1)
