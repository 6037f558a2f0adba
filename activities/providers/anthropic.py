"""Provider for Anthropic's messages API.

How `error_of` maps unsuccessful replies to errors:

| reply | error | notes |
|---|---|---|
| 401, 403 | `LLMAuthError` | fix the key |
| 402, `billing_error`, 400 for a spent balance or limit | `LLMAuthError` | waiting does not help |
| 429 | `LLMRateLimitError` | with `retry_after_s` |
| 408, 504, `timeout_error` inside a 200 | `LLMTimeoutError` | |
| 400 for a content policy | `LLMRefusedError` | |
| 409, 529, other 5xx, an error inside a 200 with no more specific type | `LLMUnavailableError` | |
| 400, 404, 413 and every other status | `LLMInvalidRequestError` | the same request fails again |

`http_errors` documents which of them may have been billed. An error inside a 200 counts as "after
output" if the body has content or reports usage.

The API rejects parts of some transcripts, mostly those written by another vendor's model. They are
converted as follows:

- consecutive messages of a role are merged: the API would merge them itself, but servers compatible
  with it reject them
- thinking is sent unchanged with its signature, redacted thinking unchanged; thinking without a
  signature comes from another vendor and is omitted
- arguments that are not a JSON object are sent as `{"invalid_arguments": "…"}`, so that the model
  sees what it wrote next to the resulting error
- call ids and tool names with characters that the API does not allow are replaced by derived names;
  a call and its result keep the same id
- for an agent without tools, the names of calls in earlier turns are declared as tools that the
  model may not choose
- without tools, a response schema is sent as a single tool that the model must choose, whose
  arguments become the text of the answer
- blank text and blank results are omitted; a blank error result is sent as `SILENT_ERROR`
- an error result takes only text: a sentence is in the place of its images and files

Options: `required` is called `any` here. With extended thinking (enabled through `extra`), the API
accepts only the tool choices `auto` and `none`, and no output limit below the thinking budget.

Newer models check that nothing before a thinking block has changed since they wrote it, including
the system prompt and the tools, and otherwise reject or drop the block (platform.claude.com,
"Prefix checks on thinking blocks"). Requests of a turn therefore only ever grow at the end.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from perdure import errors
from perdure.activities.provider import Heard, ModelRequest, refuse_many_calls
from perdure.activities.providers import http_errors, lenient_json, options, prompt_cache, schemas
from perdure.activities.providers.http import retry_after_s
from perdure.activities.providers.lenient_json import mapping, text
from perdure.activities.providers.message_stream import MessageStream
from perdure.activities.providers.vendor import HttpProvider
from perdure.agents.tools import NAME
from perdure.errors import LLMError
from perdure.text import one_line
from perdure.values.answers import ModelAnswer
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    without_some,
)
from perdure.values.options import RequestOptions
from perdure.values.reports import StopReason, Usage

ANTHROPIC_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"

MAX_OUTPUT_TOKENS = 16_000
"""The default output limit in tokens, including thinking.

