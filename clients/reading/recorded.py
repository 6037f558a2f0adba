"""What a turn has recorded so far, read once from the histories of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from perdure import errors
from perdure.clients.reading.events import Event, is_event
from perdure.errors import ErrorInfo
from perdure.temporal import access
from perdure.temporal.histories.runs import describe, last_recorded, runs_up_to
from perdure.temporal.names import TURN
from perdure.turn.facts import AgentResolved, Recorded, TurnEnded
from perdure.turn.fold import fold
from perdure.turn.state import TurnState
from perdure.turn.wire import Summary


async def runs_of(client: Client, turn_id: str) -> tuple[str, ...]:
    """Return Temporal's ids of the runs of the latest turn with an id, in order.

    Runs whose retention is over are left out.

    Raises:
        TurnNotFoundError: Temporal does not have the turn, no longer has it, or has another
            workflow with this id.
        PerdureError: Temporal cannot be asked.
    """
    with access.TURN.asking(turn_id):
        description = await describe(client, turn_id, retry=True)
        kind = description.workflow_execution_info.type.name
        if kind == TURN:
            return await runs_up_to(client, description)
    raise errors.TurnNotFoundError(
        f"{turn_id!r} is a workflow of type {kind}, not a turn", context={"turn_id": turn_id}
    )


async def state_of(client: Client, turn_id: str, run_id: str) -> TurnState:
    """Return the state of a turn, from the history so far of its last run.

    Args:
        client: Temporal's client.
        turn_id: The turn's id.
        run_id: Temporal's id of any of its runs.

    Raises:
        PerdureError: The history cannot be read.
    """
    read = await past(client, turn_id, run_id)
    state = TurnState()
    for event in read.events:
        state = event.onto(state)
    return fold(read.after, state)


async def failed_unknown(client: Client, turn_id: str) -> bool:
    """Whether the latest turn of this id failed because no worker knew its agent.

    Such a turn has made no model call and no tool call.

    Raises:
        PerdureError: The history cannot be read.
    """
    describing = describe(client, turn_id, retry=True)
    info = (await access.TURN.asked(turn_id, describing)).workflow_execution_info
    if (
        info.type.name != TURN
        or info.status != WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_FAILED
    ):
        return False
    for event in (await past(client, turn_id, info.execution.run_id)).events:
        match event.fact:
            case AgentResolved():
                return False
            case TurnEnded(summary=Summary(error=ErrorInfo(code=errors.UnknownAgentError.code))):
                return True
    return False


class LastRun(NamedTuple):
    """What the last run of a turn has recorded so far.

    Attributes:
        events: The events. They have no cursor.
        after: The facts after the last event that are none of the turn's own: a later run that only
            waits has recorded what it took over, and no event.
        at: The time at which the last of all facts was recorded.
    """

    events: Sequence[Event]
    after: Sequence[Recorded]
    at: datetime


async def past(client: Client, turn_id: str, run_id: str) -> LastRun:
    """Read what the last run of a turn has recorded so far.

    `run_id` is the id of any of its runs.

    Raises:
        PerdureError: The history cannot be read.
    """
    with access.TURN.asking(turn_id):
        history = await last_recorded(client, turn_id, run_id)
    events: list[Event] = []
    hidden: list[Recorded] = []
    at = datetime.min.replace(tzinfo=UTC)
    for event, fact in history:
        if fact is None:
            continue
        at = time_of(event)
        if is_event(fact):
            events.append(Event("", at, fact, turn_id, before=tuple(hidden)))
            hidden = []
        else:
            hidden.append(fact)
    return LastRun(events, hidden, at)


def time_of(event: HistoryEvent) -> datetime:
    """Return the time at which an event was recorded."""
    return event.event_time.ToDatetime(tzinfo=UTC)
