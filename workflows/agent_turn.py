"""One agent turn: call the model, run its tools, repeat until it answers.

The workflow's state is only the fold of its facts. `decide.next_move` decides what it does next.
Every fact goes through `fold.apply`, just as for readers of the history.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from perdure import errors, limits, validation
from perdure.agents import policy
from perdure.agents.definitions import AgentDefinition
from perdure.errors import PerdureError
from perdure.temporal import failures, outcomes
from perdure.temporal.names import (
    ADD_BUDGET,
    ASK_POLICY,
    CALL_MODEL,
    CHILD_NEWS,
    DECIDE,
    RESOLVE_AGENT,
    RESUME,
    STEER,
    TURN,
)
from perdure.temporal.payloads import NOTHING, pack, unpack
from perdure.temporal.search_attributes import SCHEDULED_FOR
from perdure.text import arguments_in_brief, described
from perdure.turn import approvals, fallback, outages, reservations
from perdure.turn.approvals import PolicyCall
from perdure.turn.circuit_breaker import Health
from perdure.turn.decide import (
    Act,
    Ask,
    AwaitApproval,
    AwaitBudget,
    AwaitIterations,
    AwaitResume,
    Consult,
    Delegate,
    Done,
    HandOver,
    Move,
    Stop,
    check_batch,
    check_history,
    media_room,
    moves_at_once,
    next_move,
    replayable_events,
    too_long,
)
from perdure.turn.facts import (
    BudgetAdded,
    CallFailed,
    CancelRequested,
    Decided,
    ModelAnswered,
    Resumed,
    Said,
    TurnContinued,
    TurnStarted,
)
from perdure.turn.fold import ready_for
from perdure.turn.keys import AgentKey, HandoffKey, ModelKey, PolicyKey, ToolKey
from perdure.turn.outages import Outage
from perdure.turn.retries import asked_pause_s, retry_delay
from perdure.turn.state import TurnState
from perdure.turn.waiting import PROVIDER
from perdure.turn.wire import AgentCall, ModelCall, Origin, Summary, ToolRun, TurnRequest
from perdure.values.approvals import Decision
from perdure.values.moments import in_words
from perdure.values.reports import Outcome
from perdure.workflows import ancestors, log_events, visibility, waits
from perdure.workflows.calls import Calls
from perdure.workflows.children import Children
from perdure.workflows.clock import run_until
from perdure.workflows.later_release import NeedsLaterReleaseError
from perdure.workflows.middleware import Pipeline
from perdure.workflows.runs import Runs
from perdure.workflows.turn_context import Board

_Ended = tuple[AgentDefinition, Done]

MARGIN = timedelta(seconds=10)
"""Between a model call's own deadline and the activity's, so that the typed error comes first."""

PEOPLES = {AwaitBudget: "budget", AwaitIterations: "iterations", AwaitResume: "resume"}
"""The moves that wait for a person, besides approvals, and the kinds of their waits."""

REPLAY_LIMITS = {"replayable-3x": limits.EVENTS_PER_TASK_SECOND, "replayable": 800}
"""Patch id to events per second of the workflow task timeout, the newest first.

