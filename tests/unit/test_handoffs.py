"""Handing a turn over: the call, its result, what the other agent is sent, and what stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import to_json

from perdure import Agent, Budget, Handoff, errors, limits, tool
from perdure.agents import handoffs as declared
from perdure.agents.definitions import (
    AgentDefinition,
    PinnedSkill,
    Stage,
    Target,
    ToolDefinition,
    define,
)
from perdure.agents.handoffs import HAND_OVER, Keep, PinnedHandoff
from perdure.clients.cli.drawing.progress import agents
from perdure.clients.reading.event_context import EventContext
from perdure.temporal import outcomes
from perdure.temporal.payloads import pack
from perdure.turn import carry, handoffs, reservations
from perdure.turn.context_window import sent
from perdure.turn.decide import Act, Ask, AwaitApproval, HandOver, Stop, next_move
from perdure.turn.facts import (
    AgentResolved,
    CallFailed,
    Decided,
    Fact,
    HandedOver,
    ModelAnswered,
    Recorded,
    Scheduled,
    ToolReturned,
    TurnStarted,
)
from perdure.turn.fold import apply, fold
from perdure.turn.keys import AgentKey, HandoffKey, ModelKey, ToolKey, parse_key
from perdure.turn.situation import Situation
from perdure.turn.state import Handoffs, TurnState
from perdure.turn.wire import ModelCall, ToolOutput, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import Decision
from perdure.values.messages import (
    AssistantMessage,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    UserMessage,
    digest_of,
)
from perdure.values.options import RequestOptions
from perdure.values.prices import Price
from perdure.values.reports import StopReason, Usage
from perdure.values.tasks import Task
from perdure.workflows.turn.ui_details import card

from ..support.carried_states import carried, continued, parts_of
from ..support.folding import is_paired, offered
from ..support.simulated import NOW
from ..support.thorough import examples

LOOK = offered("look", is_idempotent=True)


def definition(name: str, *to: str, keep: Keep = "all", **fields: Any) -> AgentDefinition:
    """An agent that looks, and hands over to others."""
    pinned = tuple(PinnedHandoff(name=other, keep=keep) for other in to)
    said, schema = declared.tool(pinned)
    own = ToolDefinition(
        name=HAND_OVER,
        description=said,
        parameters=schema,
        activity="",
        is_idempotent=True,
        timeout_s=0,
        schema_digest="",
    )
    return AgentDefinition(
        **{
            "name": name,
            "instructions": f"You are {name}.",
            "model": f"m:{name}",
            "tools": (LOOK, own) if to else (LOOK,),
            "handoffs": pinned,
            "max_iterations": 20,
            **fields,
        }
    )


def over(to: object = "billing", message: object = "a refund", **more: object) -> ToolCall:
    """A call that hands over."""
    arguments = {"agent": to, "message": message, **more}
    return ToolCall(id="", name=HAND_OVER, arguments=to_json(arguments).decode())


def look() -> ToolCall:
    return ToolCall(id="", name="look")


def answered(
    step: int, *parts: Text | Thinking | ToolCall, usage: Usage | None = None
) -> ModelAnswered:
    has_calls = any(isinstance(part, ToolCall) for part in parts)
    answer = ModelAnswer(
        message=AssistantMessage(parts=parts),
        stop=StopReason.TOOL_CALLS if has_calls else StopReason.END,
        model="m",
        usage=usage or Usage(),
    )
    return ModelAnswered(ModelKey(step), answer)


def begun(agent: AgentDefinition, *facts: Fact, **fields: Any) -> TurnState:
    """A turn of this agent after some facts."""
    request = TurnRequest(**{"agent": agent.name, "task": Task(content="help"), **fields})
    return fold([TurnStarted(request), AgentResolved(AgentKey(), agent), *facts])


def handed(
    keep: Keep = "all", *before: Fact, to: AgentDefinition | None = None, **fields: Any
) -> TurnState:
    """A turn of `support` that was handed over to `billing` in step 2, after a look in step 1."""
    support = definition("support", "billing", keep=keep, **fields)
    facts = before or (
        answered(1, Thinking(text="hm", by="m:support"), look()),
        ToolReturned(ToolKey(1, 1), ToolOutput(content="seen")),
        answered(2, Thinking(text="so", by="m:support"), Text(text="one moment"), over()),
        HandedOver(HandoffKey(2, 1), to or definition("billing", "support")),
    )
    return begun(support, *facts)


def results(state: TurnState) -> list[tuple[str, bool]]:
    """The results of the last step."""
    return [(one.content, one.is_error) for one in state.steps[-1].results]


def view(state: TurnState) -> Sequence[Message]:
    """What the agent's model is sent."""
    assert state.agent is not None
    cut = state.transcript.cut(state.agent.model)
    return sent(handoffs.without_earlier_thoughts(state).messages, cut)


