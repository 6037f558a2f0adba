"""The chat completions API of OpenAI, and of those who speak it: Ollama, vLLM, llama.cpp, Groq, Mistral, DeepSeek, OpenRouter, Gemini, xAI.

What a status means for the caller (`error_of`); what the body says comes before the status:

| answer | error | why |
|---|---|---|
| 401, 403, a bad key told with 400 (Gemini, xAI) | `LLMAuthError` | fix the key |
| 402, `insufficient_quota` with 429 | `LLMAuthError` | the account is empty; waiting does not help, somebody must act |
| 429, 498 | `LLMRateLimitError` | with `retry_after_s`, from the headers or the words of the body |
| 408, 504, 524 | `LLMTimeoutError` | |
| a content policy, with any status, 200 included (Azure) | `LLMRefusedError` | |
| `tool_use_failed`, `json_validate_failed` with 400 (Groq) | `LLMUnavailableError` | the model wrote nonsense; asked again, it may not |
| 409, 425, 5xx, an error inside a 200 (OpenRouter) with no better code | `LLMUnavailableError` | |
| every other status | `LLMInvalidRequestError` | the same request fails again; 3xx too, for no redirect is followed |

This API cannot tell a stop sequence from a natural end: both are `stop`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure import errors
from perdure.activities import secrets
from perdure.activities.models import ModelRequest
from perdure.activities.providers import faults, reading
from perdure.activities.providers.http import HttpClient, retry_after_s
from perdure.activities.providers.reading import items, mapping, text
from perdure.agents import ToolDefinition
from perdure.errors import LLMError
from perdure.messages import AssistantMessage, Media, Message, Text, Thinking, ToolCall, UserMessage
from perdure.reports import StopReason, Usage
from perdure.text import one_line
from perdure.wire import ModelAnswer

_STOPS = {
    "stop": StopReason.END,
    "tool_calls": StopReason.TOOL_CALLS,
    "function_call": StopReason.TOOL_CALLS,
    "length": StopReason.MAX_TOKENS,
    "model_length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSED,
}
_BROKEN_OFF = ("error", "insufficient_system_resource")

_BY_CODE: dict[str, type[LLMError]] = {
    "content_filter": errors.LLMRefusedError,
    "content_policy_violation": errors.LLMRefusedError,
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
}
_BAD_KEY = re.compile(r"api[ _]key (is )?(not valid|invalid|expired)|(invalid|incorrect) api[ _]key", re.IGNORECASE)
_POLICY = re.compile(r"content (management )?policy|content exists risk|violates usage guidelines|input was flagged", re.IGNORECASE)
_TRY_AGAIN = re.compile(r"(?:try again|retry) in (?:(\d{1,3})h)?(?:(\d{1,4})m(?!s))?(?:(\d{1,6}(?:\.\d{1,9})?)(ms|s))?", re.IGNORECASE)
_DELAY = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)s")


class OpenAIChat:
    """Asks models through `POST {base_url}/chat/completions`.

    `api_key_env` names the environment variable with the key, which is read when a request is made; None sends no key. `name` is for error
    texts.
    """

    def __init__(self, *, base_url: str, api_key_env: str | None = "OPENAI_API_KEY", name: str = "openai") -> None:
        self._http = HttpClient(name, base_url)
        self._api_key_env = api_key_env

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Ask, and wait for the whole answer.

        Raises:
            LLMError: The table of this module says which subclass. Its context holds `model`, and `status` and `retry_after_s` where known.
            ConfigurationError: The key or the base URL cannot work.
        """
        key = secrets.read(self._api_key_env) if self._api_key_env else None
        headers = {"authorization": f"Bearer {key}"} if key else {}
        with faults.about(request.model):
            reply = await self._http.post_json("/chat/completions", body_of(request), headers)
            fault = _error_inside(reply.data) if reply.is_success else reply.data
            if not reply.is_success or fault:
                raise error_of(reply.status, fault, reply.headers, request.model, key)
            return answer_of(reply.data, request.model)

    async def close(self) -> None:
        """Close connections."""
        await self._http.close()


