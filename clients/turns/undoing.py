"""Takes back the effects of a turn that is over, each by a turn of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client
from temporalio.common import Priority

from perdure import errors
from perdure.clients.reading.recorded import runs_of, state_of
from perdure.clients.turns.starting import Started, Starter
from perdure.temporal import access, resets, settlements
from perdure.temporal.histories.fetching import first_event
from perdure.temporal.histories.runs import describe_last, runs_up_to
from perdure.temporal.priorities import inherited
from perdure.turn import effects, undo
from perdure.turn.effect_values import Undo
from perdure.turn.state import TurnState
from perdure.values.effects import EffectRecord, latest


class _Found(NamedTuple):
    """A turn whose effects are to be taken back, as it is now.

    `before` has the effects of the runs that it was reset from.
    """

    turn_id: str
    state: TurnState
    task_queue: str
    order: Priority
    before: Sequence[EffectRecord]

    @property
    def records(self) -> tuple[EffectRecord, ...]:
        """What is known of its effects and those of its delegates, in their order."""
        known = latest((*self.before, *effects.gathered_so_far(self.state)))
        return tuple(record.in_turn(self.turn_id) for record in known)


async def effects_of(client: Client, turn_id: str, run_id: str) -> tuple[EffectRecord, ...]:
    """Return what is known of the effects of a turn now, also what was taken back since its end.

    Raises:
        PerdureError: The history cannot be read.
    """
    found = await _found(client, turn_id, run_id)
    return tuple([await _as_it_is(client, record) for record in found.records])


async def taken_back(
    client: Client, records: Iterable[EffectRecord], planned: Collection[EffectRecord]
) -> list[EffectRecord]:
    """Return those of these effects that were taken back, or are about to be, as those `planned`.

    Raises:
        PerdureError: A history cannot be read.
    """
    found = []
    for record in records:
        if record.undo and record.status == "done":
            state = await _undo_of(client, record)
            if record in planned if state is None else undo.progress(state) != "not undone":
                found.append(record)
    return found


async def start(
    client: Client,
    starter: Callable[[str], Starter],
    turn_id: str,
    run_id: str,
    call: EffectRecord | str,
    by: str | None,
) -> Started:
    """Start the turn that takes back the effect of a call, or find it.

    Raises:
        InvalidRequestError: The turn runs, has no such call, or several, or nothing takes its
            effect back.
        PerdureError: The history cannot be read, or the turn cannot be started.
    """
    found = await _found(client, turn_id, run_id)
    record = await _settled(client, _of_call(found, call))
    _refuse_unless_done(found, record)
    await _refuse_running(client, found)
    undo_id = undo.turn_id_of(undo.place_of(record))
    last = await _state(client, undo_id)
    before = last if last is not None and undo.is_about(last, record) else None
    known = await _known(client, before, undo_id)
    if before is not None and not undo.may_be_repeated(before, known):
        return Started(undo_id, await runs_of(client, undo_id))
    assert found.state.request is not None
    request = undo.request_of(
        found.state.request,
        undo.root_of(found.state.request, turn_id),
        Undo(record=record, by=by),
        known,
    )
    starting = starter(found.task_queue)
    return await starting.start_or_find(request, undo_id, found.order, again=last is not None)


async def _known(
    client: Client, before: TurnState | None, undo_id: str
) -> tuple[EffectRecord, ...]:
    """Return what an earlier attempt to take an effect back has done, as it is known now.

    What people have said of it has to be read before there is another run.
    """
    records = effects.passed_on(before, undo_id) if before else ()
    with access.TURN.asking(undo_id):
        return tuple([await settlements.applied(client, record, undo_id) for record in records])


async def _found(client: Client, turn_id: str, run_id: str) -> _Found:
    with access.TURN.asking(turn_id):
        described = await describe_last(client, turn_id, run_id, retry=True)
        before = await _before_resets(client, described)
    info = described.workflow_execution_info
    state = await state_of(client, turn_id, info.execution.run_id)
    return _Found(turn_id, state, info.task_queue, inherited(info.priority), before)


async def _before_resets(
    client: Client, described: DescribeWorkflowExecutionResponse
) -> list[EffectRecord]:
    turn_id = described.workflow_execution_info.execution.workflow_id
    records: list[EffectRecord] = []
    for run_id in await runs_up_to(client, described):
        if resets.is_reset(await first_event(client, turn_id, run_id), run_id):
            records += await resets.effects_before(client, turn_id, run_id)
    return records


def _of_call(found: _Found, call: EffectRecord | str) -> EffectRecord:
    """Return what is known of the effect of a call. An id is that of the turn's own call first.

    Raises:
        InvalidRequestError: Nothing is known of it, or nothing takes it back, or delegates have
            several calls of this id.
    """
    call_id = call if isinstance(call, str) else call.call_id
    context = {"turn_id": found.turn_id, "call_id": call_id}
    records = [each for each in found.records if each.call_id == call_id]
    if isinstance(call, EffectRecord):
        records = [each for each in records if each.place == call.in_turn(found.turn_id).place]
    own = [each for each in records if each.turn_id == found.turn_id]
    if not records:
        has = ", ".join(each.call_id for each in found.records if each.undo) or "none"
        raise errors.InvalidRequestError(
            f"turn {found.turn_id!r} has no call {call_id!r} whose effect can be undone; it has"
            f" {has}",
            context=context,
        )
    if not own and len(records) > 1:
        turns = ", ".join(each.turn_id for each in records)
        raise errors.InvalidRequestError(
            f"several delegates of turn {found.turn_id!r} have a call {call_id!r}: undo it at the"
            f" turn of the delegate, one of {turns}",
            context=context,
        )
    record = (own or records)[-1]
    if not record.undo:
        raise errors.InvalidRequestError(
            f"the tool {record.tool!r} has no undo=, so call {call_id!r} cannot be undone",
            context=context,
        )
    return record


def _refuse_unless_done(found: _Found, record: EffectRecord) -> None:
    """Check that an effect is there, so that it can be taken back.

    Raises:
        InvalidRequestError: It is not there, or nobody knows.
    """
    if record.status != "done":
        is_known = "is not there" if record.status == "absent" else "may be there, or not"
        raise errors.InvalidRequestError(
            f"the effect of call {record.call_id!r} of turn {found.turn_id!r} {is_known}, so it"
            " cannot be undone",
            context={"turn_id": found.turn_id, "call_id": record.call_id},
        )


async def _refuse_running(client: Client, found: _Found) -> None:
    """Check that nothing relies on the effect any more.

    Raises:
        InvalidRequestError: The turn runs, or the turn that its delegates belong to.
    """
    request = found.state.request
    root = undo.root_of(request, found.turn_id) if request else found.turn_id
    last = root if found.state.ended is not None else found.turn_id
    state = found.state if last == found.turn_id else await _state(client, last)
    if state is not None and state.ended is None:
        raise errors.InvalidRequestError(
            f"turn {last!r} runs and may rely on the effect: wait for its end, or cancel it, and"
            " undo the call then",
            context={"turn_id": last},
        )


async def _as_it_is(client: Client, record: EffectRecord) -> EffectRecord:
    """Return the record with the status that the effect has now."""
    record = await _settled(client, record)
    if record.status != "done" or not record.undo:
        return record
    state = await _undo_of(client, record)
    if state is None or undo.progress(state) != "undone":
        return record
    return record.model_copy(update={"status": "undone"})


async def _settled(client: Client, record: EffectRecord) -> EffectRecord:
    """Return the record with what a person has said of the call since, if it was unknown."""
    applying = settlements.applied(client, record, record.turn_id)
    return await access.TURN.asked(record.turn_id, applying)


async def _undo_of(client: Client, record: EffectRecord) -> TurnState | None:
    """Return the state of the turn that takes an effect back; None if there is none."""
    state = await _state(client, undo.turn_id_of(undo.place_of(record)))
    return state if state is not None and undo.is_about(state, record) else None


async def _state(client: Client, turn_id: str) -> TurnState | None:
    """Return the state of the latest turn with an id; None if there is none."""
    try:
        runs: Sequence[str] = await runs_of(client, turn_id)
        return await state_of(client, turn_id, runs[-1])
    except errors.TurnNotFoundError:
        return None
