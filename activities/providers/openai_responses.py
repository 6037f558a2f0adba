"""Provider for OpenAI's responses API and compatible servers.

Such servers are Azure, xAI, OpenRouter, vLLM, llama.cpp and Ollama.

Nothing is stored at the provider: every request carries the whole transcript. Encrypted reasoning
is sent back unchanged and in its original position (`reasoning`). The API requires the call or text
that it led to after it, so reasoning at the end of an answer is omitted, as is reasoning of other
vendors. OpenAI's non-reasoning models reject a request for encrypted reasoning; with
`extra={"include": []}` it is not requested from any model.

`openai` documents how replies are mapped to errors. A 200 with status `failed` is an error; it
counts as "after output" if the body has output or reports usage. An unfinished response (`queued`,
`in_progress`) is not an answer.

This API has no stop sequences: a request that sets some is rejected, because its answer would not
end where intended. Other differences:

- tools are sent with `strict: false`; this API's default is strict, which makes every property
  required
- a response schema is sent together with tools only to OpenAI's own models: other servers would
  write no calls (vllm#39929)
- messages of a model are sent as `output_text` with an empty list of annotations, which vLLM and
  llama.cpp require
- items of tools that the vendor runs itself are left out of the answer, and the reasoning that led
  to them is not sent back
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure import errors
from perdure.activities.provider import Heard, ModelRequest, refuse_many_calls
from perdure.activities.providers import lenient_json, openai, options, reasoning, schemas
from perdure.activities.providers.lenient_json import items, mapping, text
from perdure.activities.providers.response_stream import ResponseStream
from perdure.activities.providers.vendor import HttpProvider
from perdure.agents.definitions import ToolDefinition
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
    ToolResult,
    UserMessage,
)
from perdure.values.options import RequestOptions
from perdure.values.reports import StopReason, Usage

_STOPS = {
    "completed": StopReason.END,
    "complete": StopReason.END,
    "max_output_tokens": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSED,
}
_KEPT = ("message", "reasoning", "function_call")
_NOT_FINISHED = ("failed", "cancelled", "queued", "in_progress")
_WITHOUT_REASONING = re.compile(r"(ft:)?(gpt-3|gpt-4|chatgpt-|gpt-5-chat)")
"""The name prefixes of OpenAI's non-reasoning models; the list is final."""

_UNREAD = re.compile(r"(audio|video)/")


class OpenAIResponses(HttpProvider):
    """Asks models through `POST {base_url}/responses`.

    Args:
        base_url: The address of the API.
        api_key_env: The environment variable that holds the key, read with each request; None sends
            no key.
        name: The name used in error texts.
    """

    path = "/responses"

    def __init__(
        self,
        *,
        base_url: str,
        api_key_env: str | None = "OPENAI_API_KEY",
        name: str = "openai-responses",
    ) -> None:
        super().__init__(name, base_url, api_key_env)
        self._is_own = openai.is_own(base_url)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return body_of(request, is_own=self._is_own)

    def _parts(self, request: ModelRequest, heard: Heard) -> ResponseStream:
        return ResponseStream(heard)

    def _answer(self, data: dict[str, Any], request: ModelRequest) -> ModelAnswer:
        return answer_of(
            data, request.model, None if self._is_own else request.options.max_output_tokens
        )

    def _usage(self, usage: Any) -> Usage:
        return usage_of(usage)

    def _output(self, data: dict[str, Any]) -> object:
        return data.get("output")

    def _error(
        self, status: int, data: Any, headers: Mapping[str, str], model: str, key: str | None
    ) -> LLMError:
        return openai.error_of(status, data, headers, model, key)


