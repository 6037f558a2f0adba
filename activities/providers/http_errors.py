"""Vendor errors: their class by status, their message without keys, and whether they were billed.

An error has `charged` in its context if the vendor may have billed although there is no answer:

| what happened | charged |
|---|---|
| nothing was sent: a bad key, a rejected request, no connection, a proxy that refuses | no |
| the connection broke after it was made | yes |
| a status other than 2xx, whatever its body | no |
| a 2xx that is cut off, too large, unreadable, or holds no answer | yes |
| a 2xx with an error instead of an answer, without any output or usage | no |
| a 2xx with an error in or after its output | yes |

If such a 2xx reports both input and output, they are in the context as `usage`. These providers
wait as long as their caller does, so a caller that abandons a request must itself record that it
may have been billed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from perdure import errors
from perdure.activities.providers import lenient_json
from perdure.errors import LLMError
from perdure.temporal import secrets
from perdure.text import one_line
from perdure.values.reports import Usage

CHARGED = {"charged": True}
MESSAGE_CHARACTERS = 500
SECRET_CHARACTERS = 8

_BY_STATUS: dict[int, type[LLMError]] = {
    401: errors.LLMAuthError,
    402: errors.LLMAuthError,
    403: errors.LLMAuthError,
    408: errors.LLMTimeoutError,
    409: errors.LLMUnavailableError,
    425: errors.LLMUnavailableError,
    429: errors.LLMRateLimitError,
    498: errors.LLMRateLimitError,
    504: errors.LLMTimeoutError,
    524: errors.LLMTimeoutError,
}


def by_status(status: int) -> type[LLMError]:
    """Return the class of an error by its status alone; 200 is an error inside a success."""
    otherwise = (
        errors.LLMUnavailableError
        if status == 200 or status >= 500
        else errors.LLMInvalidRequestError
    )
    return _BY_STATUS.get(status, otherwise)


def words_of(error: Any) -> str:
    """Return the message of a vendor's error: a string, or an object's `message` or `detail`.

    It is empty for an HTML page.
    """
    if isinstance(error, str):
        return "" if error.lstrip().startswith("<") else error
    error = lenient_json.mapping(error)
    message = next((error[name] for name in ("message", "detail") if error.get(name)), "")
    return message if isinstance(message, str) else json.dumps(message)


def quoted(message: str, key: str | None) -> str:
    """Return a vendor's message on one line, without `key` in plain or encoded form.

    A key of a few characters is a placeholder for servers that check none; as it may be a common
    word, it is not removed.
    """
    if key and len(key) >= SECRET_CHARACTERS:
        message = secrets.without(message, {"key": key})
    return one_line(message, MESSAGE_CHARACTERS)


def fault(
    cls: type[LLMError], message: str, *, model: str, status: int, wait_s: float | None
) -> LLMError:
    """Return the error to raise; `wait_s` is kept only for transient errors."""
    error = cls(
        f"{model}: {message or 'no reason given'} (status {status})",
        context={"model": model, "status": status},
    )
    if cls.transient and wait_s is not None:
        error.context["retry_after_s"] = wait_s
    return error


@contextlib.contextmanager
def billed(usage: Usage | None) -> Iterator[None]:
    """Mark errors of the block, which reads a 2xx, as possibly billed with `usage`.

    None means that nothing was billed.
    """
    try:
        yield
    except RecursionError:
        failure: LLMError = errors.LLMUnavailableError("the reply is nested too deeply")
    except LLMError as error:
        failure = error
    else:
        return
    if usage is not None:
        failure.context.update(CHARGED)
    if usage is not None and usage.input_tokens and usage.output_tokens:
        failure.context["usage"] = usage.model_dump()
    raise failure


@contextlib.contextmanager
def about(model: str) -> Iterator[None]:
    """Add `model` to errors of the block, and convert a `RecursionError` into such an error."""
    try:
        yield
    except LLMError as error:
        error.context.setdefault("model", model)
        raise
    except RecursionError:
        raise errors.LLMUnavailableError(
            f"{model}: the request is nested too deeply", context={"model": model}
        ) from None