def move_of(state: TurnState) -> object:
    assert state.agent is not None
    return next_move(Situation(state, state.agent))


@pytest.mark.accepts("D40")
def test_call_is_a_move_and_its_fact_changes_the_agent() -> None:
    """The step is closed by the agent that made it; the next one is the other agent's."""
    support = definition("support", "billing")
    before = begun(support, answered(1, over()))
    move = move_of(before)
    assert isinstance(move, HandOver)
    assert (str(move.key), move.to, move.delay) == ("step-1.call-1.agent", "billing", timedelta())

    running = apply(before, Scheduled(move.key))
    assert running.in_flight
    state = apply(running, HandedOver(move.key, definition("billing")))

    assert not state.in_flight
    assert state.agent is not None
    assert (state.agent.name, state.last_agent, state.other_agent) == ("billing",) * 3
    assert results(state) == [("Handed over to billing, which goes on from here.", False)]
    assert is_paired(state.transcript.messages)
    assert state.steps[-1].agent == ""
    asked = move_of(state)
    assert isinstance(asked, Ask)
    assert (asked.key, asked.choice.target.model) == (ModelKey(2), "m:billing")
    second = fold([answered(2, look()), ToolReturned(ToolKey(2, 1), ToolOutput(content=""))], state)
    assert second.steps[-1].agent == "billing"


def test_key_is_read_as_it_is_written() -> None:
    """Also of a later attempt."""
    for key in (HandoffKey(2, 1), HandoffKey(3, 4, 2)):
        assert parse_key(str(key)) == key
    assert outcomes.completed(HandoffKey(1, 1), pack(definition("billing"))) == HandedOver(
        HandoffKey(1, 1), definition("billing")
    )


@pytest.mark.accepts("D42")
@pytest.mark.parametrize(
    "calls", [(look(), over(), look()), (over(), over("support")), (over(), look())]
)
def test_other_calls_of_the_answer_are_refused(calls: tuple[ToolCall, ...]) -> None:
    """Each has a result at once, and none runs; only the first handoff counts."""
    state = begun(definition("support", "billing"), answered(1, *calls))
    place = next(place for place, call in enumerate(calls, 1) if call.name == HAND_OVER)
    move = move_of(state)
    assert isinstance(move, HandOver)
    assert move.key == HandoffKey(1, place)

    state = apply(state, HandedOver(move.key, definition("billing")))

    assert len(state.steps[-1].results) == len(calls)
    assert [is_error for _, is_error in results(state)] == [
        number != place for number in range(1, len(calls) + 1)
    ]
    assert is_paired(state.transcript.messages)


@pytest.mark.accepts("D43")
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (over("nobody"), "there is no agent named 'nobody' to hand over to; there are: billing"),
        (over("support"), "there is no agent named 'support' to hand over to; there are: billing"),
        (over(""), "agent is missing, or no text"),
        (over("billing", ""), "message is missing, or no text"),
        (over("billing", 5), "message is missing, or no text"),
        (ToolCall(id="", name=HAND_OVER, arguments="no"), "its arguments are no JSON"),
        (
            ToolCall(id="", name=HAND_OVER, arguments='{"agent": "billing", "message": "\\ud800"}'),
            "its arguments are no JSON",
        ),
        (ToolCall(id="", name=HAND_OVER, arguments="[]"), "agent is missing, or no text"),
    ],
)
def test_call_that_cannot_hand_over_is_an_error_for_the_model(call: ToolCall, said: str) -> None:
    """The turn goes on with its agent."""
    state = begun(definition("support", "billing"), answered(1, call))

    assert results(state) == [(f"hand_over: not handed over: {said}.", True)]
    assert state.last_agent == "support"
    assert isinstance(move_of(state), Ask)


