"""Properties of the fold, for simulated turns.

The turns come from `simulated`, which uses the product's rules.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from perdure.agents.definitions import RULES, AgentDefinition
from perdure.turn.facts import (
    AgentResolved,
    ApprovalNeeded,
    CallFailed,
    Fact,
    ModelAnswered,
    PolicyAnswered,
    Said,
    Scheduled,
    ToolLost,
    ToolReturned,
    TurnStarted,
)
from perdure.turn.fold import fold
from perdure.turn.keys import AgentKey, ModelKey, ToolKey
from perdure.turn.steps import AFTER_LOST
from perdure.turn.wire import ToolOutput, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.losses import CallLoss, Loss
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    ToolResult,
    UserMessage,
    canonical,
    closed,
    digest_of,
)
from perdure.values.reports import StopReason, Usage
from perdure.values.tasks import Task

from ..support.folding import AGENT, every_turn, is_paired
from ..support.simulated import LOSSES, SENT_AT, Played, any_turn

ANY_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)


words = st.text(max_size=12)
call_ids = st.sampled_from(["", "c1", "c2", "call_1_1", "call_1_2", "call_2_1", "call_1_1_2"])
tool_calls = st.builds(
    ToolCall, id=call_ids, name=st.sampled_from(["write", "look", "gone", ""]), arguments=words
)
answer_parts = st.one_of(
    tool_calls,
    st.builds(Text, text=words),
    st.builds(Thinking, text=words, signature=st.none() | words),
)
assistant_messages = st.builds(
    AssistantMessage, parts=st.lists(answer_parts, max_size=4).map(tuple)
)
media = st.builds(
    Media, media_type=st.just("image/png"), data=st.none() | words, url=st.none() | words
)
user_messages = st.builds(
    UserMessage, parts=st.lists(st.builds(Text, text=words) | media, max_size=2).map(tuple)
)
results = st.builds(
    ToolResult,
    call_id=call_ids,
    name=words,
    content=words,
    is_error=st.booleans(),
    media=st.lists(media, max_size=1).map(tuple),
)
tool_messages = st.builds(ToolMessage, results=st.lists(results, max_size=3).map(tuple))
conversations = st.lists(user_messages | assistant_messages | tool_messages, max_size=8).map(tuple)


@every_turn
@given(any_turn)
def test_running_digest_is_the_digest_of_the_messages(played: Played) -> None:
    """After each fact, digest and size equal those of the messages."""
    for state in played.states:
        assert state.transcript.digest == digest_of(state.transcript.messages)
        assert state.transcript.size_bytes == sum(
            len(canonical(message)) for message in state.transcript.messages
        )


@every_turn
@given(any_turn, st.integers(min_value=0, max_value=100))
def test_fold_in_two_parts_is_the_fold_in_one(played: Played, cut: int) -> None:
    """A reader may stop at any fact and continue."""
    assert fold(played.facts[cut:], fold(played.facts[:cut])) == fold(played.facts)


@every_turn
@given(conversations)
def test_message_that_went_through_json_has_the_same_canonical_bytes(
    messages: tuple[Message, ...],
) -> None:
    """Any message, with unknown fields ignored as in history: a round trip changes neither value
    nor digest.
    """
    back = tuple(
        ANY_MESSAGE.validate_json(message.model_dump_json(), extra="ignore") for message in messages
    )

    assert back == messages
    assert digest_of(back) == digest_of(messages)


@every_turn
@given(any_turn)
def test_usage_and_calls_are_those_of_the_facts(played: Played) -> None:
    """Tokens are counted by answers, model calls when scheduled, tool calls by their results."""
    state = fold(played.facts)
    answered = [fact.answer for fact in played.facts if isinstance(fact, ModelAnswered)]
    scheduled = [
        fact.key
        for fact in played.facts
        if isinstance(fact, Scheduled) and isinstance(fact.key, ModelKey)
    ]

    assert state.accounts.usage == sum((answer.usage for answer in answered), Usage())
    assert state.accounts.model_calls == len(scheduled)
    assert state.tool_calls == sum(len(step.results) for step in state.steps) + len(
        state.open_step.results
    )
    assert [step.number for step in state.steps] == list(range(1, len(state.steps) + 1))


@every_turn
@given(any_turn)
def test_partial_of_any_moment_can_be_continued(played: Played) -> None:
    """The closed messages of every prefix of a turn are paired, and closing them again changes
    nothing.
    """
    for state in played.states:
        history = closed(state.partial)

        assert is_paired(history)
        assert closed(history) == history


def without_ids(message: Message) -> Message:
    """A message with the same id on every call."""
    if not isinstance(message, AssistantMessage):
        return message
    parts = tuple(
        part.model_copy(update={"id": "-"}) if isinstance(part, ToolCall) else part
        for part in message.parts
    )
    return AssistantMessage(parts=parts)


@every_turn
@given(conversations)
def test_closing_pairs_whatever_it_is_given(messages: tuple[Message, ...]) -> None:
    """A hand-made history with stray results, repeated ids and open calls is paired under unique
    ids; text is kept.
    """
    history = closed(messages)
    said = [
        message
        for message in messages
        if isinstance(message, UserMessage | AssistantMessage) and message.parts
    ]
    ids = [
        call.id
        for message in history
        if isinstance(message, AssistantMessage)
        for call in message.calls
    ]

    assert is_paired(history)
    assert all(ids)
    assert len(ids) == len(set(ids))
    assert [
        without_ids(message) for message in history if not isinstance(message, ToolMessage)
    ] == [without_ids(message) for message in said]


ENDS = (
    AgentResolved,
    ModelAnswered,
    CallFailed,
    ToolReturned,
    ToolLost,
    PolicyAnswered,
    ApprovalNeeded,
)


@every_turn
@given(any_turn)
def test_what_is_in_flight_was_scheduled_and_has_no_end(played: Played) -> None:
    """A report can list what was still running."""
    scheduled = [fact.key for fact in played.facts if isinstance(fact, Scheduled)]
    over = {fact.key for fact in played.facts if isinstance(fact, ENDS)}

    assert list(fold(played.facts).in_flight) == [key for key in scheduled if key not in over]


@pytest.mark.parametrize(
    ("loss", "message", "said"),
    [
        (Loss.WORKER_LOST, "", "lost; whether it took effect is unknown"),
        (Loss.TIMED_OUT, "", "60 s"),
        (Loss.CANCELLED, "", "time was up; whether it took effect is unknown"),
        (Loss.FAILED, "no such thing", "could not be run: no such thing"),
        (
            Loss.BY_OPERATOR,
            "no use",
            "an operator ended this call in Temporal; whether it took effect is unknown: no use",
        ),
    ],
)
def test_lost_call_tells_the_model_what_is_known(loss: Loss, message: str, said: str) -> None:
    """A call that is not idempotent gets one error result with its name and the reason, and the
    step is closed with it.
    """
    call = ToolCall(id="c1", name="write")
    answer = ModelAnswer(
        message=AssistantMessage(parts=(call,)), stop=StopReason.TOOL_CALLS, model="any"
    )
    request = TurnRequest(agent="any", task=Task(content="go"))

    state = fold(
        [
            TurnStarted(request),
            AgentResolved(AgentKey(), AGENT),
            ModelAnswered(ModelKey(1), answer),
            ToolLost(ToolKey(1, 1), loss, message),
        ]
    )

    content = state.steps[0].results[0].content
    assert content.startswith("write: ")
    assert said in content
    [result] = state.steps[0].results
    failed = loss is Loss.FAILED  # it was never run
    assert result.loss == (None if failed else CallLoss(kind=loss))
    assert result.outcome is (ToolOutcome.FAILED if failed else ToolOutcome.UNKNOWN)
    assert result.is_error
    assert state.transcript.messages[-1] == ToolMessage(results=(result,))
    assert state.open_step.unfinished == ()


@every_turn
@pytest.mark.accepts("E45", "E47")
@given(any_turn)
def test_each_message_to_the_turn_is_read_once_or_named_as_unread(played: Played) -> None:
    """In the order in which they were sent, whatever else happened; and readers, to whom facts come
    in another order, agree with the workflow.
    """
    sent = [fact.id for fact in played.facts if isinstance(fact, Said)]
    final = played.state
    read = [
        message.id
        for message in final.transcript.messages
        if isinstance(message, UserMessage) and message.id is not None
    ]

    assert read + [message.id for message in final.inbox.unread] == sent
    assert {message.id for message in final.unread} <= set(sent)
    assert played.read.inbox == final.inbox
    assert played.read.transcript.digest == final.transcript.digest
    for asked in played.asked:
        assert asked.read.transcript.digest == asked.state.transcript.digest
        assert asked.read.inbox == asked.state.inbox


def ended(
    loss: Loss, *facts: Fact, agent: AgentDefinition = AGENT, sent_at: datetime | None = None
) -> ToolResult:
    """The result of a call whose first attempt was lost, after these facts."""
    call = ToolCall(id="c1", name="write")
    answer = ModelAnswer(
        message=AssistantMessage(parts=(call,)), stop=StopReason.TOOL_CALLS, model="any"
    )
    state = fold(
        [
            TurnStarted(TurnRequest(agent="any", task=Task(content="go"))),
            AgentResolved(AgentKey(), agent),
            ModelAnswered(ModelKey(1), answer),
            ToolLost(ToolKey(1, 1), loss, sent_at=sent_at),
            *facts,
        ]
    )
    return state.steps[0].results[0]


def idempotent(rules: int = RULES) -> AgentDefinition:
    """The agent, whose tools may be repeated."""
    tools = tuple(item.model_copy(update={"is_idempotent": True}) for item in AGENT.tools)
    return AGENT.model_copy(update={"tools": tools, "rules": rules})


@pytest.mark.accepts("T45")
def test_error_of_an_attempt_after_a_lost_one_is_no_failure() -> None:
    """The service may have refused it because of the first: 409 already paid."""
    refused = ToolReturned(ToolKey(1, 1, 2), ToolOutput(content="409 paid", is_error=True))

    result = ended(Loss.WORKER_LOST, refused, agent=idempotent())

    assert result.outcome is ToolOutcome.UNKNOWN
    assert result.content == f"409 paid{AFTER_LOST}"


@pytest.mark.accepts("T45")
def test_result_of_an_attempt_after_a_lost_one_is_done() -> None:
    """Its key has made one effect of both."""
    paid = ToolReturned(ToolKey(1, 1, 2), ToolOutput(content="paid"))

    result = ended(Loss.WORKER_LOST, paid, agent=idempotent())

    assert (result.outcome, result.content) == (ToolOutcome.DONE, "paid")


@pytest.mark.accepts("T45")
def test_turn_of_an_earlier_release_keeps_its_texts() -> None:
    """The digest of its transcript has them; only the outcome is new."""
    refused = ToolReturned(ToolKey(1, 1, 2), ToolOutput(content="409 paid", is_error=True))
    earlier = idempotent(rules=4)

    result = ended(Loss.WORKER_LOST, refused, agent=earlier)
    lost = ended(Loss.TIMED_OUT, agent=AGENT.model_copy(update={"rules": 4}))

    assert (result.outcome, result.content) == (ToolOutcome.UNKNOWN, "409 paid")
    assert lost.outcome is ToolOutcome.UNKNOWN
    assert lost.content.endswith("whether it took effect is unknown")
    assert canonical(ToolMessage(results=(lost,))) == canonical(
        ToolMessage(results=(lost.model_copy(update={"outcome": ToolOutcome.FAILED}),))
    )


@pytest.mark.accepts("T65")
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss is not Loss.FAILED])
def test_result_says_how_its_answer_was_lost_and_when_it_was_sent(loss: Loss) -> None:
    """In its text and in its fields, which the digest of the transcript does not cover."""
    result = ended(loss, sent_at=SENT_AT)

    assert ", after it was sent at 2026-11-27 12:03:04 UTC; whether it" in result.content
    assert result.loss == CallLoss(kind=loss, sent_at=SENT_AT)
    assert canonical(ToolMessage(results=(result,))) == canonical(
        ToolMessage(results=(result.model_copy(update={"loss": None}),))
    )


@pytest.mark.accepts("T65")
def test_loss_is_of_the_last_answer() -> None:
    """An attempt that was answered lost nothing, and an error after a lost attempt tells of it."""
    paid = ToolReturned(ToolKey(1, 1, 2), ToolOutput(content="paid"))
    refused = ToolReturned(ToolKey(1, 1, 2), ToolOutput(content="409 paid", is_error=True))
    again = ToolLost(ToolKey(1, 1, 2), Loss.TIMED_OUT, sent_at=SENT_AT + timedelta(minutes=1))

    done = ended(Loss.WORKER_LOST, paid, agent=idempotent())
    doubtful = ended(Loss.WORKER_LOST, refused, agent=idempotent(), sent_at=SENT_AT)
    twice = ended(Loss.WORKER_LOST, again, agent=idempotent(), sent_at=SENT_AT)

    assert done.loss is None
    assert doubtful.loss == CallLoss(kind=Loss.WORKER_LOST, sent_at=SENT_AT)
    assert twice.loss == again.how
