"""What a turn knows of the effects of its calls, and what a read-back changes. Pure.

A call without an answer may have taken effect. A tool that can be read back, or that has effect
keys, is not left at that: the call is in doubt until its effect was found, or found absent. A later
call with the same effect is answered from the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from perdure import errors, limits
from perdure.agents.definitions import ToolDefinition
from perdure.agents.effects import PinnedEffect
from perdure.base import replace
from perdure.turn import steps
from perdure.turn.effect_values import Doubt, KnownEffect
from perdure.turn.facts import CallFailed, Loss, ToolLost, ToolReturned, Verified
from perdure.turn.keys import ToolKey, VerifyKey
from perdure.turn.state import TurnState
from perdure.turn.wire import ToolOutput
from perdure.values.effects import EffectRecord, EffectStatus, latest
from perdure.values.messages import ToolCall, ToolOutcome

FOUND = "\n[The answer of this call was lost. It was looked up, and has taken effect.]"
FOUND_EARLIER = (
    "\n[This call was not made: an earlier one, in {place}, has the same effect. Its answer was"
    " lost; it was looked up, and has taken effect.]"
)
ABSENT = "\n[It was looked up afterwards, and has not taken effect.]"
UNREADABLE = "\n[It could not be looked up: {reason}]"
AFTER_EARLIER = (
    "\n[An earlier call, in {place}, has the same effect, and may have taken effect. So this error"
    " does not say that nothing was done.]"
)
DONE_BEFORE = "Done before, in {place}, and not again. The result was: {result}"
NOT_AGAIN = (
    "{tool}: this call was not made. An earlier one, in {place}, has the same effect, and whether"
    " that took effect is unknown. Do not assume that it failed."
)


@dataclass(frozen=True, slots=True)
class _Call:
    """An open call that a fact is about, as it ran."""

    key: ToolKey
    call: ToolCall
    effect: PinnedEffect | None
    may_repeat: bool


def known(state: TurnState) -> tuple[EffectRecord, ...]:
    """Return what the turn knows of effects: before it, in its delegates, and of its own calls."""
    before = state.request.effects if state.request else ()
    below = (child.known.effects for child in state.children if child.known)
    return latest(chain(before, *below, state.effects))


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
    if output.known is not None:
        return _known_before(state, call, output, output.known)
    outcome, content = steps.told(state, fact.key, output)
    earlier = _find(state, call, output.effect_key)
    if outcome is ToolOutcome.FAILED and earlier and earlier.status == "unknown":
        outcome = ToolOutcome.UNKNOWN  # the service may have refused it because of the earlier one
        content += AFTER_EARLIER.format(place=_place(earlier))
    if outcome is ToolOutcome.UNKNOWN:
        return _doubted(state, call, content, output.effect_key)
    if outcome is ToolOutcome.DONE:
        state = _noted(state, call, "done", output.effect_key, content)
    return steps.give(state, fact.key, content, outcome, output.media)


def lost(state: TurnState, fact: ToolLost) -> TurnState:
    """Handle a call without an answer: find out what became of it, repeat it, or say so."""
    call = _call(state, fact.key)
    if call.effect is None or fact.loss is Loss.FAILED:
        return steps.lose(state, fact.key, fact.loss, fact.message)
    if call.effect.verifies or not steps.is_repeated(state, fact.key, fact.loss):
        content = steps.loss_told(state, fact.key, fact.loss, fact.message)
        if fact.loss is Loss.CANCELLED:  # the turn ends, or its time is up
            state = _noted(state, call, "unknown")
            return steps.give(state, fact.key, content, ToolOutcome.UNKNOWN)
        return _doubted(state, call, content)
    return steps.lose(state, fact.key, fact.loss, fact.message)


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
            note = _found_note(state, call, doubt, found.effect_key)
            state = _noted(state, call, "done", found.effect_key, found.content)
            return steps.give(
                state, call.key, found.content + note, ToolOutcome.VERIFIED, found.media
            )
        case "absent":
            return _absent(_noted(state, call, "absent", found.effect_key), call, doubt)
        case "unreadable":
            reason = doubt.reason + UNREADABLE.format(reason=found.content)
            return _unknown(_noted(state, call, "unknown", found.effect_key), call, doubt, reason)


def _found_note(state: TurnState, call: _Call, doubt: Doubt, effect_key: str) -> str:
    if not doubt.is_earlier:
        return FOUND
    return FOUND_EARLIER.format(place=_place(_find(state, call, effect_key)))


def _absent(state: TurnState, call: _Call, doubt: Doubt) -> TurnState:
    """Make a call that has not taken effect, if it may be made; otherwise say so."""
    attempts = state.attempts.count(call.key.step, call.key.call)
    if doubt.is_earlier or (call.may_repeat and attempts + 1 < limits.EFFECT_ATTEMPTS):
        error = errors.PerdureError(doubt.reason).info()
        key = replace(call.key, attempt=attempts + 1)
        failure = CallFailed(key, error, lost=not doubt.is_earlier)
        state = _in_doubt(state, call, None)
        return replace(state, attempts=state.attempts.plus(failure))
    return steps.give(state, call.key, doubt.reason + ABSENT, ToolOutcome.FAILED)


def _doubted(state: TurnState, call: _Call, reason: str, effect_key: str = "") -> TurnState:
    """Begin to find out what became of a call, if its tool can; otherwise it remains unknown."""
    doubt = Doubt(reason=reason)
    if call.effect is not None:
        state = _noted(state, call, "unknown", effect_key)
        if call.effect.verifies:
            return _in_doubt(state, call, doubt)
    return _unknown(state, call, doubt, reason)


def _known_before(
    state: TurnState, call: _Call, output: ToolOutput, status: EffectStatus
) -> TurnState:
    """Answer a call that was not made, because its effect is known, or in doubt."""
    record = _find(state, call, output.effect_key)
    place = _place(record)
    if status == "done":
        content = DONE_BEFORE.format(place=place, result=record.result if record else "")
        return steps.give(state, call.key, content, ToolOutcome.DONE)
    doubt = Doubt(reason=NOT_AGAIN.format(tool=call.call.name, place=place), is_earlier=True)
    if call.effect is not None and call.effect.verifies:
        return _in_doubt(state, call, doubt)
    return _unknown(state, call, doubt, doubt.reason)


def _unknown(state: TurnState, call: _Call, doubt: Doubt, reason: str) -> TurnState:
    """Do what the tool says for an outcome that remains unknown."""
    on_unknown = call.effect.on_unknown if call.effect else "tell"
    if on_unknown == "pause":
        return _in_doubt(state, call, doubt.model_copy(update={"reason": reason, "waits": True}))
    if on_unknown == "fail":
        error = errors.EffectUnknownError(reason, context={"call_id": call.call.id})
        step = replace(state.open_step, broken=state.open_step.broken or error.info())
        state = replace(state, open_step=step)
    outcome = ToolOutcome.NOT_RUN if doubt.is_earlier else ToolOutcome.UNKNOWN
    return steps.give(_in_doubt(state, call, None), call.key, reason, outcome)


def _call(state: TurnState, key: ToolKey | VerifyKey) -> _Call:
    call = state.open_step.at(key.call).edited
    tool = state.agent.tool(call.name) if state.agent else None
    return _Call(
        ToolKey(key.step, key.call, key.attempt),
        call,
        tool.effect if tool else None,
        tool is not None and tool.is_idempotent,
    )


def _in_doubt(state: TurnState, call: _Call, doubt: Doubt | None) -> TurnState:
    open_call = replace(state.open_step.at(call.key.call), doubt=doubt)
    return replace(state, open_step=state.open_step.with_call(call.key.call, open_call))


def _noted(
    state: TurnState, call: _Call, status: EffectStatus, effect_key: str = "", result: str = ""
) -> TurnState:
    """Keep what is known of the effect of a call, if its tool says what its effect is.

    Earlier calls with the same effect, whose outcome was unknown, have the same status then.
    """
    if call.effect is None:
        return state
    own = EffectRecord.of(call.call, call.key.step, status=status, key=effect_key, result=result)
    same = [] if status == "unknown" else _in_doubt_before(state, call, effect_key)
    settled = (each.model_copy(update={"status": status, "result": own.result}) for each in same)
    return replace(state, effects=latest((*state.effects, *settled, own)))


def _in_doubt_before(state: TurnState, call: _Call, effect_key: str) -> list[EffectRecord]:
    """Return the records of earlier calls with the same effect, which is unknown until now."""
    return [
        record
        for record in known(state)
        if record.status == "unknown"
        and record.tool == call.call.name
        and record.key == effect_key != ""
        and record.call_id != call.call.id
    ]


def _find(state: TurnState, call: _Call, effect_key: str) -> EffectRecord | None:
    """Return the last record of an effect; without a key, the last that is unknown."""
    same_tool = [
        record
        for record in reversed(known(state))
        if record.tool == call.call.name and record.call_id != call.call.id
    ]
    same_key = (record for record in same_tool if effect_key and record.key == effect_key)
    keyless = (record for record in same_tool if not record.key and record.status == "unknown")
    return next(same_key, None) or next(keyless, None)


def _place(record: EffectRecord | None) -> str:
    if record is None:
        return "an earlier step"
    return f"step {record.step}" + (f" of turn {record.turn_id}" if record.turn_id else "")
