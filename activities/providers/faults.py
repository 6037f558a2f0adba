"""Errors of vendors: what a status means, whose words they are, and that no key is in them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from perdure import errors
from perdure.activities.providers import reading
from perdure.errors import LLMError
from perdure.text import one_line

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
    """The class of an error of which nothing but its status is known. 200 is an error inside a success."""
    otherwise = errors.LLMUnavailableError if status == 200 or status >= 500 else errors.LLMInvalidRequestError
    return _BY_STATUS.get(status, otherwise)


def words_of(error: Any) -> str:
    """What a vendor says of an error: a string, or the `message` or `detail` of an object. A page for browsers says nothing."""
    if isinstance(error, str):
        return "" if error.lstrip().startswith("<") else error
    error = reading.mapping(error)
    words = next((error[name] for name in ("message", "detail") if error.get(name)), "")
    return words if isinstance(words, str) else json.dumps(words)


def quoted(words: str, key: str | None) -> str:
    """One line of a vendor's words with `key` cut out: some quote it.

    A key of a few characters is a placeholder for a server that checks none, and may be a common word.
    """
    if key and len(key) >= SECRET_CHARACTERS:
        words = words.replace(key, "[key]")
    return one_line(words, MESSAGE_CHARACTERS)


def fault(cls: type[LLMError], words: str, *, model: str, status: int, wait_s: float | None) -> LLMError:
    """The error to raise. `wait_s` is kept where waiting helps."""
    error = cls(f"{model}: {words or 'no reason given'} (status {status})", context={"model": model, "status": status})
    if cls.transient and wait_s is not None:
        error.context["retry_after_s"] = wait_s
    return error


@contextlib.contextmanager
def about(model: str) -> Iterator[None]:
    """See to it that an error of the block names `model`, and that nesting which is too deep for Python is one."""
    try:
        yield
    except LLMError as error:
        error.context.setdefault("model", model)
        raise
    except RecursionError:
        raise errors.LLMUnavailableError(f"{model}: the request or the reply is nested too deeply", context={"model": model}) from None
