"""The turns that take back effects of other turns: which, with which input, and their end. Pure.

A turn that takes back the effect of a call is a turn of the agent that has the tool, without a
model: its only call is that of the tool in `undo=`. So it has approvals, an effect key, a read-back
and a history as any other call. Its id is derived from the call, so the effect is taken back once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic_core import from_json, to_json

from perdure import errors, limits
from perdure.agents.definitions import ToolDefinition
from perdure.agents.effects import RESULT
from perdure.agents.versions import parts_of
from perdure.text import size
from perdure.turn import effects
from perdure.turn.effect_values import CallPlace, EffectScopes, Undo
from perdure.turn.state import TurnState
from perdure.turn.wire import TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.effects import EffectRecord, latest, within
from perdure.values.messages import AssistantMessage, Text, ToolCall, ToolOutcome, ToolResult
from perdure.values.reports import Outcome
from perdure.values.tasks import Task

CALL_ID = "undo"
TAKEN_BACK = "The effect of {call} was taken back. The result was: {result}"

Progress = Literal["undone", "undoing", "not undone"]

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,40}")
_DIGITS = 12
_OTHER_BYTES = 50_000
"""What the input of a turn has besides records of effects, such as labels."""
_WITHOUT_ANSWER = frozenset(Outcome) - {Outcome.COMPLETED, Outcome.TRUNCATED}


def turn_id_of(place: CallPlace) -> str:
    """Return the id of the turn that takes back the effect of a call."""
    call = place.call_id
    if not _PLAIN.fullmatch(call):  # the provider has chosen it
        call = hashlib.sha256(call.encode("utf-8", "replace")).hexdigest()[:_DIGITS]
    return f"{place.turn_id}/undo-{place.step}-{call}"


def place_of(record: EffectRecord) -> CallPlace:
    """Return which call a record is about that names its turn."""
    return CallPlace(record.turn_id, record.step, record.call_id)


def is_about(state: TurnState, record: EffectRecord) -> bool:
    """Return whether a turn takes back the effect of this call.

    Another call may have had its place before its turn was reset.
    """
    asked = state.request.undo if state.request else None
    same = ("tool", "arguments", "key", "result")
    return asked is not None and all(
        getattr(asked.record, name) == getattr(record, name) for name in same
    )


def undoable(state: TurnState, turn_id: str) -> tuple[EffectRecord, ...]:
    """Return the effects of a turn and its delegates that can be taken back, the last first."""
    own = (record.in_turn(turn_id) for record in effects.gathered(state))
    return tuple(record for record in reversed([*own]) if record.undo and record.status == "done")


def then_undoes(state: TurnState, turn_id: str, outcome: Outcome) -> tuple[EffectRecord, ...]:
    """Return the effects that are to be taken back after a turn has ended in this way."""
    request = state.request
    if request is not None and request.undo is not None:
        return request.undo.then
    is_undone = state.agent is not None and state.agent.on_failure == "undo"
    if not is_undone or outcome not in _WITHOUT_ANSWER:
        return ()
    return undoable(state, turn_id)


def root_of(request: TurnRequest, turn_id: str) -> str:
    """Return the id of the root of the delegates that a turn belongs to, which may be the turn."""
    above = request.lineage.ancestors if request.lineage else ()
    return above[0].turn_id if above else turn_id


def request_of(
    request: TurnRequest, root: str, undo: Undo, known: Iterable[EffectRecord] = ()
) -> TurnRequest:
    """Return the input of a turn that takes an effect back.

    `request` is the input of the turn that asks for it, and `root` its id, or that of the root of
    delegates. `known` has what earlier attempts to take it back have done.
    """
    scopes = EffectScopes(
        turn=request.effect_scopes.turn or root, session=request.effect_scopes.session
    )
    agent, version = parts_of(undo.record.undo)
    return TurnRequest(
        agent=agent,
        version=version or None,
        task=Task(
            content=f"Take back the effect of {in_words(undo.record)}{_asked_by(undo)}",
            requires_human_approval=request.task.requires_human_approval,
        ),
        labels=request.labels,
        subject=request.subject,
        on_wait=request.on_wait,
        allowed_tools=(),  # a worker of an earlier release, which would ask a model, offers it none
        effects=latest(known),
        effect_scopes=scopes,
        undo=undo,
    )


def chained(record: EffectRecord, then: Sequence[EffectRecord], by: str | None) -> Undo:
    """Return what takes an effect back, and then others: as many as fit into one input."""
    room = limits.PAYLOAD_BYTES - size(record.model_dump_json()) - _OTHER_BYTES
    return Undo(record=record, then=within(reversed(then), room)[::-1], by=by)


def in_words(record: EffectRecord) -> str:
    """Return the call of a record in words."""
    return f"{record.tool}, call {record.call_id} in step {record.step} of turn {record.turn_id}"


def scope_of(undo: Undo) -> str:
    """Return the text of the scope of a tool that takes calls back and has no key of its own.

    After a reset, a call with other arguments may have the place of the first one.
    """
    return f"call {undo.record.place} {undo.record.arguments}"


def answer(state: TurnState) -> ModelAnswer:
    """Return what stands in the place of a model's answer: the call, or the end."""
    assert state.request is not None
    assert state.request.undo is not None
    assert state.agent is not None
    record = state.request.undo.record
    result = _result(state)
    if result is None:
        [tool] = state.agent.tools
        call = ToolCall(id=CALL_ID, name=tool.name, arguments=_arguments(record, tool))
        return ModelAnswer(message=AssistantMessage(parts=(call,)))
    said = Text(text=TAKEN_BACK.format(call=in_words(record), result=result.content))
    return ModelAnswer(message=AssistantMessage(parts=(said,)))


