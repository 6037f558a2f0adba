"""Properties of turns with random models, tools, policies, people and clocks: requests are paired,
and no call runs that may not.

The turns come from `simulated`, which uses the product's rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure import errors
from perdure.agents.definitions import AgentDefinition
from perdure.turn.decide import Ask, next_move
from perdure.turn.facts import (
    AgentResolved,
    CallFailed,
    Fact,
    ModelAnswered,
    Scheduled,
    TurnStarted,
)
from perdure.turn.fallback import Choice
from perdure.turn.fold import fold
from perdure.turn.keys import AgentKey, ModelKey, PolicyKey
from perdure.turn.retries import RETRY_DELAY
from perdure.turn.situation import Situation
from perdure.turn.wire import TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import DIMENSIONS
from perdure.values.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    closed,
)
from perdure.values.tasks import Task

from ..support import drawn
from ..support.folding import is_paired
from ..support.simulated import Asked, Played, turn
from ..support.thorough import examples


def calls_in(messages: tuple[Message, ...]) -> list[ToolCall]:
    return [
        call
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    ]


def results_in(messages: tuple[Message, ...]) -> Iterator[ToolResult]:
    for message in messages:
        yield from message.results if isinstance(message, ToolMessage) else ()


def is_spoken(asked: Asked, *, has_history: bool) -> bool:
    """Only text, starting with a user message if the history has any, with alternating roles; each
    result is in it, in order.
    """
    sent = asked.sent.messages
    words, place = (
        "\n".join(message.text for message in sent if isinstance(message, UserMessage)),
        0,
    )
    for result in results_in(asked.prompt.messages):
        place = words.find(result.content, place) + len(result.content)
        if place < len(result.content):
            return False
    roles = [message.role for message in sent]
    takes_turns = set(roles[::-2]) == {"user"} and set(roles[-2::-2]) <= {"assistant"}
    return not calls_in(sent) and (takes_turns or (has_history and roles[-1] == "user"))


def is_as_called(messages: tuple[Message, ...]) -> bool:
    """Names are those of the calls, so that no result has another tool's name."""
    return [call.name for call in calls_in(messages)] == [
        result.name for result in results_in(messages)
    ]


def every_request_is_paired(played: Played) -> None:
    """Each call has one result right after it, in call order, and there are no other results: in
    the transcript and in what is sent of it.
    """
    for asked in played.asked:
        assert is_paired(asked.state.transcript.messages)
        assert is_paired(asked.prompt.messages)
        assert is_as_called(
            asked.state.transcript.messages[len(played.states[1].transcript.messages) :]
        )
        if played.agent.protocol == "native":
            assert is_paired(asked.sent.messages)
        else:
            assert is_spoken(asked, has_history=bool(played.request.history))


def ids_are_unique_over_the_transcript(played: Played) -> None:
    """Missing, duplicate and already used ids were replaced."""
    for state in (*[asked.state for asked in played.asked], played.state):
        ids = [call.id for call in calls_in(state.transcript.messages)]

        assert "" not in ids
        assert len(ids) == len(set(ids))


def history_folds_to_what_the_workflow_knows(played: Played) -> None:
    """At each request, which has the transcript's digest, and at the end."""
    for asked in played.asked:
        assert asked.read == asked.state
        assert asked.read.transcript.digest.startswith(asked.call.digest)
    assert played.read == played.state


def wants_a_person(played: Played, call: ToolCall) -> bool:
    """Whether the tool, the agent or the task requires approval of this call."""
    is_change = call.name != "look"
    by_agent = played.agent.approval == "all" or (played.agent.approval == "changes" and is_change)
    return (
        call.name == "send"
        or by_agent
        or (played.request.task.requires_human_approval and is_change)
    )


def nothing_runs_that_may_not(played: Played) -> None:
    """No denied call, no call without a required approval, no unknown tool, and no call of an
    answer with a violation.
    """
    answers = [
        message.calls
        for message in played.state.transcript.messages
        if isinstance(message, AssistantMessage)
    ]
    allowed = played.agent.allowed
    violating = {
        call.id
        for calls in answers
        if any(allowed is not None and one.name not in allowed for one in calls)
        for call in calls
    }
    assert played.ran_refused == set()
    for call in played.ran:
        assert call.name in {tool.name for tool in played.agent.tools}
        assert call.id not in violating
        assert not wants_a_person(played, call) or played.allowed_by[call.id] == "a person"
        assert not played.agent.has_policy or call.id in played.allowed_by


