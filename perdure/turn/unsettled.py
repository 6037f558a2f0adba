"""The calls of a turn, and of the turns below it, whose outcome is unknown. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.turn import effects, steps
from perdure.turn.effect_values import CallPlace
from perdure.turn.job_values import CallJob
from perdure.turn.state import TurnState
from perdure.values.effects import EffectRecord
from perdure.values.messages import ToolCall, ToolOutcome, ToolResult
from perdure.values.reports import UnsettledCall


def calls(state: TurnState) -> Iterator[UnsettledCall]:
    """Yield the turn's own calls whose outcome is unknown, then those that still run.

    A call whose effect was found, or found absent, by a later call is settled.
    """
    settled = _settled(state)
    every = (*_with_result(state), *_running(state))
    return (call for call in every if _place(call) not in settled)


def made(state: TurnState) -> tuple[UnsettledCall, ...]:
    """Return the calls whose outcome was unknown, also those that a later call has settled.

    A call that still runs counts once the turn is over.
    """
    running = _running(state) if state.ended else ()
    return (*_with_result(state), *running)


def named(state: TurnState, turn_id: str) -> Iterator[CallPlace]:
    """Yield the calls that `count` counts, as far as the turn knows which they are.

    Of delegates, it knows the calls of tools that say what their effect is.
    """
    for place in (*places(state), *map(_place, _running(state))):
        call = CallPlace.parse(place, "", turn_id)
        if call is not None:
            yield call
    settled = _settled(state)
    for record in _of_delegates(state):
        if record.place not in settled:
            yield CallPlace(record.turn_id, record.step, record.call_id)


def places(state: TurnState) -> tuple[str, ...]:
    """Return the places of those that have a result, as of effects, also in earlier runs."""
    settled = _settled(state)
    own = dict.fromkeys((*state.carried.unsettled, *map(_place, _with_result(state))))
    return tuple(place for place in own if place not in settled)


def count(state: TurnState) -> int:
    """Return the number of calls whose outcome is unknown, in the turn and those below it."""
    below = [child.known for child in state.children if child.known is not None]
    unknown = {record.place for record in _of_delegates(state)}
    settled_since = len(unknown & _settled(state))
    own = len(places(state)) + len(tuple(_running(state)))
    return own + max(sum(known.unsettled for known in below) - settled_since, 0)


def _of_delegates(state: TurnState) -> Iterator[EffectRecord]:
    """Yield the records of delegates' own calls whose outcome was unknown when they ended."""
    for child in state.children:
        for record in effects.of_child(child):
            is_below = f"{record.turn_id}/".startswith(f"{child.turn_id}/")
            if record.status == "unknown" and is_below:
                yield record


def _settled(state: TurnState) -> frozenset[str]:
    known = effects.gathered(state)
    return frozenset(record.place for record in known if record.status != "unknown")


def _with_result(state: TurnState) -> Iterator[UnsettledCall]:
    for step in state.all_steps:
        asked = {call.id: call for call in step.message.calls}
        for result in step.results:
            if result.outcome is ToolOutcome.UNKNOWN and result.call_id in asked:
                yield _unsettled(step.number, asked[result.call_id], result)
    for open_call in state.open_step.calls:
        known = open_call.result
        if known is not None and known.outcome is ToolOutcome.UNKNOWN:
            yield _unsettled(state.step_count + 1, open_call.edited, known)


def _running(state: TurnState) -> Iterator[UnsettledCall]:
    for position, open_call in state.open_step.unfinished:
        if steps.may_take_effect(state, position):
            yield _unsettled(state.step_count + 1, open_call.edited, job=open_call.job)


def _unsettled(
    step: int, call: ToolCall, result: ToolResult | None = None, job: CallJob | None = None
) -> UnsettledCall:
    of_job = job.in_words if job is not None and job.begun else ""
    return UnsettledCall(
        step=step,
        call_id=call.id,
        tool=call.name,
        arguments=call.arguments,
        reason=result.content if result else of_job,
        loss=result.loss if result else None,
    )


def _place(call: UnsettledCall) -> str:
    return f":{call.step}:{call.call_id}"
