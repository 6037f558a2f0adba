"""What a turn knows of the effects of its calls, and what a read-back changes. Pure.

A call without an answer may have taken effect. A tool that can be read back, or that has effect
keys, is not left at that: the call is in doubt until its effect was found, or found absent. A later
call with the same effect is answered from the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from perdure import errors, limits
from perdure.agents.definitions import ToolDefinition
from perdure.agents.effects import PinnedEffect
from perdure.agents.versions import address_of
from perdure.base import replace
from perdure.text import clip
from perdure.turn import inquiries, steps
from perdure.turn.child import Child
from perdure.turn.effect_values import Doubt, KnownEffect, Verification
from perdure.turn.facts import CallFailed, ToolLost, ToolReturned, Verified
from perdure.turn.keys import ToolKey, VerifyKey
from perdure.turn.state import TurnState
from perdure.turn.wire import ToolOutput
from perdure.values.approvals import Decision
from perdure.values.effects import EffectRecord, EffectStatus, latest, within
from perdure.values.losses import CallLoss, Loss
from perdure.values.messages import ToolCall, ToolOutcome

FOUND = "\n[The answer of this call was lost. It was looked up, and has taken effect.]"
FOUND_EARLIER = (
    "\n[This call was not made: an earlier one, in {place}, has the same effect. Its answer was"
    " lost; it was looked up, and has taken effect.]"
)
ABSENT = "\n[It was looked up afterwards, and its effect was not there.]"
UNREADABLE = "\n[It could not be looked up: {reason}]"
AFTER_EARLIER = (
    "\n[An earlier call, in {place}, has the same effect, and may have taken effect. So this error"
    " does not say that nothing was done.]"
)
LOOKED_UP_LATER = "\n[A later call with the same effect is not made before this one was looked up.]"
SAME_KEY_LATER = (
    "\n[A later call with the same effect has the same key, by which the service recognizes it.]"
)
NOT_MADE_LATER = "\n[A later call with the same effect is not made.]"
DONE_BEFORE = "Done before, in {place}, and not again. The result was: {result}"
BY_PERSON = "A person has looked this call up: it {what}{said}"
LEFT_OPEN = "\n[A person was asked what became of it, and does not know{said}]"
NOBODY = "\n[People were asked what became of it, and nobody has answered.]"
NOT_AGAIN = (
    "{tool}: this call was not made. An earlier one, in {place}, has the same effect, and whether"
    " that took effect is unknown. Do not assume that it failed."
)


@dataclass(frozen=True, slots=True)
class _EffectCall:
    """An open call that a fact is about, as it ran."""

    key: ToolKey
    call: ToolCall
    effect: PinnedEffect | None
    may_repeat: bool
    owner: str

    @property
    def undo(self) -> str:
        """The agent whose tool takes the effect back; empty if none does."""
        return self.owner if self.effect is not None and self.effect.can_undo else ""


def known(state: TurnState) -> tuple[EffectRecord, ...]:
    """Return what the turn knows of effects: before it, in its delegates, and of its own calls."""
    before = state.request.effects if state.request else ()
    return latest((*before, *gathered(state)))


def gathered(state: TurnState) -> tuple[EffectRecord, ...]:
    """Return what the turn has learned of effects: in its delegates, and of its own calls."""
    below = (record for child in state.children for record in of_child(child))
    return latest((*below, *state.effects))


def gathered_so_far(state: TurnState) -> tuple[EffectRecord, ...]:
    """Return the same, with the calls that run: they may take effect."""
    running = (
        EffectRecord.of(call.call, key.step, status="unknown")
        for key in state.in_flight
        if isinstance(key, ToolKey) and steps.is_open(state, key)
        if (call := _call(state, key)).effect is not None
    )
    return latest((*gathered(state), *running, *_of_jobs(state)))


def _of_jobs(state: TurnState) -> Iterator[EffectRecord]:
    """Yield what is known of jobs whose calls are open; of one that has failed, nothing."""
    for position, open_call in state.open_step.unfinished:
        job, key = open_call.job, ToolKey(state.step_count + 1, position)
        call = _call(state, key)
        if job is None or call.effect is None:
            continue
        if job.output is None or job.output.is_unknown:
            yield EffectRecord.of(call.call, key.step, status="unknown")
        elif not job.output.is_error:
            effect_key = job.begun.effect_key if job.begun else ""
            of_job = {"status": "done", "key": effect_key, "result": job.output.content}
            yield EffectRecord.of(call.call, key.step, undo=call.undo, **of_job)


def passed_on(state: TurnState, turn_id: str) -> tuple[EffectRecord, ...]:
    """Return what the turn gives to a turn that it starts, or that goes on after it."""
    before = state.request.effects if state.request else ()
    records = latest((*before, *gathered_so_far(state)))
    return within([record.in_turn(turn_id) for record in records], limits.SUMMARY_BYTES // 4)


def of_child(child: Child) -> Iterator[EffectRecord]:
    """Yield what a delegate has learned, with this turn's own records as such."""
    lineage = child.request.lineage
    own_id = lineage.ancestors[-1].turn_id if lineage else ""
    for record in child.known.effects if child.known else ():
        if record.turn_id == own_id:
            yield record.model_copy(update={"turn_id": ""})
        else:
            yield record.in_turn(child.turn_id)


