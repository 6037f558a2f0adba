"""Provider for OpenAI's chat completions API and compatible servers.

Such servers are Ollama, vLLM, llama.cpp, Groq, Mistral, DeepSeek, OpenRouter, Gemini and xAI.

`openai` documents how replies are mapped to errors. An error inside a 200 counts as "after output"
if the body has a choice or reports usage.

The output limit is `max_completion_tokens` for OpenAI itself, whose reasoning models reject
`max_tokens`, and `max_tokens` for all others: Ollama ignores the newer name, and Mistral rejects
it. A tool choice is not sent without tools. This API cannot distinguish a stop sequence from a
natural end: both are `stop`.

The usage of a stream is requested with `stream_options`, except from Mistral, which rejects the
field and reports usage anyway. If a server reports none, the usage is unknown, as in a whole reply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from perdure import errors
from perdure.activities.provider import Heard, ModelRequest, refuse_many_calls
from perdure.activities.providers import lenient_json, openai, options, schemas
from perdure.activities.providers.chat_stream import ChatStream
from perdure.activities.providers.lenient_json import items, joined, mapping, text
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
    ToolMessage,
    UserMessage,
)
from perdure.values.options import RequestOptions
from perdure.values.reports import StopReason, Usage

LimitField = Literal["max_tokens", "max_completion_tokens"]

_STOPS = {
    "stop": StopReason.END,
    "tool_calls": StopReason.TOOL_CALLS,
    "function_call": StopReason.TOOL_CALLS,
    "length": StopReason.MAX_TOKENS,
    "model_length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSED,
}
_BROKEN_OFF = ("error", "insufficient_system_resource")

_MISTRAL = re.compile(r"https?://([^/@]+\.)?mistral\.ai(?=[:/]|$)")


class OpenAIChat(HttpProvider):
    """Asks models through `POST {base_url}/chat/completions`.

    Args:
        base_url: The address of the API.
        api_key_env: The environment variable that holds the key, read with each request; None sends
            no key.
        name: The name used in error texts.
        limit_field: The server's name for the output limit: by default `max_completion_tokens` for
            OpenAI's own hosts and `max_tokens` for all others. A gateway in front of OpenAI's
            reasoning models needs the former.
        stream_usage: Whether to request the usage of a stream: by default everywhere except
            Mistral. Use False for other servers that reject `stream_options`.
    """

    path = "/chat/completions"

    def __init__(
        self,
        *,
        base_url: str,
        api_key_env: str | None = "OPENAI_API_KEY",
        name: str = "openai",
        limit_field: LimitField | None = None,
        stream_usage: bool | None = None,
    ) -> None:
        super().__init__(name, base_url, api_key_env)
        self._limit_field = limit_field or limit_field_of(base_url)
        asks_usage = not _MISTRAL.match(base_url) if stream_usage is None else stream_usage
        self._streaming = {"stream_options": {"include_usage": True}} if asks_usage else {}

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return body_of(request, self._limit_field)

    def _stream_body(self, request: ModelRequest) -> dict[str, Any]:
        return {**self._streaming, **super()._stream_body(request)}

    def _parts(self, request: ModelRequest, heard: Heard) -> ChatStream:
        return ChatStream(heard)

    def _answer(self, data: dict[str, Any], request: ModelRequest) -> ModelAnswer:
        return answer_of(data, request.model)

    def _usage(self, usage: Any) -> Usage:
        return usage_of(usage)

    def _output(self, data: dict[str, Any]) -> object:
        return _choice(data)

    def _fault(self, data: dict[str, Any]) -> dict[str, Any] | None:
        # OpenRouter's is in the choice
        return next((part for part in (data, _choice(data)) if part.get("error")), None)

    def _error(
        self, status: int, data: Any, headers: Mapping[str, str], model: str, key: str | None
    ) -> LLMError:
        return openai.error_of(status, data, headers, model, key)


def limit_field_of(base_url: str) -> LimitField:
    """Return the name of the output limit for the server at this address."""
    return "max_completion_tokens" if openai.is_own(base_url) else "max_tokens"


def body_of(request: ModelRequest, limit_field: LimitField = "max_tokens") -> dict[str, Any]:
    """Return the body of a request.

    Raises:
        LLMInvalidRequestError: This API does not support a message or an option of the request.
    """
    system = [{"role": "system", "content": request.system}] if request.system else []
    body = {
        "model": request.model,
        "messages": [
            *system,
            *(item for message in request.messages for item in _sent_messages(message)),
        ],
    }
    return options.with_extra(
        {
            **body,
            **_tools(request),
            **_format(request, limit_field),
            **_settings(request.options, limit_field),
        },
        request,
    )


def _tools(request: ModelRequest) -> dict[str, Any]:
    """Return the tools and the tool choice.

    Some servers reject an empty list of tools, and OpenAI a tool choice without tools.
    """
    if not request.tools:
        return {}
    wish = options.choice(request)
    choice = (
        wish
        if wish in (None, "auto", "required", "none")
        else {"type": "function", "function": {"name": wish}}
    )
    return {
        "tools": [_function(tool) for tool in request.tools],
        **({"tool_choice": choice} if choice else {}),
    }


def _format(request: ModelRequest, limit_field: LimitField) -> dict[str, Any]:
    """Return the response schema.

    With tools it is sent only to OpenAI's own models: other servers would write no calls
    (vllm#39929).
    """
    if request.response_schema is None or (request.tools and limit_field == "max_tokens"):
        return {}
    schema = {
        "name": request.response_name,
        "schema": request.response_schema,
        "strict": schemas.is_strict(request.response_schema),
    }
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _settings(options: RequestOptions, limit_field: LimitField) -> dict[str, Any]:
    settings = {
        "temperature": options.temperature,
        limit_field: options.max_output_tokens,
        "stop": list(options.stop_sequences or ()) or None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _sent_messages(message: Message) -> Iterator[dict[str, Any]]:
    if isinstance(message, UserMessage):
        yield {"role": "user", "content": _user_content(message.parts)}
    elif isinstance(message, AssistantMessage):
        yield _assistant_message(message)
    else:
        yield from (
            {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
            for result in message.results
        )
        if message.media:
            yield {"role": "user", "content": list(_attached(message))}


def _attached(message: ToolMessage) -> Iterator[dict[str, Any]]:
    """Yield the images of tool results: a message of the role `tool` takes text alone."""
    for result in message.results:
        if result.media:
            whose = f"From the result of {result.name} (call {result.call_id}):"
            yield {"type": "text", "text": whose}
            yield from map(_image, result.media)


def _user_content(parts: Sequence[Text | Media]) -> str | list[dict[str, Any]]:
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) == len(parts):
        return "".join(texts)
    return [
        {"type": "text", "text": part.text} if isinstance(part, Text) else _image(part)
        for part in parts
    ]


def _image(media: Media) -> dict[str, Any]:
    url = openai.address_of(media)
    if not media.media_type.startswith("image/") or not url:
        raise errors.LLMInvalidRequestError(
            f"this API takes images with data or a url, not {one_line(media.media_type, 80)!r}"
        )
    return {"type": "image_url", "image_url": {"url": url}}


def _assistant_message(message: AssistantMessage) -> dict[str, Any]:
    """Return an answer without its thinking, as this API has no field for it."""
    if not message.calls:
        return {"role": "assistant", "content": message.text}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments or "{}"},
        }
        for call in message.calls
    ]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def _function(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }


def answer_of(body: Mapping[str, Any], model: str) -> ModelAnswer:
    """Return the answer in the body of a 200.

    Raises:
        LLMUnavailableError: The body does not hold a complete answer.
        LLMInvalidRequestError: The answer has too many calls.
    """
    choice = _choice(body)
    message = mapping(choice.get("message"))
    reason = str(choice.get("finish_reason") or "").lower()
    if reason in _BROKEN_OFF:
        raise errors.LLMUnavailableError(f"{model}: the answer was broken off ({reason})")
    if not message:
        raise errors.LLMUnavailableError(f"{model}: the reply holds no message")
    refusal = text(message.get("refusal"))
    tool_calls = items(message.get("tool_calls"))
    refuse_many_calls(len(tool_calls), model)
    calls = tuple(_call(mapping(item), model) for item in tool_calls)
    content, stop = _content(message.get("content")), StopReason.REFUSED
    if refusal:
        content = iter([Text(text=refusal)])
    else:
        stop = lenient_json.stop(_STOPS, reason, has_calls=bool(calls))
    return ModelAnswer(
        message=AssistantMessage(parts=(*_thoughts(message), *content, *calls)),
        stop=stop,
        usage=usage_of(body.get("usage")),
        model=text(body.get("model")) or model,
    )


def _choice(body: Mapping[str, Any]) -> dict[str, Any]:
    return mapping(next(iter(items(body.get("choices"))), None))


def _thoughts(message: Mapping[str, Any]) -> list[Thinking]:
    reasoning = joined(message.get("reasoning_content")) or joined(message.get("reasoning"))
    return [Thinking(text=reasoning)] if reasoning else []


def _content(content: Any) -> Iterator[Text | Thinking]:
    """Yield the content: a string, or a list of chunks (Mistral), some of which are thinking."""
    for chunk in map(
        mapping, content if isinstance(content, list) else [{"type": "text", "text": content}]
    ):
        if piece := joined(chunk.get("text")):
            yield Text(text=piece)
        elif piece := joined(chunk.get("thinking")):
            yield Thinking(text=piece)


def _call(item: Mapping[str, Any], model: str) -> ToolCall:
    function = mapping(item.get("function"))
    name = text(function.get("name"))
    if not name:
        raise errors.LLMUnavailableError(f"{model}: the reply holds a tool call without a name")
    return ToolCall(
        id=text(item.get("id")),
        name=name,
        arguments=lenient_json.arguments(function.get("arguments")),
    )


def usage_of(usage: Any) -> Usage:
    """Return token counts normalized as in `openai.usage`, from wherever a provider puts them."""
    usage = mapping(usage)
    details = mapping(usage.get("prompt_tokens_details"))
    return openai.usage(
        taken=usage.get("prompt_tokens"),
        written=usage.get("completion_tokens"),
        total=usage.get("total_tokens"),
        cache_read=(
            details.get("cached_tokens"),
            usage.get("prompt_cache_hit_tokens"),
            usage.get("num_cached_tokens"),
        ),
        cache_written=details.get("cache_write_tokens"),
    )
