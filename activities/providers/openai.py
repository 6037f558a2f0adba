"""Errors, token counts and addresses shared by OpenAI's two APIs and compatible servers.

How `error_of` maps replies to errors; codes in the body take precedence over the status:

| reply | error | notes |
|---|---|---|
| 401, 403, 400 for a bad key (Gemini, xAI) | `LLMAuthError` | fix the key |
| 402, 429 with `insufficient_quota` | `LLMAuthError` | the account is empty |
| 429, 498 | `LLMRateLimitError` | with `retry_after_s`, from the headers or the body |
| 408, 504, 524, `vector_store_timeout` inside a 200 | `LLMTimeoutError` | |
| a content policy, with any status, including 200 (Azure) | `LLMRefusedError` | |
| `tool_use_failed`, `json_validate_failed`, 400 (Groq) | `LLMUnavailableError` | a retry may work |
| 409, 425, 5xx, any other error inside a 200 (OpenRouter) | `LLMUnavailableError` | |
| an unusable image, reported inside a 200 (responses) | `LLMInvalidRequestError` | |
| 500 for an image that the model does not take (llama.cpp) | `LLMInvalidRequestError` | |
| every other status | `LLMInvalidRequestError` | also 3xx: no redirect is followed |

`http_errors` documents which of them may have been billed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from perdure import errors
from perdure.activities.providers import http_errors, lenient_json
from perdure.activities.providers.http import retry_after_s
from perdure.activities.providers.lenient_json import items, mapping, text
from perdure.errors import LLMError
from perdure.values.messages import Media
from perdure.values.reports import Usage

_OWN = (".api.openai.com", ".openai.azure.com")
"""Host suffixes of OpenAI's own models, after an optional region or customer name."""

_BY_CODE: dict[str, type[LLMError]] = {
    "content_filter": errors.LLMRefusedError,
    "content_policy_violation": errors.LLMRefusedError,
    "image_content_policy_violation": errors.LLMRefusedError,
    "insufficient_quota": errors.LLMAuthError,
    "billing_hard_limit_reached": errors.LLMAuthError,
    "invalid_api_key": errors.LLMAuthError,
    "API_KEY_INVALID": errors.LLMAuthError,
    "tool_use_failed": errors.LLMUnavailableError,
    "json_validate_failed": errors.LLMUnavailableError,
}
_BY_CODE_IN_200: dict[str, type[LLMError]] = {
    "rate_limit_exceeded": errors.LLMRateLimitError,
    "invalid_request_error": errors.LLMInvalidRequestError,
    "invalid_prompt": errors.LLMInvalidRequestError,
    "vector_store_timeout": errors.LLMTimeoutError,
}
_BAD_KEY = re.compile(
    r"api[ _]key (is )?(not valid|invalid|expired)|(invalid|incorrect) api[ _]key", re.IGNORECASE
)
_POLICY = re.compile(
    r"content (management )?policy|content exists risk|violates usage guidelines|input was"
    r" flagged|violating our usage policy",
    re.IGNORECASE,
)
_NOT_TAKEN = re.compile(
    r"(image|audio) input is not supported|unsupported content part type", re.IGNORECASE
)
_TRY_AGAIN = re.compile(
    r"(?:try again|retry) in (?:(\d{1,3})h)?(?:(\d{1,4})m(?!s))?(?:(\d{1,6}(?:\.\d{1,9})?)(ms|s))?",
    re.IGNORECASE,
)
_DELAY = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)s")


def is_own(base_url: str) -> bool:
    """Return whether the address serves OpenAI's own models, at OpenAI or on Azure."""
    try:
        host = urlsplit(base_url).hostname or ""
    except ValueError:  # reported by the first request
        host = ""
    return f".{host}".endswith(_OWN)


def address_of(media: Media) -> str:
    """Return a data URL if the image or file has data, else its URL, else an empty string."""
    return f"data:{media.media_type};base64,{media.data}" if media.data else media.url or ""