def known_of(state: TurnState, tool: ToolDefinition) -> tuple[KnownEffect, ...]:
    """Return what a worker needs to recognize an effect of a tool that is known.

    An effect that may recur is known only as long as it is unknown whether it is there.
    """
    if tool.effect is None or not tool.effect.has_key:
        return ()
    return tuple(
        KnownEffect.of(record)
        for record in known(state)
        if record.tool == tool.name
        and record.is_open
        and not (record.status == "done" and tool.effect.may_recur)
    )


def returned(state: TurnState, fact: ToolReturned) -> TurnState:
    """Give a call the result that its tool returned, or begin to find out what became of it."""
    call, output = _call(state, fact.key), fact.output
    if output.is_unknown:
        before = state.open_step.at(fact.key.call).loss
        loss = output.loss or before or CallLoss(kind=Loss.NO_ANSWER)
        state = steps.with_loss(state, fact.key, loss)
    if output.known is not None:
        return _known_before(state, call, output, output.known)
    outcome, content = steps.told(state, fact.key, output)
    earlier = _first(state, output.same_as)
    if outcome is ToolOutcome.FAILED and earlier and earlier.status == "unknown":
        outcome = ToolOutcome.UNKNOWN  # the service may have refused it because of the earlier one
        content += AFTER_EARLIER.format(place=_place(earlier))
    if outcome is ToolOutcome.UNKNOWN:
        return _doubted(state, call, content, output, has_no_answer=output.is_unknown)
    if outcome is ToolOutcome.DONE:
        state = _noted(state, call, "done", output, content)
    return steps.give(state, fact.key, content, outcome, output.media)


def lost(state: TurnState, fact: ToolLost) -> TurnState:
    """Handle a call without an answer: find out what became of it, repeat it, or say so."""
    call = _call(state, fact.key)
    if fact.loss is Loss.FAILED:
        return steps.lose(state, fact)
    state = steps.with_loss(state, fact.key, fact.how)
    if call.effect is None:
        return steps.lose(state, fact)
    if call.effect.verifies or not steps.is_repeated(state, fact.key, fact.loss):
        content = steps.loss_told(state, fact)
        if fact.loss is Loss.CANCELLED:  # the turn ends, or its time is up
            state = _noted(state, call, "unknown", Doubt(reason=content))
            return steps.give(state, fact.key, content, ToolOutcome.UNKNOWN)
        return _doubted(state, call, content, has_no_answer=fact.loss is Loss.TIMED_OUT)
    return steps.lose(state, fact)


def verified(before: TurnState, fact: Verified) -> TurnState:
    """Fold what a read-back has found out about a call in doubt."""
    key, found = fact.key, fact.verification
    state = replace(before, in_flight=before.without(key))
    if not steps.is_open(state, key):
        return state
    call, doubt = _call(state, key), state.open_step.at(key.call).doubt
    if doubt is None:
        return state
    match found.verdict:
        case "found":
            note = _found_note(state, doubt, found)
            state = _noted(state, call, "done", found, found.content)
            return steps.give(
                state, call.key, found.content + note, ToolOutcome.VERIFIED, found.media
            )
        case "absent":
            return _absent(_noted(state, call, "absent", found), call, doubt)
        case "unreadable":
            reason = doubt.reason + UNREADABLE.format(reason=found.content)
            return _unknown(_noted(state, call, "unknown", found), call, doubt, reason)


