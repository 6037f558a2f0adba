"""The next move of a turn, and the pauses before retries."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import JsonValue

from perdure import errors, limits
from perdure.agents.definitions import AgentDefinition, ToolDefinition
from perdure.errors import PerdureError
from perdure.turn.decide import Act, Ask, Done, Stop, next_move
from perdure.turn.facts import (
    AgentResolved,
    CallFailed,
    Fact,
    ModelAnswered,
    Scheduled,
    ToolLost,
    ToolReturned,
    TurnStarted,
)
from perdure.turn.fallback import Choice
from perdure.turn.fold import fold
from perdure.turn.history_limits import check_history
from perdure.turn.keys import AgentKey, ModelKey, ToolKey
from perdure.turn.retries import RETRY_DELAY, retry_delay
from perdure.turn.situation import Situation
from perdure.turn.state import TurnState
from perdure.turn.wire import ToolOutput, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.losses import Loss
from perdure.values.messages import AssistantMessage, Text, ToolCall
from perdure.values.reports import Outcome, StopReason
from perdure.values.tasks import Task

FIRST, SECOND = ToolCall(id="c1", name="look"), ToolCall(id="c2", name="look")


def agent(max_iterations: int | None = 10, *, is_idempotent: bool = True) -> AgentDefinition:
    look = ToolDefinition(
        name="look",
        description="",
        parameters={},
        activity="look",
        is_idempotent=is_idempotent,
        timeout_s=60,
        schema_digest="",
    )
    return AgentDefinition(
        name="a", instructions="", model="m:m", tools=(look,), max_iterations=max_iterations
    )


def after(*facts: Fact, by: AgentDefinition | None = None) -> TurnState:
    """The state of a turn whose agent is resolved, after `facts`."""
    return fold(
        [
            TurnStarted(TurnRequest(agent="a", task=Task(content="go"))),
            AgentResolved(AgentKey(), by or agent()),
            *facts,
        ]
    )


def answered(
    step: int, *parts: Text | ToolCall, stop: StopReason = StopReason.TOOL_CALLS
) -> ModelAnswered:
    return ModelAnswered(
        ModelKey(step), ModelAnswer(message=AssistantMessage(parts=parts), stop=stop, model="m")
    )


def failed(error: PerdureError, attempt: int = 1, *, lost: bool = False) -> CallFailed:
    return CallFailed(ModelKey(1, attempt), error.info(), lost)


def returned(step: int, call: int) -> ToolReturned:
    return ToolReturned(ToolKey(step, call), ToolOutput(content="seen"))


def asks(move: object) -> tuple[ModelKey, Choice]:
    """The request of a move, without its reservation."""
    assert isinstance(move, Ask)
    return move.key, move.choice


def ask(key: ModelKey, delay: timedelta = timedelta()) -> tuple[ModelKey, Choice]:
    return key, Choice(agent().chain[0], delay)


def stopped(move: object) -> PerdureError:
    """The error of a move that ends the turn."""
    assert isinstance(move, Stop)
    return move.error


def test_resolved_turn_asks_the_model_at_once() -> None:
    """The first move."""
    assert asks(next_move(Situation(after(), agent()))) == ask(ModelKey(1))


def test_calls_are_run_one_by_one_in_their_order() -> None:
    """The first call without a result is next; after the last one the model is called again."""
    asked = answered(1, FIRST, SECOND)

    assert next_move(Situation(after(asked), agent())) == Act(ToolKey(1, 1), FIRST)
    assert next_move(Situation(after(asked, returned(1, 1)), agent())) == Act(ToolKey(1, 2), SECOND)
    assert asks(next_move(Situation(after(asked, returned(1, 1), returned(1, 2)), agent()))) == ask(
        ModelKey(2)
    )


def test_call_of_an_unknown_tool_is_passed_over() -> None:
    """Its result is known already: there is no such tool."""
    asked = answered(1, ToolCall(id="c0", name="gone"), FIRST)

    assert next_move(Situation(after(asked), agent())) == Act(ToolKey(1, 2), FIRST)


def test_lost_call_of_an_idempotent_tool_is_run_again_with_its_next_attempt() -> None:
    """Up to the maximum number of lost attempts; then the model gets an error result."""
    facts: list[Fact] = [answered(1, FIRST)]
    for attempt in range(1, limits.LOST_ATTEMPTS):
        facts.append(ToolLost(ToolKey(1, 1, attempt), Loss.WORKER_LOST))
        assert next_move(Situation(after(*facts), agent())) == Act(
            ToolKey(1, 1, attempt + 1), FIRST
        )

    facts.append(ToolLost(ToolKey(1, 1, limits.LOST_ATTEMPTS), Loss.WORKER_LOST))

    assert asks(next_move(Situation(after(*facts), agent()))) == ask(ModelKey(2))


def test_lost_call_of_another_tool_is_not_run_again() -> None:
    """It is unknown whether it took effect, so the model decides."""
    by = agent(is_idempotent=False)
    state = after(answered(1, FIRST), ToolLost(ToolKey(1, 1), Loss.WORKER_LOST), by=by)

    assert asks(next_move(Situation(state, by))) == ask(ModelKey(2))


@pytest.mark.parametrize("loss", [Loss.TIMED_OUT, Loss.CANCELLED, Loss.FAILED])
def test_idempotent_call_that_was_not_lost_is_not_run_again(loss: Loss) -> None:
    """It is repeated only after its worker was lost."""
    state = after(answered(1, FIRST), ToolLost(ToolKey(1, 1), loss))

    assert asks(next_move(Situation(state, agent()))) == ask(ModelKey(2))


@pytest.mark.parametrize(
    ("stop", "done"),
    [
        (StopReason.END, Done(Outcome.COMPLETED, "words")),
        (StopReason.TOOL_CALLS, Done(Outcome.COMPLETED, "words")),
        (StopReason.STOP_SEQUENCE, Done(Outcome.COMPLETED, "words")),
        (StopReason.MAX_TOKENS, Done(Outcome.TRUNCATED, "words", risk="truncated")),
        (StopReason.OTHER, Done(Outcome.COMPLETED, "words", risk="unknown_stop_reason")),
    ],
)
def test_answer_without_calls_ends_the_turn(stop: StopReason, done: Done) -> None:
    """Each stop reason with its outcome and risk."""
    assert next_move(Situation(after(answered(1, Text(text="words"), stop=stop)), agent())) == done


@pytest.mark.parametrize("stop", [StopReason.STOP_SEQUENCE, StopReason.MAX_TOKENS])
def test_calls_of_an_answer_that_was_cut_off_are_not_run(stop: StopReason) -> None:
    """The turn ends with the text before them."""
    move = next_move(Situation(after(answered(1, Text(text="I will"), FIRST, stop=stop)), agent()))

    assert isinstance(move, Done)
    assert move.output == "I will"


def test_refusal_is_an_error_with_the_models_words() -> None:
    """And with the model that refused."""
    state = after(answered(1, Text(text="I would rather not"), stop=StopReason.REFUSED))

    error = stopped(next_move(Situation(state, agent())))

    assert isinstance(error, errors.LLMRefusedError)
    assert "I would rather not" in error.message
    assert error.context == {"model": "m"}


@pytest.mark.accepts("L5")
def test_limit_counts_model_calls_and_not_answers() -> None:
    """At the limit the model is not called again, but the calls and the answer of the last step are
    accepted.
    """
    called, by = after(answered(1, FIRST), by=agent(1)), agent(1)
    stepped = after(answered(1, FIRST), returned(1, 1), by=by)

    assert next_move(Situation(called, by)) == Act(ToolKey(1, 1), FIRST)
    assert next_move(Situation(after(answered(1, Text(text="done")), by=by), by)) == Done(
        Outcome.COMPLETED, "done"
    )
    error = stopped(next_move(Situation(stepped, by)))
    assert isinstance(error, errors.MaxIterationsError)
    assert error.context == {"max_iterations": 1}


def test_no_limit_asks_for_ever() -> None:
    """After two hundred steps."""
    by = agent(None)
    facts = [fact for step in range(1, 201) for fact in (answered(step, FIRST), returned(step, 1))]

    assert asks(next_move(Situation(after(*facts, by=by), by))) == ask(ModelKey(201))


def test_first_attempt_does_not_wait() -> None:
    """There is no pause."""
    assert retry_delay(after().attempts.unpardoned) == timedelta()


def test_transient_error_is_waited_out_once() -> None:
    """The second attempt comes after a pause, there is no third one; the error is the last one."""
    once = after(failed(errors.LLMUnavailableError("down")))
    twice = after(
        failed(errors.LLMUnavailableError("down")), failed(errors.LLMTimeoutError("slow"), 2)
    )

    assert asks(next_move(Situation(once, agent()))) == ask(ModelKey(1, 2), RETRY_DELAY)
    error = stopped(next_move(Situation(twice, agent())))
    assert (type(error), error.message) == (errors.LLMTimeoutError, "slow")


@pytest.mark.accepts("M4")
@pytest.mark.parametrize(
    ("asked", "delay"),
    [
        (0.05, timedelta(milliseconds=50)),
        (7, timedelta(seconds=7)),
        (1e9, limits.RETRY_AFTER),
        (1e300, limits.RETRY_AFTER),
        (float("inf"), limits.RETRY_AFTER),
        (0, RETRY_DELAY),
        (-5, RETRY_DELAY),
        (float("nan"), RETRY_DELAY),
        ("soon", RETRY_DELAY),
        (None, RETRY_DELAY),
    ],
)
def test_pause_is_the_one_that_the_provider_asked_for_up_to_the_cap(
    asked: JsonValue, delay: timedelta
) -> None:
    """An invalid value is ignored, and a longer pause is shortened to the cap."""
    state = after(failed(errors.LLMRateLimitError("slow down", context={"retry_after_s": asked})))

    assert retry_delay(state.attempts.unpardoned) == delay


@pytest.mark.parametrize(
    "error",
    [
        errors.LLMAuthError("no"),
        errors.LLMInvalidRequestError("no"),
        errors.ConfigurationError("no"),
    ],
)
def test_error_that_will_not_pass_ends_the_turn_at_once(error: PerdureError) -> None:
    """With its class and message."""
    stop = stopped(next_move(Situation(after(failed(error)), agent())))

    assert (type(stop), stop.message) == (type(error), "no")


def test_lost_attempts_are_repeated_at_once_and_do_not_use_up_the_retry() -> None:
    """The worker was lost, which is no evidence about the model."""
    gone = PerdureError("gone")
    state = after(failed(errors.LLMUnavailableError("down")), failed(gone, 2, lost=True))

    assert asks(next_move(Situation(state, agent()))) == ask(ModelKey(1, 3))


def test_turn_gives_up_after_too_many_lost_attempts() -> None:
    """With the error that says so."""
    lost = [
        failed(PerdureError("gone"), attempt, lost=True)
        for attempt in range(1, limits.LOST_ATTEMPTS + 1)
    ]

    assert asks(next_move(Situation(after(*lost[:-1]), agent()))) == ask(
        ModelKey(1, limits.LOST_ATTEMPTS)
    )
    assert stopped(next_move(Situation(after(*lost), agent()))).message == "gone"


def test_failures_of_one_step_are_forgotten_in_the_next() -> None:
    """An answer resets them."""
    state = after(failed(errors.LLMUnavailableError("down")), answered(1, FIRST), returned(1, 1))

    assert asks(next_move(Situation(state, agent()))) == ask(ModelKey(2))


def test_scheduling_changes_no_move() -> None:
    """The next move depends only on ended calls."""
    assert asks(next_move(Situation(after(Scheduled(ModelKey(1))), agent()))) == ask(ModelKey(1))


@pytest.mark.accepts("Y9")
@pytest.mark.parametrize(
    ("size", "events"), [(limits.HISTORY_BYTES + 1, 10), (10, limits.HISTORY_EVENTS + 1)]
)
def test_history_that_comes_close_to_the_servers_limit_ends_the_turn_typed(
    size: int, events: int
) -> None:
    """At the limit it continues, one byte or event above it the turn ends with its report."""
    check_history(limits.HISTORY_BYTES, limits.HISTORY_EVENTS)

    with pytest.raises(errors.TooLargeError, match=r"turn\.resume\(\) goes on in a new turn"):
        check_history(size, events)