def _arguments(record: EffectRecord, tool: ToolDefinition) -> str:
    """Return the arguments of the call, as JSON: those that the tool takes, and the result."""
    given = from_json(record.arguments.strip() or "{}")
    known = {RESULT: record.result, **tool.undone_defaults, **given}
    taken = tool.parameters.get("properties")
    names = taken if isinstance(taken, dict) else {}
    return to_json({name: known[name] for name in names if name in known}).decode()


def failure(state: TurnState) -> errors.EffectNotUndoneError | None:
    """Return the error of a turn that has not taken its effect back; None for any other turn."""
    request, result = state.request, _result(state)
    if request is None or request.undo is None or result is None or _is_done(result):
        return None
    record = request.undo.record
    return errors.EffectNotUndoneError(
        f"the effect of {in_words(record)} was not taken back: {result.content}",
        context={"turn_id": record.turn_id, "call_id": record.call_id, "outcome": result.outcome},
    )


def progress(state: TurnState) -> Progress:
    """Return how far a turn is that takes an effect back."""
    result = _result(state)
    if result is not None:
        return "undone" if _is_done(result) else "not undone"
    return "undoing" if state.ended is None else "not undone"


def may_be_repeated(state: TurnState, known: Iterable[EffectRecord]) -> bool:
    """Return whether another turn may take the effect back after this one.

    `known` has what became of the call of this one. If nobody knows, a call of another turn could
    neither be made nor looked up, so that a person has to settle this one first.
    """
    if progress(state) != "not undone":
        return False
    if all(record.status != "unknown" for record in known):
        return True
    tools = state.agent.tools if state.agent else ()
    return any(tool.is_idempotent or (tool.effect and tool.effect.verifies) for tool in tools)


def _result(state: TurnState) -> ToolResult | None:
    """Return the result of the call that takes an effect back; None as long as it has none."""
    return next((result for step in state.all_steps for result in step.results), None)


def _is_done(result: ToolResult) -> bool:
    return result.outcome in (ToolOutcome.DONE, ToolOutcome.VERIFIED)


def _asked_by(undo: Undo) -> str:
    return f", asked by {undo.by}" if undo.by else ""
