"""Converts the ends of activities to facts.

The workflow and readers of the history share this code, so both get the same facts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime

from temporalio import exceptions
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError, TimeoutType

from perdure import errors, limits
from perdure.agents.definitions import AgentDefinition
from perdure.base import Wire, replace
from perdure.errors import ErrorInfo, PerdureError
from perdure.temporal import failures, names
from perdure.temporal.payloads import unpack
from perdure.text import clip, size
from perdure.turn import jobs
from perdure.turn.approvals import Ruling
from perdure.turn.continuation import Continuation
from perdure.turn.effect_values import Verification
from perdure.turn.facts import (
    AgentResolved,
    ApprovalNeeded,
    BudgetAdded,
    CallFailed,
    CallFinished,
    ChildEnded,
    ChildRead,
    ChildTold,
    Emitted,
    Fact,
    HandedOver,
    HookEnded,
    JobStopped,
    ModelAnswered,
    PartCarried,
    PolicyAnswered,
    Polled,
    Recorded,
    Resumed,
    Said,
    ToolLost,
    ToolReturned,
    TurnContinued,
    TurnStarted,
    Verified,
)
from perdure.turn.job_values import FinishCall
from perdure.turn.keys import (
    ActivityKey,
    AgentKey,
    CarryKey,
    ChildKey,
    HandoffKey,
    HookKey,
    ModelKey,
    PolicyKey,
    PollKey,
    ReadKey,
    StopKey,
    ToolKey,
    VerifyKey,
    parse_key,
)
from perdure.turn.slot import ScheduledBy, Slot
from perdure.turn.snapshot import VERSION, CarriedPart
from perdure.turn.wait_values import Emit, EmitByKey, TurnEvent
from perdure.turn.wire import (
    ChildNews,
    Resume,
    Steer,
    Summary,
    ToolOutput,
    ToolRun,
    TurnRead,
    TurnRequest,
)
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import BudgetUpdate
from perdure.values.content import MessageContent
from perdure.values.losses import Loss


class _Versioned(Wire):
    """The version of a value."""

    version: int = 1


def started(
    payload: RawValue, at: datetime | None = None, last: RawValue | None = None
) -> TurnStarted | TurnContinued:
    """Return the fact of the input of a run.

    `at` is the time for which a schedule started the run, and `last` the result of its last run
    that completed.

    Raises:
        InvalidRequestError: It is not the input of a turn.
    """
    try:
        request = unpack(payload, TurnRequest)
        return TurnStarted(request, _slot(request.schedule, at, last))
    except PerdureError as error:
        try:
            return TurnContinued(unpack(payload, Continuation))
        except PerdureError:
            raise error from None


def _slot(schedule: ScheduledBy | None, at: datetime | None, last: RawValue | None) -> Slot | None:
    """Return the slot of a run that a schedule of Perdure started; None for other runs."""
    if schedule is None or at is None:
        return None
    output = ""
    if schedule.remember_last and last is not None:
        with contextlib.suppress(PerdureError):
            output = clip(unpack(last, Summary).output, limits.LAST_OUTPUT_BYTES)
    return Slot(at=at, last_output=output)


def added(payload: RawValue) -> BudgetAdded:
    """Return the fact of an update that adds to the budget.

    Raises:
        InvalidRequestError: The input is not a budget.
    """
    update = unpack(payload, BudgetUpdate)
    return BudgetAdded(update.budget, update.by, update.iterations)


def resumed(given: RawValue) -> Resumed:
    """Return the fact of an update that resumes; earlier releases have sent it without an input."""
    try:
        return Resumed(unpack(given, Resume).by)
    except PerdureError:
        return Resumed()


def said(message_id: str, payload: RawValue) -> Said:
    """Return the fact of an update that sends a message.

    Raises:
        InvalidRequestError: The input is not a message.
    """
    message = unpack(payload, Steer)
    content = MessageContent.recorded(message.text, message.parts)
    return Said(
        message_id,
        content.brief,
        message.now,
        message.deny_pending,
        message.by,
        content.parts,
    )


def emitted(event_id: str, payload: RawValue) -> Emitted:
    """Return the fact of an update that sends an event.

    Raises:
        InvalidRequestError: The input is not an event.
    """
    event = unpack(payload, Emit)
    return Emitted(TurnEvent(id=event_id, name=event.name, body=event.body), event.by)


def emitted_in_signal(payloads: Sequence[RawValue]) -> Emitted | None:
    """Return the fact of a signal that brings an event by key; None if it brings none."""
    if len(payloads) != 1:
        return None
    try:
        event = unpack(payloads[0], EmitByKey)
    except PerdureError:
        return None
    if not (event.id and event.name and event.key) or size(event.body) > limits.EVENT_BYTES:
        return None
    taken_in = TurnEvent.model_validate(event.model_dump(exclude={"by"}))
    return Emitted(taken_in, event.by)


def call_finished(payload: RawValue) -> CallFinished:
    """Return the fact of an update that sends the result of a call.

    Raises:
        InvalidRequestError: The input is no result, or its token is none.
    """
    return jobs.recorded(unpack(payload, FinishCall))


def said_in_signal(payloads: Sequence[RawValue]) -> Said | None:
    """Return the fact of a signal that sends a message; None if it is none."""
    if len(payloads) != 1:
        return None
    try:
        message = unpack(payloads[0], Steer)
    except PerdureError:
        return None
    if not message.id or not (message.text.strip() or message.parts):
        return None
    return said(message.id, payloads[0])


def completed(key: ActivityKey, result: RawValue) -> Recorded:
    """Return the fact of an activity that completed."""
    match key:
        case HookKey():
            return HookEnded(key)
        case ReadKey():
            return _read(key, result)
        case StopKey():
            return JobStopped(key)
        case ToolKey() | VerifyKey() | PollKey():
            return _call_completed(key, result)
        case CarryKey():
            _refuse_later(key, result)
    return _valued(key, result)


def _valued(
    key: AgentKey | CarryKey | ModelKey | PolicyKey | HandoffKey, result: RawValue
) -> Recorded:
    """Return the fact of an activity whose result is a value of the turn."""
    try:
        match key:
            case CarryKey():
                return PartCarried(key, unpack(result, CarriedPart))
            case PolicyKey():
                return PolicyAnswered(key, unpack(result, Ruling))
            case ModelKey():
                return ModelAnswered(key, unpack(result, ModelAnswer))
            case AgentKey() | HandoffKey():
                return _resolved(key, unpack(result, AgentDefinition))
    except PerdureError as error:
        message = (
            f"{key} was completed by an operator in Temporal, with a result of no use:"
            f" {error.message}"
        )
        return CallFailed(key, errors.PerdureError(message).info())


def _resolved(key: AgentKey | HandoffKey, agent: AgentDefinition) -> AgentResolved | HandedOver:
    return HandedOver(key, agent) if isinstance(key, HandoffKey) else AgentResolved(key, agent)


def _refuse_later(key: CarryKey, result: RawValue) -> None:
    """Refuse what a later release has recorded.

    Raises:
        UnknownVersionError: It is of a later version.
    """
    try:
        version = unpack(result, _Versioned).version
    except PerdureError:
        return  # an operator's result, which does not count
    if version > VERSION:
        raise errors.UnknownVersionError(
            f"{key} holds a state of version {version}, and this release reads up to {VERSION}; run"
            " the turn with the release that recorded it, or a later one",
            context={"version": version},
        )


def _call_completed(
    key: ToolKey | VerifyKey | PollKey, result: RawValue
) -> ToolReturned | ApprovalNeeded | ToolLost | Verified | Polled:
    match key:
        case VerifyKey():
            return _verified(key, result)
        case PollKey():
            return _polled(key, result)
        case _:
            return _tool_completed(key, result)


def _polled(key: PollKey, result: RawValue) -> Polled:
    try:
        return Polled(key, unpack(result, ToolOutput))
    except PerdureError:
        return Polled(key)  # an operator's result


def _tool_completed(key: ToolKey, result: RawValue) -> ToolReturned | ApprovalNeeded | ToolLost:
    try:
        return returned(key, unpack(result, ToolOutput))
    except PerdureError as error:
        return ToolLost(key, Loss.BY_OPERATOR, error.message)


def returned(key: ToolKey, output: ToolOutput) -> ToolReturned | ApprovalNeeded:
    """Return the fact of a tool's activity that completed."""
    return (
        ToolReturned(key, output)
        if output.asks is None
        else ApprovalNeeded(key, output.asks.reason, output.asks.schema_digest)
    )


