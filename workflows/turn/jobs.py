"""The jobs of calls whose result comes later: they are polled while the calls wait, and cancelled.

The activity that polls fails until it finds the result, so that Temporal repeats it: history does
not grow meanwhile, and no worker is busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from perdure import limits
from perdure.agents.definitions import AgentDefinition, ToolDefinition
from perdure.temporal import failures
from perdure.temporal.names import CANCEL_CALL, POLL_CALL
from perdure.turn import jobs
from perdure.turn.decide import Act
from perdure.turn.keys import PollKey, StopKey, ToolKey
from perdure.turn.wait_values import CallWait
from perdure.turn.wire import ToolRun
from perdure.workflows.turn.calls import Calls
from perdure.workflows.turn.turn_context import Board

ToolRuns = Callable[[Act, AgentDefinition, ToolDefinition], ToolRun]

_CANCELLING = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(seconds=5),
    non_retryable_error_types=[failures.NOT_REGISTERED],
)


class Jobs:
    """The jobs of one turn. `run_of` returns the input of the activity of a call."""

    def __init__(self, board: Board, calls: Calls, run_of: ToolRuns) -> None:
        self._board = board
        self._calls = calls
        self._run_of = run_of
        self._stopping: dict[tuple[int, int], asyncio.Task[None]] = {}

    async def poll(self, key: ToolKey, wait: CallWait, *, has_deadline: bool = True) -> None:
        """Poll for the result of a call until its wait ends, if its tool has `poll=`.

        The polls end with the time of the turn, unless that stands still: without `has_deadline`.
        """
        tool = self._tool(key)
        if tool is None or tool.job is None or not tool.job.polls:
            return
        time_left = wait.until - workflow.now()
        if time_left <= timedelta():
            return
        every = timedelta(seconds=tool.job.poll_every_s)
        await self._calls.perform(
            PollKey(key.step, key.call),
            POLL_CALL,
            self._run(key, tool),
            timedelta(seconds=tool.job.poll_timeout_s) + limits.POLL_MARGIN,
            f"step {key.step}: is the job of {tool.name} done?",
            has_deadline=has_deadline,
            within=time_left,
            retries=RetryPolicy(
                initial_interval=every,
                backoff_coefficient=1,
                maximum_interval=every,
                non_retryable_error_types=[failures.NOT_REGISTERED],
            ),
        )

    async def stop(self, key: ToolKey) -> None:
        """Cancel the job of a call, once, if its tool has `cancel=`."""
        self._begin_to_stop(key)
        task = self._stopping.get((key.step, key.call))
        if task is not None:
            await workflow.wait([task])

    async def stop_all(self) -> None:
        """Cancel the jobs of all open calls, and wait until that is done."""
        self.begin_to_stop_all()
        if self._stopping:
            await workflow.wait(list(self._stopping.values()))

    def begin_to_stop_all(self) -> None:
        """Begin to cancel the jobs of all open calls, because nobody waits for them any more."""
        for key in jobs.open_keys(self._board.state):
            self._begin_to_stop(key)

    def _begin_to_stop(self, key: ToolKey) -> None:
        tool, place = self._tool(key), (key.step, key.call)
        if place in self._stopping or tool is None or tool.job is None or not tool.job.can_cancel:
            return
        run, timeout_s = self._run(key, tool), tool.job.cancel_timeout_s
        self._stopping[place] = asyncio.create_task(self._stop(key, tool, run, timeout_s))

    async def _stop(
        self, key: ToolKey, tool: ToolDefinition, run: ToolRun, timeout_s: float
    ) -> None:
        await self._calls.perform(
            StopKey(key.step, key.call),
            CANCEL_CALL,
            run,
            timedelta(seconds=timeout_s) + limits.POLL_MARGIN,
            f"step {key.step}: cancel the job of {tool.name}",
            has_deadline=False,
            within=limits.CANCEL_JOB + timedelta(seconds=timeout_s),
            retries=_CANCELLING,
        )

    def _tool(self, key: ToolKey) -> ToolDefinition | None:
        agent, open_call = self._board.state.agent, self._board.state.open_step.find(key.call)
        return agent.tool(open_call.call.name) if agent and open_call else None

    def _run(self, key: ToolKey, tool: ToolDefinition) -> ToolRun:
        agent, open_call = self._board.state.agent, self._board.state.open_step.at(key.call)
        assert agent is not None
        assert open_call.job is not None
        run = self._run_of(Act(key, open_call.edited), agent, tool)
        return run.model_copy(update={"tool": tool.name, "handle": open_call.job.handle})
