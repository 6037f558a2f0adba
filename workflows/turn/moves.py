"""The moves of a turn: what the workflow does for each, by activities, children and waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow

from perdure import errors, limits, validation
from perdure.agents import policy
from perdure.agents.definitions import AgentDefinition, ToolDefinition
from perdure.agents.versions import address_of
from perdure.temporal.names import (
    ASK_POLICY,
    CALL_MODEL,
    RESOLVE_AGENT,
    SHARE_STATE,
    VERIFY,
)
from perdure.text import arguments_in_brief
from perdure.turn import (
    approvals,
    call_tokens,
    effects,
    fallback,
    inquiries,
    outages,
    reservations,
    undo,
)
from perdure.turn.agent_call import agent_call
from perdure.turn.approvals import PolicyCall
from perdure.turn.calls import ready_for
from perdure.turn.circuit_breaker import Health
from perdure.turn.decide import (
    Act,
    Ask,
    AwaitApproval,
    AwaitBudget,
    AwaitIterations,
    AwaitResume,
    CallMove,
    Consult,
    HandOver,
    Move,
    StartDelegates,
    Verify,
    Wait,
    moves_at_once,
)
from perdure.turn.facts import (
    CallFailed,
    ModelAnswered,
)
from perdure.turn.fallback import Choice
from perdure.turn.history_limits import check_batch, media_room
from perdure.turn.keys import HandoffKey, ModelKey, PolicyKey, ToolKey, VerifyKey
from perdure.turn.outages import Outage
from perdure.turn.reservations import Reservation
from perdure.turn.retries import asked_pause_s
from perdure.turn.state import TurnState
from perdure.turn.waiting import PROVIDER
from perdure.turn.wire import ModelCall, ToolRun
from perdure.values.inquiries import GivenAnswers
from perdure.workflows.turn import waits
from perdure.workflows.turn.call_waits import CallWaits
from perdure.workflows.turn.calls import Calls
from perdure.workflows.turn.children import Children
from perdure.workflows.turn.jobs import Jobs
from perdure.workflows.turn.local_calls import LocalCalls
from perdure.workflows.turn.middleware import Pipeline
from perdure.workflows.turn.turn_context import Board

MARGIN = timedelta(seconds=10)
"""Between a model call's own deadline and the activity's, so that the typed error comes first."""


class Moves:
    """Makes the moves of one turn.

    Attributes:
        health: The health of the models, as this turn has seen it.
    """

    def __init__(self, board: Board, calls: Calls, pipeline: Pipeline, children: Children) -> None:
        self.health = Health()
        self._board = board
        self._calls = calls
        self._pipeline = pipeline
        self._children = children
        self._local = LocalCalls(board)
        self._jobs = Jobs(board, calls, self._run_of_job)
        self._waits = CallWaits(board, pipeline, self._jobs)

    async def make(self, move: Move, agent: AgentDefinition) -> None:
        """Make a move, and wait for its end.

        Raises:
            RunIsFull: The turn has to continue in a new run while it waits.
            TooLargeError: The calls are too large to be made at once.
        """
        match move:
            case Ask():
                await self._ask(move, agent)
            case Act() | Verify() | StartDelegates() | Wait():
                await self._make_calls(move, agent)
            case HandOver():
                await self._hand_over(move)
            case Consult():
                await self._consult(move, agent)
            case AwaitApproval(asked):
                reason = ", ".join(call.name for call, _ in asked.calls)
                await self._observe_wait(agent, "approval", reason)
                async with self._waits.polled():
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

    def _check_batch(self, moves: Sequence[CallMove]) -> None:
        """Reject calls that do not fit, except in turns of earlier releases that made them."""
        try:
            check_batch(self._board.state, moves, workflow.info().get_current_history_size())
        except errors.TooLargeError:
            if workflow.patched("check-batch"):
                raise

    def _media_room(self, moves: Sequence[CallMove], agent: AgentDefinition) -> int:
        size_bytes = workflow.info().get_current_history_size()
        return media_room(self._board.state, moves, agent, size_bytes)

    async def _ask(self, move: Ask, agent: AgentDefinition) -> None:
        """Call a model; the transcript is passed by reference."""
        choice, target, reservation = move.choice, move.choice.target, move.reservation
        if choice.delay and not await self._pause(move, agent):
            return
        key, board = move.key, self._board
        if key.is_last:  # it does not wait for the calls
            self._jobs.begin_to_stop_all()
        waits.end_of_calls(board)
        has_waited = bool(choice.delay)
        if not key.is_last:  # before a last answer, the model reads no messages
            has_waited |= await self._pipeline.check_messages(agent)
        state = ready_for(board.state, key)
        if has_waited:  # the budget may have been added to meanwhile
            reservation = reservations.for_call(state, agent, target, choice.cut)
        call = self._model_call(state, agent, choice, reservation)
        # for a factory before it, and for validators after it
        timeout = limits.MODEL_CALL + 2 * limits.USER_CODE + MARGIN
        summary = _summary(key, state.other_agent, choice)
        _share(board.state)
        fact = await self._calls.perform(
            key, CALL_MODEL, call, timeout, summary, queue=target.queue
        )
        if isinstance(fact, ModelAnswered):
            self.health.succeeded(target.model)
            waits.provider_is_back(board)
        elif isinstance(fact, CallFailed) and fallback.is_penalty(
            error := errors.from_info(fact.error)
        ):
            longest = limits.RETRY_AFTER if agent.model_retry is None else validation.LONGEST
            self.health.failed(target.model, workflow.time(), asked_pause_s(error, longest))

    def _model_call(
        self, state: TurnState, agent: AgentDefinition, choice: Choice, reservation: Reservation
    ) -> ModelCall:
        model = choice.target.model
        return ModelCall.of(
            state.transcript.digest,
            model="" if model == agent.model else model,
            others=choice.others,
            passed=choice.passed,
            cut=choice.cut,
            round=choice.round,
            max_output_tokens=reservation.max_output_tokens,
            most_input=reservation.most_input,
            budget=self._board.remaining if self._board.state.accounts.ledger.budget else None,
            agent=state.other_agent,
        )

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

    def outage(self, agent: AgentDefinition) -> Outage:
        """Return the failed calls of the open step, by the workflow's clock.

        An agent that waits for a person when it gives up may be resumed until the deadline.
        """
        now = workflow.time()
        pauses_s = {
            target.model: pause_s
            for target in agent.chain
            if (pause_s := self.health.asked_s(target.model, now))
        }
        pauses = agent.model_retry is not None and agent.model_retry.pauses
        deadline = None if pauses or agent.rules < 4 else self._board.deadline
        return Outage(
            lasted=self._board.failing_for,
            asked_s=pauses_s,
            turn_id=workflow.info().workflow_id,
            until_deadline=None if deadline is None else deadline - workflow.now(),
        )

    def benched(self, agent: AgentDefinition) -> list[str]:
        """Return the models that this turn skips for now.

        This memory survives restarts, because a replay rebuilds it.
        """
        return (
            [
                target.model
                for target in agent.chain
                if self.health.benched_s(target.model, workflow.time())
            ]
            if len(agent.chain) > 1
            else []
        )

    async def _make_calls(self, move: CallMove, agent: AgentDefinition) -> None:
        """Make a move of a call, with those that are made at the same time."""
        moves = moves_at_once(self._board.state, agent)
        if agent.parallel_tools or len(moves) > 1:
            self._check_batch(moves)
            await self._waits.begin(moves, agent)
            room, locally = self._media_room(moves, agent), self._local.admit(moves)
            await _together([self._run(call_move, agent, room, locally) for call_move in moves])
        else:
            await self._waits.begin([move], agent)
            room, locally = self._media_room([move], agent), self._local.admit([move])
            await self._run(move, agent, room, locally)

    async def _run(
        self,
        move: CallMove,
        agent: AgentDefinition,
        media_bytes: int,
        locally: timedelta | None,
    ) -> None:
        """Run one call: a tool, its read-back, the turns of delegates, or a wait."""
        if isinstance(move, Wait):
            await self._waits.run(move.key)
        else:
            with self._waits.beside():
                await self._run_beside(move, agent, media_bytes, locally)
        if not isinstance(move, StartDelegates):
            await self._children.count_time()

    async def _run_beside(
        self,
        move: Act | Verify | StartDelegates,
        agent: AgentDefinition,
        media_bytes: int,
        locally: timedelta | None,
    ) -> None:
        match move:
            case StartDelegates():
                await self._children.run(move, agent)
            case Verify():
                await self._verify(move, agent, media_bytes)
            case Act():
                await self._act(move, agent, media_bytes, locally)

    async def _act(
        self, move: Act, agent: AgentDefinition, media_bytes: int, locally: timedelta | None
    ) -> None:
        """Run one tool. `locally` is the time that it has as a local call; None if it is none."""
        tool = agent.tool(move.call.name)
        assert tool is not None
        run = self._tool_run(move, agent, tool, media_bytes)
        description = f"{arguments_in_brief(move.call.arguments)}{self._approver_of(move)}"
        if locally is not None:
            named = run.model_copy(update={"tool": tool.name})
            summary = f"{_label(move.key)}: {tool.name} {description}"
            if await self._local.run(move.key, named, summary, locally, is_async=tool.is_async):
                return
        summary = f"{_label(move.key)}: {run.tool} {description}"
        await self._calls.perform(move.key, tool.runs_as, run, tool.timeout, summary)

    async def _verify(self, move: Verify, agent: AgentDefinition, media_bytes: int) -> None:
        """Find out what became of a call, after the time in which it may still take effect."""
        tool = agent.tool(move.call.name)
        assert tool is not None
        assert tool.effect is not None
        name = move.call.name
        if move.settle:
            wait = f"waits {move.settle.total_seconds():g} s before {name} is looked up"
            self._board.show(f"{_label(move.key)}: {wait}")
            if not await self._sleep(move.settle, f"{name} may still take effect"):
                return
        run = self._tool_run(move, agent, tool, media_bytes)
        await self._calls.perform(
            move.key,
            VERIFY,
            run.model_copy(update={"tool": tool.name}),
            timedelta(seconds=tool.effect.verify_timeout_s),
            f"{_label(move.key)}: has {name} taken effect?",
            within=limits.READ_BACK,
        )

    def _tool_run(
        self, move: Act | Verify, agent: AgentDefinition, tool: ToolDefinition, media_bytes: int
    ) -> ToolRun:
        info, state = workflow.info(), self._board.state
        request = state.request
        approved, only_reads = approvals.consent_of(
            agent, request.task if request else None, tool, state.open_step.at(move.key.call).gate
        )
        is_told = isinstance(move, Act) and agent.rules >= 6 and not tool.is_read_only
        return ToolRun(
            owner=tool.owner or address_of(agent),
            tool="" if tool.runs_as == tool.name else tool.name,
            call_id=move.call.id,
            arguments=move.call.arguments,
            schema_digest=tool.schema_digest,
            run=info.first_execution_run_id[-8:] if tool.has_context else "",
            labels=request.labels if request else {},
            approved=approved,
            only_reads=only_reads,
            repeats=isinstance(move.key, ToolKey) and state.attempts.has_lost(move.key),
            media_bytes=media_bytes,
            effect_scope=self._effect_scope(tool),
            known=effects.known_of(state, tool),
            undoes=tool.undoes,
            sent_at=int(workflow.time()) if is_told else 0,
            token=self._token(move, agent) if tool.job is not None else "",
            answers=self._answers(move) if tool.may_ask else None,
            shared_state=state.shared if tool.has_context else {},
        )

    def _answers(self, move: Act | Verify) -> GivenAnswers | None:
        """Return what people have answered to the server of a call; None for a read-back."""
        open_call = self._board.state.open_step.at(move.key.call)
        return inquiries.answers_of(open_call) if isinstance(move, Act) else None

    def _token(self, move: Act | Verify, agent: AgentDefinition) -> str:
        """Return the token by which the result of a call is sent."""
        info, key = workflow.info(), move.key
        digest = call_tokens.digest_of(move.call, info.first_execution_run_id[-8:])
        place = ToolKey(key.step, key.call)
        return call_tokens.make(agent.call_secret, info.workflow_id, place, digest)

    def _run_of_job(self, move: Act, agent: AgentDefinition, tool: ToolDefinition) -> ToolRun:
        """Return the input of the activities of a job."""
        return self._tool_run(move, agent, tool, self._media_room([move], agent))

    async def stop_jobs(self) -> None:
        """Cancel the jobs that nobody waits for any more, because the turn ends."""
        await self._jobs.stop_all()

    def _effect_scope(self, tool: ToolDefinition) -> str:
        """Return the scope in which calls of a tool are one effect; empty without effect keys."""
        request = self._board.state.request
        if tool.effect is None or not tool.effect.has_key or request is None:
            return ""
        if tool.effect.scope == "call" and request.undo is not None:
            return undo.scope_of(request.undo)
        root = undo.root_of(request, workflow.info().workflow_id)
        return request.effect_scopes.text(tool.effect.scope, root)

    def _approver_of(self, move: Act) -> str:
        decision = approvals.decision_about(move.call.id, self._board.state.open_step.decisions)
        return f", {decision.in_words}" if decision and decision.by else ""

    async def _hand_over(self, move: HandOver) -> None:
        """Hand the turn over to another agent, which is resolved once, as the first agent is."""
        if move.delay and not await self._sleep(move.delay, "before the handoff is tried again"):
            return
        request = self._board.state.request
        assert request is not None
        summary = f"{_label(move.key)}: hand over to {move.to}"
        call = agent_call(request, move.to)
        await self._calls.perform(move.key, RESOLVE_AGENT, call, limits.TOOL_CALL, summary)

    async def _consult(self, move: Consult, agent: AgentDefinition) -> None:
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
            owner=(tool.owner or address_of(agent)) if tool and tool.runs_as else "",
            schema_digest=tool.schema_digest if tool else "",
            undoes=tool.undoes if tool else "",
        )
        summary = f"{_label(move.key)}: may {move.call.name} run?"
        await self._calls.perform(move.key, ASK_POLICY, proposed, limits.TOOL_CALL, summary)

    async def _sleep(self, delay: timedelta, summary: str) -> bool:
        """Sleep, but not past the deadline; return whether time is left."""
        time_left = self._board.time_for_calls
        await workflow.sleep(delay if time_left is None else min(delay, time_left), summary=summary)
        return time_left is None or time_left > delay


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


def _label(key: ModelKey | ToolKey | PolicyKey | VerifyKey | HandoffKey) -> str:
    """Return the beginning of a row in Temporal's web UI, after the activity's type."""
    return f"step {key.step}" + (f", attempt {key.attempt}" if key.attempt > 1 else "")


def _share(state: TurnState) -> None:
    """Leave the state in this process, for the model call if it runs here."""
    keep = workflow.extern_functions().get(SHARE_STATE)
    if keep is not None and not workflow.unsafe.is_replaying():
        keep(workflow.info().run_id, state)


def _summary(key: ModelKey, other_agent: str, choice: Choice) -> str:
    """Return the row of a model call in Temporal's web UI, after the activity's type."""
    by = f", {other_agent}" if other_agent else ""
    summary = f"{_label(key)}{by}{', last answer' if key.is_last else ''}: {choice.target.model}"
    return summary + (f" (not {'; not '.join(choice.passed)})" if choice.passed else "")
