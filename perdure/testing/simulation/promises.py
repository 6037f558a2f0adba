"""What Perdure promises, as checks of a simulated run. Each has a name and says what it means.

A check is called after every workflow task, when the history of a run has all that its workflow
knows, or at the end of the simulation. It raises `BrokenError`.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable
from typing import Any

from perdure.temporal.names import ADD_BUDGET, BATCH, SESSION, TURN
from perdure.testing.simulation import (
    batch_promises,
    call_promises,
    caller_promises,
    job_promises,
    session_promises,
)
from perdure.testing.simulation.features import (
    client_promises,
    hook_promises,
    inquiry_promises,
    keyed_event_promises,
    login_promises,
    notice_promises,
    push_promises,
    reminder_promises,
    schedule_promises,
    scheduled_message_promises,
    versions,
)
from perdure.testing.simulation.features.cancel_promises import cancels_reach_children
from perdure.testing.simulation.features.input_promises import refused_messages_reach_no_model
from perdure.testing.simulation.features.run_promises import (
    deadlines_name_errors,
    first_runs_take_no_state,
    full_runs_end,
)
from perdure.testing.simulation.observations import (
    Simulated,
    asks_model_after_cancel,
    begins_turn_after_cancel,
    effects_of,
    ended_locally,
    last_runs,
    messages_of_turn,
    public_texts,
)
from perdure.testing.simulation.reading import S, before_end, difference_of
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun, UpdateResponse
from perdure.testing.simulation.server.server import BrokenError
from perdure.testing.simulation.world import CANARY
from perdure.turn.keys import ModelKey, ToolKey, parse_key
from perdure.values.messages import UserMessage


def fold_is_state(run: SimulatedRun) -> None:
    """The fold of the history is the state of the workflow.

    Every reader of a turn, and the model activity that sends its messages, relies on that. The
    whole states are compared, field by field, with three exceptions. Of a cancellation, a reader
    knows at once, and the workflow notes it when what it cancels has ended. What is added to the
    budget of a delegate, the workflow notes when the turns above it have; until then, nothing is
    compared, and neither is a session that stops because it was cancelled. The end of a wait is
    recorded with the end of the turn, which a reader sees after the check.
    """
    workflow: Any = run.core.instance.workflow if run.core else None
    board = getattr(workflow, "_board", None)
    if board is not None and not (run.parent is not None and _is_adding(run)):
        read = before_end(board.state, run.read) if run.is_closing else run.read
        _compare(run, board.state, read)
    if run.begun.type == SESSION:
        state = getattr(workflow, "_state", None)
        if state is None or state.request is None:  # it refuses its input
            return
        if not (run.is_cancelled and state.closed is not None):
            _compare(run, state, run.session)


def _compare(run: SimulatedRun, state: S, read: S) -> None:
    if difference := difference_of(state, read):
        raise BrokenError("fold is state", difference, run)


def bill_within_limit(simulated: Simulated) -> None:
    """What the providers have billed is within the budget of the turn, at every moment.

    The whole tree of delegates counts, with attempts whose result was lost, and attempts of workers
    that the server had given up. The budget of a session is that of all of its turns, unless people
    add to the budget of a single turn. After a reset, what was billed until its point counts.
    """
    for run in simulated.server.runs:
        if run.parent is not None or run.buffered or run.is_replaced:
            continue
        budget = run.read.accounts.ledger.budget
        if run.begun.type == SESSION and not simulated.people.adds_to_turns:
            budget = run.session.ledger.budget
        spent = simulated.world.spent.get(run.account)
        if budget is None or spent is None:
            continue
        for dimension in ("tokens", "usd"):
            limit, billed = getattr(budget, dimension), getattr(spent, dimension)
            if limit is not None and billed > limit and not _goes_on(run):
                message = f"{billed} {dimension} were billed, more than the limit of {limit}"
                raise BrokenError("bill within limit", message, run)


def recorded_once(simulated: Simulated) -> None:
    """A step whose result is recorded is never made again.

    No activity of a model or a tool is scheduled again, in any run of the turn, once its result is
    in history; after a reset, once it is in the history up to the point. Neither is the call of a
    local tool, whose result is a marker.
    """
    ended: dict[str, set[str]] = {}
    for run in simulated.server.runs:
        done = ended[run.begun.run_id] = set(ended.get(run.begun.continued, ()))
        keys: dict[int, str] = {}
        for event in run.history.events:
            content = attributes(event)
            if name_of(event) == "ACTIVITY_TASK_SCHEDULED":
                keys[event.event_id] = content.activity_id
                if content.activity_id in done:
                    raise BrokenError("recorded once", f"{content.activity_id} runs again", run)
            elif name_of(event) == "ACTIVITY_TASK_COMPLETED":
                key = parse_key(keys[content.scheduled_event_id])
                if isinstance(key, ModelKey | ToolKey):
                    done.add(keys[content.scheduled_event_id])
            elif (local := ended_locally(event)) is not None:
                if local in done:
                    raise BrokenError("recorded once", f"{local} runs again", run)
                done.add(local)


def effects_at_most_once(simulated: Simulated) -> None:
    """A call of a tool that may not be repeated is started at most once.

    After a reset, the calls of the run before count up to the point.
    """
    effects = [effect for effect in simulated.world.effects if not effect.may_repeat]
    for run in simulated.server.runs if len(effects) > 1 else ():
        events = effects_of(simulated.server, run)
        starts = Counter(
            (effect.call_id, _place(effect.activity.key))
            for effect in effects
            if effect.activity.event_id < events.get(effect.activity.run, 0)
        )
        for (call_id, place), count in starts.items():
            if count > 1:
                message = f"{place} ({call_id}) was started {count} times"
                raise BrokenError("effects at most once", message, run)


def messages_once_in_order(simulated: Simulated) -> None:
    """A message that was accepted is read by a model or named as unread: once, and in order.

    A run that ends before it has the state of the run before is not looked at: readers of the turn
    read both. The messages of a session, and those of turns before it, are not those of the turn.
    """
    for run in last_runs(simulated.server):
        if run.read.awaits_parts:
            continue
        accepted = messages_of_turn(simulated.server, run)
        state = run.read
        sent = [
            message.id
            for message in state.transcript.messages
            if isinstance(message, UserMessage) and message.id is not None
        ]
        known = [*sent, *(message.id for message in state.inbox.unread)]
        own = {one.id for one in simulated.people.sent if one.workflow_id == run.id}
        known = [message_id for message_id in known if message_id in own]
        if known != accepted:
            message = f"accepted were {accepted}, and the turn knows {known}"
            raise BrokenError("messages once, in order", message, run)


def refused_text_leaves_by_no_door(simulated: Simulated) -> None:
    """A refused text leaves by no door: no other turn's model reads it, no record or event has it.

    Guarded agents answer with a text that their guardrail refuses. Only the models of the same turn
    may see it again. Nor does another turn's model read what a guarded delegate says beside its
    calls, which no guardrail has seen.
    """
    world = simulated.world
    for canary, owner in (*world.canaries.items(), *world.asides.items()):
        for request in world.requests:
            if request.turn != owner and canary in request.text:
                message = f"{canary} of {owner} is sent to the model of {request.turn}"
                raise BrokenError("refused text leaves by no door", message)
    for run in simulated.server.runs if world.canaries else ():
        if CANARY in str(run.session.messages):
            raise BrokenError("refused text leaves by no door", "the record has it", run)
    for run in last_runs(simulated.server) if world.canaries else ():
        if found := next((one for one in public_texts(simulated.server, run) if CANARY in one), ""):
            raise BrokenError("refused text leaves by no door", f"an event has it: {found}", run)


def updates_are_answered(simulated: Simulated) -> None:
    """An update that was accepted is completed, in the run that has accepted it.

    One that adds to the budget may be left open by the end of the turn, but not by a run that the
    turn continues after, or by a batch. A run that was reset or terminated answers nothing. The
    workflow task in which a turn or a session continues as new has no answer, which the server
    could lose; a batch knows in its next run which additions it has made.
    """
    for run in simulated.server.runs:
        accepted: set[str] = set()
        last_answer = ""
        for event in run.history.events:
            content = attributes(event)
            if name_of(event) == "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
                update = run.updates[content.protocol_instance_id]
                is_of_batch = run.begun.type == BATCH
                is_addition = update.request.input.name == ADD_BUDGET
                if _goes_on(run) or is_of_batch or not is_addition:
                    accepted.add(content.protocol_instance_id)
            elif name_of(event) == "WORKFLOW_EXECUTION_UPDATE_COMPLETED":
                accepted.discard(content.meta.update_id)
                last_answer = content.meta.update_id
            elif name_of(event) == "WORKFLOW_TASK_COMPLETED":
                last_answer = ""
        if accepted and run.closed not in ("", "WORKFLOW_EXECUTION_TERMINATED"):
            raise BrokenError("updates are answered", f"never completed: {sorted(accepted)}", run)
        if last_answer and _goes_on(run) and run.begun.type != BATCH:
            raise BrokenError("updates are answered", f"may be lost: {last_answer}", run)


def nothing_is_stuck(simulated: Simulated) -> None:
    """Every turn ends: a cancel reaches all of its delegates, and nothing of it is left.

    A session that was cancelled begins no further turn, and a turn asks no model any more.
    """
    for run in simulated.server.runs:
        if asks_model_after_cancel(run):
            raise BrokenError("nothing is stuck", "it asks a model after the cancel", run)
        if begins_turn_after_cancel(run):
            raise BrokenError("nothing is stuck", "a turn begins after the cancel", run)
        if not run.closed:
            waits = run.read.waiting.kind if run.read.waiting else "nothing"
            raise BrokenError("nothing is stuck", f"it is open, and waits for {waits}", run)


def nothing_raises(simulated: Simulated) -> None:
    """No workflow fails because its code has raised what nobody expects, such as `KeyError`."""
    for run in simulated.server.runs:
        last = run.history.events[-1]
        if name_of(last) == "WORKFLOW_EXECUTION_FAILED":
            message = attributes(last).failure.message
            if hasattr(builtins, message.partition(":")[0]):
                raise BrokenError("nothing raises", message, run)


def cancels_are_not_lost(simulated: Simulated) -> None:
    """A turn or a session that is cancelled does not go on in a new run.

    A batch that does so is stopped.
    """
    for run in simulated.server.runs:
        if not (run.is_cancelled and _goes_on(run)):
            continue
        later = simulated.server.last_run_of(run.id)
        is_same = later is not None and later.begun.first_run_id == run.begun.first_run_id
        note = later.batch.note if later is not None and is_same else None
        if run.begun.type in (TURN, SESSION) or (note is not None and note.stop is None):
            raise BrokenError("nothing is stuck", "it goes on as if it was not cancelled", run)


def waits_are_shown(simulated: Simulated) -> None:
    """A turn that only a person can move says what it waits for."""
    for run in simulated.server.runs:
        if run.begun.type == TURN and run.is_idle and not run.read.needs_person:
            raise BrokenError("waits are shown", "it waits for nobody and for nothing", run)


AFTER_TASKS: tuple[Callable[[SimulatedRun], None], ...] = (
    fold_is_state,
    full_runs_end,
    batch_promises.fold_is_state,
)
"""The checks of a run after each of its workflow tasks."""

ALWAYS: tuple[Callable[[Simulated], None], ...] = (
    bill_within_limit,
    waits_are_shown,
    *batch_promises.ALWAYS,
    *schedule_promises.ALWAYS,
)
"""The checks after everything that happens."""

AT_THE_END: tuple[Callable[[Simulated], None], ...] = (
    nothing_is_stuck,
    nothing_raises,
    first_runs_take_no_state,
    deadlines_name_errors,
    cancels_are_not_lost,
    cancels_reach_children,
    updates_are_answered,
    recorded_once,
    effects_at_most_once,
    caller_promises.definition_is_pinned,
    caller_promises.live_text_is_of_its_call,
    caller_promises.limits_of_the_caller_hold,
    caller_promises.answers_are_of_people,
    messages_once_in_order,
    session_promises.messages_once_in_order,
    refused_text_leaves_by_no_door,
    refused_messages_reach_no_model,
    client_promises.clients_run_their_tools,
    hook_promises.hooks_start_once,
    notice_promises.waits_are_told_once,
    inquiry_promises.servers_are_told_answers_once,
    reminder_promises.reminders_come_once,
    keyed_event_promises.events_by_key_come_once,
    push_promises.push_tells_each_change_once,
    versions.turns_keep_their_versions,
    *batch_promises.AT_THE_END,
    *call_promises.AT_THE_END,
    *job_promises.AT_THE_END,
    *login_promises.AT_THE_END,
    *schedule_promises.AT_THE_END,
    scheduled_message_promises.slots_are_messages_once,
)
"""The checks of a whole simulation."""


def _goes_on(run: SimulatedRun) -> bool:
    """Return whether the turn of a run continues in a later run."""
    return run.closed == "WORKFLOW_EXECUTION_CONTINUED_AS_NEW"


def _is_adding(run: SimulatedRun) -> bool:
    """Return whether an addition to the budget was accepted and is not made yet."""
    return any(
        update.answer is UpdateResponse.ACCEPTED and update.request.input.name == ADD_BUDGET
        for update in run.updates.values()
    )


def _place(key: str) -> str:
    """Return the place of a tool call, whatever its attempt."""
    return key.partition(".try-")[0]