def body_of(request: ModelRequest) -> dict[str, Any]:
    """The body of a request.

    Raises:
        LLMInvalidRequestError: A message holds what this API has no place for.
    """
    system = [{"role": "system", "content": request.system}] if request.system else []
    body = {"model": request.model, "messages": [*system, *(item for message in request.messages for item in _sent(message))]}
    return {**body, "tools": [_function(tool) for tool in request.tools]} if request.tools else body


def _sent(message: Message) -> Iterator[dict[str, Any]]:
    if isinstance(message, UserMessage):
        yield {"role": "user", "content": _asked(message.parts)}
    elif isinstance(message, AssistantMessage):
        yield _said(message)
    else:
        yield from ({"role": "tool", "tool_call_id": result.call_id, "content": result.content} for result in message.results)


def _asked(parts: Sequence[Text | Media]) -> str | list[dict[str, Any]]:
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) == len(parts):
        return "".join(texts)
    return [{"type": "text", "text": part.text} if isinstance(part, Text) else _image(part) for part in parts]


def _image(media: Media) -> dict[str, Any]:
    url = f"data:{media.media_type};base64,{media.data}" if media.data else media.url
    if not media.media_type.startswith("image/") or not url:
        raise errors.LLMInvalidRequestError(f"this API takes images with data or a url, not {one_line(media.media_type, 80)!r}")
    return {"type": "image_url", "image_url": {"url": url}}


