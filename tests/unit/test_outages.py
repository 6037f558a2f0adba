"""How long a turn retries an unavailable provider, with a simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, Budget, ModelRetryPolicy, errors, limits
from perdure.agents.definitions import AgentDefinition, Target
from perdure.errors import PerdureError
from perdure.turn.circuit_breaker import Health
from perdure.turn.decide import Ask, AwaitBudget, AwaitResume, Done, Stop, next_move, time_kept
from perdure.turn.facts import (
    AgentResolved,
    CallFailed,
    Fact,
    ModelAnswered,
    Resumed,
    Scheduled,
    TurnStarted,
    WaitBegan,
    WaitEnded,
)
from perdure.turn.fold import apply, fold
from perdure.turn.keys import AgentKey, ModelKey
from perdure.turn.outages import NO_OUTAGE, Outage, is_told, pause
from perdure.turn.situation import Situation
from perdure.turn.state import TurnState
from perdure.turn.wire import ModelCall, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Text
from perdure.values.model_retry import pinned
from perdure.values.prices import Price
from perdure.values.reports import Tried
from perdure.values.tasks import Task
from perdure.worker import AgentWorker

S, MIN, H = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
DOWN = errors.LLMUnavailableError(
    "a: the server at a.test cannot be reached: the connection was refused", context={"sent": False}
)
BUSY = errors.LLMUnavailableError("overloaded", context={"status": 503})
EMPTY = errors.LLMUnavailableError(
    "answered with nothing", context={"empty": True, "charged": True}
)
NONSENSE = errors.LLMUnavailableError("tool_use_failed", context={"status": 400})
UNKNOWN = errors.LLMInvalidRequestError("no such model", context={"status": 404})
EVENTS_OF_AN_ATTEMPT = 12
"""An activity, a timer and two workflow tasks, and the memo of the wait."""


def rate_limit(asked: timedelta) -> PerdureError:
    """The error of a provider that asks for a pause."""
    return errors.LLMRateLimitError(
        "slow down", context={"status": 429, "retry_after_s": asked.total_seconds()}
    )


def agent(
    models: str = "a", policy: ModelRetryPolicy | None = None, **fields: Any
) -> AgentDefinition:
    """An agent with these models, `a:m` and so on."""
    targets = tuple(Target(model=f"{name}:m", price=Price.free()) for name in models)
    kept = pinned(policy or ModelRetryPolicy(), limits.OUTAGE)
    return AgentDefinition(
        name="x", instructions="", model="a:m", targets=targets, model_retry=kept, **fields
    )


@dataclass
class Clocked:
    """A turn whose models fail as `says` returns, by name and time since the start.

    It handles moves as the workflow does.
    """

    by: AgentDefinition
    says: Callable[[str, timedelta], PerdureError | None]
    state: TurnState = field(default_factory=TurnState)
    now: timedelta = timedelta()
    asked: list[tuple[str, timedelta]] = field(default_factory=list)
    told: list[timedelta] = field(default_factory=list)
    limits: list[timedelta] = field(default_factory=list)
    time: timedelta | None = None
    _health: Health = field(default_factory=Health)
    _since: timedelta = timedelta()

    def __post_init__(self) -> None:
        budget = None if self.time is None else Budget(time=self.time)
        self.note(
            TurnStarted(TurnRequest(agent="x", task=Task(content="go"), budget=budget)),
            AgentResolved(AgentKey(), self.by),
        )

    def note(self, *facts: Fact) -> None:
        """Apply a fact."""
        for fact in facts:
            if isinstance(fact, CallFailed) and not self.state.attempts.unpardoned:
                self._since = self.now
            self.state = apply(self.state, fact)

    def play(self) -> Any:
        """Run until the turn ends or waits for a person."""
        while True:
            move = self._next()
            if not isinstance(move, Ask):
                return move
            self._ask(move)

    def _next(self) -> Any:
        now_s = self.now.total_seconds()
        outage = Outage(
            self.now - self._since if self.state.attempts.unpardoned else timedelta(),
            None,
            {
                target.model: left
                for target in self.by.chain
                if (left := self._health.asked_s(target.model, now_s))
            },
            "turn",
        )
        benched = [
            target.model for target in self.by.chain if self._health.benched_s(target.model, now_s)
        ]
        move = next_move(
            Situation(
                self.state,
                self.by,
                None if self.time is None else self.time - self.now,
                benched,
                outage,
            )
        )
        return move.error if isinstance(move, Stop) else move

    def _ask(self, move: Ask) -> None:
        choice = move.choice
        self.now += choice.delay
        if (
            choice.limit
        ):  # a wait of its own, outside of the time, after which failures are forgiven
            self.limits.append(choice.delay)
            self.time = self.time and self.time + choice.delay
            self.note(WaitBegan("provider", "full", limit=True), WaitEnded())
            return
        if choice.delay and is_told(choice.number, choice.delay):
            self.told.append(choice.delay)
            self.note(WaitBegan("provider", "down", attempt=move.key.attempt))
        if (
            self.time is not None
            and self.now >= self.time - time_kept(self.state, self.by)
            and not move.key.is_last
        ):
            return
        name = choice.target.model
        self.note(Scheduled(move.key, ModelCall.of("0" * 16, model=name, round=choice.round)))
        self.asked.append((name[0], self.now))
        error = self.says(name[0], self.now)
        if error is None:
            self.note(
                ModelAnswered(
                    move.key,
                    ModelAnswer(message=AssistantMessage(parts=(Text(text="here"),)), model=name),
                )
            )
            return
        self._health.failed(
            name,
            self.now.total_seconds(),
            float(error.context.get("retry_after_s", 0)),  # type: ignore[arg-type]  # ours
        )
        self.note(CallFailed(move.key, error.info()))


def away(
    until: timedelta, error: PerdureError = DOWN
) -> Callable[[str, timedelta], PerdureError | None]:
    """Every provider fails until that time."""
    return lambda name, now: error if now < until else None


def always(error: PerdureError) -> Callable[[str, timedelta], PerdureError | None]:
    """Every provider always fails."""
    return lambda name, now: error


# Limits of providers


WAITS = ModelRetryPolicy(on_limit="wait")


def full(*resets: tuple[str, timedelta]) -> Callable[[str, timedelta], PerdureError | None]:
    """Each of these providers is at a limit until that time."""
    until = dict(resets)

    def says(name: str, now: timedelta) -> PerdureError | None:
        left = until.get(name, timedelta()) - now
        return rate_limit(left) if left > timedelta() else None

    return says


@pytest.mark.accepts("M40", "M42")
def test_limit_is_waited_for_whatever_its_length_and_the_time_of_the_turn() -> None:
    """With `on_limit="wait"`; without it, the turn ends at once."""
    turn = Clocked(agent(policy=WAITS), full(("a", 9 * H)), time=H)

    assert isinstance(turn.play(), Done)
    assert turn.asked[1][1] >= 9 * H
    assert len(turn.asked) == 2
    for time in (None, H):
        ends = Clocked(agent(), full(("a", 9 * H)), time=time)
        assert isinstance(
            ends.play(), errors.TurnBudgetExceededError if time else errors.LLMRateLimitError
        )
        assert len(ends.asked) == 1


@pytest.mark.accepts("M41")
def test_short_pause_is_none_of_a_limit_and_failures_after_a_limit_are_the_first() -> None:
    """Of five minutes, which counts as the pause of an outage does."""
    short = Clocked(agent(policy=WAITS), full(("a", 5 * MIN)), time=4 * MIN)

    def down_after(name: str, now: timedelta) -> PerdureError | None:
        return rate_limit(9 * H - now) if now < 9 * H else DOWN if now < 9 * H + 20 * MIN else None

    turn = Clocked(agent(policy=WAITS), down_after)

    assert isinstance(short.play(), errors.TurnBudgetExceededError)
    assert isinstance(turn.play(), Done), "half an hour of retries begins after the limit"
    assert len(turn.limits) == 1


@pytest.mark.accepts("M41")
def test_provider_that_always_names_another_limit_is_given_up() -> None:
    """After a hundred attempts, so that the history does not grow for ever."""
    turn = Clocked(agent(policy=WAITS), always(rate_limit(6 * MIN)))

    assert isinstance(turn.play(), errors.PerdureError)
    assert len(turn.limits) == limits.LIMIT_ATTEMPTS


@pytest.mark.accepts("M45")
def test_chain_waits_for_the_first_limit_that_ends_and_asks_that_model() -> None:
    """It need not be the first model; one that is not at a limit is asked at once."""
    turn = Clocked(agent("abc", policy=WAITS), full(("a", 9 * H), ("b", 2 * H), ("c", 5 * H)))
    free = Clocked(agent("ab", policy=WAITS), full(("a", 9 * H)))

    assert isinstance(turn.play(), Done)
    assert [name for name, _ in turn.asked] == ["a", "b", "c", "b"]
    assert [round(delay / H) for delay in turn.limits] == [2]
    assert isinstance(free.play(), Done)
    assert ([name for name, _ in free.asked], free.limits) == (["a", "b"], [])


# The pauses


@pytest.mark.accepts("M10")
def test_pauses_double_up_to_half_a_minute_and_are_up_to_a_quarter_shorter() -> None:
    """They differ between turns, and not in a replay."""
    policy, numbers = agent().model_retry, range(1, 10)
    assert policy is not None
    whole = [timedelta(seconds=seconds) for seconds in (1, 2, 4, 8, 16, 30, 30, 30, 30)]

    for turn in ("one", "two", "three"):
        pauses = [pause(policy, number, Outage(turn_id=turn)) for number in numbers]
        assert all(most * 0.75 <= found <= most for found, most in zip(pauses, whole, strict=True))
        assert pauses == [pause(policy, number, Outage(turn_id=turn)) for number in numbers]
    assert len({pause(policy, 1, Outage(turn_id=f"turn-{number}")) for number in range(100)}) > 90


@pytest.mark.accepts("M10")
@pytest.mark.parametrize("lasted", [H, 6 * H, 24 * H])
def test_in_a_long_outage_pauses_are_a_sixtieth_of_it(lasted: timedelta) -> None:
    """So that its history stays small, whatever the longest pause is."""
    policy = agent().model_retry
    assert policy is not None

    assert 0.75 * lasted / 60 <= pause(policy, 1000, Outage(lasted)) <= lasted / 60


@pytest.mark.accepts("M11")
@pytest.mark.parametrize(
    ("number", "asked_s", "least_s", "most_s"),
    [(1, 0.05, 0.05, 0.0625), (1, 7200, 7200, 7200.25), (3, 2, 3, 4), (3, 4, 4, 5)],
)
def test_provider_gets_the_pause_that_it_asks_for(
    number: int, asked_s: float, least_s: float, most_s: float
) -> None:
    """Of any length. A short one counts only the first time; no request is made before it is
    over.
    """
    policy = agent().model_retry
    assert policy is not None

    assert least_s <= pause(policy, number, NO_OUTAGE, asked_s).total_seconds() <= most_s


# Outages


@pytest.mark.table(3)
@pytest.mark.accepts("M10")
@pytest.mark.parametrize(
    ("lasts", "most_attempts", "late"),
    [
        (12 * S, 6, 12 * S),
        (10 * MIN, 30, MIN / 2),
        (6 * H, 260, 6 * MIN),
        (7 * 24 * H, 500, 7 * 24 * MIN),
    ],
    ids=["12 s", "10 min", "6 h", "a week"],
)
def test_turn_outlasts_its_provider(lasts: timedelta, most_attempts: int, late: timedelta) -> None:
    """It answers soon after the provider is back, and its history stays far below the server's
    limits.
    """
    turn = Clocked(agent(policy=ModelRetryPolicy(maximum_elapsed=8 * 24 * H)), away(lasts))
    move = turn.play()

    assert isinstance(move, Done)
    assert lasts <= turn.now <= lasts + 1.1 * late
    assert len(turn.asked) <= most_attempts
    assert len(turn.asked) * EVENTS_OF_AN_ATTEMPT < 16_000 / 2
    assert (
        len(turn.state.steps),
        turn.state.accounts.model_calls,
        turn.state.charged.model_calls,
    ) == (1, 1, 1)
    assert turn.state.steps[0].tried == (Tried(model="a:m", reason="LLM_UNAVAILABLE"),)


@pytest.mark.accepts("M12")
def test_turn_gives_up_after_half_an_hour_and_says_why() -> None:
    """The error has the provider, its last error, and the number and duration of the attempts."""
    turn = Clocked(agent(), always(DOWN))
    error = turn.play()

    assert isinstance(error, errors.LLMUnavailableError)
    assert error.message.startswith(f"{DOWN.message}; it was tried {len(turn.asked)} times in ")
    assert error.message.endswith(
        "later than 30 min after the first failure, which is all that its ModelRetryPolicy allows"
    )
    assert error.context["attempts"] == len(turn.asked)
    assert 28 * MIN < turn.now < 30 * MIN


@pytest.mark.accepts("M12")
def test_time_budget_is_the_limit_where_there_is_one() -> None:
    """The turn does not wait for an attempt that would come too late, and follows the budget's
    policy.
    """
    turn = Clocked(agent(), always(BUSY), time=2 * H)
    error = turn.play()

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert isinstance(error.__cause__, errors.LLMUnavailableError)
    assert 2 * H - 3 * MIN < turn.now < 2 * H


@pytest.mark.accepts("M12")
def test_turn_that_finishes_waits_until_it_has_to_ask_for_its_last_answer() -> None:
    """At the time from which a tenth of its time is kept for that, 30 s at most."""
    turn = Clocked(agent(on_exhausted="finish"), always(rate_limit(H)), time=4 * MIN)
    turn.play()

    assert [at for _, at in turn.asked[:2]] == [timedelta(), 4 * MIN - 24 * S]


@pytest.mark.accepts("M12")
@pytest.mark.parametrize("time", [None, 20 * MIN])
def test_named_limit_overrides_the_time_budget(time: timedelta | None) -> None:
    """An interactive client needs a failure within seconds, whatever the time budget is."""
    turn = Clocked(agent(policy=ModelRetryPolicy(maximum_elapsed=5 * S)), always(BUSY), time=time)

    assert isinstance(turn.play(), errors.LLMUnavailableError)
    assert turn.now < 5 * S


@pytest.mark.accepts("M11")
def test_pause_that_is_longer_than_the_turn_may_wait_is_not_begun() -> None:
    """The error has the pause that the provider asked for."""
    turn = Clocked(agent(), always(rate_limit(3 * H)))
    error = turn.play()

    assert isinstance(error, errors.LLMRateLimitError)
    assert (
        "it was tried once, and the next attempt, in 3 h, would come later than 30 min"
        in error.message
    )
    assert turn.now == timedelta()


@pytest.mark.accepts("M13")
def test_turn_that_pauses_goes_on_when_it_is_resumed() -> None:
    """The retry policy starts again."""
    policy = ModelRetryPolicy(maximum_elapsed=MIN, on_exhausted="pause")
    turn = Clocked(agent(policy=policy), away(10 * MIN))
    first = turn.play()
    asked = len(turn.asked)
    turn.now = 10 * MIN - S
    turn.note(WaitBegan("resume", "down"), Resumed(), WaitEnded())

    assert isinstance(first, AwaitResume)
    assert first.reason.startswith(DOWN.message)
    assert isinstance(turn.play(), Done)
    assert turn.now < 10 * MIN + 3 * S
    assert len(turn.asked) > asked


def test_turn_that_pauses_waits_for_time_where_that_is_spent() -> None:
    """It needs budget then."""
    turn = Clocked(agent(policy=ModelRetryPolicy(on_exhausted="pause")), always(BUSY), time=5 * MIN)
    move = turn.play()
    ends = Clocked(agent(policy=ModelRetryPolicy()), always(BUSY), time=5 * MIN).play()

    assert isinstance(move, AwaitBudget)
    assert isinstance(ends, errors.TurnBudgetExceededError)


@pytest.mark.parametrize("error", [EMPTY, NONSENSE])
def test_model_that_answers_badly_is_asked_once_more_and_not_for_half_an_hour(
    error: PerdureError,
) -> None:
    """Its provider is available, and each answer is billed; also after an outage."""
    turn, after = (
        Clocked(agent(), always(error)),
        Clocked(agent(), lambda name, now: BUSY if now < MIN else error),
    )

    assert type(turn.play()) is errors.LLMUnavailableError
    assert len(turn.asked) == 2
    assert type(after.play()) is errors.LLMUnavailableError
    assert len([at for _, at in after.asked if at >= MIN]) == 2


# Chains


@pytest.mark.accepts("M14")
def test_every_model_of_a_chain_is_asked_before_the_pause() -> None:
    """Then the chain starts again with the first model; an unknown model is not called again."""
    turn = Clocked(
        agent("abc"), lambda name, now: UNKNOWN if name == "b" else BUSY if now < 20 * S else None
    )
    move = turn.play()

    assert isinstance(move, Done)
    assert "".join(name for name, _ in turn.asked).startswith("aabcc" + "acacac")
    assert 20 * S <= turn.now <= 45 * S


@pytest.mark.accepts("M14")
def test_model_that_asks_for_a_pause_is_left_alone_in_a_chain() -> None:
    """The others are called meanwhile, and it is called when its pause is over."""
    turn = Clocked(
        agent("ab"),
        lambda name, now: (
            BUSY if name == "b" else rate_limit(10 * MIN - now) if now < 10 * MIN else None
        ),
    )
    move = turn.play()
    of_first = [at for name, at in turn.asked if name == "a"]

    assert isinstance(move, Done)
    assert (len(of_first), of_first[0]) == (2, timedelta())
    assert 10 * MIN <= of_first[1] <= 12 * MIN
    assert len(turn.asked) > 10


@pytest.mark.accepts("M14", "M2")
def test_chain_that_gives_up_names_each_model() -> None:
    """With the number of their attempts."""
    turn = Clocked(agent("ab"), always(BUSY))
    error = turn.play()

    assert isinstance(error, errors.ModelChainExhaustedError)
    assert list(error.errors) == ["a:m", "b:m"]
    assert f"it was tried {len(turn.asked)} times in " in error.message


# What is reported, and earlier releases


@pytest.mark.accepts("M15")
def test_two_short_pauses_are_not_told() -> None:
    """The third and later ones are, and any that is longer than 5 s."""
    turn, limited = Clocked(agent(), away(20 * S)), Clocked(agent(), away(MIN, rate_limit(MIN)))
    turn.play()
    limited.play()

    assert len(turn.told) == len(turn.asked) - 3
    assert len(limited.told) == 1
    assert turn.state.waiting is not None
    assert (turn.state.waiting.kind, turn.state.waiting.attempt) == ("provider", len(turn.asked))


def test_turn_of_an_earlier_release_is_asked_once_more() -> None:
    """Its definition has no policy."""
    turn = Clocked(agent().model_copy(update={"model_retry": None}), away(MIN))

    assert isinstance(turn.play(), errors.LLMUnavailableError)
    assert turn.asked == [("a", timedelta()), ("a", S)]
    assert turn.state.charged.model_calls == 2


def test_call_that_no_server_got_is_given_back() -> None:
    """The whole charge; a call answered with 503 counts."""
    refused, answered = Clocked(agent(), away(3 * S)), Clocked(agent(), away(3 * S, BUSY))
    refused.play()
    answered.play()

    assert (refused.state.charged.model_calls, refused.state.accounts.model_calls) == (1, 1)
    assert (
        answered.state.charged.model_calls
        == answered.state.accounts.model_calls
        == len(answered.asked)
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"initial_interval": timedelta()}, "initial_interval"),
        ({"backoff_coefficient": 0.5}, "backoff_coefficient"),
        ({"maximum_interval": S / 2}, "shorter than initial_interval"),
        ({"maximum_elapsed": timedelta(days=9999)}, "maximum_elapsed"),
        ({"on_exhausted": "finish"}, "on_exhausted"),
        ({"maximum_attempts": 3}, "maximum_attempts"),
    ],
)
def test_policy_that_cannot_work_is_refused_when_it_is_built(
    fields: dict[str, Any], said: str
) -> None:
    """With the name of the field."""
    with pytest.raises(errors.ConfigurationError, match=said):
        ModelRetryPolicy(**fields)


def test_agent_and_worker_take_a_policy_and_nothing_else() -> None:
    """The error is raised where the policy is set."""
    with pytest.raises(
        errors.ConfigurationError, match="agent x: model_retry must be a ModelRetryPolicy"
    ):
        Agent(name="x", model="a:m", model_retry=3)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(
        errors.ConfigurationError, match="the worker: model_retry must be a ModelRetryPolicy"
    ):
        # the wrong type is the mistake under test
        AgentWorker(Agent(name="x", model="a:m"), model_retry=None)  # type: ignore[arg-type]


def test_reader_finds_the_rounds_in_the_calls() -> None:
    """The state folded from facts equals the workflow's."""
    key = ModelKey(1, 3)
    called: list[Fact] = [
        Scheduled(ModelKey(1), ModelCall.of("0" * 16)),
        CallFailed(ModelKey(1), BUSY.info()),
    ]
    again: list[Fact] = [
        Scheduled(key, ModelCall.of("0" * 16, round=1)),
        CallFailed(key, BUSY.info()),
    ]
    state = fold(
        [
            TurnStarted(TurnRequest(agent="x", task=Task(content="go"))),
            AgentResolved(AgentKey(), agent()),
            *called,
            *again,
        ]
    )

    assert (
        state.attempts.rounds,
        state.attempts.round_at,
        len(state.attempts.of_round),
        len(state.attempts.unpardoned),
    ) == (1, 1, 1, 2)
