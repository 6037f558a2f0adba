"""Local tool calls: they run within a workflow task, as local activities.

History has one event of such a call, a marker with its result, instead of three events and a
workflow task. The marker is written with what the turn does next, so a result is recorded before
the model is asked again. A crash before that repeats the call, and so does a call that takes too
long: only read-only tools are local.

While a local call runs, the turn does not hear of a cancellation or an update. So all local calls
of a workflow task have a second together (docs/decisions/0085).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import FailureError

from perdure import limits
from perdure.temporal import outcomes
from perdure.temporal.names import CALL_SYNC_TOOL, CALL_TOOL
from perdure.temporal.payloads import pack
from perdure.text import one_line
from perdure.turn.decide import Act, CallMove
from perdure.turn.facts import Scheduled
from perdure.turn.keys import ToolKey
from perdure.turn.wire import ToolRun
from perdure.workflows.turn import log_events
from perdure.workflows.turn.calls import ONCE, Handle
from perdure.workflows.turn.turn_context import Board

_LEAST = timedelta(milliseconds=100)
"""A call with less time than this is not local."""


class LocalCalls:
    """Runs the local calls of one turn."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._began = self._ended = 0.0
        self._count = 0

    def admit(self, moves: Sequence[CallMove]) -> timedelta | None:
        """Return the time that calls made at once have; None if they are not local.

        They are local if all of them are: another call would begin only after the local calls. Only
        the first attempt is local.
        """
        agent = self._board.state.agent
        tools = [agent.tool(move.call.name) if agent else None for move in moves]
        if not all(tool and tool.is_local for tool in tools):
            return None
        if any(not isinstance(move, Act) or move.key.attempt > 1 for move in moves):
            return None
        return self._time_for(len(moves))

    def _time_for(self, count: int) -> timedelta | None:
        """Return the time that another `count` calls have; None if there is none.

        A call that begins when the last call ended is in the same workflow task: the workflow's
        clock stands still in between.
        """
        now = workflow.time()
        if now != self._ended:
            self._began, self._count = now, 0
        time_left = limits.LOCAL_CALLS - timedelta(seconds=now - self._began)
        turn_left = self._board.time_for_calls
        time_left = time_left if turn_left is None else min(time_left, turn_left)
        if time_left < _LEAST or self._count + count > limits.LOCAL_CALLS_COUNT:
            return None
        self._count += count
        return time_left

    async def run(
        self, key: ToolKey, run: ToolRun, summary: str, timeout: timedelta, *, is_async: bool
    ) -> bool:
        """Run a tool and fold its result; return whether there is a result.

        Without a result, history has no fact of the call either, and it has to be made as an
        ordinary activity. A cancellation waits for the end, which is less than a second away: the
        result may be in history.
        """
        activity = CALL_TOOL if is_async else CALL_SYNC_TOOL
        handle = workflow.start_local_activity(
            activity,
            pack(run, f"the input of {activity}"),
            result_type=RawValue,
            activity_id=str(key),
            schedule_to_close_timeout=timeout,
            retry_policy=ONCE,
            summary=one_line(summary, 200),
        )
        cancelled = await _end_of(handle)
        self._ended = workflow.time()
        has_result = self._fold_result(key, handle)
        if cancelled is not None:
            raise cancelled
        return has_result

    def _fold_result(self, key: ToolKey, handle: Handle) -> bool:
        """Fold the result as readers of the history do: with the call's beginning, if it has begun.

        A replay raises the failure of a local activity without Temporal's `ActivityError` around
        it.
        """
        try:
            fact = outcomes.completed(key, handle.result())
        except (FailureError, asyncio.CancelledError):
            return False
        self._board.note(Scheduled(key))
        before = self._board.state
        self._board.note(fact)
        log_events.call_ended(before, self._board.state, fact, self._board.took_ms(key))
        return True


async def _end_of(handle: Handle) -> asyncio.CancelledError | None:
    """Wait for the end of a local activity; return the cancellation that came meanwhile, if any."""
    cancelled = None
    while not handle.done():
        try:
            await workflow.wait([handle])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
