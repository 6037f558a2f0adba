"""The fold of calls whose result comes later, and which results a turn takes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from perdure.agents.definitions import AgentDefinition, ToolDefinition
from perdure.agents.effects import PinnedEffect
from perdure.agents.jobs import PinnedJob
from perdure.errors import CallFinishedError, InvalidRequestError, TooLargeError
from perdure.turn import call_tokens, effects, jobs, unsettled
from perdure.turn.facts import (
    AgentResolved,
    CallFinished,
    Fact,
    ModelAnswered,
    Polled,
    Scheduled,
    ToolLost,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    WaitBegan,
    WaitEnded,
)
from perdure.turn.fold import fold
from perdure.turn.job_values import CallJob, FinishCall
from perdure.turn.keys import AgentKey, ModelKey, PollKey, ToolKey
from perdure.turn.state import TurnState
from perdure.turn.wait_values import CallWait, Woken
from perdure.turn.wire import ToolOutput, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.losses import Loss
from perdure.values.messages import AssistantMessage, ToolCall, ToolOutcome
from perdure.values.reports import Outcome, StopReason, Usage

SECRET, RUN = "secret", "0badcafe"
CALL = ToolCall(id="c1", name="deploy", arguments='{"to": "shop"}')
KEY = ToolKey(1, 1)
NOW = datetime(2026, 11, 27, tzinfo=UTC)
TOOL = ToolDefinition(
    name="deploy",
    description="",
    parameters={},
    activity="",
    is_idempotent=True,
    timeout_s=60,
    schema_digest="",
    effect=PinnedEffect(has_key=True),
    job=PinnedJob(activity="deploy", longest_s=3600),
)
AGENT = AgentDefinition(
    name="any", instructions="", model="any:m", tools=(TOOL,), call_secret=SECRET
)
ANSWER = ModelAnswer(
    message=AssistantMessage(parts=(CALL,)),
    usage=Usage(),
    model="m",
    stop=StopReason.TOOL_CALLS,
)
BEGUN = (
    TurnStarted(TurnRequest(agent="any", task="go")),
    AgentResolved(AgentKey(), AGENT),
    Scheduled(ModelKey(1)),
    ModelAnswered(ModelKey(1), ANSWER),
    Scheduled(KEY),
)


def token(call: ToolCall = CALL, secret: str = SECRET) -> str:
    """The token of a call."""
    return call_tokens.make(secret, "t", KEY, call_tokens.digest_of(call, RUN))


STARTED = ToolReturned(
    KEY, ToolOutput(content="", handle="job-1", proof=call_tokens.proof_of(token()))
)
UNKNOWN = ToolOutput(content="?", is_error=True, is_unknown=True)
WAIT = CallWait(key=str(KEY), note="n", since=NOW, until=NOW, is_job=True)


def after(*facts: Fact) -> TurnState:
    """The state after the tool was scheduled, and these facts."""
    return fold((*BEGUN, *facts))


def finish(content: str = "ok", text: str | None = None) -> FinishCall:
    """A result, as somebody sends it."""
    return FinishCall(token=token() if text is None else text, content=content)


def sent(content: str) -> CallFinished:
    """The fact of a result that was accepted."""
    return jobs.recorded(finish(content))


def ended(state: TurnState) -> str:
    """The result of the call, once its wait is over."""
    state = fold([WaitEnded(woken=(Woken(key=str(KEY), by="result"),))], state)
    [result] = state.steps[-1].results
    return result.content


@pytest.mark.accepts("F3")
@pytest.mark.parametrize(
    "later",
    [sent("two"), Polled(PollKey(1, 1), ToolOutput(content="polled")), Polled(PollKey(1, 1))],
)
def test_first_result_counts(later: Fact) -> None:
    assert ended(after(STARTED, WaitBegan("job", "n", calls=(WAIT,)), sent("one"), later)) == "one"


@pytest.mark.accepts("F3")
def test_polled_result_counts_before_one_that_is_sent() -> None:
    polled = Polled(PollKey(1, 1), ToolOutput(content="polled"))

    assert ended(after(STARTED, polled, sent("sent"))) == "polled"


@pytest.mark.accepts("F5")
@pytest.mark.parametrize("end", [STARTED, ToolLost(KEY, Loss.WORKER_LOST)])
def test_result_before_the_end_of_the_tool_is_kept(end: Fact) -> None:
    """Also if contact with the worker is lost: the tool does not run again then."""
    state = after(sent("early"), end)

    content = state.steps[-1].results[0].content if state.steps else ended(state)
    assert content == "early"
    assert state.accounts.ledger.spent.tool_calls == 1


@pytest.mark.accepts("F10")
def test_last_answer_knows_a_result_that_has_come() -> None:
    """The turn does not wait for the end of the wait then."""
    waits = after(STARTED, WaitBegan("job", "n", calls=(WAIT,)), sent("one"))

    last = fold([Scheduled(ModelKey(3, is_last=True))], waits)
    without = fold([Scheduled(ModelKey(3, is_last=True))], after(STARTED))

    assert [result.content for result in last.steps[-1].results] == ["one"]
    assert [result.outcome for result in last.steps[-1].results] == [ToolOutcome.DONE]
    assert [result.outcome for result in without.steps[-1].results] == [ToolOutcome.UNKNOWN]


@pytest.mark.accepts("F12")
@pytest.mark.parametrize(
    ("facts", "is_unsettled", "statuses"),
    [
        ((STARTED,), True, ["unknown"]),
        ((STARTED, sent("one")), False, ["done"]),
        ((STARTED, CallFinished(KEY, ToolOutput(content="no", is_error=True))), False, []),
        ((STARTED, Polled(PollKey(1, 1), UNKNOWN)), True, ["unknown"]),
    ],
)
def test_turn_that_is_cancelled_knows_what_became_of_its_jobs(
    facts: tuple[Fact, ...], is_unsettled: bool, statuses: list[str]
) -> None:
    """Also of one whose result came in a pause, and that no model has read."""
    state = after(*facts, TurnEnded(Outcome.CANCELLED))

    assert bool([*unsettled.calls(state)]) is is_unsettled
    assert [record.status for record in effects.passed_on(state, "t")] == statuses


@pytest.mark.accepts("F14")
def test_result_of_a_job_has_the_key_of_its_effect() -> None:
    """And the earlier calls with the same effect, which are settled with it."""
    begun = ToolOutput(content="", handle="job-1", effect_key="k", same_as=(":1:c0",))

    output = jobs.result_of(CallJob(begun=begun), ToolOutput(content="ok"))

    assert (output.content, output.effect_key, output.same_as) == ("ok", "k", (":1:c0",))


def checked(facts: Iterable[Fact], given: FinishCall) -> None:
    jobs.check(after(*facts), given, RUN)


@pytest.mark.accepts("F4", "F5")
@pytest.mark.parametrize("facts", [(), (STARTED,), (ToolLost(KEY, Loss.WORKER_LOST),)])
def test_result_is_taken_while_the_call_is_open(facts: tuple[Fact, ...]) -> None:
    """While the tool runs, waits for its job, or is to run again."""
    checked(facts, finish())


OTHER = ToolCall(id="c1", name="deploy", arguments='{"to": "site"}')


@pytest.mark.accepts("F4", "F11")
@pytest.mark.parametrize("facts", [(), (STARTED,)])
def test_token_of_another_call_at_the_same_place_is_refused(facts: tuple[Fact, ...]) -> None:
    """As after a reset: it is authentic, and not that of this call."""
    with pytest.raises(CallFinishedError):
        checked(facts, finish(text=token(OTHER)))
    with pytest.raises(InvalidRequestError):
        checked(facts, finish(text=token(secret="other")))


@pytest.mark.accepts("F3", "F4")
def test_result_of_a_call_that_has_one_or_does_not_run_is_refused() -> None:
    by_anna = jobs.recorded(finish("one").model_copy(update={"by": "anna"}))
    with pytest.raises(CallFinishedError, match="has a result already by anna"):
        checked((STARTED, by_anna), finish("two"))
    with pytest.raises(CallFinishedError):
        jobs.check(fold(BEGUN[:-1]), finish(), RUN)
    with pytest.raises(TooLargeError):
        checked((STARTED,), finish("x" * 70_000))


@pytest.mark.accepts("F11")
def test_result_that_comes_while_a_state_is_taken_over_is_proven_by_the_token() -> None:
    """The turn looks whether it is that of an open call once it has the state."""
    jobs.check(None, finish(text=token(secret="forged")), RUN)

    assert jobs.fits(after(STARTED), sent("ok"))
    assert not jobs.fits(after(STARTED), jobs.recorded(finish(text=token(secret="forged"))))
    assert not jobs.fits(after(STARTED, sent("one")), sent("two"))
    assert not jobs.fits(after(), sent("ok"))