def test_agent_without_handoffs_has_no_such_tool() -> None:
    """A call is that of an unknown tool, and the calls beside it run."""
    state = begun(definition("support"), answered(1, over(), look()))
    move = move_of(state)
    assert isinstance(move, Act)
    assert move.call.name == "look"
    assert state.open_step.results[0].content.startswith("There is no tool named 'hand_over'")


def test_tool_of_a_user_with_this_name_still_runs() -> None:
    """In a turn of a release in which the name was not reserved."""
    own = offered(HAND_OVER, is_idempotent=False)
    state = begun(definition("support", tools=(LOOK, own)), answered(1, look(), over("anybody")))
    move = move_of(state)
    assert isinstance(move, Act)
    assert move.call.name == "look"
    assert not state.open_step.results


@pytest.mark.accepts("D43")
def test_agent_does_not_hand_back_before_it_has_done_something() -> None:
    """A failed handoff is not something; a call of a tool is."""
    state = handed()
    back = fold([answered(3, over("support"))], state)
    assert results(back)[0][0].startswith(
        "hand_over: not handed over: support has just handed over to you, and nothing was done"
    )
    again = fold([answered(4, over("support"), look())], back)
    assert [is_error for _, is_error in results(again)] == [True, True]
    worked = fold(
        [answered(5, look()), ToolReturned(ToolKey(5, 1), ToolOutput(content="seen"))], again
    )
    returning = fold([answered(6, over("support"))], worked)
    assert isinstance(move_of(returning), HandOver)

    home = fold([HandedOver(HandoffKey(6, 1), definition("support", "billing"))], returning)
    assert (home.last_agent, home.other_agent) == ("support", "")
    assert home.handoffs.by == ("support", "billing")
    assert home.steps[-1].agent == "billing"


@pytest.mark.accepts("D43")
def test_agents_hand_over_in_a_row_and_a_turn_five_times() -> None:
    """A router hands on at once. The sixth handoff is refused."""
    names = ["a", "b", "c", "d", "e", "f", "g"]
    state = begun(definition("a", "b"))
    for number, (name, following) in enumerate(pairwise(names[1:]), 1):
        state = fold(
            [
                answered(number, over(name)),
                HandedOver(HandoffKey(number, 1), definition(name, following)),
            ],
            state,
        )
    assert (state.last_agent, len(state.handoffs.by)) == ("f", limits.HANDOFFS)

    refused = fold([answered(6, over("g"))], state)

    assert "was handed over 5 times, and may not be again" in results(refused)[0][0]
    assert refused.last_agent == "f"


@pytest.mark.accepts("D41")
def test_all_is_sent_by_default() -> None:
    """Without the thoughts from before; the transcript keeps them."""
    state = handed()
    seen = view(state)
    assert len(seen) == len(state.transcript.messages) == 5
    assert not [
        part
        for message in seen
        if isinstance(message, AssistantMessage)
        for part in message.parts
        if isinstance(part, Thinking)
    ]
    assert state.transcript.digest == digest_of(state.transcript.messages)
    assert is_paired(seen)


@pytest.mark.accepts("D51")
def test_thoughts_after_the_handoff_are_sent() -> None:
    """They are those of the agent itself."""
    thought = Thinking(text="mine", by="m:billing")
    state = fold(
        [answered(3, thought, look()), ToolReturned(ToolKey(3, 1), ToolOutput(content="seen"))],
        handed(),
    )
    [*_, last, _] = view(state)
    assert isinstance(last, AssistantMessage)
    assert thought in last.parts


@pytest.mark.accepts("D41")
def test_last_sends_the_task_and_the_answer_that_handed_over() -> None:
    """With its result, and what follows."""
    state = handed("last")
    task, answer, result = view(state)

    assert isinstance(task, UserMessage)
    assert task.text == "help"
    assert isinstance(answer, AssistantMessage)
    assert (answer.text, [call.name for call in answer.calls]) == ("one moment", [HAND_OVER])
    assert isinstance(result, ToolMessage)
    assert len(state.transcript.messages) == 5
    left = state.transcript.left_out_for("m:billing")
    assert left is not None
    assert left.steps == 1


