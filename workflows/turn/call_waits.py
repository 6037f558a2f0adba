"""The waits of calls: for a time, or for an event that is sent to the turn.

A wait is a timer of the workflow, and needs no activity. Its beginning and its end are recorded in
the memo, which lists show and readers of the history fold.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta

from temporalio import workflow

from perdure.agents.definitions import AgentDefinition
from perdure.text import one_line
from perdure.turn import call_waits, steps
from perdure.turn.call_tokens import TurnRun
from perdure.turn.call_waits import PollPlace
from perdure.turn.decide import CallMove, Wait
from perdure.turn.facts import WaitBegan, WaitEnded
from perdure.turn.keys import ToolKey
from perdure.turn.wait_values import CallWait, Woken
from perdure.turn.waiting import CLIENT
from perdure.workflows.turn import event_waits, log_events, visibility
from perdure.workflows.turn.jobs import Jobs
from perdure.workflows.turn.middleware import Pipeline
from perdure.workflows.turn.turn_context import Board
from perdure.workflows.turn.waits import RunIsFull


class CallWaits:
    """The waits of the calls of one turn."""

    def __init__(self, board: Board, pipeline: Pipeline, jobs: Jobs) -> None:
        self._board = board
        self._jobs = jobs
        self._pipeline = pipeline
        self._beside: list[ToolKey] = []
        self._running = 0

    async def begin(self, moves: Sequence[CallMove], agent: AgentDefinition) -> None:
        """Begin the waits among the moves that are made now, before any of the moves is made."""
        self._beside = [
            ToolKey(move.key.step, move.key.call) for move in moves if not isinstance(move, Wait)
        ]
        self._running = len(self._beside)
        keys = [move.key for move in moves if isinstance(move, Wait)]
        if not keys:
            return
        first = call_waits.shown(self._beginning(keys, agent).waits)
        if first is not None:
            await self._pipeline.observe(agent, waits_for=first.kind, reason=first.reason)
        refusals = await event_waits.register(
            self._board, lambda: self._beginning(keys, agent).waits
        )
        beginning = self._beginning(keys, agent).refused(refusals)
        if beginning.woken:
            self._end(beginning.woken)
        state = self._board.state
        goes_on = call_waits.open_waits(state)
        is_hidden = bool(goes_on) and (state.waiting is None or not state.waiting.is_of_calls)
        if beginning.waits or is_hidden or self._is_for_client(goes_on):
            self._begin((*goes_on, *beginning.waits))

    def _beginning(self, keys: Sequence[ToolKey], agent: AgentDefinition) -> call_waits.Beginning:
        """Return what becomes of those of the calls that do not wait yet."""
        state = self._board.state
        new = [key for key in keys if state.open_step.at(key.call).wait is None]
        info = workflow.info()
        run = TurnRun(info.workflow_id, info.first_execution_run_id[-8:])
        return call_waits.beginning(state, agent, new, workflow.now(), self._time_left, run)

    @property
    def _time_left(self) -> timedelta | None:
        """The time until the turn has to stop waiting; None without a limit."""
        board = self._board
        until_deadline = None if board.deadline is None else board.deadline - workflow.now()
        times = [time for time in (board.time_for_calls, until_deadline) if time is not None]
        return min(times, default=None)

    def _begin(self, waits: Sequence[CallWait]) -> None:
        shown = call_waits.shown(waits, is_alone=not self._running)
        assert shown is not None
        log_events.wait_began(self._board.state, shown.kind)
        fact = WaitBegan(
            shown.kind, shown.reason, since=shown.since, until=shown.until, calls=tuple(waits)
        )
        self._board.note(visibility.begin_wait(self._board.state, fact))

    def _end(self, woken: Sequence[Woken]) -> None:
        before, ended = self._board.state, WaitEnded(woken=tuple(woken))
        self._board.note(ended)
        visibility.end_call_waits(before, self._board.state, ended)
        log_events.waits_ended(before, self._board.state, ended)

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Run a call beside the waits."""
        try:
            yield
        finally:
            self._running -= 1
            if self._is_for_client(call_waits.open_waits(self._board.state)):
                self._begin(call_waits.open_waits(self._board.state))

    def _is_for_client(self, waits: Sequence[CallWait]) -> bool:
        """Return whether the turn waits for its client alone now, and does not show it yet."""
        waiting = self._board.state.waiting
        is_shown = waiting is not None and waiting.kind == CLIENT
        return not self._running and not is_shown and any(wait.is_of_client for wait in waits)

    def _is_held_up(self, wait: CallWait) -> bool:
        """Return whether the turn has to go on without the end of the waits.

        A call beside them has to be made again, waits for a person, or has ended the turn; or the
        server of a job asks people something. Or the time of the turn is up, while a job runs.
        """
        return self._is_late(wait) or self._is_held_up_beside()

    def _is_late(self, wait: CallWait) -> bool:
        return wait.is_job and self._board.time_for_calls == timedelta()

    @property
    def _is_by_timer(self) -> bool:
        """Whether a wait sees by the turn's timer that the time is up, not by the clock.

        An update that is rejected wakes the turn as well, later than the event before it; and a
        replay has no such update.
        """
        agent = self._board.state.agent
        return agent is not None and agent.rules >= 8

    def _is_woken_late(self, wait: CallWait) -> bool:
        """Return whether the time of the turn is up while it waits for a job."""
        if not self._is_by_timer:
            return self._is_late(wait)
        alarm = self._board.clock.alarm
        return wait.is_job and alarm is not None and alarm.done()

    def _set_alarm(self, wait: CallWait) -> None:
        if wait.is_job:  # a wait for less is not begun
            self._board.clock.wake_after(self._board.time_for_calls, "the deadline of the turn")

    def _is_held_up_beside(self) -> bool:
        state = self._board.state
        has_open_calls = any(steps.is_open(state, key) for key in self._beside)
        asks = any(open_call.is_asked_by_server for open_call in state.open_step.calls)
        is_held_up = has_open_calls or asks or state.open_step.broken is not None
        return not self._running and is_held_up

    @contextlib.asynccontextmanager
    async def polled(self) -> AsyncIterator[None]:
        """Poll for the results of jobs while people are asked for the server of another one."""
        calls, polls = self._board.state.open_step.calls, dict[PollPlace, asyncio.Task[None]]()
        is_of_server = any(open_call.is_asked_by_server for open_call in calls)
        beginning = asyncio.create_task(self._begin_polls(polls)) if is_of_server else None
        try:
            yield
        finally:
            for task in (beginning, *polls.values()):
                if task is not None:
                    await _ended(task)

    async def _begin_polls(self, polls: dict[PollPlace, asyncio.Task[None]]) -> None:
        """Poll each job that is waited for, from when it is known what people have answered."""
        while True:
            for place, wait in call_waits.waiting_jobs(self._board.state).items():
                if place not in polls:
                    poll = self._jobs.poll(place[0], wait, has_deadline=False)
                    polls[place] = asyncio.create_task(poll)
            await workflow.wait_condition(
                lambda: not call_waits.waiting_jobs(self._board.state).keys() <= polls.keys()
            )

    async def run(self, key: ToolKey) -> None:
        """Wait until a wait is over, unless a call beside it has to be made again before that.

        Raises:
            RunIsFull: The turn has to go on in a new run before that. The wait is not over then.
        """
        open_call = self._board.state.open_step.find(key.call)
        if open_call is None or open_call.wait is None or not steps.is_open(self._board.state, key):
            return  # it ended as it began
        wait = open_call.wait
        self._board.show(f"step {key.step}: waits: {wait.note}")
        time_left = wait.until - workflow.now()
        summary = one_line(f"{open_call.call.name}: {wait.note}", 200)
        timer = asyncio.create_task(workflow.sleep(max(time_left, timedelta()), summary=summary))
        is_polled = wait.is_job and not (open_call.job and open_call.job.output)
        poll = asyncio.create_task(self._jobs.poll(key, wait)) if is_polled else None
        try:
            await self._until_woken(key, wait, timer)
        finally:
            timer.cancel()
            if poll is not None:
                await _ended(poll)

    async def _until_woken(self, key: ToolKey, wait: CallWait, timer: asyncio.Task[None]) -> None:
        board = self._board
        self._set_alarm(wait)

        def is_over() -> bool:
            return not steps.is_open(board.state, key)

        def ending() -> Woken | None:
            return call_waits.cause(board.state, wait, workflow.now(), is_over=timer.done())

        while True:
            await workflow.wait_condition(
                lambda: (
                    is_over()
                    or ending() is not None
                    or board.is_full
                    or self._is_held_up_beside()
                    or self._is_woken_late(wait)
                )
            )
            if is_over():
                return  # with another wait, by the same event
            woken = ending()
            if woken is not None and woken.by == "time" and wait.is_job:
                await self._jobs.stop(key)
                woken = ending()  # the result may have come meanwhile
            if woken is not None:
                self._end(call_waits.ends_with(board.state, woken, workflow.now()))
                return
            if board.is_full:
                raise RunIsFull
            if self._is_held_up(wait):
                return
            if self._is_by_timer:
                self._set_alarm(wait)  # it has fired, and the turn has more time since


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a task that polls, and wait for its end."""
    task.cancel()
    if isinstance(sys.exception(), GeneratorExit):
        return  # a worker that stopped has dropped the turn, and nothing may run in it any more
    await workflow.wait([task])