def usage(
    *, taken: Any, written: Any, total: Any, cache_read: Sequence[Any], cache_written: Any
) -> Usage:
    """Return normalized token counts: input including cached tokens, output including thinking.

    A missing or impossible count is 0, meaning "not reported".

    xAI and Gemini leave thinking out of `written`, but not out of `total`. xAI's models on Azure
    count cached tokens that are not part of `taken`; if there are more of them than that, they are
    added. The largest value of `cache_read` is used.
    """
    prompt, completion = lenient_json.tokens(taken), lenient_json.tokens(written)
    read = _most(cache_read)
    is_beside = prompt is not None and read is not None and read > prompt
    return lenient_json.usage(
        taken=(prompt, read if read is None or is_beside else 0),
        written=(completion, _uncounted(prompt, completion, lenient_json.tokens(total, missing=0))),
        cache_read=read,
        cache_written=lenient_json.tokens(cache_written, missing=0),
    )


def _most(values: Sequence[Any]) -> lenient_json.Tokens:
    numbers = [lenient_json.tokens(value, missing=0) for value in values]
    return None if None in numbers else max(number or 0 for number in numbers)


def _uncounted(
    prompt: lenient_json.Tokens, completion: lenient_json.Tokens, total: lenient_json.Tokens
) -> lenient_json.Tokens:
    """Return the output that is counted only in the total; None if that cannot be known."""
    if total == 0:
        return 0
    return (
        None
        if prompt is None or completion is None or total is None
        else max(0, total - prompt - completion)
    )


def error_of(
    status: int, body: Any, headers: Mapping[str, str], model: str, key: str | None = None
) -> LLMError:
    """Return the error for an unsuccessful reply, by the table of this module.

    `key` is removed from the provider's message.
    """
    body = body[0] if isinstance(body, list) and body else body
    error = mapping(body).get("error") or body
    status = (_inner_status(error) or 200) if 200 <= status < 300 else status
    message = http_errors.quoted(_words(error), key)
    wait_s = retry_after_s(headers) or _wait_in(error, message)
    return http_errors.fault(
        _class(status, _codes(error), message), message, model=model, status=status, wait_s=wait_s
    )


def _class(status: int, codes: Sequence[str], message: str) -> type[LLMError]:
    for code in codes:
        if code in _BY_CODE:
            return _BY_CODE[code]
    if status in (200, 400, 403) and _POLICY.search(message):
        return errors.LLMRefusedError
    if status == 400 and _BAD_KEY.search(message):
        return errors.LLMAuthError
    if status == 500 and _NOT_TAKEN.search(message):
        return errors.LLMInvalidRequestError
    in_200 = (_in_200(code) for code in codes) if status == 200 else ()
    return next(filter(None, in_200), None) or http_errors.by_status(status)


def _in_200(code: str) -> type[LLMError] | None:
    """Return the class of an error inside a 200 by its code, if known.

    Every code that contains "image" means that the image cannot be used.
    """
    return errors.LLMInvalidRequestError if "image" in code else _BY_CODE_IN_200.get(code)


def _codes(error: Any) -> list[str]:
    error = mapping(error)
    values = [error.get("code"), error.get("type"), mapping(error.get("innererror")).get("code")]
    values += [mapping(detail).get("reason") for detail in items(error.get("details"))]
    return [code for code in values if isinstance(code, str)]


def _words(error: Any) -> str:
    """Return the provider's message. OpenRouter also quotes the message of the server behind it."""
    message, behind = (
        http_errors.words_of(error),
        mapping(mapping(error).get("metadata")).get("raw"),
    )
    return f"{message}: {behind}" if isinstance(behind, str) else message


def _wait_in(error: Any, message: str) -> float | None:
    """Return the seconds to wait, from the body.

    They are in `retryDelay` (Gemini) or "try again in 1m2.5s" (OpenAI, Groq).
    """
    for detail in items(mapping(error).get("details")):
        if delay := _DELAY.fullmatch(text(mapping(detail).get("retryDelay"))):
            return float(delay[1])
    match = _TRY_AGAIN.search(message)
    if not match:
        return None
    hours, minutes, number, unit = match.groups()
    seconds = float(number or 0) / (1000 if unit == "ms" else 1)
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + seconds or None


def _inner_status(error: Any) -> int | None:
    """Return the status inside an error of a 200: its `code` (OpenRouter) or `status` (Azure)."""
    values = (mapping(error).get("code"), mapping(error).get("status"))
    return next((value for value in values if isinstance(value, int) and 400 <= value <= 599), None)
