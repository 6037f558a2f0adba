"""One agent turn: ask the model, run its tools, repeat until it answers.

The workflow holds the fold of its facts and nothing else. What it does next is `decide.next_move`; every fact it meets goes through `fold.apply`,
as it does in whoever reads the history.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta

from pydantic import BaseModel
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError

from perdure import errors, limits
from perdure.activities import failures, heartbeats, outcomes
from perdure.activities.payloads import NOTHING, pack, unpack
from perdure.activities.signatures import CALL_MODEL, RESOLVE_AGENT, TURN
from perdure.agents import AgentDefinition
from perdure.decide import Act, Ask, Done, check_history, next_move, retry_delay
from perdure.errors import PerdureError
from perdure.facts import CancelRequested, Key, Scheduled, TurnStarted
from perdure.fold import TurnState, apply
from perdure.messages import ToolCall
from perdure.reports import Outcome
from perdure.tasks import headline
from perdure.text import clip, described, one_line
from perdure.wire import AgentCall, ModelCall, Summary, ToolRun, TurnRequest

ONCE = RetryPolicy(maximum_attempts=1)
CANCEL_GRACE = timedelta(seconds=10)
MARGIN = timedelta(seconds=10)
"""Between a model call's own deadline and the activity's, so that the typed error comes first."""


@workflow.defn(name=TURN, sandboxed=False, failure_exception_types=[PerdureError])
class AgentTurn:
    """A turn. Unsandboxed: it holds no code of users, and replay tests guard it (docs/decisions/0002)."""

    def __init__(self) -> None:
        self._state = TurnState()

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> RawValue:
        """Run the turn. The input is raw and validated here, so that any start ends typed."""
        try:
            agent = await self._resolve(unpack(start, TurnRequest))
            done = await self._loop(agent)
            summary = self._summary(done.outcome, done.output, done.risk)
        except asyncio.CancelledError:
            reason = workflow.cancellation_reason() or ""
            self._state = apply(self._state, CancelRequested(reason))
            self._leave_memo(self._summary(Outcome.CANCELLED), reason)
            raise
        except PerdureError as error:
            raise self._failure(error) from error
        except Exception as error:  # a bug of ours must not leave the workflow task failing for ever
            workflow.logger.exception("the turn failed unexpectedly")
            raise self._failure(PerdureError(described(error))) from error
        self._leave_memo(summary)
        return pack(summary)

    async def _resolve(self, request: TurnRequest) -> AgentDefinition:
        """Look the agent up once; a later deploy changes nothing of this turn."""
        self._state = apply(self._state, TurnStarted(request))
        request.check()
        call = AgentCall(agent=request.agent)
        while self._state.agent is None:
            await asyncio.sleep(retry_delay(self._state).total_seconds())
            await self._perform(Key(0, attempt=len(self._state.failures) + 1), RESOLVE_AGENT, call, limits.TOOL_CALL, f"agent {request.agent}")
        return self._state.agent

    async def _loop(self, agent: AgentDefinition) -> Done:
        while True:
            info = workflow.info()
            check_history(info.get_current_history_size(), info.get_current_history_length())
            match next_move(self._state, agent):
                case Done() as done:
                    return done
                case Ask() as ask:
                    await self._ask(ask, agent)
                case Act() as act:
                    await self._act(act, agent)

    async def _ask(self, move: Ask, agent: AgentDefinition) -> None:
        """Call the model with the transcript by reference."""
        if move.delay:
            await workflow.sleep(move.delay, summary=f"before {agent.model} is asked again")
        call = ModelCall(length=len(self._state.messages), digest=self._state.digest, model=agent.model)
        await self._perform(move.key, CALL_MODEL, call, limits.MODEL_CALL + MARGIN, f"{_label(move.key)} · {agent.model}")

    async def _act(self, move: Act, agent: AgentDefinition) -> None:
        """Run one tool call."""
        tool = agent.tool(move.call.name)
        assert tool is not None
        run = ToolRun(
            owner=agent.name,
            tool=tool.name,
            call_id=move.call.id,
            arguments=move.call.arguments,
            attempt=move.key.attempt,
            idempotency_key=_idempotency_key(move.key, move.call),
            schema_digest=tool.schema_digest,
            labels=self._state.request.labels if self._state.request else {},
        )
        name = "" if tool.activity == tool.name else f"{tool.name} "
        await self._perform(move.key, tool.activity, run, tool.timeout, f"{_label(move.key)} · {name}{move.call.arguments}")

    async def _perform(self, key: Key, activity: str, arg: BaseModel, timeout: timedelta, summary: str) -> None:
        """Run one activity and fold what became of it. A cancel is passed on, and what it leaves behind is still folded."""
        raw = pack(arg, f"the input of {activity}")
        self._state = apply(self._state, Scheduled(key))
        handle = workflow.start_activity(
            activity,
            raw,
            result_type=RawValue,
            activity_id=str(key),
            start_to_close_timeout=timeout,
            heartbeat_timeout=heartbeats.TIMEOUT,
            retry_policy=ONCE,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=one_line(summary, 200),
        )
        try:
            await workflow.wait([handle])
        except asyncio.CancelledError:
            handle.cancel()
            await workflow.wait([handle], timeout=CANCEL_GRACE.total_seconds())
            raise
        finally:
            if handle.done():
                self._fold_end(key, handle)

    def _fold_end(self, key: Key, handle: workflow.ActivityHandle[RawValue]) -> None:
        try:
            fact = outcomes.completed(key, handle.result())
        except ActivityError as error:
            fact = outcomes.failed(key, error.cause or error)
        except asyncio.CancelledError as error:
            fact = outcomes.failed(key, error)
        self._state = apply(self._state, fact)

    def _failure(self, error: PerdureError) -> BaseException:
        outcome = Outcome.MAX_ITERATIONS if isinstance(error, errors.MaxIterationsError) else Outcome.FAILED
        summary = self._summary(outcome, self._last_words(), error=error)
        self._leave_memo(summary)
        return failures.of_turn(error, summary)

    def _summary(self, outcome: Outcome, output: str = "", risk: str | None = None, error: PerdureError | None = None) -> Summary:
        state = self._state
        return Summary(
            agent=state.request.agent if state.request else "",
            outcome=outcome,
            output=clip(output, limits.SUMMARY_BYTES // 2),
            risk=risk,
            steps=len(state.steps),
            model_calls=state.model_calls,
            tool_calls=state.tool_calls,
            usage=state.usage,
            duration_ms=int((workflow.now() - workflow.info().start_time).total_seconds() * 1000),
            length=len(state.messages),
            digest=state.digest,
            error=error.info() if error else None,
        )

    def _last_words(self) -> str:
        return self._state.answer.message.text if self._state.answer else ""

    def _leave_memo(self, summary: Summary, reason: str = "") -> None:
        """What a list shows of an ended turn, in under 2 KB."""
        memo = {
            "outcome": summary.outcome.value,
            "agent": summary.agent,
            "task": headline(self._state.request.task) if self._state.request else "",
            "output": clip(summary.output, limits.MEMO_BYTES // 4),
            "error": summary.error.code if summary.error else "",
            "reason": clip(reason, limits.MEMO_BYTES // 8),
            "steps": summary.steps,
            "tokens": summary.usage.input_tokens + summary.usage.output_tokens,
            "digest": summary.digest,
        }
        workflow.upsert_memo({"perdure": {name: value for name, value in memo.items() if value}})


def _label(key: Key) -> str:
    """How a row in Temporal's web UI begins; the activity's type stands before it."""
    return f"step {key.step}" + (f", attempt {key.attempt}" if key.attempt > 1 else "")


def _idempotency_key(key: Key, call: ToolCall) -> str:
    """The same for every attempt, after a reset and a continue-as-new; another one when the turn's id is started anew."""
    info = workflow.info()
    parts = (info.workflow_id, info.first_execution_run_id, str(key.step), str(key.call), call.name, call.arguments)
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:32]