@pytest.mark.accepts("D41")
def test_task_sends_the_task_and_the_message() -> None:
    """The message is one of a user, which the transcript keeps."""
    state = handed("task")
    task, message = view(state)

    assert isinstance(task, UserMessage)
    assert isinstance(message, UserMessage)
    assert (task.text, message.text) == ("help", "[Handed over by support]\na refund")
    assert state.transcript.messages[-1] == message
    later = fold(
        [answered(3, look()), ToolReturned(ToolKey(3, 1), ToolOutput(content="seen"))], state
    )
    assert view(later)[:2] == (task, message)
    assert len(view(later)) == 4


@pytest.mark.accepts("D41")
def test_all_after_a_task_is_all_again() -> None:
    """What is left out depends on the last handoff alone."""
    state = handed("task", to=definition("billing", "legal"))
    state = fold(
        [answered(3, over("legal")), HandedOver(HandoffKey(3, 1), definition("legal"))], state
    )
    assert len(view(state)) == len(state.transcript.messages)


@settings(max_examples=examples(60))
@given(
    st.lists(st.sampled_from(["look", "all", "last", "task"]), min_size=1, max_size=12),
    st.integers(1, 400),
)
def test_every_view_is_paired_and_the_bounds_hold(doing: list[str], window: int) -> None:
    """In any order of looks and handoffs, with a small window: no request is unpaired, the bound of
    tokens covers what is sent, and a later run is sent the same.
    """
    small: dict[str, Any] = {"targets": (Target(model="m:m", window=window * 10),), "model": "m:m"}
    names = [f"a{number}" for number in range(20)]
    state = begun(definition(names[0], *names[1:], **small))
    for number, one in enumerate(doing, 1):
        if one == "look":
            facts: list[Fact] = [
                answered(number, Text(text="so"), look()),
                ToolReturned(ToolKey(number, 1), ToolOutput(content="seen " * 20)),
            ]
        else:
            keep: Any = one
            giver = state.agent
            assert giver is not None
            pinned = tuple(item.model_copy(update={"keep": keep}) for item in giver.handoffs)
            state = replace(state, agent=giver.model_copy(update={"handoffs": pinned}))
            new = definition(names[number], *names[number + 1 :], **small)
            facts = [answered(number, over(names[number])), HandedOver(HandoffKey(number, 1), new)]
        state = fold(facts, state)
        move = move_of(state)
        if not isinstance(move, Ask):
            assert isinstance(move, Stop)
            return
        state = apply(state, Scheduled(move.key))
        state = replace(state, in_flight={})
        messages = sent(handoffs.without_earlier_thoughts(state).messages, move.choice.cut)
        assert is_paired(messages)
        assert isinstance(messages[0], UserMessage)
        most = state.tokens.most_input("m:m", move.choice.cut, state.transcript.messages)
        assert most >= sum(len(to_json(message)) for message in messages) // 8
        later = carried(state)
        assert view(later) == view(state)
        assert later.handoffs == replace(state.handoffs, place=later.handoffs.place)


def read_pages(keep: Keep, target: Target, message: str) -> TurnState:
    """A turn that read eight pages, more than the window has, and was handed over."""
    of_model: dict[str, Any] = {"model": target.model, "targets": (target,)}
    state = begun(definition("support", "billing", keep=keep, **of_model))
    for number in range(1, 9):
        move = move_of(state)
        assert isinstance(move, Ask)
        asked = ModelCall.of(state.transcript.digest, cut=move.choice.cut)
        state = fold(
            [
                Scheduled(ModelKey(number), asked),
                answered(number, look()),
                ToolReturned(ToolKey(number, 1), ToolOutput(content="word " * 600)),
            ],
            state,
        )
    facts = (
        answered(9, over("billing", message)),
        HandedOver(HandoffKey(9, 1), definition("billing", "support", **of_model)),
    )
    return fold(facts, state)