def call_runs_once_as_it_was_approved_and_its_result_is_its_own(played: Played) -> None:
    """A call runs again only if its worker was lost and the tool is idempotent.

    Edited arguments are what runs.
    """
    given = {result.call_id: result for result in results_in(played.state.partial)}
    times = Counter(call.id for call in played.ran)

    assert all(times[call_id] <= 1 + played.may_run_again[call_id] for call_id in times)
    assert {call.id: call.arguments for call in played.ran if call.id in played.edited} == {
        call_id: text for call_id, text in played.edited.items() if call_id in times
    }
    for call_id, output in played.returned.items():
        if call_id in given:
            assert given[call_id].content.startswith(
                (output.content, "This call has no result: the budget was spent")
            )
    assert not any(
        given[call_id].content.startswith("step-") for call_id in played.refused & set(given)
    )


def what_is_spent_and_reserved_stays_within_the_budget(played: Played) -> None:
    """At every moment, unless a bill was above its bound; then there are no further calls.

    Calls are counted here, too.
    """
    budget = played.state.accounts.ledger.budget
    if budget is not None:
        assert budget.tool_calls is None or len(played.ran) <= budget.tool_calls
        assert budget.model_calls is None or len(played.asked) <= budget.model_calls
    for before, state in zip(played.states, played.states[1:], strict=False):
        if state.accounts.ledger.overrun:
            assert not before.accounts.ledger.overrun or len(state.accounts.ledger.held) <= len(
                before.accounts.ledger.held
            )
        elif state.accounts.ledger.budget is not None:
            limits = {name: getattr(state.accounts.ledger.budget, name) for name in DIMENSIONS}
            assert {
                name: limit
                for name, limit in limits.items()
                if limit is not None and getattr(state.charged, name) > limit
            } == {}


def what_was_given_up_is_no_failure_of_the_last_answer(played: Played) -> None:
    """A call of the model or of the policy that ends late: the last answer has all its attempts."""
    late = [
        one
        for state in played.states
        if state.finishing
        for one in state.attempts.failures
        if not (isinstance(one.key, ModelKey) and one.key.is_last)
    ]

    assert late == []


def every_moment_can_be_continued(played: Played) -> None:
    """The closed messages at any moment are a valid history for another turn."""
    for state in played.states:
        assert is_paired(closed(state.partial))


PROMISES = (
    every_request_is_paired,
    ids_are_unique_over_the_transcript,
    history_folds_to_what_the_workflow_knows,
    nothing_runs_that_may_not,
    call_runs_once_as_it_was_approved_and_its_result_is_its_own,
    what_is_spent_and_reserved_stays_within_the_budget,
    what_was_given_up_is_no_failure_of_the_last_answer,
    every_moment_can_be_continued,
)


@settings(max_examples=examples(250))
@given(st.integers(min_value=0, max_value=2**64))
# a call is refused after its first attempt, whose worker was lost and whose tool has changed
@example(9_560_666_688)
def test_turn_keeps_every_promise(seed: int) -> None:
    """Each promise is a function above. `turn(seed)` repeats the turn."""
    played = turn(seed)

    for holds in PROMISES:
        holds(played)


def test_policy_that_ends_late_takes_no_attempt_from_the_last_answer() -> None:
    """It was given up at the deadline; the last answer may still fail once."""
    agent = AgentDefinition(
        name="a",
        instructions="",
        model="m:m",
        on_exhausted="finish",
        has_policy=True,
        tools=drawn.TOOLS,
    )
    answer = ModelAnswer(message=AssistantMessage(parts=(ToolCall(id="c", name="look"),)))
    ruling, last = PolicyKey(1, 1), ModelKey(2, is_last=True)
    facts: list[Fact] = [
        TurnStarted(TurnRequest(agent="a", task=Task(content="go"))),
        AgentResolved(AgentKey(), agent),
        ModelAnswered(ModelKey(1), answer),
        Scheduled(ruling),
        Scheduled(last),
        CallFailed(ruling, errors.TurnCancelledError().info()),
        CallFailed(last, errors.LLMUnavailableError("down", context={"status": 503}).info()),
    ]

    move = next_move(Situation(fold(facts), agent))
    assert isinstance(move, Ask)
    assert (move.key, move.choice) == (
        ModelKey(2, 2, is_last=True),
        Choice(agent.chain[0], RETRY_DELAY),
    )
