"""The fold of effects: what becomes of a lost call, by what its tool says of its effect."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import limits, tool
from perdure.activities import effect_keys
from perdure.agents.definitions import RULES, AgentDefinition, ToolDefinition
from perdure.agents.delegates import Ancestor, Lineage
from perdure.agents.effects import PinnedEffect
from perdure.base import replace
from perdure.turn import effects, steps, undo
from perdure.turn.child import Child
from perdure.turn.decide import Act, Verify, moves_at_once
from perdure.turn.effect_values import KnownEffect, Verification
from perdure.turn.facts import (
    AgentResolved,
    Decided,
    Fact,
    ModelAnswered,
    ToolLost,
    ToolReturned,
    TurnStarted,
    Verified,
)
from perdure.turn.fold import fold
from perdure.turn.keys import AgentKey, ChildKey, ModelKey, ToolKey, VerifyKey
from perdure.turn.state import TurnState
from perdure.turn.wire import Summary, ToolOutput, ToolRun, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import Decision
from perdure.values.budgets import NOTHING
from perdure.values.losses import Loss
from perdure.values.messages import AssistantMessage, ToolCall, ToolOutcome, ToolResult
from perdure.values.reports import Outcome, StopReason
from perdure.values.tasks import Task

from ..support.carried_states import carried


def payer(*, is_idempotent: bool = False, parallel: bool = False, **effect: Any) -> AgentDefinition:
    """An agent whose tool says what its effect is."""
    tool = ToolDefinition(
        name="pay",
        description="",
        parameters={},
        activity="pay",
        is_idempotent=is_idempotent,
        timeout_s=60,
        schema_digest="",
        effect=PinnedEffect(**{"has_key": True, **effect}),
    )
    return AgentDefinition(
        name="any",
        instructions="",
        model="any:model",
        tools=(tool,),
        parallel_tools=parallel,
        rules=RULES,
    )


def asks(step: int, *ids: str) -> ModelAnswered:
    """An answer with these calls."""
    parts = tuple(ToolCall(id=one, name="pay") for one in ids)
    answer = ModelAnswer(
        message=AssistantMessage(parts=parts), stop=StopReason.TOOL_CALLS, model="any"
    )
    return ModelAnswered(ModelKey(step), answer)


def after(agent: AgentDefinition, *facts: Fact) -> TurnState:
    """The state of a turn that has made a call, after these facts."""
    request = TurnRequest(agent="any", task=Task(content="go"))
    begun = (TurnStarted(request), AgentResolved(AgentKey(), agent), asks(1, "c1"))
    return fold([*begun, *facts])


def lost(loss: Loss = Loss.WORKER_LOST, attempt: int = 1) -> ToolLost:
    return ToolLost(ToolKey(1, 1, attempt), loss)


def verdict(verdict: Any, attempt: int = 1, **fields: Any) -> Verified:
    return Verified(VerifyKey(1, 1, attempt), Verification(verdict=verdict, **fields))


def result_of(state: TurnState) -> ToolResult:
    [result] = state.steps[-1].results
    return result


@pytest.mark.accepts("T47")
def test_lost_attempt_of_an_idempotent_tool_is_looked_up_before_it_is_repeated() -> None:
    """At most three attempts are made of a call that has not taken effect."""
    agent = payer(is_idempotent=True, verifies=True, settle_s=7)
    state = after(agent, lost())

    [first] = moves_at_once(state, agent)
    state = fold([verdict("absent")], state)
    [second] = moves_at_once(state, agent)
    state = fold([lost(attempt=2), verdict("absent", 2), lost(attempt=3)], state)
    [third] = moves_at_once(state, agent)
    state = fold([verdict("absent", 3)], state)

    assert isinstance(first, Verify)
    assert (first.key, first.settle.total_seconds()) == (VerifyKey(1, 1), 7)
    assert isinstance(second, Act)
    assert second.key == ToolKey(1, 1, 2)
    assert third.key == VerifyKey(1, 1, 3)
    assert result_of(state).outcome is ToolOutcome.FAILED
    assert result_of(state).content.endswith(effects.ABSENT)


@pytest.mark.accepts("T47")
@pytest.mark.parametrize("loss", [Loss.TIMED_OUT, Loss.BY_OPERATOR, Loss.WORKER_LOST])
def test_every_loss_is_looked_up(loss: Loss) -> None:
    """Also of a tool that may not be repeated."""
    agent = payer(verifies=True)

    [move] = moves_at_once(after(agent, lost(loss)), agent)

    assert isinstance(move, Verify)


@pytest.mark.accepts("T47")
def test_call_that_a_cancel_has_stopped_is_unknown_at_once() -> None:
    """The turn is about to end; a call that could not be run has failed."""
    agent = payer(verifies=True)

    cancelled = after(agent, lost(Loss.CANCELLED))
    not_run = after(agent, lost(Loss.FAILED))

    assert result_of(cancelled).outcome is ToolOutcome.UNKNOWN
    assert [record.status for record in effects.known(cancelled)] == ["unknown"]
    assert result_of(not_run).outcome is ToolOutcome.FAILED
    assert effects.known(not_run) == ()


@pytest.mark.accepts("T64")
def test_call_that_an_operator_has_ended_is_not_made_again() -> None:
    """Unlike one whose time was up: nobody wanted that one to end."""
    agent = payer(is_idempotent=True)
    timed_out = after(agent, lost(Loss.TIMED_OUT))
    ended = after(agent, lost(Loss.BY_OPERATOR))

    [again] = moves_at_once(timed_out, agent)

    assert isinstance(again, Act)
    assert again.key == ToolKey(1, 1, 2)
    assert result_of(ended).outcome is ToolOutcome.UNKNOWN


@pytest.mark.accepts("T48")
def test_error_after_an_earlier_call_with_the_same_effect_is_unknown() -> None:
    """The service may refuse the second call because of the first: `409 already paid`."""
    agent = payer(is_idempotent=True)
    unknown = ToolOutput(content="no answer", is_error=True, is_unknown=True, effect_key="k" * 32)
    refused = ToolOutput(
        content="409 already paid", is_error=True, effect_key="k" * 32, same_as=(":1:c1",)
    )
    lost = [ToolReturned(ToolKey(1, 1, attempt), unknown) for attempt in (1, 2, 3)]
    state = after(agent, *lost, asks(2, "c2"))

    state = fold([ToolReturned(ToolKey(2, 1), refused)], state)

    assert result_of(state).outcome is ToolOutcome.UNKNOWN
    assert "An earlier call, in step 1, has the same effect" in result_of(state).content


@pytest.mark.accepts("T46")
def test_calls_with_keys_are_made_one_after_the_other() -> None:
    """The second may have the effect of the first. Calls without keys are made at once."""
    keyed, plain = payer(parallel=True), payer(parallel=True, has_key=False, verifies=True)
    request = TurnRequest(agent="any", task=Task(content="go"))
    counts = []
    for agent in (keyed, plain):
        begun = (TurnStarted(request), AgentResolved(AgentKey(), agent), asks(1, "c1", "c2"))
        counts.append(len(moves_at_once(fold(begun), agent)))

    assert counts == [1, 2]


@pytest.mark.accepts("T48")
@pytest.mark.parametrize(("may_recur", "known"), [(False, 1), (True, 0)])
def test_effect_that_may_recur_is_known_only_while_it_is_unknown(
    may_recur: bool, known: int
) -> None:
    """So that a second coffee is served."""
    agent = payer(may_recur=may_recur)
    done = ToolOutput(content="paid", effect_key="k" * 32)
    state = after(agent, ToolReturned(ToolKey(1, 1), done))
    open_ = after(agent, lost())

    assert len(effects.known_of(state, agent.tools[0])) == known
    assert len(effects.known_of(open_, agent.tools[0])) == 1


@pytest.mark.accepts("T48")
def test_call_that_was_not_made_has_no_record_of_its_own() -> None:
    """The effect that is found is that of the earlier call, which is settled by it."""
    agent = payer(verifies=True)
    key = "k" * 32
    known = ToolOutput(
        content="", is_error=True, known="unknown", effect_key=key, same_as=(":1:c1",)
    )
    state = after(agent, lost(), verdict("unreadable", effect_key=key), asks(2, "c2"))

    state = fold([ToolReturned(ToolKey(2, 1), known)], state)
    found = Verification(verdict="found", content="paid", effect_key=key, same_as=(":1:c1",))
    state = fold([Verified(VerifyKey(2, 1), found)], state)

    assert [(record.place, record.status) for record in effects.known(state)] == [(":1:c1", "done")]
    assert result_of(state).outcome is ToolOutcome.VERIFIED


@pytest.mark.accepts("S23")
@pytest.mark.parametrize("first", ["done", "unknown"])
@pytest.mark.parametrize("is_read_back", [True, False])
def test_effect_of_an_earlier_call_is_not_taken_back_twice(first: str, is_read_back: bool) -> None:
    """The record is that of the earlier call, also if its answer was lost."""
    agent = payer(can_undo=True, verifies=is_read_back)
    paid = ToolOutput(content="paid", is_unknown=first == "unknown")
    facts: list[Fact] = [ToolReturned(ToolKey(1, 1), paid)]
    if is_read_back and paid.is_unknown:
        facts.append(verdict("unreadable"))
    facts.append(asks(2, "c2"))
    if is_read_back:
        found = Verification(verdict="found", content="paid", same_as=(":1:c1",))
        facts += [ToolLost(ToolKey(2, 1), Loss.WORKER_LOST), Verified(VerifyKey(2, 1), found)]
    else:
        again = ToolOutput(content="paid", same_as=(":1:c1",))
        facts.append(ToolReturned(ToolKey(2, 1), again))
    state = after(agent, *facts)

    assert result_of(state).outcome in (ToolOutcome.DONE, ToolOutcome.VERIFIED)
    assert [record.call_id for record in effects.gathered(state)] == ["c1"]
    assert [record.call_id for record in undo.undoable(state, "turn")] == ["c1"]


@pytest.mark.accepts("S23")
def test_effect_that_is_found_for_a_lost_call_is_its_own() -> None:
    """The read-back names the record of the very call, whose outcome was unknown until then."""
    found = Verification(verdict="found", content="paid", same_as=(":1:c1",))
    lost_call = ToolLost(ToolKey(1, 1), Loss.WORKER_LOST)
    state = after(payer(can_undo=True, verifies=True), lost_call, Verified(VerifyKey(1, 1), found))

    assert [(one.call_id, one.status) for one in effects.gathered(state)] == [("c1", "done")]


@pytest.mark.accepts("S23")
def test_turn_of_an_earlier_release_takes_back_what_it_noted_then() -> None:
    """Its history has both calls, and goes on as it began."""
    agent = payer(can_undo=True, verifies=False).model_copy(update={"rules": 6})
    again = ToolOutput(content="paid", same_as=(":1:c1",))
    facts: list[Fact] = [ToolReturned(ToolKey(1, 1), ToolOutput(content="paid")), asks(2, "c2")]
    state = after(agent, *facts, ToolReturned(ToolKey(2, 1), again))

    assert [record.call_id for record in undo.undoable(state, "turn")] == ["c2", "c1"]


@pytest.mark.accepts("T48")
def test_call_is_made_if_the_earlier_one_has_not_taken_effect() -> None:
    """As a first attempt: nothing of this call was lost."""
    agent = payer(verifies=True)
    key = "k" * 32
    known = ToolOutput(content="", is_error=True, known="unknown", effect_key=key)
    state = after(agent, ToolReturned(ToolKey(1, 1), known), verdict("absent", effect_key=key))

    [move] = moves_at_once(state, agent)

    assert isinstance(move, Act)
    assert move.key == ToolKey(1, 1, 2)
    assert not state.attempts.has_lost(move.key)


@pytest.mark.accepts("T57")
@pytest.mark.parametrize(
    ("is_settled", "result", "status"), [(True, "payment 7", "done"), (False, "", "unknown")]
)
def test_result_of_a_known_effect_is_what_a_person_has_said_since(
    is_settled: bool, result: str, status: str
) -> None:
    """And the record has it. Without the mark, as in old histories, the record itself counts."""
    agent, key = payer(), "k" * 32
    known = ToolOutput(
        content="payment 7",
        known="done",
        is_settled=is_settled,
        effect_key=key,
        same_as=(":1:c1",),
    )
    state = after(agent, lost(), asks(2, "c2"))

    state = fold([ToolReturned(ToolKey(2, 1), known)], state)

    told = effects.DONE_BEFORE.format(place="step 1", result=result)
    assert (result_of(state).outcome, result_of(state).content) == (ToolOutcome.DONE, told)
    [record] = effects.known(state)
    assert (record.place, record.status, record.result) == (":1:c1", status, result)


@pytest.mark.accepts("T45")
def test_call_that_is_looked_up_may_have_taken_effect() -> None:
    """So a report lists it, if the turn ends meanwhile. A call that was not made is not listed."""
    agent = payer(verifies=True)
    known = ToolOutput(content="", is_error=True, known="unknown", effect_key="k")

    assert steps.may_take_effect(after(agent, lost()), 1)
    assert not steps.may_take_effect(after(agent, ToolReturned(ToolKey(1, 1), known)), 1)


@pytest.mark.accepts("T51")
def test_delegate_settles_what_its_parent_does_not_know() -> None:
    """The record that it was given has the id of its parent, whose own record it is."""
    agent = payer()
    state = after(agent, lost())
    [unknown] = effects.passed_on(state, "parent")
    found = unknown.model_copy(update={"status": "done", "result": "paid"})
    own = unknown.model_copy(update={"turn_id": "", "call_id": "c9", "status": "done"})
    lineage = Lineage(ancestors=(Ancestor(turn_id="parent", key="step-2.call-1.child-1"),))
    summary = Summary(agent="any", outcome=Outcome.COMPLETED, effects=(found, own))
    child = Child(
        ChildKey(2, 1, 1),
        "parent/any-1",
        TurnRequest(agent="any", task=Task(content="go"), lineage=lineage),
        NOTHING,
        ended=True,
        summary=summary,
    )

    known = effects.known(replace(state, effects=(), children=(child,)))

    assert [(record.place, record.status) for record in known] == [
        (":1:c1", "done"),
        ("parent/any-1:1:c9", "done"),
    ]


def find(invoice: str) -> str | None:
    """Find a payment."""
    return None


@pytest.mark.accepts("T48", "T51")
@pytest.mark.parametrize(
    ("options", "is_done", "status"),
    [
        ({}, True, "done"),
        ({"may_recur": True}, True, None),
        ({"may_recur": True}, False, "unknown"),
        ({}, False, "unknown"),
        ({"idempotent": True}, False, None),
        ({"idempotent": True, "verify": find}, False, "unknown"),
    ],
)
def test_worker_recognizes_an_effect_by_its_key_or_its_arguments(
    options: Any, is_done: bool, status: str | None
) -> None:
    """Also one that the turn does not know any more, because it was reset."""

    @tool(effect=["invoice"], **options)
    def pay(invoice: str, amount: int) -> str:
        return "paid"

    run = ToolRun(
        owner="a",
        call_id="c",
        schema_digest="",
        effect_scope="turn t",
        arguments='{"invoice": "i", "amount": 1}',
    )
    key = effect_keys.key_of(pay, run)
    by_arguments = '{"amount": 2, "invoice": "i"}'
    for known in (
        KnownEffect(place=":1:c1", is_done=is_done, key=key[:12]),
        KnownEffect(place=":1:c1", is_done=is_done, arguments=by_arguments),
    ):
        recognized = effect_keys.recognized(pay, run, [known])
        assert recognized.known_before(pay) == status
        assert recognized.key == key
    other = KnownEffect(place=":1:c1", is_done=True, arguments='{"invoice": "j", "amount": 1}')
    assert effect_keys.recognized(pay, run, [other]).known_before(pay) is None


@pytest.mark.accepts("T51")
def test_later_run_of_a_turn_looks_up_what_the_run_before_has_lost() -> None:
    """With the same key, attempt and reason; a call that a person settles waits on."""
    agent = payer(is_idempotent=True, verifies=True, on_unknown="pause")
    in_doubt = after(agent, lost(), verdict("absent"), lost(attempt=2))
    waits = fold([verdict("unreadable", 2, effect_key="k")], in_doubt)

    for state in (in_doubt, waits):
        later = carried(state)
        assert later.open_step.calls == state.open_step.calls
        assert later.effects == state.effects
        assert moves_at_once(later, agent) == moves_at_once(state, agent)
    assert [call.id for call, _ in carried(waits).asked.calls] == ["c1"]


@pytest.mark.accepts("T50")
@pytest.mark.parametrize("settlement", ["done", "absent", None])
def test_what_a_person_says_of_a_call_is_bounded(settlement: Any) -> None:
    """As every result of a tool."""
    agent = payer(on_unknown="pause")
    decision = Decision(
        call_id="c1", digest="", approve=False, reason="x" * 200_000, settlement=settlement
    )

    state = fold([Decided(decision)], after(agent, lost()))

    assert len(result_of(state).content) <= limits.TOOL_RESULT_BYTES


@pytest.mark.accepts("T58")
def test_effect_that_is_there_is_answered_from_its_own_record() -> None:
    """And not from that of a lost call, if Temporal has forgotten what a person has said of it."""
    lost_call = KnownEffect(place=":1:c1", is_done=False)
    paid = KnownEffect(place=":2:c2", is_done=True)
    recognized = effect_keys.Recognized("k" * 32, (lost_call, paid))

    assert recognized.fields["same_as"] == (":2:c2",)
    assert recognized.unknown == ()
