"""The current state of a turn, from its history and those of running turns below it.

It is read without a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime

from temporalio.api.enums.v1 import PendingActivityState, WorkflowExecutionStatus
from temporalio.client import Client
from temporalio.service import RPCError

from perdure import errors
from perdure.clients.reading.recorded import past, runs_of
from perdure.clients.reading.tree import Node
from perdure.clients.turns import settling
from perdure.clients.turns.status import TurnStatus, status
from perdure.temporal import access
from perdure.temporal.histories.runs import describe_last, runs_up_to
from perdure.turn import unsettled

_PAUSED = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_PAUSED
_SCHEDULED = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED


async def look(client: Client, turn_id: str, run_id: str) -> TurnStatus:
    """Return the status of a turn.

    Raises:
        TurnNotFoundError: Temporal does not have the turn, or no longer has it.
        ServerUnreachableError: Temporal does not answer.
    """
    with access.TURN.asking(turn_id):
        description = await describe_last(client, turn_id, run_id, retry=True)
        runs = await runs_up_to(client, description)
    root = await tree(client, turn_id, runs)
    untaken = frozenset(
        activity.activity_id
        for activity in description.pending_activities
        if activity.state == _SCHEDULED
    )
    is_paused = description.workflow_execution_info.status == _PAUSED
    found = status(root, datetime.now(UTC), is_paused=is_paused, untaken=untaken)
    if not found.unsettled:
        return found
    calls = tuple(unsettled.named(root.state, turn_id))
    settled = await settling.number_settled(client, calls)
    return found.model_copy(update={"unsettled": max(found.unsettled - settled, 0)})


async def tree(client: Client, turn_id: str, runs: Sequence[str]) -> Node:
    """Return a turn with the turns below it that are not over, from their histories so far.

    `runs` are the runs of the turn, of which the last is read.

    Raises:
        PerdureError: The turn cannot be read. Turns below it that cannot be read are left out.
    """
    root = Node(turn_id, run_id=runs[0])
    read = await past(client, turn_id, runs[-1])
    for event in read.events:
        root.see(event)
    root.take_over(read.after, read.at)
    running = [child.turn_id for child in root.state.children if child.began and not child.ended]
    children = await asyncio.gather(*(_below(client, child) for child in running))
    root.children = [child for child in children if child is not None]
    return root


async def _below(client: Client, turn_id: str) -> Node | None:
    """Return the turn of a delegate; None if it cannot be read, such as just before it begins."""
    with contextlib.suppress(RPCError, errors.TurnNotFoundError):
        return await tree(client, turn_id, await runs_of(client, turn_id))
    return None