def body_of(request: ModelRequest, *, is_own: bool = False) -> dict[str, Any]:
    """Return the body of a request; `is_own` says that it goes to OpenAI's own models.

    Raises:
        LLMInvalidRequestError: This API does not support a message or an option of the request.
    """
    if request.options.extra.get("background"):
        raise errors.LLMInvalidRequestError(
            "options.extra requests a background answer, which is not supported"
        )
    system = {"instructions": request.system} if request.system else {}
    body = {
        "model": request.model,
        **system,
        "input": [item for message in request.messages for item in _sent_items(message)],
        "store": False,
    }
    shown = (
        {}
        if _WITHOUT_REASONING.match(request.model)
        else {"include": ["reasoning.encrypted_content"]}
    )
    return options.with_extra(
        {
            **body,
            **shown,
            **_tools(request),
            **_format(request, is_own),
            **_settings(request.options),
        },
        request,
    )


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    wish = options.choice(request)
    choice = (
        wish if wish in (None, "auto", "required", "none") else {"type": "function", "name": wish}
    )
    return {
        "tools": [_function(tool) for tool in request.tools],
        **({"tool_choice": choice} if choice else {}),
    }


def _function(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _format(request: ModelRequest, is_own: bool) -> dict[str, Any]:
    """Return the response schema."""
    if request.response_schema is None or (request.tools and not is_own):
        return {}
    schema = {
        "name": request.response_name,
        "schema": request.response_schema,
        "strict": schemas.is_strict(request.response_schema),
    }
    return {"text": {"format": {"type": "json_schema", **schema}}}


def _settings(options: RequestOptions) -> dict[str, Any]:
    if options.stop_sequences:
        raise errors.LLMInvalidRequestError(
            "this API has no stop sequences; set RequestOptions(stop_sequences=()) to send none"
        )
    settings = {"temperature": options.temperature, "max_output_tokens": options.max_output_tokens}
    return {name: value for name, value in settings.items() if value is not None}


def _sent_items(message: Message) -> Iterator[dict[str, Any]]:
    if isinstance(message, UserMessage):
        yield {"role": "user", "content": _user_content(message.parts)}
    elif isinstance(message, AssistantMessage):
        yield from _assistant_items(message)
    else:
        yield from (
            {"type": "function_call_output", "call_id": result.call_id, "output": _output(result)}
            for result in message.results
        )


def _user_content(parts: Sequence[Text | Media]) -> str | list[dict[str, Any]]:
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) == len(parts):
        return "".join(texts)
    return [
        {"type": "input_text", "text": part.text} if isinstance(part, Text) else _media(part)
        for part in parts
    ]


def _output(result: ToolResult) -> str | list[dict[str, Any]]:
    if not result.media:
        return result.content
    return [{"type": "input_text", "text": result.content}, *map(_media, result.media)]


def _media(media: Media) -> dict[str, Any]:
    """Return an image or a file. File data needs a name, as the API goes by its extension."""
    address = openai.address_of(media)
    if _UNREAD.match(media.media_type) or not address:
        raise errors.LLMInvalidRequestError(
            "this API takes images and files with data or a url, not"
            f" {one_line(media.media_type, 80)!r}"
        )
    if media.media_type.startswith("image/"):
        return {"type": "input_image", "image_url": address, "detail": "auto"}
    if not media.data:
        return {"type": "input_file", "file_url": address}
    return {
        "type": "input_file",
        "filename": f"file{mimetypes.guess_extension(media.media_type) or ''}",
        "file_data": address,
    }


def _assistant_items(message: AssistantMessage) -> list[dict[str, Any]]:
    """Return the items of an answer in order, without trailing reasoning."""
    sent = [item for part in message.parts if (item := _item(part))]
    while sent and sent[-1]["type"] == "reasoning":
        sent.pop()
    return sent


def _item(part: Text | Thinking | ToolCall) -> dict[str, Any] | None:
    match part:
        case Thinking():
            return reasoning.item_of(part)
        case ToolCall():
            return {
                "type": "function_call",
                "call_id": part.id,
                "name": part.name,
                "arguments": part.arguments or "{}",
            }
        case Text():
            output = {"type": "output_text", "text": part.text, "annotations": []}
            return (
                {"type": "message", "role": "assistant", "content": [output]} if part.text else None
            )


