"""The errors that end a turn early, or prevent one from starting.

PerdureError                        something unexpected; the message says where
├── turn: the turn started and could not complete
│   ├── TurnBudgetExceededError     raise the budget and resume, or accept the report
│   ├── MaxIterationsError          a stuck loop, or a cap too low: raise it and resume
│   ├── AutonomyBoundaryError       a person should review it: security-adjacent
│   ├── TurnCancelledError          a cancellation was requested
│   ├── TurnTimeoutError            it exceeded its time limit
│   ├── TurnTerminatedError         it was terminated from outside; none of its code ran
│   ├── LoopDetectedError           the model repeats itself
│   ├── OutputInvalidError          the answer does not have the requested type
│   ├── GuardrailError              a guardrail refused it
│   ├── ToolResolverError           a tool could not be found because the resolver failed
│   ├── EffectNotUndoneError        the effect of a call was not taken back
│   ├── EffectUnknownError          whether a call has taken effect remained unknown
│   ├── DuplicateToolError          two tools have the same name: rename or prefix one
│   ├── TooLargeError               a value is too large for history
│   └── TranscriptMismatchError     the worker read another transcript than the turn's; retried
├── LLMError: the model
│   ├── LLMAuthError                fix the key; never retried
│   ├── LLMRateLimitError           come back later; retried
│   ├── LLMBudgetExceededError      the call would cost more than is left
│   ├── LLMTimeoutError             too slow; retried
│   ├── LLMInvalidRequestError      the provider does not accept the request; never retried
│   ├── LLMUnavailableError         the provider is down or its answer is unreadable; retried
│   ├── LLMRefusedError             the model declined; never retried
│   ├── UnknownPriceError           set a price for this model
│   └── ModelChainExhaustedError    every model failed; one typed error for each
└── caller: nothing ran
    ├── UnknownAgentError           no worker knows an agent of this name
    ├── InvalidRequestError         the start input is not valid
    │   ├── StaleCursorError        the cursor is of an earlier run: read from the beginning
    │   ├── TurnOverError           the turn is over: its report says how it ended
    │   └── WebhookRefusedError     the workers do not allow this URL: name another one, or allow it
    ├── SessionNotFoundError        no such session, or its retention is over
    ├── SessionClosedError          the session takes no more messages: begin another one
    ├── SessionBusyError            the session is busy, or too much waits in it: try later
    ├── TurnNotFoundError           no such turn, or its retention is over
    ├── TurnExistsError             this id is taken
    ├── TurnConflictError           this id is taken by another agent or task
    ├── ScheduleNotFoundError       no such schedule
    ├── ScheduleConflictError       a schedule has this id, or was changed at the same moment
    ├── ScheduleBusyError           a turn of the schedule is running: try again when it is over
    ├── BatchNotFoundError          no such batch, or its retention is over
    ├── BatchConflictError          this id is taken by another batch, or by a turn
    ├── TaskNotStartedError         a batch ended before this task: run `Batch.retry`
    ├── ApprovalConflictError       the approval was answered already, or names other arguments
    ├── CallFinishedError           the call has a result already, or is not waited for any more
    ├── UnknownVersionError         a later release recorded this: use that release
    ├── PayloadDecodeError          the turn is encoded by a codec that this process does not have
    │   └── DecryptionError         its key is missing here, or it was changed or put elsewhere
    │       └── ErasedError         its data subject was erased: nobody can read it any more
    ├── KeyStoreError               the store with the keys of data subjects does not answer
    ├── LoginError                  a login at an MCP server did not succeed: begin it again
    ├── ConfigurationError          fix the set-up: the message says what
    ├── TooManyRequestsError        too many updates of a turn or session are under way: try later
    └── ServerUnreachableError      no Temporal server answers at this address
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import JsonValue

from perdure import limits
from perdure.base import Wire
from perdure.text import clean, clip, clip_values

if TYPE_CHECKING:
    from perdure.values.reports import AgentReport

__all__ = [
    "ApprovalConflictError",
    "AutonomyBoundaryError",
    "BatchConflictError",
    "BatchNotFoundError",
    "CallFinishedError",
    "ConfigurationError",
    "DecryptionError",
    "DuplicateToolError",
    "EffectNotUndoneError",
    "EffectUnknownError",
    "ErasedError",
    "ErrorInfo",
    "GuardrailError",
    "InvalidRequestError",
    "KeyStoreError",
    "LLMAuthError",
    "LLMBudgetExceededError",
    "LLMError",
    "LLMInvalidRequestError",
    "LLMRateLimitError",
    "LLMRefusedError",
    "LLMTimeoutError",
    "LLMUnavailableError",
    "LoginError",
    "LoopDetectedError",
    "MaxIterationsError",
    "ModelChainExhaustedError",
    "OutputInvalidError",
    "PayloadDecodeError",
    "PerdureError",
    "ScheduleBusyError",
    "ScheduleConflictError",
    "ScheduleNotFoundError",
    "ServerUnreachableError",
    "SessionBusyError",
    "SessionClosedError",
    "SessionNotFoundError",
    "Severity",
    "StaleCursorError",
    "TaskNotStartedError",
    "TooLargeError",
    "TooManyRequestsError",
    "ToolResolverError",
    "TranscriptMismatchError",
    "TurnBudgetExceededError",
    "TurnCancelledError",
    "TurnConflictError",
    "TurnExistsError",
    "TurnNotFoundError",
    "TurnOverError",
    "TurnTerminatedError",
    "TurnTimeoutError",
    "UnknownAgentError",
    "UnknownPriceError",
    "UnknownVersionError",
    "WebhookRefusedError",
    "from_info",
    "tree",
]


class Severity(StrEnum):
    """The attention that an error requires."""

    FATAL = "fatal"
    ERROR = "error"
    WARN = "warn"
    INFO = "info"


class ErrorInfo(Wire):
    """An error as it is stored in history, without a stack trace and with bounded texts."""

    code: str
    severity: Severity
    message: str
    context: dict[str, JsonValue] = {}
    cause: ErrorInfo | None = None


class PerdureError(Exception):
    """Something unexpected happened in Perdure."""

    code: ClassVar[str] = "PERDURE_ERROR"
    default_severity: ClassVar[Severity] = Severity.ERROR
    transient: ClassVar[bool] = False

    def __init__(
        self,
        message: str | None = None,
        *,
        severity: Severity | None = None,
        context: Mapping[str, JsonValue] | None = None,
        report: AgentReport[Any] | None = None,
    ) -> None:
        self.message = clip(clean(message or (self.__doc__ or "").strip()), limits.ERROR_TEXT_BYTES)
        self.severity = severity or self.default_severity
        self.context: dict[str, JsonValue] = clip_values(context or {}, limits.ERROR_TEXT_BYTES)
        self.report = report
        super().__init__(self.message)

    def info(self) -> ErrorInfo:
        """Return the error as a value, including causes that are Perdure errors."""
        return ErrorInfo(
            code=self.code,
            severity=self.severity,
            message=self.message,
            context=self.context,
            cause=self.__cause__.info() if isinstance(self.__cause__, PerdureError) else None,
        )

    def to_dict(self) -> dict[str, JsonValue]:
        """Return code, severity, message, context and cause as JSON values, but no stack trace."""
        return self.info().model_dump(mode="json")


class TurnBudgetExceededError(PerdureError):
    """The budget of this turn is spent."""

    code = "TURN_BUDGET_EXCEEDED"
    default_severity = Severity.WARN


class MaxIterationsError(PerdureError):
    """The turn used all of its iterations without an answer."""

    code = "MAX_ITERATIONS"


class AutonomyBoundaryError(PerdureError):
    """The model asked for something the agent may not do."""

    code = "AUTONOMY_BOUNDARY"


class TurnCancelledError(PerdureError):
    """The turn was cancelled."""

    code = "TURN_CANCELLED"
    default_severity = Severity.INFO


class TurnTimeoutError(PerdureError):
    """The turn took longer than it may, or its deadline has passed."""

    code = "TURN_TIMEOUT"


class TurnTerminatedError(PerdureError):
    """The turn was terminated from outside; none of its code ran at the end."""

    code = "TURN_TERMINATED"


class LoopDetectedError(PerdureError):
    """The model repeats itself."""

    code = "LOOP_DETECTED"


class OutputInvalidError(PerdureError):
    """The answer does not have the type that was asked for."""

    code = "OUTPUT_INVALID"


class GuardrailError(PerdureError):
    """A guardrail refused the input or the output."""

    code = "GUARDRAIL"


class ToolResolverError(PerdureError):
    """A tool resolver failed."""

    code = "TOOL_RESOLVER"


class EffectNotUndoneError(PerdureError):
    """The effect of a call was not taken back: the call for that failed, or was denied."""

    code = "EFFECT_NOT_UNDONE"


class EffectUnknownError(PerdureError):
    """Whether a call has taken effect remained unknown, and its tool has `on_unknown="fail"`."""

    code = "EFFECT_UNKNOWN"


class DuplicateToolError(PerdureError):
    """Two tools of one agent have the same name; rename one."""

    code = "DUPLICATE_TOOL"


class TooLargeError(PerdureError):
    """A value is too large for the turn's history."""

    code = "TOO_LARGE"