Every model since Claude 4 accepts it, and it is about what a model can write within
`limits.MODEL_CALL`.
"""

INVALID_ARGUMENTS = "invalid_arguments"
SILENT_ERROR = "The tool failed and gave no message."
TEXT_ALONE = "not sent, because the result of a failed call takes only text"

_STOPS = {
    "end_turn": StopReason.END,
    "tool_use": StopReason.TOOL_CALLS,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
    "refusal": StopReason.REFUSED,
}
_BY_TYPE_IN_200: dict[str, type[LLMError]] = {
    "authentication_error": errors.LLMAuthError,
    "permission_error": errors.LLMAuthError,
    "rate_limit_error": errors.LLMRateLimitError,
    "timeout_error": errors.LLMTimeoutError,
    "invalid_request_error": errors.LLMInvalidRequestError,
    "not_found_error": errors.LLMInvalidRequestError,
    "request_too_large": errors.LLMInvalidRequestError,
}
_NO_CREDIT = re.compile(
    r"credit balance is too low|reached your specified .*usage limits", re.IGNORECASE
)
_POLICY = re.compile(r"blocked by content filtering policy", re.IGNORECASE)


class Anthropic(HttpProvider):
    """Asks models through `POST {base_url}/v1/messages`.

    Args:
        base_url: The address of the API.
        api_key_env: The environment variable that holds the key, read with each request; None sends
            no key.
        name: The name used in error texts.
        max_output_tokens: The output limit of requests whose options set none; the API requires a
            limit. Longer answers are truncated.
        caching: Whether to request prompt caching (`prompt_cache`). Use False for servers that
            reject it.

    Raises:
        ConfigurationError: `max_output_tokens` is below 1.
    """

    path = "/v1/messages"

    def __init__(
        self,
        base_url: str = ANTHROPIC_URL,
        api_key_env: str | None = "ANTHROPIC_API_KEY",
        name: str = "anthropic",
        max_output_tokens: int = MAX_OUTPUT_TOKENS,
        *,
        caching: bool = True,
    ) -> None:
        if max_output_tokens < 1:
            raise errors.ConfigurationError(
                f"{name}: max_output_tokens must be at least 1, not {max_output_tokens}"
            )
        super().__init__(name, base_url, api_key_env)
        self._max_output_tokens = max_output_tokens
        self._caching = caching

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return body_of(request, self._max_output_tokens, caching=self._caching)

    def _headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}

    def _parts(self, request: ModelRequest, heard: Heard) -> MessageStream:
        return MessageStream(self._name, _unheard if schemas.is_asked_as_tool(request) else heard)

    def _answer(self, data: dict[str, Any], request: ModelRequest) -> ModelAnswer:
        return schemas.as_text(answer_of(data, request.model), request)

    def _usage(self, usage: Any) -> Usage:
        return usage_of(usage)

    def _output(self, data: dict[str, Any]) -> object:
        return data.get("content")

    def _error(
        self, status: int, data: Any, headers: Mapping[str, str], model: str, key: str | None
    ) -> LLMError:
        return error_of(status, data, headers, model, key)


def _unheard(text: str) -> None:
    """Words before an answer that is given as the arguments of a tool, which are not part of it."""


def body_of(request: ModelRequest, max_tokens: int, *, caching: bool = True) -> dict[str, Any]:
    """Return the body of a request.

    `max_tokens` is the output limit if the options set none. `caching` adds cache breakpoints where
    they pay off.

    Raises:
        LLMInvalidRequestError: This API does not support a message or an option of the request.
    """
    system = {"system": request.system} if request.system.strip() else {}
    body = {
        "model": request.model,
        "max_tokens": request.options.max_output_tokens or max_tokens,
        **system,
    }
    body |= {
        "messages": list(_turns(request.messages)),
        **_tools(request),
        **_settings(request.options),
    }
    if caching and prompt_cache.pay_off(request):
        body = prompt_cache.placed(body)
    return options.with_extra(body, request)


def _settings(options: RequestOptions) -> dict[str, Any]:
    settings = {
        "temperature": options.temperature,
        "stop_sequences": list(options.stop_sequences or ()) or None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _turns(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    blocks = (block for message in messages for block in _blocks(message))
    for role, group in groupby(blocks, key=itemgetter(0)):
        yield {"role": role, "content": [block for _, block in group]}


def _blocks(message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
    role = "assistant" if isinstance(message, AssistantMessage) else "user"
    for part in message.results if isinstance(message, ToolMessage) else message.parts:
        if block := _block(part):
            yield role, block


def _block(part: Text | Thinking | Media | ToolCall | ToolResult) -> dict[str, Any] | None:
    match part:
        case Text():
            return {"type": "text", "text": part.text} if part.text.strip() else None
        case Thinking():
            return _thinking_block(part)
        case Media():
            return _media(part)
        case ToolCall():
            return {
                "type": "tool_use",
                "id": _valid_name(part.id),
                "name": _valid_name(part.name),
                "input": _input(part.arguments),
            }
        case ToolResult():
            return _result(part)


def _thinking_block(part: Thinking) -> dict[str, Any] | None:
    if part.redacted:
        return {"type": "redacted_thinking", "data": part.redacted}
    return (
        {"type": "thinking", "thinking": part.text, "signature": part.signature}
        if part.signature
        else None
    )


def _media(media: Media) -> dict[str, Any]:
    kind = "document" if media.media_type == "application/pdf" else "image"
    if (kind == "image" and not media.media_type.startswith("image/")) or not (
        media.data or media.url
    ):
        raise errors.LLMInvalidRequestError(
            "this API takes images and PDF with data or a url, not"
            f" {one_line(media.media_type, 80)!r}"
        )
    if media.data:
        return {
            "type": kind,
            "source": {"type": "base64", "media_type": media.media_type, "data": media.data},
        }
    return {"type": kind, "source": {"type": "url", "url": media.url}}


def _result(result: ToolResult) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": _valid_name(result.call_id)}
    text = result.content if result.content.strip() else None
    if result.is_error:
        reason, _ = without_some(text or SILENT_ERROR, result.media, lambda _: TEXT_ALONE)
        return {**block, "content": reason, "is_error": True}
    if result.media:
        content = [{"type": "text", "text": text}] if text else []
        return {**block, "content": [*content, *map(_media, result.media)]}
    return {**block, "content": text} if text else block


def _valid_name(name: str) -> str:
    """Return `name` if the API accepts it, otherwise a valid name derived from it.

    The result is deterministic and distinct for each name.
    """
    if NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:12]
    return f"{re.sub('[^A-Za-z0-9_-]', '_', name)[:50]}_{digest}"


def _input(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments or "{}")
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {INVALID_ARGUMENTS: arguments}


def _called(messages: Sequence[Message]) -> dict[str, None]:
    """Return the names of the tools that a transcript has calls of, in order."""
    return dict.fromkeys(
        _valid_name(call.name)
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    )


def _tools(request: ModelRequest) -> dict[str, Any]:
    """Return the tools and the tool choice.

    The API rejects a request that has calls but no tools, so the tools of earlier turns are
    declared, but may not be chosen.
    """
    if request.tools:
        tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in request.tools
        ]
        return {"tools": tools, **_choice(request)}
    called = _called(request.messages)
    if request.response_schema is not None:
        called.pop(request.response_name, None)
        choice = (
            {"type": "auto"}
            if "thinking" in request.options.extra
            else {"type": "tool", "name": request.response_name}
        )
        return {"tools": [schemas.tool_of(request), *map(_declared, called)], "tool_choice": choice}
    return {"tools": [*map(_declared, called)], "tool_choice": {"type": "none"}} if called else {}


def _declared(name: str) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object"}}


def _choice(request: ModelRequest) -> dict[str, Any]:
    wish = options.choice(request)
    if wish is None:
        return {}
    kind = {"auto": "auto", "required": "any", "none": "none"}.get(wish)
    return {"tool_choice": {"type": kind} if kind else {"type": "tool", "name": wish}}


def answer_of(body: Mapping[str, Any], model: str) -> ModelAnswer:
    """Return the answer in the body of a 200.

    Blocks that a transcript cannot represent, such as blocks of the vendor's own tools, are
    omitted.

    Raises:
        LLMUnavailableError: The body does not hold a complete answer.
        LLMInvalidRequestError: The answer has too many calls.
    """
    content = body.get("content")
    if not isinstance(content, list):
        raise errors.LLMUnavailableError(f"{model}: the reply holds no message")
    refuse_many_calls(sum(mapping(block).get("type") == "tool_use" for block in content), model)
    message = AssistantMessage(
        parts=tuple(part for block in content if (part := _part(mapping(block), model)))
    )
    stop = lenient_json.stop(_STOPS, text(body.get("stop_reason")), has_calls=bool(message.calls))
    if stop is StopReason.REFUSED and not message.text:
        message = AssistantMessage(parts=(*message.parts, *_refusal_text(body)))
    return ModelAnswer(
        message=message,
        stop=stop,
        usage=usage_of(body.get("usage")),
        model=text(body.get("model")) or model,
    )


def _part(block: Mapping[str, Any], model: str) -> Text | Thinking | ToolCall | None:
    match block.get("type"):
        case "text":
            content = text(block.get("text"))
            return Text(text=content) if content else None
        case "thinking":
            content, signature = text(block.get("thinking")), text(block.get("signature"))
            return (
                Thinking(text=content, signature=signature or None)
                if content or signature
                else None
            )
        case "redacted_thinking":
            data = text(block.get("data"))
            return Thinking(text="", redacted=data) if data else None
        case "tool_use":
            return _call(block, model)
        case _:
            return None


def _call(block: Mapping[str, Any], model: str) -> ToolCall:
    name = text(block.get("name"))
    if not name:
        raise errors.LLMUnavailableError(f"{model}: the reply holds a tool call without a name")
    return ToolCall(
        id=text(block.get("id")), name=name, arguments=lenient_json.arguments(block.get("input"))
    )


def _refusal_text(body: Mapping[str, Any]) -> Iterator[Text]:
    """Yield the explanation of a refusal, if the model was stopped before its first word."""
    if explanation := text(mapping(body.get("stop_details")).get("explanation")):
        yield Text(text=explanation)


def usage_of(usage: Any) -> Usage:
    """Return normalized token counts; a missing or impossible count is 0, meaning "not reported".

    This API counts tokens read from and written to a cache separately from `input_tokens`.
    """
    usage = mapping(usage)
    read = lenient_json.tokens(usage.get("cache_read_input_tokens"), missing=0)
    written = lenient_json.tokens(usage.get("cache_creation_input_tokens"), missing=0)
    return lenient_json.usage(
        taken=(lenient_json.tokens(usage.get("input_tokens")), read, written),
        written=(lenient_json.tokens(usage.get("output_tokens")),),
        cache_read=read,
        cache_written=written,
    )


def error_of(
    status: int, body: Any, headers: Mapping[str, str], model: str, key: str | None = None
) -> LLMError:
    """Return the error for an unsuccessful reply, by the table of this module.

    `key` is removed from the provider's message.
    """
    error = mapping(body).get("error") or body
    status = 200 if 200 <= status < 300 else status
    message = http_errors.quoted(http_errors.words_of(error), key)
    cls = _class(status, text(mapping(error).get("type")), message)
    return http_errors.fault(
        cls, message, model=model, status=status, wait_s=retry_after_s(headers)
    )


def _class(status: int, kind: str, message: str) -> type[LLMError]:
    if kind == "billing_error" or (status == 400 and _NO_CREDIT.search(message)):
        return errors.LLMAuthError
    if status in (200, 400) and _POLICY.search(message):
        return errors.LLMRefusedError
    if status == 200 and kind in _BY_TYPE_IN_200:
        return _BY_TYPE_IN_200[kind]
    return http_errors.by_status(status)