def failed(key: ActivityKey, failure: BaseException, run: ToolRun | None = None) -> Fact:
    """The fact of an activity that did not return.

    `failure` is the cause of Temporal's `ActivityError`, and `run` the input of a call of a tool.
    """
    match key:
        case HookKey():
            return HookEnded(key, _error_of(key, failure), _worker_lost(failure))
        case ReadKey():
            return ChildRead(key)
        case PollKey():
            return Polled(key)
        case StopKey():
            return JobStopped(key, _error_of(key, failure).message)
        case ToolKey():
            return replace(_tool_lost(key, failure), sent_at=_sent_at(run))
        case VerifyKey():
            reason = _error_of(key, failure).message
            return Verified(key, Verification(verdict="unreadable", content=reason))
        case _:
            return CallFailed(key, _error_of(key, failure), _worker_lost(failure))


def _verified(key: VerifyKey, result: RawValue) -> Verified:
    try:
        return Verified(key, unpack(result, Verification))
    except PerdureError as error:
        return Verified(key, Verification(verdict="unreadable", content=error.message))


def _read(key: ReadKey, result: RawValue) -> ChildRead:
    try:
        read = unpack(result, TurnRead)
    except PerdureError:
        return ChildRead(key)
    return ChildRead(key, read.summary, read.is_over)


def _sent_at(run: ToolRun | None) -> datetime | None:
    return datetime.fromtimestamp(run.sent_at, UTC) if run and run.sent_at else None