class TranscriptMismatchError(PerdureError):
    """The transcript read from history is not the one the turn has; nothing was sent."""

    code = "TRANSCRIPT_MISMATCH"
    transient = True


class UnknownVersionError(PerdureError):
    """A worker of a later release recorded this; only such a release can read it."""

    code = "UNKNOWN_VERSION"


class LLMError(PerdureError):
    """The model call failed."""

    code = "LLM_ERROR"


class LLMAuthError(LLMError):
    """The provider does not accept the key."""

    code = "LLM_AUTH"
    default_severity = Severity.FATAL


class LLMRateLimitError(LLMError):
    """The provider asks for fewer requests."""

    code = "LLM_RATE_LIMIT"
    default_severity = Severity.WARN
    transient = True


class LLMBudgetExceededError(LLMError):
    """The model call would cost more than is left of the budget."""

    code = "LLM_BUDGET_EXCEEDED"
    default_severity = Severity.WARN


class LLMTimeoutError(LLMError):
    """The model did not answer in time."""

    code = "LLM_TIMEOUT"
    transient = True


class LLMInvalidRequestError(LLMError):
    """The provider does not accept the request."""

    code = "LLM_INVALID_REQUEST"


class LLMUnavailableError(LLMError):
    """The provider is not available, or its answer cannot be read."""

    code = "LLM_UNAVAILABLE"
    transient = True


