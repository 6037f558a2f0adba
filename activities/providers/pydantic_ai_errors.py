"""Maps exceptions of pydantic-ai, and of the vendor libraries below it, to errors.

| exception | error | billed |
|---|---|---|
| a content policy in the body of any status | `LLMRefusedError` | no |
| `ContentFilterError` | `LLMRefusedError` | maybe |
| `ModelQuotaExceededError`, `ModelAuthenticationError` | `LLMAuthError` | no |
| the vendor's library finds no credentials | `LLMAuthError` | no |
| `ModelRateLimitError` | `LLMRateLimitError` | no |
| another `ModelHTTPError` | by code and status, see below | no; inside a stream maybe |
| `ModelTimeoutError` while connecting | `LLMTimeoutError` | no |
| another `ModelTimeoutError`, `ModelRequestTimeout` | `LLMTimeoutError` | maybe |
| `ModelConnectionError` while connecting | `LLMUnavailableError` | no |
| another `ModelAPIError`, `UnexpectedModelBehavior` | `LLMUnavailableError` | maybe |
| `UserError`, `NotImplementedError` | `LLMInvalidRequestError` | no |
| anything else | `LLMUnavailableError` | maybe |

Codes and statuses are mapped as in `openai` and `http_errors`. `UserError` and
`NotImplementedError` mean that the adapter cannot express the request; `ModelAPIError` and
`UnexpectedModelBehavior` that the connection broke or that the reply is unreadable.

The vendor's message is quoted only for a status, and not if it is about the key. Values of
environment variables that look like keys, tokens, secrets or passwords are removed from it.
Transport exceptions quote headers, so their texts are never shown, nor are the texts of unknown
exceptions.
"""

from __future__ import annotations

import os
import re
from typing import Any

from pydantic_ai import exceptions as theirs

from perdure import errors
from perdure.activities.providers import http_errors, openai
from perdure.activities.providers.http import LONGEST_WAIT_S
from perdure.activities.providers.lenient_json import mapping, parsed, text
from perdure.activities.providers.unreachable import UNSENT
from perdure.errors import LLMError
from perdure.temporal import secrets

_BY_CATEGORY: tuple[tuple[type[theirs.ModelAPIError], type[LLMError]], ...] = (
    (theirs.ModelQuotaExceededError, errors.LLMAuthError),
    (theirs.ModelAuthenticationError, errors.LLMAuthError),
    (theirs.ModelRateLimitError, errors.LLMRateLimitError),
)
_UNSENT = ("pool", "connect")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_CREDENTIALS = re.compile(r"Credential|GoogleAuthError")


def fault_of(error: Exception, model: str) -> LLMError:
    """Return the error for an exception, by the table of this module."""
    failure = _fault(error, model)
    failure.context.setdefault("model", model)
    return failure


def _fault(error: Exception, model: str) -> LLMError:
    match error:
        case theirs.ModelHTTPError():
            return _of_status(error, model)
        case theirs.ModelConnectionError():
            return _of_connection(error, model)
        case theirs.ModelRequestTimeout():
            return errors.LLMTimeoutError(
                f"{model}: no answer within the timeout of its settings",
                context=http_errors.CHARGED,
            )
        case theirs.ContentFilterError():
            return errors.LLMRefusedError(
                f"{model}: blocked by a content filter", context=http_errors.CHARGED
            )
        case theirs.ModelAPIError() | theirs.UnexpectedModelBehavior():
            return errors.LLMUnavailableError(
                f"{model}: the reply cannot be read", context=http_errors.CHARGED
            )
        case theirs.UserError() | NotImplementedError():
            return errors.LLMInvalidRequestError(f"{model}: {without_secrets(str(error))}")
    if any(_CREDENTIALS.search(cls.__name__) for cls in type(error).__mro__):
        return errors.LLMAuthError(
            f"{model}: the vendor's library finds no credentials ({type(error).__name__})"
        )
    return errors.LLMUnavailableError(
        f"{model}: the vendor's library failed ({type(error).__name__})",
        context=http_errors.CHARGED,
    )


def _of_status(error: theirs.ModelHTTPError, model: str) -> LLMError:
    body = _parsed(error.body)
    fault = openai.error_of(error.status_code, body, error.headers or {}, model)
    cls = next(
        (ours for category, ours in _BY_CATEGORY if isinstance(error, category)), type(fault)
    )
    if isinstance(fault, errors.LLMRefusedError):
        cls = errors.LLMRefusedError
    message = (
        "the key or the account is not accepted"
        if cls is errors.LLMAuthError
        else without_secrets(_words(body))
    )
    wait_s = (
        fault.context.get("retry_after_s")
        if error.retry_after is None
        else min(error.retry_after, LONGEST_WAIT_S)
    )
    failure = http_errors.fault(
        cls,
        message,
        model=model,
        status=error.status_code,
        wait_s=wait_s if isinstance(wait_s, float) else None,
    )
    if error.in_stream:
        failure.context.update(http_errors.CHARGED)
    return failure


def _parsed(body: Any) -> Any:
    """Return a body as JSON values; Mistral's library provides it as a string."""
    try:
        return parsed(body) if isinstance(body, str) else body
    except (ValueError, RecursionError):
        return body


def _words(body: Any) -> str:
    """Return the vendor's message. AWS capitalizes its fields."""
    error = mapping(body).get("error") or mapping(body).get("Error") or body
    return http_errors.words_of(error) or text(mapping(error).get("Message"))


def _of_connection(error: theirs.ModelConnectionError, model: str) -> LLMError:
    is_unsent = error.phase in _UNSENT
    if isinstance(error, theirs.ModelTimeoutError):
        reason, unsent = ("no connection", UNSENT) if is_unsent else ("no answer", {})
        return errors.LLMTimeoutError(
            f"{model}: {reason} in time", context={"charged": not is_unsent, **unsent}
        )
    if is_unsent:
        return errors.LLMUnavailableError(f"{model}: the server cannot be reached", context=UNSENT)
    return errors.LLMUnavailableError(
        f"{model}: the connection broke before the reply was complete", context=http_errors.CHARGED
    )


def without_secrets(text: str) -> str:
    """Return `text` on one line, without secrets from the environment."""
    for name, value in os.environ.items():
        for secret in value.split() if _SECRET.search(name) else ():
            if len(secret) >= http_errors.SECRET_CHARACTERS:
                text = secrets.without(text, {"key": secret})
    return http_errors.quoted(text, None)
