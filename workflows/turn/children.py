"""The turns of delegates: child workflows, each with a lease on the budget.

Their ends become facts; the last end completes the call.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ChildWorkflowError, WorkflowAlreadyStartedError

from perdure.agents import policy
from perdure.agents.definitions import AgentDefinition
from perdure.agents.delegates import Ancestor, InheritedTool, Lineage
from perdure.agents.skills import LOAD_SKILL
from perdure.agents.versions import address_of
from perdure.temporal import failures, outcomes, search_attributes, start_request, trace_ids
from perdure.temporal.names import READ_CHILD, TURN
from perdure.temporal.payloads import pack
from perdure.turn import effects
from perdure.turn.decide import StartDelegates
from perdure.turn.delegation import failed
from perdure.turn.delegation_plan import Errand, delegate_of
from perdure.turn.facts import ChildEnded, ChildScheduled, ChildTold, Scheduled
from perdure.turn.keys import ChildKey
from perdure.turn.state import TurnState
from perdure.turn.wire import ChildRun, TurnRequest
from perdure.values.budgets import Budget
from perdure.values.tasks import Task, headline
from perdure.values.turn_options import OptionMark
from perdure.workflows import ancestors, child_handles, heartbeats
from perdure.workflows.ends import has_ended
from perdure.workflows.second_ids import second_id
from perdure.workflows.turn import log_events
from perdure.workflows.turn.clock import ended_within
from perdure.workflows.turn.turn_context import Board

GRACE = timedelta(seconds=30)
"""How long a stopping turn waits for its children.

Each of them stops its own call within 10 s, as well as its own children.
"""

READ_WITHIN = timedelta(seconds=30)
"""The time limit of reading a child's history, including the wait for a worker.