def answer_of(body: Mapping[str, Any], model: str, limit: int | None = None) -> ModelAnswer:
    """Return the answer in the body of a 200, or in the last event of a stream.

    Items that a transcript cannot represent are omitted. `limit` is the output limit, for servers
    that report an answer as completed although it reached the limit (llama.cpp).

    Raises:
        LLMUnavailableError: The body does not hold a complete answer.
        LLMInvalidRequestError: The answer has too many calls.
    """
    status, output = text(body.get("status")), body.get("output")
    if status in _NOT_FINISHED:
        raise errors.LLMUnavailableError(f"{model}: the answer was not finished ({status})")
    if not isinstance(output, list):
        raise errors.LLMUnavailableError(f"{model}: the reply holds no message")
    refuse_many_calls(sum(mapping(item).get("type") == "function_call" for item in output), model)
    message = AssistantMessage(parts=tuple(_parts_of(output, model)))
    usage = usage_of(body.get("usage"))
    is_full = limit is not None and usage.output_tokens >= limit
    stop = _stop_of(body, output, has_calls=bool(message.calls), is_full=is_full)
    return ModelAnswer(
        message=message, stop=stop, usage=usage, model=text(body.get("model")) or model
    )


def _stop_of(
    body: Mapping[str, Any], output: Sequence[Any], *, has_calls: bool, is_full: bool
) -> StopReason:
    """Return why an answer ends. `is_full` says that it has as many tokens as it may have."""
    if any(map(_is_refused, output)):
        return StopReason.REFUSED
    if is_full:
        return StopReason.MAX_TOKENS
    reason = text(mapping(body.get("incomplete_details")).get("reason")) or text(body.get("status"))
    return lenient_json.stop(_STOPS, reason, has_calls=has_calls)


def _parts_of(output: Sequence[Any], model: str) -> list[Text | Thinking | ToolCall]:
    parts: list[Text | Thinking | ToolCall] = []
    for item in map(mapping, output):
        last = parts[-1] if parts else None
        if item.get("type") not in _KEPT and isinstance(last, Thinking):
            parts[-1:] = [Thinking(text=last.text)] if last.text else []
        parts += _parts(item, model)
    return parts


def _parts(item: Mapping[str, Any], model: str) -> Iterator[Text | Thinking | ToolCall]:
    match item.get("type"):
        case "message":
            yield from (Text(text=piece) for piece in map(_words, _content(item)) if piece)
        case "reasoning":
            if thought := reasoning.thought_of(item):
                yield thought
        case "function_call":
            yield _call(item, model)


def _content(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [mapping(part) for part in items(item.get("content"))]


def _words(part: Mapping[str, Any]) -> str:
    return text(part.get("text")) or text(part.get("refusal"))


def _is_refused(item: Any) -> bool:
    return mapping(item).get("type") == "message" and any(
        text(part.get("refusal")) for part in _content(item)
    )


def _call(item: Mapping[str, Any], model: str) -> ToolCall:
    name = text(item.get("name"))
    if not name:
        raise errors.LLMUnavailableError(f"{model}: the reply holds a tool call without a name")
    return ToolCall(
        id=text(item.get("call_id")),
        name=name,
        arguments=lenient_json.arguments(item.get("arguments")),
    )


def usage_of(usage: Any) -> Usage:
    """Return token counts normalized as in `openai.usage`."""
    usage = mapping(usage)
    details = mapping(usage.get("input_tokens_details"))
    return openai.usage(
        taken=usage.get("input_tokens"),
        written=usage.get("output_tokens"),
        total=usage.get("total_tokens"),
        cache_read=(details.get("cached_tokens"),),
        cache_written=details.get("cache_write_tokens"),
    )