class LLMRefusedError(LLMError):
    """The model declined to answer."""

    code = "LLM_REFUSED"
    default_severity = Severity.WARN


class UnknownPriceError(LLMError):
    """The price of this model is not known."""

    code = "UNKNOWN_PRICE"


class ModelChainExhaustedError(LLMError):
    """Every model of the chain failed."""

    code = "MODEL_CHAIN_EXHAUSTED"

    @property
    def errors(self) -> dict[str, PerdureError]:
        """The last error of each model, by `provider:model`, in the order of the chain."""
        targets = self.context.get("targets")
        infos = targets if isinstance(targets, dict) else {}
        return {
            model: from_info(ErrorInfo.model_validate(info, extra="ignore"))
            for model, info in infos.items()
        }


class UnknownAgentError(PerdureError):
    """No agent of this name is registered with the worker."""

    code = "UNKNOWN_AGENT"


class InvalidRequestError(PerdureError):
    """The input of the turn is not valid."""

    code = "INVALID_REQUEST"


class StaleCursorError(InvalidRequestError):
    """The cursor belongs to another run, turn, session or batch; read from the beginning."""

    code = "STALE_CURSOR"


class TurnOverError(InvalidRequestError):
    """The turn is over, or about to end, so the request comes too late."""

    code = "TURN_OVER"


