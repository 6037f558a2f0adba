"""The fold holds its promises for every turn that could be: facts are drawn at random, moves are
made by the real rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from perdure import errors
from perdure.agents.definitions import AgentDefinition, ToolDefinition
from perdure.errors import PerdureError
from perdure.temporal.payloads import pack, unpack
from perdure.turn.decide import Act, Ask, next_move
from perdure.turn.facts import (
    AgentResolved,
    CallFailed,
    CancelRequested,
    Fact,
    Loss,
    ModelAnswered,
    Scheduled,
    ToolLost,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from perdure.turn.fold import fold
from perdure.turn.keys import AgentKey, ModelKey, ToolKey
from perdure.turn.state import TurnState
from perdure.turn.wire import ToolOutput, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    canonical,
    closed,
    digest_of,
)
from perdure.values.reports import Outcome, StopReason, Usage
from perdure.values.tasks import Context, Task

from ..thorough import examples

ANY_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)


def offered(name: str, *, is_idempotent: bool) -> ToolDefinition:
    return ToolDefinition(
        name=name,
        description="",
        parameters={},
        activity=name,
        is_idempotent=is_idempotent,
        timeout_s=60,
        schema_digest="",
    )


AGENT = AgentDefinition(
    name="any",
    instructions="",
    model="any:model",
    tools=(offered("write", is_idempotent=False), offered("look", is_idempotent=True)),
    max_iterations=5,
)

words = st.text(max_size=12)
tokens = st.integers(min_value=0, max_value=1000)
usages = st.builds(
    Usage,
    input_tokens=tokens,
    output_tokens=tokens,
    cache_read_tokens=tokens,
    cache_write_tokens=tokens,
)
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
results = st.builds(ToolResult, call_id=call_ids, name=words, content=words, is_error=st.booleans())
tool_messages = st.builds(ToolMessage, results=st.lists(results, max_size=3).map(tuple))
conversations = st.lists(user_messages | assistant_messages | tool_messages, max_size=8).map(tuple)
model_errors = st.sampled_from(
    [
        errors.LLMRateLimitError(),
        errors.LLMUnavailableError(),
        errors.LLMAuthError(),
        errors.TranscriptMismatchError(),
    ]
)


def is_something(answer: ModelAnswer) -> bool:
    """Nothing at all is an error of the model and never becomes an answer (`call_model`)."""
    return bool(answer.message.text.strip() or answer.message.calls) or answer.stop in (
        StopReason.MAX_TOKENS,
        StopReason.REFUSED,
    )


messages_with_calls = st.builds(
    AssistantMessage, parts=st.lists(answer_parts | tool_calls, min_size=1, max_size=4).map(tuple)
)
going_on = st.builds(
    ModelAnswer,
    message=messages_with_calls,
    stop=st.just(StopReason.TOOL_CALLS),
    usage=usages,
    model=st.just("any"),
)
of_any_kind = st.builds(
    ModelAnswer,
    message=assistant_messages,
    stop=st.sampled_from(StopReason),
    usage=usages,
    model=st.just("any"),
)
answers = st.one_of(*[going_on] * 7, of_any_kind).filter(is_something)


@dataclass(frozen=True)
class Played:
    """A turn: what history records of it, and the state before each model call."""

    facts: tuple[Fact, ...]
    asked: tuple[TurnState, ...]


def ends(move: Ask | Act) -> st.SearchStrategy[Fact]:
    """What may become of the activity of a move."""
    key = move.key
    if isinstance(move, Act):
        returned = st.builds(
            ToolReturned, st.just(key), st.builds(ToolOutput, content=words, is_error=st.booleans())
        )
        return st.one_of(
            returned,
            returned,
            returned,
            st.builds(ToolLost, st.just(key), st.sampled_from(Loss), words),
        )
    answered = st.builds(ModelAnswered, st.just(key), answers)
    failed = st.builds(CallFailed, st.just(key), model_errors.map(PerdureError.info), st.booleans())
    return st.one_of(*[answered] * 9, failed)


@st.composite
def turns(draw: st.DrawFn, history: tuple[Message, ...] = ()) -> Played:
    """A turn as the rules let it run, with every kind of luck; it may be cancelled, or be looked at
    before its end.
    """
    context = draw(st.none() | st.builds(Context, blocks=st.dictionaries(words, words, max_size=2)))
    request = TurnRequest(
        agent="any", task=Task(content=draw(words)), context=context, history=history
    )
    facts: list[Fact] = [
        TurnStarted(request),
        Scheduled(AgentKey()),
        AgentResolved(AgentKey(), AGENT),
    ]
    asked: list[TurnState] = []
    state = fold(facts)
    for _ in range(draw(st.sampled_from([40, 40, 40, 5, 1]))):
        move = next_move(state, AGENT)
        if not isinstance(move, Ask | Act):
            break
        if isinstance(move, Ask):
            asked.append(state)
        news: list[Fact] = [Scheduled(move.key), draw(ends(move))]
        is_cancelled = draw(st.integers(min_value=0, max_value=29)) == 29
        if is_cancelled:
            news[1:] = [
                CancelRequested(draw(words)),
                *(news[1:] if isinstance(move, Act) else []),
                TurnEnded(Outcome.CANCELLED),
            ]
        facts += news
        state = fold(news, state)
        if is_cancelled:
            break
    return Played(tuple(facts), tuple(asked))


@st.composite
def continued_turns(draw: st.DrawFn) -> Played:
    """A turn that may go on from where another one was left."""
    history = draw(st.just(()) | turns().map(lambda played: fold(played.facts).partial))
    return draw(turns(history))


def is_paired(messages: Sequence[Message]) -> bool:
    """Every call has one result, in the tool message right after it, in call order; no result
    stands anywhere else.
    """
    for before, message in pairwise((None, *messages, None)):
        calls = before.calls if isinstance(before, AssistantMessage) else ()
        given = message.results if isinstance(message, ToolMessage) else ()
        if [call.id for call in calls] != [result.call_id for result in given] or (
            isinstance(message, ToolMessage) and not calls
        ):
            return False
    return True


def prefixes(played: Played) -> list[TurnState]:
    """The state after each fact."""
    state, out = TurnState(), []
    for fact in played.facts:
        state = fold([fact], state)
        out.append(state)
    return out


every_turn = settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@every_turn
@given(continued_turns())
def test_no_model_is_asked_with_an_unpaired_transcript(played: Played) -> None:
    """Before each model call, every call has exactly one result right after it, whatever the
    history was.
    """
    unpaired = [
        state.transcript.messages
        for state in played.asked
        if not is_paired(state.transcript.messages)
    ]

    assert unpaired == []


@every_turn
@given(continued_turns())
def test_call_ids_are_unique_over_the_whole_transcript(played: Played) -> None:
    """Missing and repeated ids are replaced, also where they were used in the history."""
    ids = [
        call.id
        for message in fold(played.facts).transcript.messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    ]

    assert "" not in ids
    assert len(ids) == len(set(ids))


@every_turn
@given(continued_turns())
def test_running_digest_is_the_digest_of_the_messages(played: Played) -> None:
    """After each fact, digest and size are those of the messages."""
    for state in prefixes(played):
        assert state.transcript.digest == digest_of(state.transcript.messages)
        assert state.transcript.size_bytes == sum(
            len(canonical(message)) for message in state.transcript.messages
        )


@every_turn
@given(continued_turns(), st.integers(min_value=0, max_value=100))
def test_fold_in_two_parts_is_the_fold_in_one(played: Played, cut: int) -> None:
    """A reader may stop anywhere and go on."""
    assert fold(played.facts[cut:], fold(played.facts[:cut])) == fold(played.facts)


@every_turn
@given(continued_turns())
def test_facts_that_went_through_history_give_the_same_state(played: Played) -> None:
    """What a reader unpacks from JSON folds to what the workflow has in memory."""
    assert fold(map(through_history, played.facts)) == fold(played.facts)


def through_history(fact: Fact) -> Fact:
    match fact:
        case TurnStarted(request):
            return TurnStarted(unpack(pack(request), TurnRequest))
        case AgentResolved(key, agent):
            return AgentResolved(key, unpack(pack(agent), AgentDefinition))
        case ModelAnswered(key, answer):
            return ModelAnswered(key, unpack(pack(answer), ModelAnswer))
        case ToolReturned(key, output):
            return ToolReturned(key, unpack(pack(output), ToolOutput))
        case _:
            return fact


@every_turn
@given(conversations)
def test_message_that_went_through_json_has_the_same_canonical_bytes(
    messages: tuple[Message, ...],
) -> None:
    """Any message, with unknown fields ignored as in history: reading it back changes neither value
    nor digest.
    """
    back = tuple(
        ANY_MESSAGE.validate_json(message.model_dump_json(), extra="ignore") for message in messages
    )

    assert back == messages
    assert digest_of(back) == digest_of(messages)


@every_turn
@given(continued_turns())
def test_usage_and_calls_are_those_of_the_facts(played: Played) -> None:
    """Tokens are those of the answers, model calls those scheduled, tool calls the results so far."""
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
@given(continued_turns())
def test_partial_of_any_moment_can_be_continued(played: Played) -> None:
    """Closed, the messages of every prefix of a turn are paired, and closing them again changes
    nothing.
    """
    for state in prefixes(played):
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
    """A history made by hand, with results astray, ids repeated and calls left open, is paired
    under unique ids; what was said is kept.
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


@every_turn
@given(continued_turns())
def test_what_is_in_flight_was_scheduled_and_has_no_end(played: Played) -> None:
    """A report can name what was still running."""
    scheduled = [fact.key for fact in played.facts if isinstance(fact, Scheduled)]
    over = {
        fact.key
        for fact in played.facts
        if isinstance(fact, AgentResolved | ModelAnswered | CallFailed | ToolReturned | ToolLost)
    }

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
    assert state.transcript.messages[-1] == ToolMessage.of(call, content, is_error=True)
    assert state.open_step.unfinished == ()