def _tool_lost(key: ToolKey, failure: BaseException) -> ToolLost:
    if _worker_lost(failure):
        return ToolLost(key, Loss.WORKER_LOST)
    if isinstance(failure, exceptions.TimeoutError):
        return ToolLost(key, Loss.TIMED_OUT)
    if isinstance(failure, (CancelledError, asyncio.CancelledError)):
        return ToolLost(key, Loss.CANCELLED)
    if isinstance(failure, ApplicationError) and failure.type == failures.NOT_REGISTERED:
        return ToolLost(key, Loss.FAILED, "the deployed worker does not have this tool")
    if failures.is_by_operator(failure):
        return ToolLost(key, Loss.BY_OPERATOR, str(failure))
    error = failures.error_in(failure)
    return ToolLost(
        key,
        Loss.FAILED,
        error.message,
        error if error.code == errors.ToolResolverError.code else None,
    )


def _error_of(
    key: AgentKey | CarryKey | ModelKey | PolicyKey | VerifyKey | StopKey | HandoffKey | HookKey,
    failure: BaseException,
) -> ErrorInfo:
    if _worker_lost(failure):
        return errors.PerdureError(
            f"the worker was lost {limits.LOST_ATTEMPTS} times while it ran {key}"
        ).info()
    if isinstance(failure, exceptions.TimeoutError):
        return _timed_out(key).info()
    if isinstance(failure, (CancelledError, asyncio.CancelledError)):
        return errors.TurnCancelledError().info()
    if failures.is_by_operator(failure):
        return errors.PerdureError(
            f"{key} was ended by an operator in Temporal{f': {failure}' if str(failure) else ''}"
        ).info()
    return failures.error_in(failure)


def _timed_out(
    key: AgentKey | CarryKey | ModelKey | PolicyKey | VerifyKey | StopKey | HandoffKey | HookKey,
) -> PerdureError:
    match key:
        case VerifyKey() | StopKey():
            return errors.PerdureError("it took too long")
        case ModelKey():
            return errors.LLMTimeoutError(
                f"no answer within {limits.MODEL_CALL.total_seconds():g} s"
            )
        case AgentKey() | HandoffKey():
            return errors.PerdureError(
                f"the agent could not be looked up within {limits.TOOL_CALL.total_seconds():g} s"
            )
        case _:
            return errors.PerdureError(
                f"{key} did not end within {limits.TOOL_CALL.total_seconds():g} s"
            )


def _worker_lost(failure: BaseException) -> bool:
    if isinstance(failure, exceptions.TimeoutError):
        return failure.type is TimeoutType.HEARTBEAT
    return isinstance(failure, ApplicationError) and failure.type == names.WORKER_SHUTDOWN


def child_failed(key: ChildKey, failure: BaseException) -> ChildEnded:
    """The fact of a delegate's turn that did not return.

    `failure` is the cause of Temporal's `ChildWorkflowError`.
    """
    summary = failures.summary_in(failure)
    if summary is not None:
        return ChildEnded(key, summary)
    if isinstance(failure, exceptions.TerminatedError):
        return ChildEnded(key, reason="it was terminated")
    if isinstance(failure, exceptions.WorkflowAlreadyStartedError):
        return ChildEnded(
            key, reason="it could not be started: a turn of its id is running", began=False
        )
    if isinstance(failure, (CancelledError, asyncio.CancelledError)):
        return ChildEnded(key, reason="it was cancelled")
    if isinstance(failure, exceptions.TimeoutError):
        return ChildEnded(key, reason="the server's timeout for its workflow is over")
    return ChildEnded(key, reason=failures.error_in(failure).message)


def child_completed(key: ChildKey, result: RawValue) -> ChildEnded:
    """Return the fact of a delegate's turn that completed."""
    try:
        return ChildEnded(key, unpack(result, Summary))
    except PerdureError as error:
        return ChildEnded(key, reason=error.message)


def child_found(key: ChildKey, result: RawValue) -> ChildEnded:
    """Return the fact of a turn whose id was in use, by what was read of it when it was over."""
    try:
        read = unpack(result, TurnRead)
    except PerdureError as error:
        return ChildEnded(key, reason=error.message)
    if not read.is_over:
        return ChildEnded(key, reason="a worker of an earlier release did not wait for its end")
    return ChildEnded(key, read.summary)


def child_not_found(key: ChildKey, turn_id: str, failure: BaseException) -> ChildEnded:
    """Return the fact of a turn whose id was in use, and that could not be read.

    `failure` is the cause of Temporal's `ActivityError`.
    """
    error = failures.error_in(failure)
    if error.code == errors.TurnNotFoundError.code:  # another program has the id
        return child_failed(key, exceptions.WorkflowAlreadyStartedError(turn_id, names.TURN))
    return ChildEnded(key, reason=error.message)


def news_in(payloads: Sequence[RawValue]) -> ChildTold | None:
    """Return the fact of a signal; None if it is not from a turn."""
    if len(payloads) != 1:
        return None
    try:
        news = unpack(payloads[0], ChildNews)
    except PerdureError:
        return None
    key = parse_key(news.key)
    return ChildTold(key, news) if isinstance(key, ChildKey) else None
