"""What became of an activity, as a fact. The workflow and the readers of history share this, so both make the same fact of one end."""

from __future__ import annotations

from temporalio import exceptions
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError, TimeoutType

from perdure import errors, limits
from perdure.activities import failures
from perdure.activities.payloads import unpack
from perdure.agents import AgentDefinition
from perdure.errors import PerdureError
from perdure.facts import AgentResolved, CallFailed, Fact, Key, Loss, ModelAnswered, ToolLost, ToolReturned
from perdure.wire import ModelAnswer, ToolOutput


def completed(key: Key, result: RawValue) -> Fact:
    """The fact of an activity that returned."""
    try:
        if key.call:
            return ToolReturned(key, unpack(result, ToolOutput))
        if key.step:
            return ModelAnswered(key, unpack(result, ModelAnswer))
        return AgentResolved(key, unpack(result, AgentDefinition))
    except PerdureError as error:
        return ToolLost(key, Loss.FAILED, error.message) if key.call else CallFailed(key, error.info())


def failed(key: Key, failure: BaseException) -> Fact:
    """The fact of an activity that did not return; `failure` is the cause of Temporal's `ActivityError`."""
    return _tool_lost(key, failure) if key.call else _call_failed(key, failure)


def _tool_lost(key: Key, failure: BaseException) -> ToolLost:
    if _worker_lost(failure):
        return ToolLost(key, Loss.WORKER_LOST)
    if isinstance(failure, exceptions.TimeoutError):
        return ToolLost(key, Loss.TIMED_OUT)
    if isinstance(failure, CancelledError):
        return ToolLost(key, Loss.CANCELLED)
    if isinstance(failure, ApplicationError) and failure.type == failures.NOT_REGISTERED:
        return ToolLost(key, Loss.FAILED, "the deployed worker does not have this tool")
    return ToolLost(key, Loss.FAILED, failures.error_in(failure).message)


def _call_failed(key: Key, failure: BaseException) -> CallFailed:
    if _worker_lost(failure):
        error: PerdureError = errors.PerdureError(f"the worker was lost {limits.LOST_ATTEMPTS} times while it ran {key}")
        return CallFailed(key, error.info(), lost=True)
    if isinstance(failure, exceptions.TimeoutError) and key.step == 0:
        return CallFailed(key, errors.PerdureError(f"the agent could not be looked up within {limits.TOOL_CALL.total_seconds():g} s").info())
    if isinstance(failure, exceptions.TimeoutError):
        return CallFailed(key, errors.LLMTimeoutError(f"no answer within {limits.MODEL_CALL.total_seconds():g} s").info())
    if isinstance(failure, CancelledError):
        return CallFailed(key, errors.TurnCancelledError().info())
    return CallFailed(key, failures.error_in(failure))


def _worker_lost(failure: BaseException) -> bool:
    if isinstance(failure, exceptions.TimeoutError):
        return failure.type is TimeoutType.HEARTBEAT
    return isinstance(failure, ApplicationError) and failure.type == failures.WORKER_SHUTDOWN
