"""Converts transcripts to pydantic-ai messages, and its responses to answers.

Vendor data besides words and calls is sent back unchanged: ids, signatures and details of the
parts, and their provider. Gemini reasons worse without it. The transcript keeps it in a final
thought without words, whose signature is JSON:

    {"response": {"provider_name": "google", …}, "parts": [{"kind": "thinking", …}, …]}

Words and calls are not repeated there. If the message's parts no longer match it, it is ignored.

A pydantic-ai response may hold parts that a transcript cannot represent: files, and the results of
the vendor's own tools. They are omitted.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from pydantic_ai import messages as theirs

from perdure import errors
from perdure.activities.provider import refuse_many_calls
from perdure.activities.providers import http_errors, lenient_json
from perdure.activities.providers.lenient_json import items, mapping
from perdure.text import clean
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
    UserMessage,
)
from perdure.values.reports import StopReason, Usage

_STOPS = {
    "stop": StopReason.END,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "tool_call": StopReason.TOOL_CALLS,
    "length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSED,
}
_OF_RESPONSE = ("provider_name", "provider_url", "canonical_system", "provider_response_id")
_OF_PART = ("id", "signature", "provider_name", "provider_details")

Said = theirs.TextPart | theirs.ThinkingPart | theirs.ToolCallPart
Fit = Callable[[str], str]


def messages_of(
    messages: Iterable[Message], id_length: int | None = None
) -> list[theirs.ModelMessage]:
    """Return a transcript as pydantic-ai messages, with consecutive user and tool messages merged.

    Call ids are converted to `id_length` characters if it is given.

    Raises:
        LLMInvalidRequestError: A message holds something that cannot be sent.
    """

    def fit(call_id: str) -> str:
        return call_id if id_length is None else _of_length(call_id, id_length)

    converted: list[theirs.ModelMessage] = []
    for is_answer, group in groupby(
        messages, key=lambda message: isinstance(message, AssistantMessage)
    ):
        if is_answer:
            converted += [
                _response(message, fit)
                for message in group
                if isinstance(message, AssistantMessage)
            ]
        else:
            converted.append(
                theirs.ModelRequest(
                    parts=[part for message in group for part in _request_parts(message, fit)]
                )
            )
    return converted


def _of_length(call_id: str, length: int) -> str:
    """Return the id, or one of `length` letters and digits that is derived from it.

    The result is deterministic.
    """
    if len(call_id) == length and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:length]


def _request_parts(message: Message, fit: Fit) -> Iterator[theirs.ModelRequestPart]:
    if isinstance(message, ToolMessage):
        yield from (_result(result, fit) for result in message.results)
    elif isinstance(message, UserMessage):
        yield _prompt(message)


def _prompt(message: UserMessage) -> theirs.UserPromptPart:
    content = [
        part.text if isinstance(part, Text) else _file(part)
        for part in message.parts
        if not isinstance(part, Text) or part.text.strip()
    ]
    return theirs.UserPromptPart(
        content=content[0] if len(content) == 1 and isinstance(content[0], str) else content
    )


def _result(result: ToolResult, fit: Fit) -> theirs.ToolReturnPart:
    outcome: Any = "failed" if result.is_error else "success"
    return theirs.ToolReturnPart(
        tool_name=result.name,
        content=[result.content, *map(_file, result.media)] if result.media else result.content,
        tool_call_id=fit(result.call_id),
        outcome=outcome,
    )


def _file(media: Media) -> theirs.MultiModalContent:
    if media.data:
        try:
            return theirs.BinaryContent(
                data=base64.b64decode(media.data, validate=True), media_type=media.media_type
            )
        except ValueError:
            raise errors.LLMInvalidRequestError(
                "an image or a file of the request is not valid base64"
            ) from None
    if not media.url:
        raise errors.LLMInvalidRequestError(
            "an image or a file of the request has neither data nor a url"
        )
    match media.media_type.partition("/")[0]:
        case "image":
            return theirs.ImageUrl(url=media.url, media_type=media.media_type)
        case "audio":
            return theirs.AudioUrl(url=media.url, media_type=media.media_type)
        case "video":
            return theirs.VideoUrl(url=media.url, media_type=media.media_type)
        case _:
            return theirs.DocumentUrl(url=media.url, media_type=media.media_type)


def _response(message: AssistantMessage, fit: Fit) -> theirs.ModelResponse:
    """Return an answer with the vendor data of its last thought, else only its words and calls."""
    vendor_data = _vendor_data_of(message)
    parts = message.parts[:-1] if vendor_data else message.parts
    converted = [
        _response_part(part, fit)
        for part in parts
        if vendor_data or not isinstance(part, Text) or part.text.strip()
    ]
    recorded = [mapping(part) for part in items(vendor_data.get("parts"))]
    response = theirs.ModelResponse(parts=converted)
    if [part.get("kind") for part in recorded] != [part.part_kind for part in converted]:
        return response
    _restore(response, _OF_RESPONSE, mapping(vendor_data.get("response")))
    for converted_part, fields in zip(converted, recorded, strict=True):
        _restore(converted_part, _OF_PART, fields)
    return response


def _restore(
    target: theirs.ModelResponse | Said, names: Sequence[str], fields: dict[str, Any]
) -> None:
    for name in names:
        if name in fields:
            setattr(target, name, fields[name])


def _vendor_data_of(message: AssistantMessage) -> dict[str, Any]:
    last = message.parts[-1] if message.parts else None
    if not isinstance(last, Thinking) or last.text:
        return {}
    try:
        return mapping(json.loads(last.signature or "null"))
    except (ValueError, RecursionError):
        return {}


def _response_part(part: Text | Thinking | ToolCall, fit: Fit) -> Said:
    match part:
        case Text():
            return theirs.TextPart(content=part.text)
        case Thinking():
            return theirs.ThinkingPart(content=part.text)
        case ToolCall():
            return theirs.ToolCallPart(
                tool_name=part.name, args=part.arguments, tool_call_id=fit(part.id)
            )


def answer_of(response: theirs.ModelResponse, model: str) -> ModelAnswer:
    """Return the answer in a response.

    Raises:
        LLMUnavailableError: The response holds no complete answer.
    """
    usage, details = usage_of(response), response.provider_details or {}
    reason = (
        "stop_sequence"
        if details.get("finish_reason") == "stop_sequence"
        else response.finish_reason or ""
    )
    with http_errors.billed(usage):
        if response.state != "complete" or reason == "error":
            raise errors.LLMUnavailableError(f"{model}: the answer was broken off")
        refuse_many_calls(
            sum(isinstance(part, theirs.ToolCallPart) for part in response.parts), model
        )
        message = AssistantMessage(parts=tuple(_parts(response, model)))
    stop = lenient_json.stop(_STOPS, reason, has_calls=bool(message.calls))
    return ModelAnswer(message=message, stop=stop, usage=usage, model=response.model_name or model)


def _parts(response: theirs.ModelResponse, model: str) -> Iterator[Text | Thinking | ToolCall]:
    """Yield words, thoughts and calls in order, then the vendor data to keep."""
    converted = [
        (part, _part(part, model), _vendor_data(part))
        for part in response.parts
        if isinstance(part, Said)
    ]
    converted = [
        (theirs_, ours, fields)
        for theirs_, ours, fields in converted
        if fields or isinstance(ours, ToolCall) or ours.text
    ]
    yield from (ours for _, ours, _ in converted)
    if any(fields for _, _, fields in converted):
        parts = [{"kind": part.part_kind, **fields} for part, _, fields in converted]
        yield _with_vendor_data(response, parts)


def _with_vendor_data(
    response: theirs.ModelResponse, parts: Sequence[Mapping[str, Any]]
) -> Thinking:
    """Return a thought without words that keeps what the vendor wants back."""
    vendor_data = {"response": _fields(response, _OF_RESPONSE), "parts": parts}
    signature = json.dumps(vendor_data, ensure_ascii=False, separators=(",", ":"), default=str)
    return Thinking(text="", signature=clean(signature))


def _part(part: Said, model: str) -> Text | Thinking | ToolCall:
    match part:
        case theirs.TextPart():
            return Text(text=clean(part.content))
        case theirs.ThinkingPart():
            return Thinking(text=clean(part.content))
        case _:
            if not part.tool_name:
                raise errors.LLMUnavailableError(
                    f"{model}: the reply holds a tool call without a name"
                )
            return ToolCall(
                id=clean(part.tool_call_id),
                name=clean(part.tool_name),
                arguments=clean(lenient_json.arguments(part.args)),
            )


def _vendor_data(part: Said) -> dict[str, Any]:
    """Return the vendor data to send back; empty if it is only the provider's name."""
    fields = _fields(part, _OF_PART)
    return fields if fields.keys() - {"provider_name"} else {}


def _fields(source: theirs.ModelResponse | Said, names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(source, name, None))}


def usage_of(response: theirs.ModelResponse) -> Usage:
    """Return normalized token counts; pydantic-ai counts the same way.

    A missing or impossible count is 0, meaning "not reported".
    """
    usage = response.usage
    return lenient_json.usage(
        taken=(lenient_json.tokens(usage.input_tokens),),
        written=(lenient_json.tokens(usage.output_tokens),),
        cache_read=lenient_json.tokens(usage.cache_read_tokens),
        cache_written=lenient_json.tokens(usage.cache_write_tokens),
    )
