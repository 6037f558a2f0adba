"""The error tree: stable codes, severities, and no loss on the way through history."""

import re
from typing import Any

import pytest

from perdure import errors, limits
from perdure.errors import ErrorInfo, PerdureError, Severity

EVERY = sorted(set(errors.tree()), key=lambda cls: cls.__name__)

FATAL = {"LLM_AUTH", "CONFIGURATION", "KEY_STORE", "SERVER_UNREACHABLE"}
WARN = {"TURN_BUDGET_EXCEEDED", "LLM_RATE_LIMIT", "LLM_BUDGET_EXCEEDED", "LLM_REFUSED"}
INFO = {"TURN_CANCELLED"}
TRANSIENT = {"TRANSCRIPT_MISMATCH", "LLM_RATE_LIMIT", "LLM_TIMEOUT", "LLM_UNAVAILABLE"}

CODES = {
    "PerdureError": "PERDURE_ERROR",
    "TurnBudgetExceededError": "TURN_BUDGET_EXCEEDED",
    "MaxIterationsError": "MAX_ITERATIONS",
    "AutonomyBoundaryError": "AUTONOMY_BOUNDARY",
    "TurnCancelledError": "TURN_CANCELLED",
    "TurnTimeoutError": "TURN_TIMEOUT",
    "TurnTerminatedError": "TURN_TERMINATED",
    "LoopDetectedError": "LOOP_DETECTED",
    "OutputInvalidError": "OUTPUT_INVALID",
    "GuardrailError": "GUARDRAIL",
    "ToolResolverError": "TOOL_RESOLVER",
    "EffectNotUndoneError": "EFFECT_NOT_UNDONE",
    "EffectUnknownError": "EFFECT_UNKNOWN",
    "DuplicateToolError": "DUPLICATE_TOOL",
    "TooLargeError": "TOO_LARGE",
    "TranscriptMismatchError": "TRANSCRIPT_MISMATCH",
    "UnknownVersionError": "UNKNOWN_VERSION",
    "LLMError": "LLM_ERROR",
    "LLMAuthError": "LLM_AUTH",
    "LLMRateLimitError": "LLM_RATE_LIMIT",
    "LLMBudgetExceededError": "LLM_BUDGET_EXCEEDED",
    "LLMTimeoutError": "LLM_TIMEOUT",
    "LLMInvalidRequestError": "LLM_INVALID_REQUEST",
    "LLMUnavailableError": "LLM_UNAVAILABLE",
    "LLMRefusedError": "LLM_REFUSED",
    "UnknownPriceError": "UNKNOWN_PRICE",
    "ModelChainExhaustedError": "MODEL_CHAIN_EXHAUSTED",
    "UnknownAgentError": "UNKNOWN_AGENT",
    "InvalidRequestError": "INVALID_REQUEST",
    "StaleCursorError": "STALE_CURSOR",
    "TurnOverError": "TURN_OVER",
    "WebhookRefusedError": "WEBHOOK_REFUSED",
    "SessionNotFoundError": "SESSION_NOT_FOUND",
    "SessionClosedError": "SESSION_CLOSED",
    "SessionBusyError": "SESSION_BUSY",
    "BatchNotFoundError": "BATCH_NOT_FOUND",
    "BatchConflictError": "BATCH_CONFLICT",
    "TaskNotStartedError": "TASK_NOT_STARTED",
    "TurnNotFoundError": "TURN_NOT_FOUND",
    "TurnExistsError": "TURN_EXISTS",
    "TurnConflictError": "TURN_CONFLICT",
    "ScheduleNotFoundError": "SCHEDULE_NOT_FOUND",
    "ScheduleConflictError": "SCHEDULE_CONFLICT",
    "ScheduleBusyError": "SCHEDULE_BUSY",
    "ApprovalConflictError": "APPROVAL_CONFLICT",
    "CallFinishedError": "CALL_FINISHED",
    "PayloadDecodeError": "PAYLOAD_DECODE",
    "DecryptionError": "DECRYPTION",
    "ErasedError": "ERASED",
    "KeyStoreError": "KEY_STORE",
    "LoginError": "LOGIN_FAILED",
    "ConfigurationError": "CONFIGURATION",
    "TooManyRequestsError": "TOO_MANY_REQUESTS",
    "ServerUnreachableError": "SERVER_UNREACHABLE",
}

each = pytest.mark.parametrize("cls", EVERY, ids=[cls.__name__ for cls in EVERY])


@pytest.mark.accepts("U5")
def test_codes_are_what_they_were_released_as() -> None:
    """Callers in other languages and stored histories have the codes, so the table may grow but not
    change.
    """
    assert {cls.__name__: cls.code for cls in EVERY} == CODES
    assert len(set(CODES.values())) == len(CODES)


@pytest.mark.accepts("U5")
@each
def test_code_is_upper_snake_and_of_the_class_itself(cls: type[PerdureError]) -> None:
    """A class without its own code would be decoded as its parent."""
    assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", cls.code)
    assert "code" in vars(cls)


