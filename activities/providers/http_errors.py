"""Errors of vendors.

What a status means, whose words they are, that no key is in them, and whether the attempt may have
been billed.

An error has `charged` in its context where the vendor may have billed although there is no answer:

| what happened | charged |
|---|---|
| nothing was sent: a bad key, a request that we refuse, no connection, a proxy that lets nobody through | no |
| the connection broke once there was one | yes |
| a status other than 2xx, whatever its body | no |
| a 2xx that is cut, too large, unreadable, or holds no answer | yes |
| a 2xx with an error instead of an answer, without any output or usage | no |
| a 2xx with an error in or after its output | yes |

Where such a 2xx tells both input and output, they stand in the context as `usage`. The providers
here wait as long as their caller does, so a caller who gives a request up must say himself that it
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
    """The class of an error of which nothing but its status is known.

    200 is an error inside a success.
    """
    otherwise = (
        errors.LLMUnavailableError
        if status == 200 or status >= 500
        else errors.LLMInvalidRequestError
    )
    return _BY_STATUS.get(status, otherwise)


def words_of(error: Any) -> str:
    """What a vendor says of an error: a string, or the `message` or `detail` of an object.

    A page for browsers says nothing.
    """
    if isinstance(error, str):
        return "" if error.lstrip().startswith("<") else error
    error = lenient_json.mapping(error)
    words = next((error[name] for name in ("message", "detail") if error.get(name)), "")
    return words if isinstance(words, str) else json.dumps(words)


def quoted(words: str, key: str | None) -> str:
    """One line of a vendor's words with `key` cut out, encoded too: some quote it.

    A key of a few characters is a placeholder for a server that checks none, and may be a common
    word.
    """
    if key and len(key) >= SECRET_CHARACTERS:
        words = secrets.without(words, {"key": key})
    return one_line(words, MESSAGE_CHARACTERS)


def fault(
    cls: type[LLMError], words: str, *, model: str, status: int, wait_s: float | None
) -> LLMError:
    """The error to raise. `wait_s` is kept where waiting helps."""
    error = cls(
        f"{model}: {words or 'no reason given'} (status {status})",
        context={"model": model, "status": status},
    )
    if cls.transient and wait_s is not None:
        error.context["retry_after_s"] = wait_s
    return error


@contextlib.contextmanager
def billed(usage: Usage | None) -> Iterator[None]:
    """See to it that an error of the block, which reads a 2xx, says that it may have been billed.

    None says that it was not.
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
    """See to it that an error of the block names `model`, and that nesting which is too deep for Python is one."""
    try:
        yield
    except LLMError as error:
        error.context.setdefault("model", model)
        raise
    except RecursionError:
        raise errors.LLMUnavailableError(
            f"{model}: the request is nested too deeply", context={"model": model}
        ) from None
