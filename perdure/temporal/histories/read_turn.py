"""Reads the summary of a turn from its history, also if the turn was terminated.

A terminated turn leaves no summary. If it does not know the spending of its own delegates, their
histories are read too. They are asked to stop when it is terminated, so this waits briefly for them
to end.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.temporal.histories.runs import awaited_run, last_recorded
from perdure.turn import ending
from perdure.turn.child import Child
from perdure.turn.facts import ChildRead, TurnContinued
from perdure.turn.fold import apply
from perdure.turn.state import TurnState
from perdure.turn.wire import ChildRun, TurnRead
from perdure.values.reports import Outcome

_WAIT_S, _PAUSE_S = 2.0, 0.2


async def read_turn(client: Client, run: ChildRun, *, is_worker: bool) -> TurnRead:
    """Return the summary of a turn from its history.

    Raises:
        RPCError: The server does not have the history, or does not answer.
    """
    until = asyncio.get_running_loop().time() + _WAIT_S
    return await _read(client, run, until, is_worker=is_worker)


@dataclass(frozen=True)
class _History:
    """A history: its fold, the run ids of the children it started by turn id, and its duration."""

    state: TurnState
    runs: dict[str, str]
    took: timedelta


async def _read(client: Client, run: ChildRun, until: float, *, is_worker: bool) -> TurnRead:
    history = await _folded(client, run, is_worker=is_worker)
    state = history.state
    if state.ended is not None and state.ended.summary is not None:
        return TurnRead(summary=state.ended.summary, is_over=True)
    lost = [
        child for child in state.children if child.known is None and child.turn_id in history.runs
    ]
    read = await asyncio.gather(
        *(
            _ended(client, child, history.runs[child.turn_id], until, is_worker=is_worker)
            for child in lost
        )
    )
    for fact in filter(None, read):
        state = apply(state, fact)
    outcome = state.ended.outcome if state.ended else Outcome.TERMINATED
    summary = ending.summary(state, outcome, history.took, output=state.output)
    return TurnRead(summary=summary, is_over=state.ended is not None)


async def _folded(client: Client, run: ChildRun, *, is_worker: bool) -> _History:
    state, runs = TurnState(), dict[str, str]()
    began = now = datetime.min.replace(tzinfo=UTC)
    for event, fact in await last_recorded(client, run.turn_id, run.run_id, is_worker=is_worker):
        now = event.event_time.ToDatetime(tzinfo=UTC)
        if event.event_id == 1:
            began = fact.continuation.began if isinstance(fact, TurnContinued) else now
        runs |= _run_in(event)
        state = state if fact is None else apply(state, fact)
    return _History(state, runs, now - began)


async def _ended(
    client: Client, child: Child, run_id: str, until: float, *, is_worker: bool
) -> ChildRead | None:
    """Read a child's history until it has ended, or until the time is up."""
    with contextlib.suppress(RPCError):
        while True:
            awaited = await awaited_run(client, child.turn_id, run_id)
            run = ChildRun(turn_id=child.turn_id, run_id=awaited)
            read = await _read(client, run, until, is_worker=is_worker)
            if read.is_over or asyncio.get_running_loop().time() >= until:
                return ChildRead(child.key.read, read.summary, read.is_over)
            await asyncio.sleep(_PAUSE_S)
    return None


def _run_in(event: HistoryEvent) -> dict[str, str]:
    """Return {id: run id} of the child that an event reports as started."""
    if event.event_type != EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
        return {}
    run = event.child_workflow_execution_started_event_attributes.workflow_execution
    return {run.workflow_id: run.run_id}