@pytest.mark.accepts("U5")
@each
def test_default_severity_is_the_designed_one(cls: type[PerdureError]) -> None:
    """Fatal needs a change of the configuration, warn and info come from a decision of the caller,
    and the rest are errors.
    """
    designed = {
        **dict.fromkeys(FATAL, Severity.FATAL),
        **dict.fromkeys(WARN, Severity.WARN),
        **dict.fromkeys(INFO, Severity.INFO),
    }

    assert cls().severity == designed.get(cls.code, Severity.ERROR)


@pytest.mark.accepts("U5")
@each
def test_severity_can_be_overridden_for_one_error(cls: type[PerdureError]) -> None:
    """For this one, not for its class."""
    overridden = [cls(severity=severity).severity for severity in Severity]

    assert overridden == list(Severity)
    assert cls().severity == cls.default_severity


@pytest.mark.accepts("U5")
@each
def test_error_without_a_message_says_its_docstring(cls: type[PerdureError]) -> None:
    """One complete sentence."""
    assert cls().message == str(cls()) == cls.__doc__
    assert re.fullmatch(r"[A-Z][^\n]+\.", cls().message)


@pytest.mark.accepts("U5")
@each
def test_dict_has_no_stack_trace(cls: type[PerdureError]) -> None:
    """For a raised error with a raised cause: code, severity, message, context and cause, but no
    stack.
    """
    with pytest.raises(PerdureError) as caught:
        _raise_from_cause(cls)

    assert caught.value.__traceback__ is not None
    assert caught.value.to_dict() == {
        "code": cls.code,
        "severity": cls.default_severity.value,
        "message": "what happened",
        "context": {"retry_after_s": 1.5},
        "cause": {
            "code": "LLM_AUTH",
            "severity": "fatal",
            "message": "the key is wrong",
            "context": {},
            "cause": None,
        },
    }


@pytest.mark.accepts("U5")
@each
def test_error_comes_back_from_history_as_the_same_class(cls: type[PerdureError]) -> None:
    """Through JSON, with message, severity, context and cause."""
    given = cls("what happened", severity=Severity.INFO, context={"n": 1, "of": ["a", None]})
    given.__cause__ = errors.LLMTimeoutError("too slow")

    back = errors.from_info(ErrorInfo.model_validate_json(given.info().model_dump_json()))

    assert type(back) is cls
    assert back.to_dict() == given.to_dict()
    assert type(back.__cause__) is errors.LLMTimeoutError


@pytest.mark.accepts("U5")
def test_only_errors_that_may_pass_are_transient() -> None:
    """Only these are retried."""
    assert {cls.code for cls in EVERY if cls.transient} == TRANSIENT


def test_errors_of_the_model_are_under_one_class() -> None:
    """`except LLMError` catches errors of providers, and nothing else."""
    assert {cls.code for cls in errors.tree(errors.LLMError)} == {
        code for code in CODES.values() if code.startswith("LLM_")
    } | {
        "UNKNOWN_PRICE",
        "MODEL_CHAIN_EXHAUSTED",
    }


def test_tree_at_the_top_of_the_file_is_the_tree() -> None:
    """The drawing has every class, and no others."""
    drawn = re.findall(r"[├└]── (\w+Error)\b", errors.__doc__ or "")

    assert sorted(["PerdureError", *drawn]) == sorted(CODES)


def test_code_of_a_newer_release_becomes_the_root_class() -> None:
    """An old client still gets the message."""
    back = errors.from_info(ErrorInfo(code="INVENTED_LATER", severity=Severity.WARN, message="new"))

    assert (type(back), back.message, back.severity) == (PerdureError, "new", Severity.WARN)


def test_cause_that_is_not_ours_is_left_out() -> None:
    """An exception of a library may quote data that must not be stored."""
    error = errors.LLMUnavailableError("down")
    error.__cause__ = OSError("secret")

    assert error.to_dict()["cause"] is None


@pytest.mark.accepts("U5", "Y9")
@pytest.mark.parametrize(
    "text",
    ["x" * 3_000_000, "ü" * 100_000, "\ud800" * 10_000],
    ids=["long", "long in bytes", "surrogates"],
)
def test_message_is_bounded_and_can_be_stored(text: str) -> None:
    """4 KiB of UTF-8, whatever it quotes."""
    message = PerdureError(text).message

    assert len(message.encode()) <= limits.ERROR_TEXT_BYTES


@pytest.mark.accepts("U5", "Y9")
@pytest.mark.parametrize(
    "context",
    [
        {"body": "x" * 3_000_000},
        {"a": {"b": ["x" * 3_000_000]}},
        {"body": "\ud800"},
        {"n": float("nan")},
    ],
    ids=["long", "long inside", "surrogate", "nan"],
)
def test_context_is_bounded_and_can_be_stored(context: dict[str, Any]) -> None:
    """An error is stored in history, so its content must be bounded and encodable."""
    stored = PerdureError("failed", context=context).info().model_dump_json()

    assert len(stored.encode()) <= limits.PAYLOAD_BYTES


def _raise_from_cause(cls: type[PerdureError]) -> None:
    try:
        raise errors.LLMAuthError("the key is wrong")
    except errors.LLMAuthError as cause:
        raise cls("what happened", context={"retry_after_s": 1.5}) from cause