It is long enough for another attempt after the loss of a worker, whose heartbeats are missed; where
these come more slowly, the limit is twice the time after which they are.
"""
_UNTIL_READ = RetryPolicy(
    initial_interval=timedelta(seconds=0.2),
    maximum_interval=timedelta(seconds=2),
    non_retryable_error_types=[failures.NOT_REGISTERED],  # by a worker of an earlier release
)

READS = "read-child"
"""The patch id of turns that read the history of a child without a summary."""

_TIME_IS_UP = "the time of the turn that delegated this is up"
_DEADLINE = "the deadline of the turn that delegated this has passed"
_CANCELLED = "the turn that delegated this was cancelled"


class Children:
    """Runs the turns of delegates for one turn."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._running: dict[ChildKey, workflow.ChildWorkflowHandle[Any, Any]] = {}
        self._stopped: dict[ChildKey, str] = {}
        self._runs: dict[ChildKey, str] = {}
        self._reads: dict[ChildKey, asyncio.Task[None]] = {}
        self._heard = 0
        self._waits = False
        self._news = ("", "")
        self._is_telling = False

    async def run(self, move: StartDelegates, agent: AgentDefinition) -> None:
        """Start the turns of a call concurrently, and wait until they have ended.

        A cancellation is passed on, with its reason.
        """
        keys = [
            ChildKey(move.key.step, move.key.call, number)
            for number in range(1, len(move.errands) + 1)
        ]
        tasks = [
            asyncio.create_task(self._one(key, errand, agent))
            for key, errand in zip(keys, move.errands, strict=True)
        ]
        try:
            await self._until_over(keys, tasks, agent)
        except asyncio.CancelledError:
            await self._stop(
                keys,
                tasks,
                workflow.cancellation_reason() or self._reason_to_stop(),
            )
            raise

    def _reason_to_stop(self) -> str:
        return _DEADLINE if self._board.is_too_late else _CANCELLED

    async def told(self, fact: ChildTold) -> None:
        """Handle a child's news: it waits, continues, or was given budget."""
        self._board.note(fact)
        self._heard += 1
        await self.count_time()

    async def count_time(self) -> None:
        """Stop the clock while everything that runs waits for people, and tell the parent."""
        board = self._board
        waiting = [child for child in board.state.children if child.waits_for and not child.ended]
        waits = bool(waiting) and len(waiting) == board.state.at_work
        if waits == self._waits:
            return
        self._waits = waits
        if waits:
            board.clock.begin_wait()
            self._news = waiting[0].waits_for, f"{waiting[0].turn_id}: {waiting[0].reason}"
        else:
            board.clock.end_wait()
            self._news = ("", "")
        await self._tell()

    async def _tell(self) -> None:
        """Send the news to the parent, one signal at a time to keep them in order."""
        if self._is_telling:
            return
        self._is_telling, sent = True, None
        while sent != self._news:
            sent = self._news
            await ancestors.tell_waits(self._board.state, *sent)
        self._is_telling = False

    async def _one(self, key: ChildKey, errand: Errand, agent: AgentDefinition) -> None:
        """Run one turn from its start to its end."""
        turn_id = (
            f"{workflow.info().workflow_id}/{errand.agent}-{len(self._board.state.children) + 1}"
        )
        fact = await self._attempt(key, turn_id, errand, agent)
        if not fact.began:
            again = replace(key, attempt=key.attempt + 1)
            await self._attempt(again, second_id(turn_id), errand, agent)

    async def _attempt(
        self, key: ChildKey, turn_id: str, errand: Errand, agent: AgentDefinition
    ) -> ChildEnded:
        board = self._board
        request = self._request(key, errand, agent)
        board.note(ChildScheduled(key, turn_id, request))
        board.show(f"step {key.step}: {errand.agent} works on {headline(request.task)}")
        try:
            first = replace(key, attempt=1)
            handle = self._running[first] = await _start(board.state, turn_id, request)
            self._runs[key] = handle.first_execution_run_id or ""
            if first in self._stopped:
                child_handles.cancel(handle, self._stopped[first])
            fact = outcomes.child_completed(key, await handle)
        except WorkflowAlreadyStartedError as error:
            fact = outcomes.child_failed(key, error)
        except ChildWorkflowError as error:
            self._runs[key] = error.run_id or self._runs.get(key, "")
            fact = outcomes.child_failed(key, error.cause or error)
        except asyncio.CancelledError as error:
            fact = outcomes.child_failed(key, error)
        self._note_end(fact)
        if fact.began and fact.summary is None:
            await self._read(key)
        await self.count_time()
        return fact

    async def _read(self, key: ChildKey) -> None:
        """Read the spending of a child without a summary, except in turns of earlier releases."""
        if key not in self._reads:
            if not self._runs.get(key) or not workflow.patched(READS):
                return
            self._reads[key] = asyncio.create_task(self._read_history(key))
            self._heard += 1
        await workflow.wait([self._reads[key]])

    async def _read_history(self, key: ChildKey) -> None:
        """Read a child's history; if that fails, the child remains charged with its lease."""
        board, read_key = self._board, key.read
        child = board.state.child(key)
        assert child is not None
        board.note(Scheduled(read_key))
        board.show(f"step {key.step}: reads what {child.request.agent} spent")
        try:
            result = await workflow.execute_activity(
                READ_CHILD,
                pack(ChildRun(turn_id=child.turn_id, run_id=self._runs[key])),
                result_type=RawValue,
                activity_id=str(read_key),
                schedule_to_close_timeout=max(READ_WITHIN, 2 * heartbeats.timeout()),
                heartbeat_timeout=heartbeats.timeout(),
                retry_policy=_UNTIL_READ,
                summary=f"step {key.step}: {child.turn_id} left no summary",
            )
            fact = outcomes.completed(read_key, result)
        except ActivityError as error:
            fact = outcomes.failed(read_key, error.cause or error)
        board.note(fact)

    def _note_end(self, fact: ChildEnded) -> None:
        before = self._board.state
        self._board.note(fact)
        self._running.pop(replace(fact.key, attempt=1), None)
        log_events.delegation_ended(before, self._board.state, fact.key)

    def _request(self, key: ChildKey, errand: Errand, agent: AgentDefinition) -> TurnRequest:
        """Return the request of a child: its task, and what its ancestors permit."""
        state = self._board.state
        assert state.request is not None
        delegate = delegate_of(agent, errand.agent)
        above = state.lineage.ancestors if state.lineage else ()
        lineage = Lineage(
            ancestors=(*above, Ancestor(turn_id=workflow.info().workflow_id, key=str(key))),
            depth_left=state.depth_left - 1,
            descendants_left=errand.descendants,
            tools=_given_down(agent) if delegate is not None and delegate.inherits else (),
        )
        task = state.request.task
        return TurnRequest(
            **state.request.passed_on(OptionMark.DELEGATED),
            agent=errand.agent,
            task=Task(
                content=errand.task,
                type=task.type,
                requires_human_approval=task.requires_human_approval,
            ),
            live=state.request.live,
            budget=_with_time(
                errand.budget, delegate.budget if delegate else None, self._board.time_for_calls
            ),
            allowed_tools=delegate.allowed_tools if delegate else None,
            lineage=lineage,
            deadline=self._board.deadline,
            effects=effects.passed_on(state, workflow.info().workflow_id),
            effect_scopes=state.request.effect_scopes,
        )

    async def _until_over(
        self, keys: list[ChildKey], tasks: list[asyncio.Task[None]], agent: AgentDefinition
    ) -> None:
        """Wait for the tasks. The first failure, or the deadline, stops the other tasks."""
        board = self._board
        while not all(task.done() for task in tasks):
            time_left = None if self._waits else board.time_for_calls
            if time_left is not None and time_left <= timedelta():
                await self._stop(keys, tasks, _TIME_IS_UP)
                return
            board.clock.wake_after(time_left, "the deadline of the turn")
            seen = self._heard, sum(task.done() for task in tasks)
            alarm = board.clock.alarm
            await workflow.wait_condition(
                lambda seen=seen, alarm=alarm: (  # type: ignore[misc]
                    seen != (self._heard, sum(task.done() for task in tasks))
                    or (alarm is not None and alarm.done())
                )
            )
            if agent.on_child_error == "cancel":
                await self._stop_beside_failed(keys)
        for task in tasks:
            task.result()

    async def _stop_beside_failed(self, keys: list[ChildKey]) -> None:
        children = self._board.state.children_of(keys[0].step, keys[0].call)
        first = next((child for child in children if child.ended and failed(child)), None)
        if first is not None:
            await self._cancel(keys, f"{first.turn_id} failed")

    async def _stop(
        self, keys: list[ChildKey], tasks: list[asyncio.Task[None]], reason: str
    ) -> None:
        await self._cancel(keys, reason)
        await ended_within(tasks, GRACE, "delegates may end after the cancel")
        children = self._board.state.children_of(keys[0].step, keys[0].call)
        lost = [child.key for child in children if not child.ended and child.key in self._runs]
        if lost and workflow.patched(READS):
            await workflow.wait([asyncio.create_task(self._read(key)) for key in lost])

    async def _cancel(self, keys: list[ChildKey], reason: str) -> None:
        for key in keys:
            if key not in self._stopped:
                self._stopped[key] = reason
                handle = self._running.get(key)
                if handle is not None and not await has_ended(handle):
                    child_handles.cancel(handle, reason)