@pytest.mark.accepts("D41")
@pytest.mark.parametrize(("keep", "length"), [("last", 3), ("task", 2)])
def test_handoff_overrides_what_the_window_has_cut(keep: Keep, length: int) -> None:
    """The model is the same, and its window was full before."""
    state = read_pages(keep, Target(model="m:m", window=6_000), "go on")
    assert state.transcript.left_out is not None
    assert len(view(state)) == length


@pytest.mark.accepts("D41")
@pytest.mark.parametrize("keep", ["last", "task"])
def test_handoff_that_nearly_fills_the_window_is_sent_whole(keep: Keep) -> None:
    """There is nothing older to leave out; one that does not fit at all is refused."""
    state = read_pages(keep, Target(model="m:m", window=6_000), "word " * 3_000)
    move = move_of(state)
    assert isinstance(move, Ask)
    assert sent(state.transcript.messages, move.choice.cut) == tuple(view(state))

    larger = read_pages(keep, Target(model="m:m", window=6_000), "word " * 4_000)
    stop = move_of(larger)
    assert isinstance(stop, Stop)
    assert "its window of 6000 tokens is too small" in stop.error.message


@pytest.mark.accepts("D45")
def test_limits_of_the_turn_stay_and_rules_of_the_agent_change() -> None:
    """Its budget, iterations, output type and middleware are those of the first agent."""
    support: dict[str, Any] = {
        "budget": Budget(model_calls=7),
        "max_iterations": 4,
        "on_exhausted": "finish",
        "output_schema": {"type": "integer"},
        "middleware": (Stage(name="Guard", has_after=True),),
        "observes": True,
        "max_depth": 1,
        "max_children": 2,
        "max_descendants": 3,
        "on_loop": "warn",
        "rules": 3,
        "indexed": True,
    }
    billing = definition(
        "billing",
        budget=Budget(model_calls=99),
        max_iterations=None,
        on_exhausted="pause",
        protocol="json",
        parallel_tools=True,
        approval="all",
        options=RequestOptions(temperature=0),
        skills=(PinnedSkill(name="s", digest="d"),),
    )
    state = handed(to=billing, **support)

    assert state.agent is not None
    for name, value in support.items():
        assert getattr(state.agent, name) == value
    for name in ("protocol", "parallel_tools", "approval", "options", "skills", "instructions"):
        assert getattr(state.agent, name) == getattr(billing, name)
    assert state.max_iterations == 4
    assert state.accounts.ledger.budget == Budget(model_calls=7)


@pytest.mark.accepts("D45")
def test_handoff_in_the_last_iteration_ends_the_turn_as_its_limit_says() -> None:
    """The error names the agent whose limit it is."""
    state = handed(max_iterations=2)
    move = move_of(state)
    assert isinstance(move, Stop)
    assert isinstance(move.error, errors.MaxIterationsError)
    assert move.error.message.startswith("support made 2 model calls")
    assert state.last_agent == "billing"


@pytest.mark.accepts("D45")
def test_reservation_is_that_of_the_new_agent() -> None:
    """What the model reported for another agent's requests does not bound those of this one."""
    price = Price(input="1", output="1")
    long = definition("billing", instructions="x" * 50_000, model="m:support", price=price)
    facts = (
        Scheduled(ModelKey(1)),
        answered(1, over(), usage=Usage(input_tokens=40, output_tokens=5)),
        HandedOver(HandoffKey(1, 1), long),
    )
    state = handed("all", *facts, price=price)
    assert state.agent is not None

    assert state.input_bound("m:support") > 50_000
    reserved = reservations.for_call(state, state.agent, state.agent.chain[0])
    assert reserved.amount.tokens > 50_000


@pytest.mark.accepts("D44")
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            errors.UnknownAgentError("no agent named 'billing'; this worker knows support"),
            "UNKNOWN_AGENT: no agent named 'billing'; this worker knows support.",
        ),
        (errors.ConfigurationError("no model"), "CONFIGURATION: no model."),
    ],
)
def test_agent_that_cannot_be_resolved_is_an_error_for_the_model(
    error: errors.PerdureError, said: str
) -> None:
    """The turn goes on with its agent, and may hand over to another one."""
    state = begun(
        definition("support", "billing"),
        answered(1, over()),
        CallFailed(HandoffKey(1, 1), error.info()),
    )
    assert results(state) == [(f"hand_over: not handed over: {said}", True)]
    assert state.handoffs == Handoffs()
    assert isinstance(move_of(state), Ask)