class WebhookRefusedError(InvalidRequestError):
    """The worker sends no webhooks to this URL."""

    code = "WEBHOOK_REFUSED"


class SessionNotFoundError(PerdureError):
    """There is no session of this id, or its retention is over."""

    code = "SESSION_NOT_FOUND"


class SessionClosedError(PerdureError):
    """The session is closed and takes no more messages."""

    code = "SESSION_CLOSED"


class SessionBusyError(PerdureError):
    """The session is busy; send the message again later."""

    code = "SESSION_BUSY"


class TurnNotFoundError(PerdureError):
    """There is no turn of this id, or its retention is over."""

    code = "TURN_NOT_FOUND"


class TurnExistsError(PerdureError):
    """A turn of this id exists already."""

    code = "TURN_EXISTS"


class TurnConflictError(PerdureError):
    """A turn of this id exists already, with another agent or task; choose another id."""

    code = "TURN_CONFLICT"


class ScheduleNotFoundError(PerdureError):
    """There is no schedule of this id."""

    code = "SCHEDULE_NOT_FOUND"


class ScheduleConflictError(PerdureError):
    """The schedule has another definition: it exists already, or has just been changed."""

    code = "SCHEDULE_CONFLICT"


class ScheduleBusyError(PerdureError):
    """A turn of the schedule is running, and the schedule starts no other beside it."""

    code = "SCHEDULE_BUSY"


class BatchNotFoundError(PerdureError):
    """There is no batch of this id, or its retention is over."""

    code = "BATCH_NOT_FOUND"


class BatchConflictError(PerdureError):
    """This id is that of a batch of another agent or other tasks, or of a turn."""

    code = "BATCH_CONFLICT"


class TaskNotStartedError(PerdureError):
    """The batch ended before it started this task."""

    code = "TASK_NOT_STARTED"


class ApprovalConflictError(PerdureError):
    """The approval was answered already, or names other arguments."""

    code = "APPROVAL_CONFLICT"


class CallFinishedError(PerdureError):
    """The call has a result already, or is not waited for any more."""

    code = "CALL_FINISHED"


class PayloadDecodeError(PerdureError):
    """A payload of the turn cannot be decoded by the data converter of this process."""

    code = "PAYLOAD_DECODE"


class DecryptionError(PayloadDecodeError):
    """A payload is encrypted with a key that is missing, or was changed, or is of another turn."""

    code = "DECRYPTION"


class ErasedError(DecryptionError):
    """The data subject was erased: its key is destroyed, so nobody can read this any more."""

    code = "ERASED"


class KeyStoreError(PerdureError):
    """The store with the keys of data subjects does not answer."""

    code = "KEY_STORE"
    default_severity = Severity.FATAL


class LoginError(PerdureError):
    """The login of a person at an MCP server did not succeed."""

    code = "LOGIN_FAILED"


class ConfigurationError(PerdureError):
    """Something is not set up correctly."""

    code = "CONFIGURATION"
    default_severity = Severity.FATAL


class TooManyRequestsError(PerdureError):
    """Too many requests to one turn or session, or events of one key; send this one again later."""

    code = "TOO_MANY_REQUESTS"


class ServerUnreachableError(PerdureError):
    """The Temporal server does not answer."""

    code = "SERVER_UNREACHABLE"
    default_severity = Severity.FATAL


def tree(root: type[PerdureError] = PerdureError) -> Iterator[type[PerdureError]]:
    """Yield `root` and all of its subclasses."""
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


def from_info(info: ErrorInfo) -> PerdureError:
    """Return the error from which `info` was made, as an instance of the same class.

    A code of a newer release becomes a `PerdureError`.
    """
    cls = next((c for c in tree() if c.code == info.code), PerdureError)
    error = cls(info.message, severity=info.severity, context=info.context)
    error.__cause__ = from_info(info.cause) if info.cause is not None else None
    return error