def _said(message: AssistantMessage) -> dict[str, Any]:
    """An answer as it goes back, without its thinking: this API has no field for it."""
    if not message.calls:
        return {"role": "assistant", "content": message.text}
    calls = [{"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}} for call in message.calls]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def _function(tool: ToolDefinition) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters}}


def answer_of(body: Mapping[str, Any], model: str) -> ModelAnswer:
    """The answer in the body of a 200.

    Raises:
        LLMUnavailableError: The body holds no whole answer.
    """
    choice = _choice(body)
    message = mapping(choice.get("message"))
    reason = str(choice.get("finish_reason") or "").lower()
    if reason in _BROKEN_OFF:
        raise errors.LLMUnavailableError(f"{model}: the answer was broken off ({reason})")
    if not message:
        raise errors.LLMUnavailableError(f"{model}: the reply holds no message")
    refusal = text(message.get("refusal"))
    calls = tuple(_call(mapping(item), model) for item in items(message.get("tool_calls")))
    parts = (*_thoughts(message), *([Text(text=refusal)] if refusal else _content(message.get("content"))), *calls)
    return ModelAnswer(
        message=AssistantMessage(parts=parts),
        stop=StopReason.REFUSED if refusal else reading.stop(_STOPS, reason, has_calls=bool(calls)),
        usage=usage_of(body.get("usage")),
        model=text(body.get("model")) or model,
    )


def _choice(body: Mapping[str, Any]) -> dict[str, Any]:
    return mapping(next(iter(items(body.get("choices"))), None))


def _error_inside(body: dict[str, Any]) -> dict[str, Any] | None:
    """What of a 200 holds an error: the body, or its choice (OpenRouter)."""
    return next((part for part in (body, _choice(body)) if part.get("error")), None)


def _thoughts(message: Mapping[str, Any]) -> list[Thinking]:
    words = _joined(message.get("reasoning_content")) or _joined(message.get("reasoning"))
    return [Thinking(text=words)] if words else []


def _content(content: Any) -> Iterator[Text | Thinking]:
    """Words: a string, or a list of chunks (Mistral) of which some are thinking."""
    for chunk in map(mapping, content if isinstance(content, list) else [{"type": "text", "text": content}]):
        if words := _joined(chunk.get("text")):
            yield Text(text=words)
        elif words := _joined(chunk.get("thinking")):
            yield Thinking(text=words)


def _joined(value: Any) -> str:
    """A string, or the texts of a list of chunks."""
    return "".join(text(mapping(chunk).get("text")) for chunk in value) if isinstance(value, list) else text(value)


def _call(item: Mapping[str, Any], model: str) -> ToolCall:
    function = mapping(item.get("function"))
    name = text(function.get("name"))
    if not name:
        raise errors.LLMUnavailableError(f"{model}: the reply holds a tool call without a name")
    return ToolCall(id=text(item.get("id")), name=name, arguments=reading.arguments(function.get("arguments")))


def usage_of(usage: Any) -> Usage:
    """Tokens by one measure: input with cached ones, output with thinking. A number that is missing or cannot be true counts as zero.

    xAI and Gemini leave thinking out of `completion_tokens`, but not out of `total_tokens`. xAI's models on Azure count cached tokens that
    are not part of `prompt_tokens`; where there are more of them than that, they are added.
    """
    usage = mapping(usage)
    details = mapping(usage.get("prompt_tokens_details"))
    prompt = reading.tokens(usage.get("prompt_tokens"))
    cached = (details.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("num_cached_tokens"))
    read = max(map(reading.tokens, cached))
    return Usage(
        input_tokens=prompt if read <= prompt else prompt + read,
        output_tokens=max(reading.tokens(usage.get("completion_tokens")), reading.tokens(usage.get("total_tokens")) - prompt),
        cache_read_tokens=read,
        cache_write_tokens=reading.tokens(details.get("cache_write_tokens")),
    )


def error_of(status: int, body: Any, headers: Mapping[str, str], model: str, key: str | None = None) -> LLMError:
    """The error that an answer stands for, by the table of this module. `key` is cut out of the provider's words."""
    body = body[0] if isinstance(body, list) and body else body
    error = mapping(body).get("error") or body
    status = (_told(error) or 200) if 200 <= status < 300 else status
    words = faults.quoted(_words(error), key)
    wait_s = retry_after_s(headers) or _wait_in(error, words)
    return faults.fault(_class(status, _codes(error), words), words, model=model, status=status, wait_s=wait_s)


def _class(status: int, codes: Sequence[str], words: str) -> type[LLMError]:
    for code in codes:
        if code in _BY_CODE:
            return _BY_CODE[code]
        if status == 200 and code in _BY_CODE_IN_200:
            return _BY_CODE_IN_200[code]
    if status in (200, 400, 403) and _POLICY.search(words):
        return errors.LLMRefusedError
    if status == 400 and _BAD_KEY.search(words):
        return errors.LLMAuthError
    return faults.by_status(status)


def _codes(error: Any) -> list[str]:
    error = mapping(error)
    found = [error.get("code"), error.get("type"), mapping(error.get("innererror")).get("code")]
    found += [mapping(detail).get("reason") for detail in items(error.get("details"))]
    return [code for code in found if isinstance(code, str)]


def _words(error: Any) -> str:
    """The provider's own words. OpenRouter quotes those of the server behind it."""
    words, behind = faults.words_of(error), mapping(mapping(error).get("metadata")).get("raw")
    return f"{words}: {behind}" if isinstance(behind, str) else words


def _wait_in(error: Any, words: str) -> float | None:
    """Seconds to wait as the body has them: `retryDelay` (Gemini) or "try again in 1m2.5s" (OpenAI, Groq)."""
    for detail in items(mapping(error).get("details")):
        if delay := _DELAY.fullmatch(text(mapping(detail).get("retryDelay"))):
            return float(delay[1])
    found = _TRY_AGAIN.search(words)
    if not found:
        return None
    hours, minutes, number, unit = found.groups()
    seconds = float(number or 0) / (1000 if unit == "ms" else 1)
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + seconds or None


def _told(error: Any) -> int | None:
    """The status that an error inside a 200 has in its own words: a `code` (OpenRouter) or `status` (Azure)."""
    told = (mapping(error).get("code"), mapping(error).get("status"))
    return next((value for value in told if isinstance(value, int) and 400 <= value <= 599), None)