async def _start(
    state: TurnState, turn_id: str, request: TurnRequest
) -> workflow.ChildWorkflowHandle[Any, Any]:
    info = workflow.info()
    indexed = state.agent is not None and state.agent.indexed
    return await workflow.start_child_workflow(
        TURN,
        pack(request, "the input of a delegate's turn"),
        id=turn_id,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,  # one of before a reset
        result_type=RawValue,
        parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
        cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        search_attributes=(
            search_attributes.at_start(
                request.agent, request.labels, parent=info.workflow_id, subject=request.subject
            )
            if indexed
            else None
        ),
        **start_request.introduced(
            request, {trace_ids.MEMO_TRACE: ancestors.span_of_this_turn().traceparent()}
        ),
    )


def _given_down(agent: AgentDefinition) -> tuple[InheritedTool, ...]:
    """Return the tools that a delegate inherits, with the approvals and policies of this turn."""
    return tuple(
        InheritedTool(
            owner=tool.owner or address_of(agent),
            name=tool.name,
            needs_approval=tool.needs_approval
            or agent.approval == "all"
            or (agent.approval == "changes" and not tool.is_read_only),
            has_policy=bool(policies := policy.policies_of(agent, tool)),
            policies=policies,
        )
        for tool in agent.tools
        if tool.runs_as and tool.name != LOAD_SKILL
    )


def _with_time(
    budget: Budget | None, named: Budget | None, time_left: timedelta | None
) -> Budget | None:
    """Return the budget with the parent's remaining time or the delegate's limit, if lower."""
    times = [time for time in (time_left, named.time if named else None) if time is not None]
    if not times:
        return budget
    time = max(min(times), timedelta(milliseconds=1))
    return Budget(time=time) if budget is None else budget.model_copy(update={"time": time})
