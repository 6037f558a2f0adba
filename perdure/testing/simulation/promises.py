"""What Perdure promises, as checks of a simulated run. Each has a name and says what it means.

A check is called after every workflow task, when the history of a run has all that its workflow
knows, or at the end of the simulation. It raises `BrokenError`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from perdure.temporal.names import ADD_BUDGET, STEER, TURN
from perdure.testing.simulation.history import attributes, name_of
from perdure.testing.simulation.people import People
from perdure.testing.simulation.runs import SimulatedRun, UpdateResponse
from perdure.testing.simulation.server import BrokenError, SimulatedServer
from perdure.testing.simulation.world import SimulatedWorld
from perdure.turn.keys import ModelKey, ToolKey, parse_key
from perdure.turn.state import TurnState
from perdure.values.messages import UserMessage


@dataclass(frozen=True)
class Simulated:
    """All that a check may look at."""

    server: SimulatedServer
    world: SimulatedWorld
    people: People


def fold_is_state(run: SimulatedRun) -> None:
    """The fold of the history is the state of the workflow.

    Every reader of a turn, and the model activity that sends its messages, relies on that. The
    whole states are compared, field by field, with two exceptions. Of a cancellation, a reader
    knows at once, and the workflow notes it when what it cancels has ended. What is added to the
    budget of a delegate, the workflow notes when the turns above it have; until then, nothing is
    compared.
    """
    core = run.core
    board: Any = getattr(core.instance.workflow, "_board", None) if core else None
    if board is None or (run.parent is not None and _is_adding(run)):
        return
    if difference := difference_of(board.state, run.read):
        raise BrokenError("fold is state", difference, run)


def bill_within_limit(simulated: Simulated) -> None:
    """What the providers have billed is within the budget of the turn, at every moment.

    The whole tree of delegates counts, with attempts whose result was lost, and attempts of workers
    that the server had given up.
    """
    for run in simulated.server.runs:
        budget = run.read.accounts.ledger.budget
        spent = simulated.world.spent.get(run.begun.first_run_id)
        if run.parent is not None or run.buffered or budget is None or spent is None:
            continue
        for dimension in ("tokens", "usd"):
            limit, billed = getattr(budget, dimension), getattr(spent, dimension)
            if limit is not None and billed > limit and not _goes_on(run):
                message = f"{billed} {dimension} were billed, more than the limit of {limit}"
                raise BrokenError("bill within limit", message, run)


def recorded_once(simulated: Simulated) -> None:
    """A step whose result is recorded is never made again.

    No activity of a model or a tool is scheduled again, in any run of the turn, once its result is
    in history.
    """
    ended: dict[str, set[str]] = {}
    for run in simulated.server.runs:
        done = ended.setdefault(run.begun.first_run_id, set())
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


def effects_at_most_once(simulated: Simulated) -> None:
    """A call of a tool that may not be repeated is started at most once."""
    starts = Counter(
        (
            effect.activity.run.begun.first_run_id,
            effect.activity.run.id,
            effect.call_id,
            _place(effect.activity.key),
        )
        for effect in simulated.world.effects
        if not effect.may_repeat
    )
    for (_, turn_id, call_id, place), count in starts.items():
        if count > 1:
            message = f"{place} ({call_id}) of {turn_id} was started {count} times"
            raise BrokenError("effects at most once", message)


def messages_once_in_order(simulated: Simulated) -> None:
    """A message that was accepted is read by a model or named as unread: once, and in order.

    A run that ends before it has the state of the run before is not looked at: readers of the turn
    read both.
    """
    for run in _ends(simulated.server):
        if run.read.awaits_parts:
            continue
        accepted = _accepted_messages(simulated.server, run.begun.first_run_id)
        state = run.read
        sent = [
            message.id
            for message in state.transcript.messages
            if isinstance(message, UserMessage) and message.id is not None
        ]
        known = [*sent, *(message.id for message in state.inbox.unread)]
        if known != accepted:
            message = f"accepted were {accepted}, and the turn knows {known}"
            raise BrokenError("messages once, in order", message, run)


def updates_are_answered(simulated: Simulated) -> None:
    """An update that was accepted is completed, in the run that has accepted it.

    One that adds to the budget may be left open by the end of the turn, but not by a run that the
    turn continues after.
    """
    for run in simulated.server.runs:
        accepted: set[str] = set()
        for event in run.history.events:
            content = attributes(event)
            if name_of(event) == "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
                if _goes_on(run) or content.accepted_request.input.name != ADD_BUDGET:
                    accepted.add(content.protocol_instance_id)
            elif name_of(event) == "WORKFLOW_EXECUTION_UPDATE_COMPLETED":
                accepted.discard(content.meta.update_id)
        if accepted and run.closed:
            raise BrokenError("updates are answered", f"never completed: {sorted(accepted)}", run)


def nothing_is_stuck(simulated: Simulated) -> None:
    """Every turn ends: a cancel reaches all of its delegates, and nothing of it is left."""
    for run in simulated.server.runs:
        if not run.closed:
            waits = run.read.waiting.kind if run.read.waiting else "nothing"
            raise BrokenError("nothing is stuck", f"it is open, and waits for {waits}", run)


def waits_are_shown(simulated: Simulated) -> None:
    """A turn that only a person can move says what it waits for."""
    for run in simulated.server.runs:
        if run.is_idle and run.begun.type == TURN and not run.read.needs_person:
            raise BrokenError("waits are shown", "it waits for nobody and for nothing", run)


AFTER_TASKS: tuple[Callable[[SimulatedRun], None], ...] = (fold_is_state,)
"""The checks of a run after each of its workflow tasks."""

ALWAYS: tuple[Callable[[Simulated], None], ...] = (bill_within_limit, waits_are_shown)
"""The checks after everything that happens."""

AT_THE_END: tuple[Callable[[Simulated], None], ...] = (
    nothing_is_stuck,
    updates_are_answered,
    recorded_once,
    effects_at_most_once,
    messages_once_in_order,
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


def _ends(server: SimulatedServer) -> Iterator[SimulatedRun]:
    """Yield the last run of each turn."""
    last = {run.begun.first_run_id: run for run in server.runs if run.begun.type == TURN}
    yield from last.values()


def _accepted_messages(server: SimulatedServer, first_run_id: str) -> list[str]:
    """Return the ids of the messages that a turn has accepted without an error, in order."""
    found: list[str] = []
    for run in server.runs:
        if run.begun.first_run_id != first_run_id:
            continue
        for event in run.history.events:
            if name_of(event) == "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
                update = run.updates[attributes(event).protocol_instance_id]
                is_message = update.request.input.name == STEER
                if (
                    is_message
                    and update.answer is not UpdateResponse.FAILED
                    and update.id not in found
                ):
                    found.append(update.id)
    return found


def difference_of(state: TurnState, read: TurnState) -> str:
    """Describe the first field in which the states of a workflow and of a reader differ.

    Empty if they agree.
    """
    if state.cancel_reason is None:
        read = replace(read, cancel_reason=None)
    for one in fields(TurnState):
        ours, theirs = getattr(state, one.name), getattr(read, one.name)
        if ours != theirs:
            return f"{one.name} is\n  {str(ours)[:1200]}\nand a reader has\n  {str(theirs)[:1200]}"
    return ""