@pytest.mark.accepts("D46")
def test_lost_attempts_are_repeated_and_at_last_told() -> None:
    """With other keys; the fifth lost attempt is an error for the model."""
    state = begun(definition("support", "billing"), answered(1, over()))
    lost = errors.PerdureError("the worker was lost")
    for attempt in range(1, limits.LOST_ATTEMPTS + 1):
        move = move_of(state)
        assert isinstance(move, HandOver)
        assert move.key == HandoffKey(1, 1, attempt)
        state = apply(state, CallFailed(move.key, lost.info(), lost=True))
    assert results(state)[0][1]

    passing = errors.LLMUnavailableError("a server is away")
    state = begun(
        definition("support", "billing"),
        answered(1, over()),
        CallFailed(HandoffKey(1, 1), passing.info()),
    )
    move = move_of(state)
    assert isinstance(move, HandOver)
    assert (move.key.attempt, move.delay) == (2, timedelta(seconds=1))


def test_late_end_of_a_handoff_changes_nothing() -> None:
    """The last answer was requested meanwhile, and the call has a result that says so."""
    support = definition("support", "billing", on_exhausted="finish")
    state = begun(support, answered(1, over()), Scheduled(HandoffKey(1, 1)))
    finishing = apply(state, Scheduled(ModelKey(3, is_last=True)))
    for fact in (
        HandedOver(HandoffKey(1, 1), definition("billing")),
        CallFailed(HandoffKey(1, 1), errors.TurnCancelledError().info()),
    ):
        late = apply(finishing, fact)
        assert late.last_agent == "support"
        assert late.transcript == finishing.transcript
        assert late.attempts == finishing.attempts


@pytest.mark.accepts("D49")
def test_approver_may_change_the_agent_and_a_denial_is_told() -> None:
    """A wrong name of an approver is an error for the model as well."""
    support = definition("support", "billing", "legal", approval="all")
    state = begun(support, answered(1, over(), look()))
    asked = move_of(state)
    assert isinstance(asked, AwaitApproval)
    assert move_of(carried(state)) == asked
    [(call, _)] = asked.asked.calls

    def decided(**fields: Any) -> TurnState:
        decision = {"call_id": call.id, "digest": "", "approve": True, **fields}
        return apply(state, Decided(Decision(**decision)))

    edited = decided(arguments='{"agent": "legal", "message": "go"}')
    move = move_of(edited)
    assert isinstance(move, HandOver)
    assert move.to == "legal"
    done = apply(edited, HandedOver(move.key, definition("legal")))
    assert done.steps[-1].results[0].content.startswith("Handed over to legal")
    assert "A person changed the arguments" in done.steps[-1].results[0].content
    wrong = decided(arguments='{"agent": "nobody", "message": "go"}')
    assert "there is no agent named 'nobody'" in results(wrong)[0][0]
    denied = decided(approve=False, reason="not today")
    assert "not today" in results(denied)[0][0]
    assert denied.last_agent == "support"


@pytest.mark.accepts("D48")
def test_card_and_list_name_both_agents() -> None:
    """The first one alone if it has the turn again."""
    assert card(handed(), "asks", NOW, None).startswith("**support → billing** — asks")
    assert card(begun(definition("support")), "asks", NOW, None).startswith("**support** — asks")
    assert (agents("support", "billing"), agents("support", "support")) == (
        "support → billing",
        "support",
    )


@pytest.mark.accepts("D50")
@pytest.mark.parametrize("keep", ["all", "last", "task"])
def test_later_run_goes_on_with_the_other_agent(keep: Keep) -> None:
    """It is sent the same, may not hand back at once, and counts the handoffs."""
    state = handed(keep)
    later = carried(state)

    assert later.agent == state.agent
    assert view(later) == view(state)
    assert later.handoffs.by == ("support",)
    assert later.other_agent == "billing"
    for one in (state, later):
        back = fold([answered(3, over("support"))], one)
        assert "has just handed over to you" in results(back)[0][0]
    assert carry.messages_of(state).messages == view(state)


