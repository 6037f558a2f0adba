"""The loop of a turn: from its agent, which is resolved once, to its answer.

`decide.next_move` decides what is next, and `Moves` does it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from temporalio import workflow

from perdure import errors, limits
from perdure.agents.definitions import AgentDefinition
from perdure.temporal.names import RESOLVE_AGENT
from perdure.turn.agent_call import agent_call
from perdure.turn.decide import (
    AwaitApproval,
    AwaitBudget,
    AwaitIterations,
    AwaitResume,
    Done,
    Move,
    Stop,
    TakeOver,
    next_move,
)
from perdure.turn.facts import TurnContinued, TurnStarted
from perdure.turn.history_limits import check_history, replayable_events, too_long
from perdure.turn.keys import AgentKey
from perdure.turn.retries import retry_delay
from perdure.turn.situation import Situation
from perdure.turn.state import TurnState
from perdure.turn.wire import Origin, TurnRequest
from perdure.values.moments import in_words
from perdure.workflows.turn import local_lookup, visibility, waits
from perdure.workflows.turn.calls import Calls
from perdure.workflows.turn.clock import run_until
from perdure.workflows.turn.followers import Followers
from perdure.workflows.turn.later_release import NeedsLaterReleaseError
from perdure.workflows.turn.middleware import Pipeline
from perdure.workflows.turn.moves import Moves
from perdure.workflows.turn.runs import Runs
from perdure.workflows.turn.turn_context import Board

PEOPLES = {AwaitBudget: "budget", AwaitIterations: "iterations", AwaitResume: "resume"}
"""The moves that wait for a person, besides approvals, and the kinds of their waits."""

REPLAY_LIMITS = {"replayable-3x": limits.EVENTS_PER_TASK_SECOND, "replayable": 800}
"""Patch id to events per second of the workflow task timeout, the newest first.

