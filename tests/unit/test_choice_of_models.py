"""The choice of the next model in a chain."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from perdure import Budget, Media, Text, UserMessage, errors, limits
from perdure.agents.definitions import AgentDefinition, Target
from perdure.errors import PerdureError, from_info
from perdure.turn.decide import Ask, next_move
from perdure.turn.facts import (
    AgentResolved,
    BudgetAdded,
    CallFailed,
    Fact,
    ModelAnswered,
    Scheduled,
    TurnStarted,
    WaitBegan,
    WaitEnded,
)
from perdure.turn.fallback import Choice, Fallback, for_target, target_of, with_author
from perdure.turn.fold import fold
from perdure.turn.keys import AgentKey, ModelKey
from perdure.turn.reservations import for_call, kept, reserve
from perdure.turn.retries import RETRY_DELAY
from perdure.turn.situation import Situation
from perdure.turn.state import TurnState
from perdure.turn.wire import ModelCall, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Thinking, ToolCall, canonical
from perdure.values.prices import Price
from perdure.values.reports import StopReason, Tried, Usage
from perdure.values.tasks import Task

CHEAP, DEAR = Price(input="1", output="2"), Price(input="10", output="20")
DIGEST = "0" * 16
BUSY = errors.LLMUnavailableError("down")
SLOW_DOWN = errors.LLMRateLimitError("slow down", context={"retry_after_s": 2})
COME_BACK_LATER = errors.LLMRateLimitError("slow down", context={"retry_after_s": 60})
UNKNOWN = errors.LLMInvalidRequestError("no such model", context={"status": 404})
EMPTY = errors.LLMUnavailableError(
    "answered with nothing", context={"empty": True, "charged": True}
)
SKIPPED = errors.LLMUnavailableError("left alone", context={"skipped": True, "charged": False})


def agent(models: str = "abc", **fields: Any) -> AgentDefinition:
    """An agent whose models are `a:m`, `b:m` and so on."""
    return chained(*(Target(model=f"{name}:m", price=CHEAP) for name in models), **fields)


def chained(*targets: Target, **fields: Any) -> AgentDefinition:
    """An agent with these models."""
    return AgentDefinition(
        name="x",
        instructions="",
        model=targets[0].model,
        price=targets[0].price,
        targets=targets,
        **fields,
    )


def turn(*facts: Fact, by: AgentDefinition | None = None, **request: Any) -> TurnState:
    """The state of a turn whose agent is resolved, after `facts`."""
    started = TurnStarted(TurnRequest(**{"agent": "x", "task": Task(content="go"), **request}))
    return fold([started, AgentResolved(AgentKey(), by or agent()), *facts])


def attempts(*failed: tuple[str, PerdureError], lost: Collection[int] = ()) -> list[Fact]:
    """The attempts of the first step: which model was called, and its error."""
    facts: list[Fact] = []
    for attempt, (name, error) in enumerate(failed, 1):
        key = ModelKey(1, attempt)
        call = ModelCall.of(DIGEST, model="" if name == "a" else f"{name}:m")
        facts += [Scheduled(key, call), CallFailed(key, error.info(), lost=attempt in lost)]
    return facts


def chosen(
    *failed: tuple[str, PerdureError], benched: str = "", models: str = "abc"
) -> tuple[str, timedelta]:
    """The next model, and the pause before it."""
    by = agent(models)
    choice = Fallback(
        Situation(turn(*attempts(*failed), by=by), by, benched=[f"{name}:m" for name in benched])
    ).choose()
    return choice.target.model[0], choice.delay


NOW = timedelta()


@pytest.mark.accepts("M1", "M2", "L15")
@pytest.mark.parametrize(
    ("failed", "benched", "expected"),
    [
        ([], "", ("a", NOW)),
        ([("a", BUSY)], "", ("a", RETRY_DELAY)),
        ([("a", SLOW_DOWN)], "", ("a", timedelta(seconds=2))),
        ([("a", BUSY), ("a", BUSY)], "a", ("b", NOW)),
        ([("a", BUSY), ("a", SLOW_DOWN)], "a", ("b", NOW)),
        ([("a", BUSY), ("a", BUSY), ("b", BUSY)], "a", ("b", RETRY_DELAY)),
        ([("a", BUSY), ("a", BUSY), ("b", BUSY), ("b", BUSY)], "ab", ("c", NOW)),
        ([("a", COME_BACK_LATER)], "a", ("b", NOW)),
        ([("a", UNKNOWN)], "", ("b", NOW)),
        ([("a", EMPTY)], "", ("b", NOW)),
        ([("a", UNKNOWN), ("b", EMPTY)], "", ("c", NOW)),
        ([], "a", ("b", NOW)),
        ([], "ab", ("c", NOW)),
        ([("b", BUSY), ("b", BUSY)], "b", ("a", NOW)),
        ([("a", SKIPPED)], "", ("b", NOW)),
        ([("a", SKIPPED), ("b", UNKNOWN)], "", ("c", NOW)),
        ([], "abc", ("a", NOW)),
        ([("a", SKIPPED), ("b", SKIPPED), ("c", SKIPPED)], "", ("a", NOW)),
        ([("a", SKIPPED), ("b", UNKNOWN), ("c", UNKNOWN)], "", ("a", NOW)),
        ([("a", SKIPPED), ("b", UNKNOWN), ("c", UNKNOWN), ("a", BUSY)], "", ("a", RETRY_DELAY)),
    ],
    ids=lambda value: (
        "".join(f"{name}-{error.code} " for name, error in value) or "none"
        if isinstance(value, list)
        else None
    ),
)
def test_who_is_asked_next(
    failed: list[tuple[str, PerdureError]], benched: str, expected: tuple[str, timedelta]
) -> None:
    """The same once more, then the next one that is not benched, and if all are benched, the first
    one.
    """
    assert chosen(*failed, benched=benched) == expected


def test_long_pause_is_waited_for_where_there_is_no_other() -> None:
    """The last one of the chain is called once more, after the pause that it asked for."""
    assert chosen(("a", UNKNOWN), ("b", UNKNOWN), ("c", COME_BACK_LATER)) == (
        "c",
        timedelta(seconds=60),
    )


def test_attempt_that_was_lost_is_made_again_with_the_same_model() -> None:
    """A lost worker is no evidence about a model."""
    lost = attempts(("b", BUSY), ("b", BUSY), lost=[1, 2])
    assert Fallback(Situation(turn(*lost), agent())).choose() == Choice(agent().target("b:m"))


@pytest.mark.parametrize(
    ("models", "failed", "benched", "others"),
    [
        ("abc", [], "", True),
        ("abc", [("a", UNKNOWN)], "", True),
        ("abc", [("a", UNKNOWN), ("b", UNKNOWN)], "", False),
        ("abc", [], "abc", False),
        ("abc", [("a", SKIPPED), ("b", UNKNOWN), ("c", UNKNOWN)], "", False),
        ("a", [], "", False),
    ],
)
def test_worker_may_leave_a_model_alone_only_where_there_is_another(
    models: str, failed: list[tuple[str, PerdureError]], benched: str, others: bool
) -> None:
    """So a turn ends with an answer or with its models' errors, never because all of them are
    benched.
    """
    by = agent(models)
    assert (
        Fallback(
            Situation(
                turn(*attempts(*failed), by=by), by, benched=[f"{name}:m" for name in benched]
            )
        )
        .choose()
        .others
        is others
    )


@pytest.mark.accepts("M2")
@pytest.mark.parametrize(
    "error",
    [
        errors.LLMAuthError("bad key"),
        errors.UnknownPriceError("how much?"),
        errors.ConfigurationError("no key"),
        errors.TooLargeError("too large"),
        errors.PerdureError("a bug"),
    ],
    ids=lambda error: error.code,
)
def test_what_no_other_model_would_help_with_ends_the_turn(error: PerdureError) -> None:
    """At once, with an error of the same class."""
    with pytest.raises(type(error), match=error.message):
        chosen(("a", error))


def test_transcript_that_is_not_the_turns_is_read_again_and_then_ends_the_turn() -> None:
    """The model did not cause it."""
    error = errors.TranscriptMismatchError("another")
    assert chosen(("a", error)) == ("a", RETRY_DELAY)
    with pytest.raises(errors.TranscriptMismatchError):
        chosen(("a", error), ("a", error))


@pytest.mark.accepts("M2", "U11")
def test_error_of_a_chain_holds_a_typed_error_for_each_model() -> None:
    """Also after a round trip through Temporal, and with the longest possible messages."""
    long = errors.LLMInvalidRequestError("why " * 1000)
    by = agent("abcdefgh")
    with pytest.raises(errors.ModelChainExhaustedError) as raised:
        Fallback(
            Situation(
                turn(*attempts(*((name, long) for name in "abcdefg"), ("h", EMPTY)), by=by), by
            )
        ).choose()

    crossed = from_info(raised.value.info())
    assert isinstance(crossed, errors.ModelChainExhaustedError)
    assert limits.CHAIN == len(crossed.errors) == 8
    assert [type(error) for error in crossed.errors.values()] == [
        errors.LLMInvalidRequestError
    ] * 7 + [errors.LLMUnavailableError]
    assert crossed.errors["h:m"].message == "answered with nothing"
    assert crossed.message.startswith(
        "every model of the chain failed: a:m: LLM_INVALID_REQUEST; b:m: "
    )


@pytest.mark.accepts("U11")
def test_chain_of_one_raises_its_own_error() -> None:
    """After one more attempt, if the error is transient."""
    assert chosen(("a", BUSY), models="a") == ("a", RETRY_DELAY)
    for failed in ([("a", BUSY), ("a", BUSY)], [("a", EMPTY), ("a", EMPTY)], [("a", UNKNOWN)]):
        with pytest.raises(type(failed[-1][1])):
            chosen(*failed, models="a")


# --- media that a model accepts

PICTURE = Task(content=(Text(text="What is it?"), Media(media_type="image/png", data="aGkh" * 100)))
WORDS_ALONE: dict[str, int] = {}


def taking(*media: dict[str, int] | None) -> AgentDefinition:
    """An agent whose models take these images and files."""
    return chained(
        *(
            Target(model=f"{name}:m", media=sizes, price=CHEAP)
            for name, sizes in zip("abc", media, strict=False)
        )
    )


@pytest.mark.accepts("M3")
@pytest.mark.parametrize(
    ("media", "reason"),
    [
        (WORDS_ALONE, "it takes no image/png"),
        ({"image/jpeg": 1_000}, "it takes no image/png"),
        ({"application/*": 1_000}, "it takes no image/png"),
        ({"image/png": 299}, "it takes image/png of at most 299 bytes, and this one has 300 bytes"),
    ],
)
def test_model_that_cannot_take_an_image_is_passed_over(media: dict[str, int], reason: str) -> None:
    """Without penalty, and the step records it; if no model accepts it, that is the error; without
    an image, no model is passed over.
    """
    by = taking(media, None)
    choice = Fallback(Situation(turn(by=by, task=PICTURE), by)).choose()
    assert (choice.target.model, choice.passed) == ("b:m", (f"a:m: {reason}",))
    assert Fallback(Situation(turn(by=by), by)).choose().target.model == "a:m"
    nobody = taking(media, media)
    with pytest.raises(errors.ModelChainExhaustedError) as raised:
        Fallback(Situation(turn(by=nobody, task=PICTURE), nobody)).choose()
    assert {type(error): error.message for error in raised.value.errors.values()} == {
        errors.LLMInvalidRequestError: f"b:m: {reason}"
    }


@pytest.mark.accepts("M3")
@pytest.mark.parametrize("media", [None, {"image/*": 300}, {"image/png": 300}, {"*": 10**9}])
def test_model_that_may_take_an_image_is_asked(media: dict[str, int] | None) -> None:
    """Even if only its provider can tell."""
    by = taking(media, None)
    assert Fallback(Situation(turn(by=by, task=PICTURE), by)).choose().target.model == "a:m"


def test_media_with_an_address_have_no_size() -> None:
    """The provider downloads them."""
    by = taking({"image/*": 1}, None)
    remote = Task(content=(Media(media_type="image/png", url="https://example.com/cat.png"),))
    assert Fallback(Situation(turn(by=by, task=remote), by)).choose().target.model == "a:m"


@pytest.mark.accepts("M3")
def test_only_model_that_cannot_take_an_image_says_so() -> None:
    """Before any request."""
    by = taking(WORDS_ALONE)
    with pytest.raises(errors.LLMInvalidRequestError, match="a:m: it takes no image/png"):
        Fallback(Situation(turn(by=by, task=PICTURE), by)).choose()


# --- the step's record, and the cost


def test_step_names_who_served_and_who_did_not() -> None:
    """Passed over, benched, failed: each with its reason."""
    facts = attempts(("a", UNKNOWN), ("b", SKIPPED))
    key = ModelKey(1, 3)
    answer = ModelAnswer(
        message=AssistantMessage(parts=(Text(text="hi"),)),
        usage=Usage(input_tokens=5, output_tokens=1),
    )
    state = turn(
        *facts,
        Scheduled(key, ModelCall.of(DIGEST, model="c:m", passed=("z:m: benched",))),
        ModelAnswered(key, answer),
    )

    [step] = state.steps
    assert step.model == "m"
    expected = (("a:m", "LLM_INVALID_REQUEST"), ("b:m", "benched"), ("z:m", "benched"))
    assert step.tried == tuple(Tried(model=model, reason=reason) for model, reason in expected)
    assert state.accounts.model_calls == 2, "what was not sent is no call"
    assert (state.in_flight, state.accounts.ledger.held) == ({}, {})


def test_each_model_is_paid_by_its_own_price() -> None:
    """Its price is reserved, and charged if the outcome of a call is unknown."""
    by = chained(Target(model="a:m", price=CHEAP), Target(model="b:m", price=DEAR))
    budget = Budget(usd="1")
    first, second = (
        for_call(turn(by=by, budget=budget), by, target).amount.usd for target in by.chain
    )
    assert second == 10 * first > 0
    state = turn(
        Scheduled(ModelKey(1), ModelCall.of(DIGEST, model="b:m", max_output_tokens=100)),
        by=by,
        budget=budget,
    )
    reserved = state.accounts.ledger.held["step-1"].usd
    lost = fold([CallFailed(ModelKey(1), BUSY.info(), lost=True)], state)
    assert target_of(state, ModelKey(1)) == by.chain[1]
    assert lost.accounts.ledger.spent.usd == reserved == DEAR.most(state.input_bound("b:m"), 100)


def test_tokens_that_one_model_reported_say_nothing_of_another() -> None:
    """Its bound is every byte again."""
    answer = ModelAnswer(
        message=AssistantMessage(parts=(ToolCall(id="c", name="no"),)),
        usage=Usage(input_tokens=10, output_tokens=5),
    )
    state = turn(Scheduled(ModelKey(1), ModelCall.of(DIGEST)), ModelAnswered(ModelKey(1), answer))

    assert state.input_bound("b:m") == state.tokens.base + state.tokens.bound
    assert state.input_bound("a:m") < state.input_bound("b:m")


def test_last_answer_is_kept_at_the_dearest_price() -> None:
    """It is not known in advance which model will give it."""
    by = agent("a", on_exhausted="finish")
    chain = chained(
        Target(model="a:m", price=CHEAP), Target(model="b:m", price=DEAR), on_exhausted="finish"
    )
    state = turn(by=chain, budget=Budget(usd="1"))
    assert kept(state, chain).usd > kept(state, by).usd > 0


@pytest.mark.accepts("B6")
def test_budget_of_money_wants_a_price_for_every_model() -> None:
    """Before the first call, not when the first model fails."""
    by = chained(Target(model="a:m", price=CHEAP), Target(model="vllm:m"))
    with pytest.raises(errors.UnknownPriceError, match="vllm:m"):
        reserve(turn(by=by, budget=Budget(usd="1")), by, by.chain[0])
    state = turn(Scheduled(ModelKey(1), ModelCall.of(DIGEST, model="vllm:m")), by=by)
    assert (turn(by=by).is_priced, state.is_priced) == (True, False)
    assert state.accounts.ledger.reserved.usd == Decimal(0)


# --- thoughts


@pytest.mark.accepts("M7")
def test_thoughts_go_back_to_the_model_that_had_them_and_to_no_other() -> None:
    """Their signatures are invalid elsewhere; the rest of the message is sent, if any."""
    said = with_author(
        AssistantMessage(parts=(Thinking(text="hm", signature="s"), Text(text="hi"))), "a:m"
    )
    only = with_author(AssistantMessage(parts=(Thinking(text="hm", redacted="r"),)), "a:m")
    unmarked = AssistantMessage(parts=(Thinking(text="hm"), Text(text="ho")))
    messages = (UserMessage.of("go"), said, only, unmarked)

    assert tuple(for_target(messages, "a:m")) == messages
    without = (messages[0], AssistantMessage(parts=(Text(text="hi"),)), unmarked)
    assert tuple(for_target(messages, "b:m")) == without


def test_author_is_no_part_of_the_digest() -> None:
    """Workers of an earlier release, which share a queue during a deploy, do not have it."""
    message = AssistantMessage(parts=(Thinking(text="hm", signature="s"), Text(text="hi")))
    assert canonical(with_author(message, "a:m")) == canonical(message)


def test_author_is_no_part_of_a_message_without_thoughts() -> None:
    """History has no additional field."""
    message = AssistantMessage(parts=(Text(text="hi"),))
    assert with_author(message, "a:m") is message
    assert ModelAnswer(message=message).stop == StopReason.END


# --- chains and budgets


def test_retry_of_a_model_forgets_nobody_who_was_passed_over() -> None:
    """The step has them although the second attempt passed over none."""
    first, again = ModelKey(1), ModelKey(1, 2)
    answer = ModelAnswer(message=AssistantMessage(parts=(Text(text="hi"),)))
    passed = ModelCall.of(DIGEST, model="b:m", passed=("a:m: it takes no image/png",))
    facts: list[Fact] = [
        Scheduled(first, passed),
        CallFailed(first, BUSY.info()),
        Scheduled(again, ModelCall.of(DIGEST, model="b:m")),
    ]
    [step] = turn(*facts, ModelAnswered(again, answer)).steps

    assert {one.model: one.reason for one in step.tried} == {
        "a:m": "it takes no image/png",
        "b:m": "LLM_UNAVAILABLE",
    }


@pytest.mark.parametrize(("error", "is_priced"), [(SKIPPED, True), (UNKNOWN, False)])
def test_model_without_a_price_counts_only_if_it_was_asked(
    error: PerdureError, is_priced: bool
) -> None:
    """The worker passed it over, and the next one answered at a known price; so the cost of the
    turn is known.
    """
    by = chained(Target(model="a:m"), Target(model="b:m", price=CHEAP))
    key = ModelKey(1, 2)
    answer = ModelAnswer(
        message=AssistantMessage(parts=(Text(text="hi"),)),
        usage=Usage(input_tokens=5, output_tokens=1),
        cost=Decimal("0.01"),
    )
    facts = [
        *attempts(("a", error)),
        Scheduled(key, ModelCall.of(DIGEST, model="b:m")),
        ModelAnswered(key, answer),
    ]

    assert turn(by=by).is_priced is False
    assert turn(*facts, by=by).is_priced is is_priced


def test_what_is_kept_for_a_last_answer_covers_every_model_in_every_dimension() -> None:
    """The expensive one has a short answer and the cheap one a long one: the money of one, the
    tokens of the other.
    """
    dear, cheap = Price(input="1", output="1000"), Price(input="0.01", output="0.01")
    by = chained(
        Target(model="a:m", price=dear), Target(model="b:m", price=cheap), on_exhausted="finish"
    )
    budget = Budget(usd="0.2", tokens=4_000)
    both = kept(turn(by=by, budget=budget), by)
    for target in by.chain:
        alone = chained(target, on_exhausted="finish")
        amount = kept(turn(by=alone, budget=budget), alone)
        assert both.usd >= amount.usd
        assert both.tokens >= amount.tokens


def test_last_answer_is_not_asked_of_the_model_that_just_failed() -> None:
    """One of two calls is left, and it is kept for the last answer."""
    by = agent("ab", on_exhausted="finish")
    move = next_move(
        Situation(turn(*attempts(("a", UNKNOWN)), by=by, budget=Budget(model_calls=2)), by)
    )

    assert isinstance(move, Ask)
    assert (move.key.is_last, move.choice.target.model) == (True, "b:m")


def test_model_that_failed_before_a_wait_for_budget_is_not_the_first_to_be_asked_after_it() -> None:
    """So adding one call at a time reaches the next model."""
    facts = [
        *attempts(("a", UNKNOWN)),
        WaitBegan("budget", "spent"),
        BudgetAdded(Budget(model_calls=1)),
        WaitEnded(),
    ]
    state = turn(*facts, by=agent("ab"), budget=Budget(model_calls=1))

    assert Fallback(Situation(state, agent("ab"))).choose().target.model == "b:m"