@pytest.mark.accepts("D48")
def test_events_have_the_agent_of_the_fold() -> None:
    """After every fact, also of a late handoff, and in a later run."""
    support = definition("support", "billing", on_exhausted="finish")
    request = TurnRequest(agent="support", task=Task(content="help"))
    late: list[Recorded] = [
        answered(1, over()),
        HandedOver(HandoffKey(1, 1), definition("billing", "support")),
        answered(2, look()),
        ToolReturned(ToolKey(2, 1), ToolOutput(content="seen")),
        answered(3, over("support")),
        Scheduled(ModelKey(5, is_last=True)),
        HandedOver(HandoffKey(3, 1), support),
    ]
    state, context = TurnState(), EventContext()
    for fact in (TurnStarted(request), AgentResolved(AgentKey(), support), *late):
        state = apply(state, fact)
        assert context.of(fact)["last_agent"] == state.last_agent
    assert state.last_agent == "billing"

    before = handed()
    state, context = TurnState(), EventContext()
    for fact in (continued(before), *parts_of(before)):
        state, told = apply(state, fact), context.of(fact)
    assert told["last_agent"] == state.last_agent == "billing"


def test_declared_handoffs_are_checked() -> None:
    """As names, as `Handoff` or as agents; wrong ones are refused when the agent is created."""
    billing = Agent(name="billing", model="m:m")
    agent = Agent(name="a", model="m:m", handoffs=["legal", Handoff("x", keep="task"), billing])
    assert agent.handoffs == (Handoff("legal"), Handoff("x", "task"), Handoff("billing"))
    for given_, said in (
        (["a"], "agent a: it cannot hand over to itself"),
        (["b", Handoff("b")], "agent a: it hands over to 'b' twice"),
        ("b", "agent a: handoffs must be a list, each item a name, a Handoff or an Agent"),
        ([5], "agent a: handoffs[0] must be a name, a Handoff or an Agent, not 5"),
    ):
        with pytest.raises(errors.ConfigurationError) as caught:
            Agent(name="a", model="m:m", handoffs=given_)  # type: ignore[arg-type]
        assert caught.value.message.startswith(said)
    with pytest.raises(errors.ConfigurationError, match="keep must be 'all', 'last' or 'task'"):
        Handoff("b", keep="some")  # type: ignore[arg-type]


@pytest.mark.accepts("D52")
def test_names_are_known_and_the_name_of_the_tool_is_reserved() -> None:
    """An unknown agent is refused with both names."""

    @tool
    def hand_over() -> None:
        """Anything."""

    with pytest.raises(errors.UnknownAgentError) as caught:
        declared.check_known([Handoff("b"), Handoff("c")], "a", ["a", "b"])
    assert caught.value.message == (
        "agent a hands over to 'c', which this worker does not know; it knows a, b"
    )
    with pytest.raises(errors.DuplicateToolError, match="'hand_over' comes from Perdure itself"):
        Agent(name="a", model="m:m", tools=[hand_over]).toolset()


def test_tool_names_the_agents_with_their_descriptions() -> None:
    """It is offered last, if it is allowed."""
    agent = Agent(name="a", model="m:m", handoffs=["b", "c"])
    pinned = [PinnedHandoff(name="b", description="Knows b."), PinnedHandoff(name="c")]

    def tools(allowed: list[str] | None) -> list[ToolDefinition]:
        defined = define(
            agent,
            chain=[Target(model="m:m")],
            activity_of=lambda item: item.name,
            allowed=allowed,
            handoffs=pinned,
        )
        return list(defined.tools)

    [item] = tools(None)
    assert item.description.endswith("The agents:\n- b: Knows b.\n- c")
    assert item.parameters["properties"]["agent"]["enum"] == ["b", "c"]  # type: ignore[index, call-overload]
    assert [one.name for one in tools([HAND_OVER])] == [HAND_OVER]
    assert tools(["look"]) == []