def settled(state: TurnState, key: ToolKey, decision: Decision) -> TurnState:
    """Fold what a person says of a call whose outcome is unknown."""
    call, doubt = _call(state, key), state.open_step.at(key.call).doubt
    assert doubt is not None
    reason = clip(decision.reason, limits.TOOL_RESULT_BYTES // 2)
    said = f": {reason}" if reason else "."
    match decision.settlement:
        case "done":
            content = BY_PERSON.format(what="has taken effect", said=said)
            state = _noted(state, call, "done", doubt, decision.reason or content)
            return steps.give(state, key, content, ToolOutcome.VERIFIED)
        case "absent":
            state = _noted(state, call, "absent", doubt)
            content = BY_PERSON.format(what="has not taken effect", said=said)
            return steps.give(state, key, content, ToolOutcome.FAILED)
        case "again":
            state = _noted(state, call, "absent", doubt)
            return _again(state, call, doubt, is_lost=False)
    return given_up(state, key, LEFT_OPEN.format(said=said))


def settled_result(decision: Decision) -> str:
    """Return the result of a call that has taken effect, as a person says."""
    reason = clip(decision.reason, limits.TOOL_RESULT_BYTES // 2)
    return reason or BY_PERSON.format(what="has taken effect", said=".")


def given_up(state: TurnState, key: ToolKey, note: str) -> TurnState:
    """Give the result to a call of which nobody says what became of it."""
    open_call = state.open_step.at(key.call)
    assert open_call.doubt is not None
    outcome = ToolOutcome.NOT_RUN if open_call.doubt.is_earlier else ToolOutcome.UNKNOWN
    return steps.give(state, key, open_call.doubt.reason + note, outcome)


def _found_note(state: TurnState, doubt: Doubt, found: Verification) -> str:
    if not doubt.is_earlier:
        return FOUND
    return FOUND_EARLIER.format(place=_place(_first(state, found.same_as)))


def _absent(state: TurnState, call: _EffectCall, doubt: Doubt) -> TurnState:
    """Make a call that has not taken effect, if it may be made; otherwise say so."""
    if doubt.is_earlier or _may_be_made_again(state, call):
        return _again(state, call, doubt, is_lost=not doubt.is_earlier)
    return steps.give(state, call.key, doubt.reason + ABSENT, ToolOutcome.FAILED)


def _may_be_made_again(state: TurnState, call: _EffectCall) -> bool:
    attempts = state.attempts.count(call.key.step, call.key.call)
    return call.may_repeat and attempts + 1 < limits.EFFECT_ATTEMPTS


def _again(state: TurnState, call: _EffectCall, doubt: Doubt, *, is_lost: bool) -> TurnState:
    """Make a call again, under another key."""
    attempt = state.attempts.count(call.key.step, call.key.call) + 1
    error = errors.PerdureError(doubt.reason).info()
    failure = CallFailed(replace(call.key, attempt=attempt), error, lost=is_lost)
    state = _without_job(_in_doubt(state, call, None), call)
    return replace(state, attempts=state.attempts.plus(failure))


def _without_job(state: TurnState, call: _EffectCall) -> TurnState:
    """Forget the job of a call that is made again."""
    open_call = replace(state.open_step.at(call.key.call), job=None, wait=None)
    state = replace(state, open_step=state.open_step.with_call(call.key.call, open_call))
    return inquiries.over(state, call.key)


def _doubted(
    state: TurnState,
    call: _EffectCall,
    reason: str,
    output: ToolOutput | None = None,
    *,
    has_no_answer: bool,
) -> TurnState:
    """Begin to find out what became of a call, if its tool can; otherwise it remains unknown.

    A service that recognizes the key is asked again if it `has_no_answer` given: it has the effect
    once, and answers then.
    """
    doubt = Doubt(reason=reason)
    if output is not None:
        doubt = Doubt(reason=reason, effect_key=output.effect_key, same_as=output.same_as)
    if call.effect is not None:
        state = _noted(state, call, "unknown", doubt)
        if call.effect.verifies:
            return _in_doubt(state, call, doubt)
        if has_no_answer and call.effect.has_key and _may_be_made_again(state, call):
            return _again(state, call, doubt, is_lost=True)
    return _unknown(state, call, doubt, reason)


def _known_before(
    state: TurnState, call: _EffectCall, output: ToolOutput, status: EffectStatus
) -> TurnState:
    """Answer a call that was not made, because its effect is known, or in doubt."""
    record = _first(state, output.same_as)
    place = _place(record)
    if output.is_settled:
        settled_before = _same(state, "done", output, output.content)
        state = replace(state, effects=latest((*state.effects, *settled_before)))
    if status == "done":
        # without a record, the turn was reset, and the worker has read it in the run before
        result = record.result if record and not output.is_settled else output.content
        content = DONE_BEFORE.format(place=place, result=result)
        return steps.give(state, call.key, content, ToolOutcome.DONE)
    reason = NOT_AGAIN.format(tool=call.call.name, place=place)
    doubt = Doubt(
        reason=reason, effect_key=output.effect_key, same_as=output.same_as, is_earlier=True
    )
    if call.effect is not None and call.effect.verifies:
        return _in_doubt(state, call, doubt)
    return _unknown(state, call, doubt, reason)


def _unknown(state: TurnState, call: _EffectCall, doubt: Doubt, reason: str) -> TurnState:
    """Do what the tool says for an outcome that remains unknown."""
    on_unknown = call.effect.on_unknown if call.effect else "tell"
    if on_unknown == "pause":
        return _in_doubt(state, call, doubt.model_copy(update={"reason": reason, "waits": True}))
    if on_unknown == "fail":
        error = errors.EffectUnknownError(reason, context={"call_id": call.call.id})
        step = replace(state.open_step, broken=state.open_step.broken or error.info())
        state = replace(state, open_step=step)
    outcome = ToolOutcome.NOT_RUN if doubt.is_earlier else ToolOutcome.UNKNOWN
    content = reason + _what_settles_it(call)
    return steps.give(_in_doubt(state, call, None), call.key, content, outcome)


def _what_settles_it(call: _EffectCall) -> str:
    """Return what becomes of a later call with the same effect."""
    if call.effect is None or not call.effect.has_key:
        return ""
    if call.effect.verifies:
        return LOOKED_UP_LATER
    return SAME_KEY_LATER if call.may_repeat else NOT_MADE_LATER


def _call(state: TurnState, key: ToolKey | VerifyKey) -> _EffectCall:
    call = state.open_step.at(key.call).edited
    tool = state.agent.tool(call.name) if state.agent else None
    return _EffectCall(
        ToolKey(key.step, key.call, key.attempt),
        call,
        tool.effect if tool else None,
        may_repeat=tool is not None and tool.is_idempotent,
        owner=(tool.owner if tool else "") or (address_of(state.agent) if state.agent else ""),
    )


def _in_doubt(state: TurnState, call: _EffectCall, doubt: Doubt | None) -> TurnState:
    open_call = replace(state.open_step.at(call.key.call), doubt=doubt)
    return replace(state, open_step=state.open_step.with_call(call.key.call, open_call))


def _noted(
    state: TurnState,
    call: _EffectCall,
    status: EffectStatus,
    effect: ToolOutput | Verification | Doubt,
    result: str = "",
) -> TurnState:
    """Keep what is known of the effect of a call, if its tool says what its effect is.

    Earlier calls with the same effect, whose outcome was unknown, have the same status then. A call
    that was not made, because of an earlier one, has no record of its own, and neither has a call
    whose effect is that of an earlier one: it would be taken back twice.
    """
    if call.effect is None:
        return state
    news = _same(state, status, effect, result)
    state = replace(state, effects=latest((*state.effects, *news)))
    key = effect.effect_key
    own = EffectRecord.of(
        call.call, call.key.step, status=status, key=key, result=result, undo=call.undo
    )
    if status == "done" and _is_of_earlier(state, own, effect.same_as):
        others = (record for record in state.effects if record.place != own.place)
        return replace(state, effects=tuple(others))
    doubt = state.open_step.at(call.key.call).doubt
    if doubt is not None and doubt.is_earlier:
        return state
    return replace(state, effects=latest((*state.effects, own)))


def _same(
    state: TurnState, status: EffectStatus, effect: ToolOutput | Verification | Doubt, result: str
) -> list[EffectRecord]:
    """Return what is known now of earlier calls with an effect, whose outcome was unknown."""
    result = clip(result, limits.EFFECT_RESULT_BYTES)
    changes = {"status": status, "key": effect.effect_key, "result": result}
    return [
        record.model_copy(update=changes)
        for record in known(state)
        if record.place in effect.same_as and record.status == "unknown"
    ]


def _is_of_earlier(state: TurnState, own: EffectRecord, places: Collection[str]) -> bool:
    """Return whether the effect is that of another of these calls.

    Before rules 7, it was noted as that of each, and taken back as often.
    """
    if state.agent is None or state.agent.rules < 7:
        return False
    others = (record for record in known(state) if record.place in places)
    return any(record.status == "done" and record.place != own.place for record in others)


def _first(state: TurnState, places: Collection[str]) -> EffectRecord | None:
    """Return the first of the records with these places."""
    return next((record for record in known(state) if record.place in places), None)


def _place(record: EffectRecord | None) -> str:
    if record is None:
        return "a step before the turn was reset"
    return f"step {record.step}" + (f" of turn {record.turn_id}" if record.turn_id else "")