A turn that had more events than a limit before the release that introduced it is held to the next
one.
"""


class TurnLoop:
    """The loop of one turn.

    Attributes:
        is_ending: Whether the turn has its answer.
    """

    def __init__(
        self,
        board: Board,
        calls: Calls,
        pipeline: Pipeline,
        moves: Moves,
        runs: Runs,
        followers: Followers,
        on_start: Callable[[], None],
    ) -> None:
        self.is_ending = False
        self._board = board
        self._calls = calls
        self._pipeline = pipeline
        self._moves = moves
        self._runs = runs
        self._followers = followers
        self._on_start = on_start

    async def run(self, fact: TurnStarted | TurnContinued) -> tuple[AgentDefinition, Done]:
        """Run the turn until its end, or until its deadline. Returns its agent and its end.

        Raises:
            TurnTimeoutError: The deadline has passed.
            PerdureError: The turn has failed.
        """
        deadline = self._board.deadline
        if deadline is None:
            return await self._turn(fact)
        error = errors.TurnTimeoutError(
            f"the deadline of the turn, {in_words(deadline)}, has passed; go on after the end with"
            " turn.resume()",
            context={"deadline": deadline.isoformat()},
        )
        try:
            return await run_until(
                deadline, lambda: self._turn(fact), "the deadline of the turn", error
            )
        except errors.TurnTimeoutError as raised:
            attempts = self._board.state.attempts.unpardoned
            # the deadline itself has cancelled the last attempt
            failures = [
                attempt
                for attempt in attempts
                if attempt.error.code != errors.TurnCancelledError.code
            ]
            if raised is error and failures:
                raise error from errors.from_info(failures[-1].error)
            raise

    def check_goes_on(self) -> None:
        """Refuse what the turn would not get any more.

        Raises:
            TurnOverError: The turn has its answer.
        """
        if self.is_ending:
            raise errors.TurnOverError("the turn has its answer, and is about to end")

    async def _turn(self, fact: TurnStarted | TurnContinued) -> tuple[AgentDefinition, Done]:
        agent = await self._begin(fact)
        return agent, await self._pipeline.through(agent, self._until_done)

    async def _begin(self, fact: TurnStarted | TurnContinued) -> AgentDefinition:
        """Begin the turn after its delay, or continue with it in a later run. Returns its agent."""
        match fact:
            case TurnStarted(request):
                begins = request.begins_at(self._board.clock.began)
                if begins is not None:
                    await waits.for_delay(self._board, begins)
                if request.origin is not None and not _reads_session(request.origin):
                    await self._take_over(request.origin, is_whole=False)
                return await self._resolve(request)
            case TurnContinued(continuation):
                await self._take_over(continuation.continues, is_whole=True)
                assert self._board.state.agent is not None
                return self._board.state.agent

    async def _take_over(self, origin: Origin, *, is_whole: bool) -> None:
        """Take over the state of another run. A cancellation waits for it: the report needs it."""
        task = asyncio.create_task(self._runs.take_over(self._calls, origin, whole=is_whole))
        try:
            await workflow.wait([task])
        except asyncio.CancelledError:
            self._runs.stop()
            await workflow.wait([task])
            if not isinstance(task.exception(), errors.UnknownVersionError):
                raise
        try:
            task.result()
        except errors.UnknownVersionError as error:
            raise NeedsLaterReleaseError(str(error)) from error

    async def _take_over_session(self) -> None:
        """Take over the messages of the session before the turn, if it began without them."""
        request = self._board.state.request
        if self._board.state.transcript.absent and request is not None:
            assert request.origin is not None
            await self._take_over(request.origin, is_whole=False)

    async def _resolve(self, request: TurnRequest) -> AgentDefinition:
        """Resolve the agent once; a later deploy does not affect this turn."""
        board = self._board
        call = agent_call(request, request.agent, request.model)
        urls = {"on_done": request.on_done, "on_wait": request.on_wait}
        call = call.model_copy(update={**urls, "handed_to": request.handed_to})
        if local_lookup.is_at_hand(call):
            await local_lookup.resolve(board, call)
        while board.state.agent is None:
            await asyncio.sleep(retry_delay(board.state.attempts.unpardoned).total_seconds())
            key = AgentKey(len(board.state.attempts.failures) + 1)
            await self._calls.perform(
                key, RESOLVE_AGENT, call, limits.TOOL_CALL, f"agent {request.agent}"
            )
        visibility.begin(board.state)
        self._on_start()
        return board.state.agent

    async def _until_done(self) -> Done:
        while True:
            agent = self._board.state.agent
            assert agent is not None  # another agent after a handoff
            if not self._runs.is_full():
                _check_size(self._board.state.step_count)
            await self._pipeline.observe(agent)
            if self._runs.look():
                await self._take_over_session()
                followers = self._followers.ids
                await self._runs.go_on(self._calls, self._moves.health, self._pipeline, followers)
            situation = Situation(
                self._board.state,
                agent,
                self._board.time_left,
                self._moves.benched(agent),
                self._moves.outage(agent),
            )
            match next_move(situation):
                case Done() as done:
                    self.is_ending = True
                    return done
                case Stop(error):
                    raise error
                case TakeOver():
                    await self._take_over_session()
                case move:
                    if not _goes_on_waiting(move, self._board.state):
                        await waits.end_taken_over(self._board)
                    with contextlib.suppress(waits.RunIsFull):
                        await self._moves.make(move, agent)


def _reads_session(origin: Origin) -> bool:
    """Return whether the turn begins without the messages of its session before it.

    A turn that a worker of an earlier release has begun has taken them over.
    """
    return origin.preceding is not None and workflow.patched("read-session")


def _goes_on_waiting(move: Move, state: TurnState) -> bool:
    """Return whether a move waits for what the run before has already waited for."""
    waiting = state.waiting
    match move:
        case AwaitApproval(asked):
            pending = waiting.pending if waiting else ()
            known = {(approval.call_id, approval.digest) for approval in pending}
            return known.issuperset(asked.places)
        case AwaitBudget() | AwaitIterations() | AwaitResume():
            return waiting is not None and waiting.kind == PEOPLES[type(move)]
        case _:
            return False


def _check_size(steps: int) -> None:
    """End a turn typed before the server terminates it, and while its history can be replayed.

    Raises:
        TooLargeError: The history is too large or too long.
    """
    info = workflow.info()
    events = info.get_current_history_length()
    check_history(info.get_current_history_size(), events)
    for patch, per_second in REPLAY_LIMITS.items():
        limit = replayable_events(info.task_timeout, per_second)
        if events > limit and workflow.patched(patch):
            raise too_long(steps, events, info.task_timeout, limit)
