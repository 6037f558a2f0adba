"""What a strictly typed client holds responses and their events to.

The rules of the public Open Responses specification, as a schema, and OpenAI's own types without
any conversion. Calls of tools and approvals are items of OpenAI's API, which the specification has
not.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

_TEXT = {"type": "string"}
_WHOLE = {"type": "integer"}
_NUMBER = {"type": "number"}
_FLAG = {"type": "boolean"}


def _one_of(*values: str) -> dict[str, Any]:
    return {"enum": list(values)}


def _object(**required: Any) -> dict[str, Any]:
    return {"type": "object", "properties": required, "required": list(required)}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


_PART = _object(type=_one_of("output_text"), text=_TEXT, annotations=_list({}))
_ITEM = {
    "oneOf": [
        _object(
            type=_one_of("message"),
            id=_TEXT,
            status=_one_of("in_progress", "completed", "incomplete"),
            role=_one_of("assistant"),
            content=_list(_PART),
        ),
        _object(
            type=_one_of("mcp_call", "mcp_approval_request"),
            id=_TEXT,
            server_label=_TEXT,
            name=_TEXT,
            arguments=_TEXT,
        ),
    ]
}
_USAGE = _object(
    input_tokens=_WHOLE,
    output_tokens=_WHOLE,
    total_tokens=_WHOLE,
    input_tokens_details=_object(cached_tokens=_WHOLE),
    output_tokens_details=_object(reasoning_tokens=_WHOLE),
)
_RESPONSE = _object(
    id=_TEXT,
    object=_one_of("response"),
    created_at=_WHOLE,
    completed_at=_or_null(_WHOLE),
    status=_TEXT,
    incomplete_details=_or_null(_object(reason=_TEXT)),
    model=_TEXT,
    previous_response_id=_or_null(_TEXT),
    instructions=_or_null(_TEXT),
    output=_list(_ITEM),
    error=_or_null(_object(code=_TEXT, message=_TEXT)),
    tools=_list({}),
    tool_choice=_one_of("none", "auto", "required"),
    truncation=_one_of("auto", "disabled"),
    parallel_tool_calls=_FLAG,
    text=_object(format=_object(type=_one_of("text", "json_schema"))),
    top_p=_NUMBER,
    presence_penalty=_NUMBER,
    frequency_penalty=_NUMBER,
    top_logprobs=_WHOLE,
    temperature=_NUMBER,
    reasoning=_or_null(_object(effort=_or_null(_TEXT), summary=_or_null(_TEXT))),
    usage=_or_null(_USAGE),
    max_output_tokens=_or_null(_WHOLE),
    max_tool_calls=_or_null(_WHOLE),
    store=_FLAG,
    background=_FLAG,
    service_tier=_one_of("auto", "default", "flex", "priority"),
    metadata={"type": "object", "additionalProperties": _TEXT},
    safety_identifier=_or_null(_TEXT),
    prompt_cache_key=_or_null(_TEXT),
)
_AT = {"item_id": _TEXT, "output_index": _WHOLE}
_IN_TEXT = {**_AT, "content_index": _WHOLE}
_WHOLE_RESPONSE = {"response": _RESPONSE}
_WHOLE_ITEM = {"output_index": _WHOLE, "item": _ITEM}
_WHOLE_PART = {**_IN_TEXT, "part": _PART}
_ERROR = _object(type=_TEXT, code=_or_null(_TEXT), message=_TEXT, param=_or_null(_TEXT))
_FIELDS: dict[str, dict[str, Any]] = {
    "error": {"error": _ERROR},
    "created": _WHOLE_RESPONSE,
    "in_progress": _WHOLE_RESPONSE,
    "completed": _WHOLE_RESPONSE,
    "failed": _WHOLE_RESPONSE,
    "incomplete": _WHOLE_RESPONSE,
    "output_item.added": _WHOLE_ITEM,
    "output_item.done": _WHOLE_ITEM,
    "content_part.added": _WHOLE_PART,
    "content_part.done": _WHOLE_PART,
    "output_text.delta": {**_IN_TEXT, "delta": _TEXT, "logprobs": _list({})},
    "output_text.done": {**_IN_TEXT, "text": _TEXT, "logprobs": _list({})},
    "mcp_call_arguments.done": {**_AT, "arguments": _TEXT},
    "mcp_call.in_progress": _AT,
    "mcp_call.completed": _AT,
    "mcp_call.failed": _AT,
}
"""The fields of each event of a stream, after `response.`."""

_DRAFT = jsonschema.Draft202012Validator
_Strict = jsonschema.validators.extend(
    _DRAFT,
    # typed languages read no 1.0 as an integer
    type_checker=_DRAFT.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int),
)
_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def response_in(written: str | bytes) -> dict[str, Any]:
    """The response in a body, which is valid."""
    Response.model_validate_json(written, strict=True)
    found: dict[str, Any] = json.loads(written)
    _Strict(_RESPONSE).validate(found)
    return found


def event_in(written: str | bytes) -> dict[str, Any]:
    """The event in a message of a stream, which is valid."""
    _EVENT.validate_json(written, strict=True)
    found: dict[str, Any] = json.loads(written)
    fields = _FIELDS[found["type"].removeprefix("response.")]
    _Strict(_object(type=_TEXT, sequence_number=_WHOLE, **fields)).validate(found)
    return found