A turn that had more
events than a limit before the release that introduced it is held to the next one.
"""

_OUTCOMES = {
    errors.TurnBudgetExceededError: Outcome.BUDGET_EXHAUSTED,
    errors.MaxIterationsError: Outcome.MAX_ITERATIONS,
    errors.LoopDetectedError: Outcome.LOOP,
    errors.AutonomyBoundaryError: Outcome.BOUNDARY,
    errors.TurnTimeoutError: Outcome.TIMED_OUT,
}


@workflow.defn(name=TURN, sandboxed=False, failure_exception_types=[PerdureError])
class AgentTurn:
    """The workflow of a turn.

    It is not sandboxed: it contains no user code, and replay tests guard it (docs/decisions/0002).
    """

    def __init__(self) -> None:
        self._board = Board()
        self._calls = Calls(self._board)
        self._pipeline = Pipeline(self._board, self._calls)
        self._children = Children(self._board)
        self._health = Health()
        self._has_begun = False
        self._is_ending = False
        self._runs = Runs(self._board)

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> RawValue:
        """Run the turn. The input is validated here, so an invalid one causes a typed error."""
        try:
            fact = self._open(start)
            agent, done = await self._in_time(lambda: self._turn(fact))
            await self._pipeline.observe(agent, outcome=done.outcome, risk=done.risk)
            summary = self._board.summary(done.outcome, done.output, done.risk)
        except asyncio.CancelledError:
            summary = await self._cancelled(workflow.cancellation_reason() or "")
            if workflow.info().parent is None:
                raise
            return pack(summary)  # the only thing that a parent receives of a cancelled child
        except NeedsLaterReleaseError:
            raise
        except PerdureError as error:
            raise await self._failure(error) from error
        except Exception as error:  # a bug must not make the workflow task fail for ever
            workflow.logger.exception("the turn failed unexpectedly")
            raise await self._failure(PerdureError(described(error))) from error
        self._close(summary)
        return pack(summary)

    def _open(self, start: RawValue) -> TurnStarted | TurnContinued:
        """Return the input of the run after validation.

        Raises:
            PerdureError: It is not valid.
        """
        fact = _started(start)
        self._board.note(fact)
        match fact:
            case TurnStarted(request):
                request.check()
                ancestors.check(request.lineage)
                if request.lineage is None:  # a delegate has the deadline of the turn above it
                    request.check_moments(self._board.clock.began)
            case TurnContinued(continuation):
                self._has_begun = True
                self._health = Health(continuation.health)
                self._runs.resume(continuation, self._pipeline)
        return fact

    async def _in_time(self, turn: Callable[[], Coroutine[Any, Any, _Ended]]) -> _Ended:
        """Run the turn until its end, or until its deadline.

        Raises:
            TurnTimeoutError: The deadline has passed.
        """
        deadline = self._board.deadline
        if deadline is None:
            return await turn()
        error = errors.TurnTimeoutError(
            f"the deadline of the turn, {in_words(deadline)}, has passed; go on after the end with"
            " turn.resume()",
            context={"deadline": deadline.isoformat()},
        )
        return await run_until(deadline, turn, "the deadline of the turn", error)

    async def _turn(self, fact: TurnStarted | TurnContinued) -> _Ended:
        """Run the turn, or go on with it in a later run. Returns its agent and its end."""
        agent = await self._begin(fact)
        return agent, await self._pipeline.through(agent, self._loop)

    async def _begin(self, fact: TurnStarted | TurnContinued) -> AgentDefinition:
        """Begin the turn after its delay, or go on with it in a later run. Returns its agent."""
        match fact:
            case TurnStarted(request):
                begins = request.begins_at(self._board.clock.began)
                if begins is not None:
                    await waits.for_delay(self._board, begins)
                if request.origin is not None:
                    await self._take_over(request.origin, whole=False)
                return await self._resolve(request)
            case TurnContinued(continuation):
                await self._take_over(continuation.continues, whole=True)
                assert self._board.state.agent is not None
                return self._board.state.agent

    async def _take_over(self, origin: Origin, *, whole: bool) -> None:
        """Take over the state of another run. A cancellation waits for it: the report needs it."""
        task = asyncio.create_task(self._runs.take_over(self._calls, origin, whole=whole))
        try:
            await workflow.wait([task])
        except asyncio.CancelledError:
            await workflow.wait([task])
            if not isinstance(task.exception(), errors.UnknownVersionError):
                raise
        try:
            task.result()
        except errors.UnknownVersionError as error:
            raise NeedsLaterReleaseError(str(error)) from error

    async def _resolve(self, request: TurnRequest) -> AgentDefinition:
        """Resolve the agent once; a later deploy does not affect this turn."""
        board = self._board
        call = _agent_call(request, request.agent, request.model)
        while board.state.agent is None:
            await asyncio.sleep(retry_delay(board.state).total_seconds())
            key = AgentKey(len(board.state.attempts.failures) + 1)
            await self._calls.perform(
                key, RESOLVE_AGENT, call, limits.TOOL_CALL, f"agent {request.agent}"
            )
        visibility.begin(board.state)
        self._log_start()
        return board.state.agent

    async def _loop(self) -> Done:
        while True:
            agent = self._board.state.agent
            assert agent is not None  # another one after a handoff
            if not self._runs.is_full():
                _check_size(self._board.state.step_count)
            await self._pipeline.observe(agent)
            if self._runs.is_full():
                await self._runs.go_on(self._health, self._pipeline)
            match next_move(
                self._board.state,
                agent,
                self._board.time_left,
                self._benched(agent),
                self._outage(agent),
            ):
                case Done() as done:
                    self._is_ending = True
                    return done
                case Stop(error):
                    raise error
                case move:
                    if not _goes_on_waiting(move, self._board.state):
                        await waits.end_taken_over(self._board)
                    with contextlib.suppress(waits.RunIsFull):
                        await self._make(move, agent)

    async def _make(self, move: Move, agent: AgentDefinition) -> None:
        match move:
            case Ask():
                await self._ask(move, agent)
            case Act() | Delegate() if agent.parallel_tools:
                moves = moves_at_once(self._board.state, agent)
                self._check_batch(moves)
                room = self._media_room(moves, agent)
                await _together([self._run(one, agent, room) for one in moves])
            case Act() | Delegate():
                await self._run(move, agent, self._media_room([move], agent))
            case HandOver():
                await self._hand_over(move)
            case Consult():
                await self._consult(move, agent)
            case AwaitApproval(asked):
                reason = ", ".join(call.name for call, _ in asked.calls)
                await self._observe_wait(agent, "approval", reason)
                await waits.for_approval(self._board, asked)
            case AwaitResume(reason):
                await self._observe_wait(agent, "resume", reason)
                await waits.for_resume(self._board, reason)
            case AwaitIterations(reason):
                await self._observe_wait(agent, "iterations", reason)
                await waits.for_iterations(self._board, reason)
            case AwaitBudget(reason):
                await self._observe_wait(agent, "budget", reason)
                await waits.for_budget(self._board, reason)

    async def _observe_wait(self, agent: AgentDefinition, kind: str, reason: str) -> None:
        """Notify observers of a wait for people, once: not if the run before began it."""
        if self._board.clock.waits_since is None:
            await self._pipeline.observe(agent, waits_for=kind, reason=reason)

    def _check_batch(self, moves: Sequence[Act | Delegate]) -> None:
        """Reject calls that do not fit, except in turns of earlier releases that made them."""
        try:
            check_batch(self._board.state, moves, workflow.info().get_current_history_size())
        except errors.TooLargeError:
            if workflow.patched("check-batch"):
                raise

    def _media_room(self, moves: Sequence[Act | Delegate], agent: AgentDefinition) -> int:
        size_bytes = workflow.info().get_current_history_size()
        return media_room(self._board.state, moves, agent, size_bytes)

    async def _ask(self, move: Ask, agent: AgentDefinition) -> None:
        """Call a model; the transcript is passed by reference."""
        choice, target, reservation = move.choice, move.choice.target, move.reservation
        if choice.delay and not await self._pause(move, agent):
            return
        key, board = move.key, self._board
        state = ready_for(board.state, key)
        if choice.delay:  # the budget may have been added to meanwhile
            reservation = reservations.for_call(state, agent, target, choice.cut)
        call = ModelCall.of(
            state.transcript.digest,
            model="" if target.model == agent.model else target.model,
            others=choice.others,
            passed=choice.passed,
            cut=choice.cut,
            round=choice.round,
            max_output_tokens=reservation.max_output_tokens,
            most_input=reservation.most_input,
            budget=board.remaining if board.state.accounts.ledger.budget else None,
            agent=state.other_agent,
        )
        by = f", {state.other_agent}" if state.other_agent else ""
        summary = f"{_label(key)}{by}{', last answer' if key.is_last else ''}: {target.model}"
        summary += f" (not {'; not '.join(choice.passed)})" if choice.passed else ""
        # for a factory before it, and for validators after it
        timeout = limits.MODEL_CALL + 2 * limits.USER_CODE + MARGIN
        fact = await self._calls.perform(
            key, CALL_MODEL, call, timeout, summary, queue=target.queue
        )
        if isinstance(fact, ModelAnswered):
            self._health.succeeded(target.model)
            waits.provider_is_back(board)
        elif isinstance(fact, CallFailed) and fallback.is_penalty(
            error := errors.from_info(fact.error)
        ):
            most = limits.RETRY_AFTER if agent.model_retry is None else validation.LONGEST
            self._health.failed(target.model, workflow.time(), asked_pause_s(error, most))

    async def _pause(self, move: Ask, agent: AgentDefinition) -> bool:
        """Wait before a model is retried; return whether that is still necessary."""
        choice, waiting = move.choice, self._board.state.waiting
        if agent.model_retry is None:
            return await self._sleep(choice.delay, f"before {choice.target.model} is asked again")
        if outages.is_told(choice.number, choice.delay) and not (
            waiting and waiting.kind == PROVIDER
        ):
            await self._pipeline.observe(
                agent,
                waits_for=PROVIDER,
                reason=self._board.state.attempts.failures[-1].error.message,
            )
        if choice.limit:
            await waits.for_limit(self._board, choice, move.key)
            return False  # its failures do not count any more, so that the next move differs
        return await waits.for_provider(self._board, choice, move.key)

    def _outage(self, agent: AgentDefinition) -> Outage:
        """Return the failed calls of the open step, by the workflow's clock."""
        now = workflow.time()
        asked = {
            target.model: left
            for target in agent.chain
            if (left := self._health.asked_s(target.model, now))
        }
        return Outage(self._board.failing_for, None, asked, workflow.info().workflow_id)

    def _benched(self, agent: AgentDefinition) -> list[str]:
        """Return the models that this turn skips for now.

        This memory survives restarts, because a replay rebuilds it.
        """
        return (
            [
                target.model
                for target in agent.chain
                if self._health.benched_s(target.model, workflow.time())
            ]
            if len(agent.chain) > 1
            else []
        )

    async def _run(self, move: Act | Delegate, agent: AgentDefinition, media_bytes: int) -> None:
        """Run one call: a tool, or the turns of delegates."""
        if isinstance(move, Delegate):
            await self._children.run(move, agent)
        else:
            await self._act(move, agent, media_bytes)
            await self._children.count_time()

    async def _act(self, move: Act, agent: AgentDefinition, media_bytes: int) -> None:
        """Run one tool."""
        tool = agent.tool(move.call.name)
        assert tool is not None
        info, state = workflow.info(), self._board.state
        request = state.request
        approved, only_reads = approvals.consent_of(
            agent, request.task if request else None, tool, state.open_step.at(move.key.call).gate
        )
        run = ToolRun(
            owner=tool.owner or agent.name,
            tool="" if tool.activity == tool.name else tool.name,
            call_id=move.call.id,
            arguments=move.call.arguments,
            schema_digest=tool.schema_digest,
            run=info.first_execution_run_id[-8:] if tool.has_context else "",
            labels=request.labels if request else {},
            approved=approved,
            only_reads=only_reads,
            repeats=any(
                failure.lost and failure.key.call == move.key.call
                for failure in state.attempts.failures
            ),
            media_bytes=media_bytes,
        )
        summary = (
            f"{_label(move.key)}: {run.tool}"
            f" {arguments_in_brief(move.call.arguments)}{self._approver_of(move)}"
        )
        await self._calls.perform(move.key, tool.activity, run, tool.timeout, summary)

    def _approver_of(self, move: Act) -> str:
        """Return who approved a call, if known."""
        found = approvals.decision_about(move.call.id, self._board.state.open_step.decisions)
        return f", {found.in_words}" if found and found.by else ""

    async def _hand_over(self, move: HandOver) -> None:
        """Hand the turn over to another agent, which is resolved once, as the first one is."""
        if move.delay and not await self._sleep(move.delay, "before the handoff is tried again"):
            return
        request = self._board.state.request
        assert request is not None
        summary = f"{_label(move.key)}: hand over to {move.to}"
        call = _agent_call(request, move.to)
        await self._calls.perform(move.key, RESOLVE_AGENT, call, limits.TOOL_CALL, summary)

    async def _consult(self, move: Consult, agent: AgentDefinition) -> None:
        """Ask the policies about a call."""
        if move.delay and not await self._sleep(move.delay, "before the policy is asked again"):
            return
        tool, request = agent.tool(move.call.name), self._board.state.request
        policies = policy.policies_of(agent, tool)
        proposed = PolicyCall(
            turn_id=workflow.info().workflow_id,
            agent=policies[0],
            tool=move.call.name,
            call_id=move.call.id,
            arguments=move.call.arguments,
            read_only=tool.is_read_only if tool else False,
            labels=request.labels if request else {},
            policies=policies,
            owner=(tool.owner or agent.name) if tool and tool.activity else "",
            schema_digest=tool.schema_digest if tool else "",
        )
        summary = f"{_label(move.key)}: may {move.call.name} run?"
        await self._calls.perform(move.key, ASK_POLICY, proposed, limits.TOOL_CALL, summary)

    async def _sleep(self, delay: timedelta, summary: str) -> bool:
        """Sleep, but not past the deadline; return whether time is left."""
        left = self._board.time_for_calls
        await workflow.sleep(delay if left is None else min(delay, left), summary=summary)
        return left is None or left > delay

    @workflow.update(name=ADD_BUDGET, unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def add_budget(self, given: RawValue = NOTHING) -> RawValue:
        """Raise the budget; a turn that waits for that continues.

        If the turn does not know its limits yet, the update returns once it does.
        """
        await self._until_begun()
        with self._runs.update() as is_new:
            if is_new:
                return await self._add_budget(outcomes.added(given))
            await self._until_taken_over()
            return self._remaining()

    async def _until_begun(self) -> None:
        """Wait until the run has its input.

        The SDK runs the handlers of the first workflow task before `run`. Readers of the history
        have the input first.
        """
        if self._board.state.request is None:
            await workflow.wait_condition(lambda: self._board.state.request is not None)

    @property
    def _is_taking_over(self) -> bool:
        """Whether the run does not have the state of the run before yet."""
        state = self._board.state
        is_later = workflow.info().continued_run_id is not None
        return state.awaits_parts or (state.request is None and is_later)

    async def _until_taken_over(self) -> None:
        """Wait until this run has the state of the run before."""
        if self._board.state.awaits_parts:
            await workflow.wait_condition(lambda: not self._board.state.awaits_parts)

    async def _add_budget(self, added: BudgetAdded) -> RawValue:
        is_root = workflow.info().parent is None
        if is_root:
            self._board.note(added)
        if self._board.state.agent is None:
            await workflow.wait_condition(
                lambda: self._board.state.agent is not None or self._board.state.is_delayed
            )
            with failures.typed():
                self._check_added(added, self._board.state)
        if not is_root:
            if added.more:  # those above first: at no moment is more leased than there is
                await ancestors.tell_added(self._board.state, added.more)
            self._board.note(added)
        return self._remaining()

    def _check_added(self, added: BudgetAdded, state: TurnState) -> None:
        """Reject an addition to a limit that the turn does not have, or does not know yet.

        Raises:
            InvalidRequestError: There is no such limit, or the sum is too large.
        """
        try:
            state.with_added(added)
        except errors.InvalidRequestError as error:
            if not state.is_delayed:
                raise
            raise errors.InvalidRequestError(
                f"{error.message}: before a turn begins, only the limits that it was started with"
                " can be raised"
            ) from None

    def _remaining(self) -> RawValue:
        state = self._board.state.foreseen if self._board.state.is_delayed else self._board.state
        left = self._board.remaining_of(state)
        return pack(left.model_copy(update={"iterations": state.iterations_left}))

    @add_budget.validator
    def check_added(self, given: RawValue = NOTHING) -> None:
        """Reject an invalid addition before it is recorded in history."""
        if self._runs.has_answered():
            return
        with failures.typed():
            added = outcomes.added(given)
            validation.check(
                "what is added",
                {"by": added.by},
                {"by": validation.By | None},
                errors.InvalidRequestError,
            )
            if self._board.state.agent is not None or self._board.state.is_delayed:
                self._check_added(added, self._board.state.foreseen)

    @workflow.update(name=RESUME)
    async def resume(self, given: RawValue = NOTHING) -> None:
        """Retry the model now."""
        await self._until_begun()
        with self._runs.update() as is_new:
            if is_new:
                fact = Resumed()
                await self._note(fact)
                if self._was_refused(fact):
                    self._refuse_to_resume()

    @resume.validator
    def check_resumed(self, given: RawValue = NOTHING) -> None:
        """Reject the update if the turn does not wait for a provider or for `resume`."""
        if self._runs.has_answered() or self._is_taking_over:
            return
        if not self._board.state.can_be_resumed:
            self._refuse_to_resume()

    def _refuse_to_resume(self) -> None:
        waiting = self._board.state.waiting
        doing = f"it waits for {waiting.kind}" if waiting and waiting.is_told else "it is running"
        with failures.typed():
            raise errors.InvalidRequestError(
                f"the turn does not wait for a provider, so it cannot be resumed: {doing}"
            )

    @workflow.update(name=STEER)
    async def steer(self, given: RawValue = NOTHING) -> None:
        """Take in a message of the user, which the model reads with its next call."""
        await self._until_begun()
        with self._runs.update() as is_new:
            if is_new:
                await self._say(self._said(given))

    @workflow.signal(name=STEER)
    async def take_message(self, given: RawValue = NOTHING) -> None:
        """Take in a message that the session of the turn has accepted."""
        await self._until_begun()
        said = outcomes.said_in_signal([given])
        if said is not None:
            await self._say(said)

    async def _say(self, said: Said) -> None:
        before = self._board.state
        await self._note(said)
        if before.awaits_parts:
            return
        log_events.answered_without_a_run(before, self._board.state)
        self._board.show()
        if said.now:
            await self._calls.interrupt()

    @steer.validator
    def check_message(self, given: RawValue = NOTHING) -> None:
        """Reject a message that is not valid, does not fit, or comes too late."""
        if self._runs.has_answered():
            return
        with failures.typed():
            said = self._said(given)
            self._board.state.inbox.check(said)
            if self._is_ending:
                raise errors.TurnOverError("the turn has its answer, and is about to end")

    def _said(self, given: RawValue) -> Said:
        update = workflow.current_update_info()
        assert update is not None
        return outcomes.said(update.id, given)

    async def _note(self, fact: Decided | Resumed | Said) -> None:
        """Add the fact of an update, and wait until the run has a state that it can apply to."""
        self._board.note(fact)
        await self._until_taken_over()

    def _was_refused(self, fact: Decided | Resumed) -> bool:
        """Return whether an update that came in before the state of the run before was refused."""
        return any(one is fact for one in self._board.state.carried.refused)

    @workflow.signal(name=CHILD_NEWS, unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def child_news(self, given: RawValue = NOTHING) -> None:
        """Handle the news of a delegate's turn: it waits, continues, or was given budget."""
        await self._until_begun()
        fact = outcomes.news_in([given])
        if fact is not None:
            await self._children.told(fact)

    @workflow.update(name=DECIDE)
    async def decide(self, given: RawValue = NOTHING) -> None:
        """Approve or deny a waiting call."""
        await self._until_begun()
        with self._runs.update() as is_new:
            if is_new:
                await self._decide(Decided(unpack(given, Decision)))

    async def _decide(self, fact: Decided) -> None:
        before = self._board.state
        await self._note(fact)
        if self._was_refused(fact):
            with failures.typed():
                raise errors.ApprovalConflictError(
                    f"no approval is pending for the call {fact.decision.call_id!r} with these"
                    " arguments"
                )
        if not before.awaits_parts:
            log_events.answered_without_a_run(before, self._board.state)
            self._board.show()

    @decide.validator
    def check_decision(self, given: RawValue = NOTHING) -> None:
        """Reject a decision that is late, repeated, or about other arguments."""
        if self._runs.has_answered() or self._is_taking_over:
            return
        with failures.typed():
            waiting = self._board.state.waiting
            open_ids = {call.id for call, _ in self._board.state.asked.calls}
            pending = tuple(
                one for one in (waiting.pending if waiting else ()) if one.call_id in open_ids
            )
            approvals.check(pending, unpack(given, Decision), workflow.now())

    async def _cancelled(self, reason: str) -> Summary:
        self._board.note(CancelRequested(reason))
        return await self._ended_with(
            errors.TurnCancelledError(reason or None), Outcome.CANCELLED, reason
        )

    async def _failure(self, error: PerdureError) -> BaseException:
        return failures.of_turn(
            error, await self._ended_with(error, _OUTCOMES.get(type(error), Outcome.FAILED))
        )

    async def _ended_with(self, error: PerdureError, outcome: Outcome, reason: str = "") -> Summary:
        await self._observe_end(outcome)
        summary = self._board.summary(outcome, self._board.state.output, error=error)
        self._close(summary, error, reason)
        return summary

    def _close(self, summary: Summary, error: PerdureError | None = None, reason: str = "") -> None:
        """Record the end of a turn in the memo, search attributes, details and log."""
        self._log_start()
        visibility.end(self._board.state, summary, reason)
        self._board.show_end(summary.outcome)
        log_events.turn_ended(self._board.state, summary, self._board.took_ms, error)

    def _log_start(self) -> None:
        """Log the start once: when the agent is known, or when the turn ends before that."""
        if not self._has_begun:
            self._has_begun = True
            log_events.turn_started(self._board.state)

    async def _observe_end(self, outcome: Outcome) -> None:
        """Notify observers of an unsuccessful end as well.

        A failure to do so does not keep the turn from ending.
        """
        agent = self._board.state.agent
        if agent is not None and agent.observes:
            with contextlib.suppress(PerdureError):
                await asyncio.shield(self._pipeline.observe(agent, outcome=outcome))


def _started(start: RawValue) -> TurnStarted | TurnContinued:
    """Return the fact of the input, with the slot if a schedule started the turn."""
    at = workflow.info().typed_search_attributes.get(SCHEDULED_FOR)
    has_last = at is not None and workflow.has_last_completion_result()
    last = workflow.get_last_completion_result(RawValue) if has_last else None
    return outcomes.started(start, at, last)


def _goes_on_waiting(move: Move, state: TurnState) -> bool:
    """Return whether a move waits for what the run before has already waited for."""
    waiting = state.waiting
    match move:
        case AwaitApproval(asked):
            pending = {one.call_id for one in waiting.pending} if waiting else set()
            return {call.id for call, _ in asked.calls} <= pending
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


async def _together(coroutines: list[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines to their end.

    A cancellation is passed on to each; exceptions are raised when all have ended.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await workflow.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await workflow.wait(tasks)
        raise
    for task in tasks:
        task.result()


def _agent_call(request: TurnRequest, agent: str, model: str | None = None) -> AgentCall:
    """Return the input of the activity that resolves an agent of a turn."""
    return AgentCall(
        agent=agent,
        model=model,
        allowed=request.allowed,
        extra=request.options.extra if request.options else {},
        inherited=request.lineage.tools if request.lineage else (),
    )


def _label(key: ModelKey | ToolKey | PolicyKey | HandoffKey) -> str:
    """Return the beginning of a row in Temporal's web UI, after the activity's type."""
    return f"step {key.step}" + (f", attempt {key.attempt}" if key.attempt > 1 else "")
