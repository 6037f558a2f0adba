"""Sends one request to a pydantic-ai model.

This module is imported only with the first request, because it loads that library.

| Perdure | pydantic-ai |
|---|---|
| system prompt | one instruction |
| tools | function tools with an unchanged JSON schema, which the adapter converts |
| calls in a request without tools | function tools of these names that may not be called |
| tool choice | `tool_choice`; a name as a list of one |
| a response schema, without tools | native output or a forced tool |
| `extra` | further fields of `ModelSettings`, merged last |

Tools of earlier calls are declared because some vendors reject calls without tools. Native output
is used if the model's profile supports it and the transcript has no calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from pydantic_ai import direct
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    InstructionPart,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from perdure import errors
from perdure.activities.provider import Heard, ModelRequest
from perdure.activities.providers import http_errors, options, pydantic_ai_errors, schemas
from perdure.activities.providers.pydantic_ai_messages import answer_of, messages_of
from perdure.text import one_line
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage
from perdure.values.reports import Usage

_ERROR_CHARACTERS = 500

RESERVED = options.RESERVED_FROM | frozenset(
    {
        "bedrock_additional_model_requests_fields",
        "bedrock_inference_profile",
        "bedrock_prompt_variables",
        "extra_body",
        "google_cached_content",
        "max_retries",
        "openai_background",
        "openai_conversation_id",
        "openai_native_tools",
        "openai_previous_response_id",
        "openrouter_models",
        "openrouter_preset",
        "openrouter_provider",
        "xai_agent_count",
        "xai_previous_response_id",
    }
)
"""Settings that change the input, the model or the number of requests, and so the bill."""


def model_of(models: str | Model, name: str) -> Model:
    """Return the pydantic-ai model of this name, or the given model object.

    Raises:
        ConfigurationError: pydantic-ai cannot create the model.
    """
    if isinstance(models, Model):
        return models
    failure: errors.ConfigurationError
    try:
        return infer_model(f"{models}:{name}")
    except (ImportError, UserError) as error:
        failure = errors.ConfigurationError(pydantic_ai_errors.without_secrets(str(error)))
    except Exception as error:  # noqa: BLE001 - vendor libraries raise their own classes, and their texts may hold secrets
        failure = errors.ConfigurationError(
            f"pydantic-ai cannot create the model {one_line(f'{models}:{name}', 200)!r}:"
            f" {type(error).__name__}"
        )
    raise failure


async def ask(model: Model, request: ModelRequest, heard: Heard | None) -> ModelAnswer:
    """Send one request; if `heard` is given, stream the answer if the model supports it.

    Raises:
        LLMError: One of the subclasses in the table of `pydantic_ai_errors`.
    """
    failure: errors.LLMError
    with http_errors.about(request.model):
        try:
            response = await _response(model, request, heard)
        except errors.PerdureError:
            raise
        except Exception as error:  # noqa: BLE001 - no vendor exception may escape: its text may hold a key
            failure = pydantic_ai_errors.fault_of(error, request.model)
        else:
            return schemas.as_text(answer_of(response, request.model), request)
        raise failure


async def _response(model: Model, request: ModelRequest, heard: Heard | None) -> ModelResponse:
    profile = _profile(model)
    messages = messages_of(request.messages, profile.get("tool_call_id_length"))
    settings, parameters = settings_of(model, request), parameters_of(request, profile)
    if heard is None or type(model).request_stream is Model.request_stream:
        return await direct.model_request(
            model, messages, model_settings=settings, model_request_parameters=parameters
        )
    async with direct.model_request_stream(
        model, messages, model_settings=settings, model_request_parameters=parameters
    ) as stream:
        async for event in stream:
            piece = "" if parameters.output_tools else _words(event)
            if piece:
                heard(piece)
        response = stream.get()
    if not _is_whole(response, model):
        with http_errors.billed(Usage()):
            raise errors.LLMUnavailableError(
                f"{request.model}: the stream ended before the answer did"
            )
    return response


def _words(event: ModelResponseStreamEvent) -> str:
    """Return the text that an event adds to the answer."""
    match event:
        case (
            PartStartEvent(part=TextPart(content=words))
            | PartDeltaEvent(delta=TextPartDelta(content_delta=words))
        ):
            return words
        case _:
            return ""


def _is_whole(response: ModelResponse, model: Model) -> bool:
    """Return whether a stream is complete.

    Every vendor reports a finish reason; a model that runs in this process need not.
    """
    return (
        bool(response.finish_reason or (response.provider_details or {}).get("finish_reason"))
        or model.provider is None
    )


def _profile(model: Model) -> ModelProfile:
    """Return pydantic-ai's profile of the model; empty for a model that wraps several."""
    try:
        return model.profile
    except NotImplementedError:
        return ModelProfile()


def settings_of(model: Model, request: ModelRequest) -> ModelSettings:
    """Return the options as pydantic-ai model settings.

    Raises:
        LLMInvalidRequestError: `extra` has a field that must not be set, or the chosen tool is not
            offered.
    """
    request_options = request.options
    wish = options.choice(request) if request.tools else ("none" if _called(request) else None)
    settings: dict[str, Any] = {
        "max_tokens": request_options.max_output_tokens,
        "temperature": request_options.temperature,
        "stop_sequences": list(request_options.stop_sequences or ()) or None,
        "tool_choice": wish if wish in (None, "auto", "required", "none") else [wish],
        "max_retries": None if "max_retries" in model.unsupported_settings else 0,
    }
    named = {name: value for name, value in settings.items() if value is not None}
    return cast("ModelSettings", options.with_extra(named, request, RESERVED))


def parameters_of(request: ModelRequest, profile: ModelProfile) -> ModelRequestParameters:
    """Return the tools, the system prompt, and the form of the answer."""
    parameters = ModelRequestParameters(
        function_tools=list(_tools(request)),
        instruction_parts=(
            [InstructionPart(content=request.system)] if request.system.strip() else []
        ),
    )
    if not schemas.is_asked_as_tool(request):
        return parameters
    if profile.get("supports_json_schema_output") and not parameters.function_tools:
        parameters.output_mode = "native"
        parameters.output_object = OutputObjectDefinition(
            json_schema=dict(request.response_schema or {}), name=request.response_name
        )
        return parameters
    tool = schemas.tool_of(request)
    parameters.output_mode = "tool"
    parameters.allow_text_output = False
    parameters.output_tools = [
        ToolDefinition(
            name=tool["name"],
            description=tool["description"],
            parameters_json_schema=tool["input_schema"],
            kind="output",
        )
    ]
    return parameters


def _tools(request: ModelRequest) -> Iterator[ToolDefinition]:
    for tool in request.tools:
        yield ToolDefinition(
            name=tool.name, description=tool.description, parameters_json_schema=tool.parameters
        )
    if not request.tools:
        yield from (
            ToolDefinition(name=name)
            for name in _called(request)
            if request.response_schema is None or name != request.response_name
        )


def _called(request: ModelRequest) -> list[str]:
    """Return the names of the tools called so far, without duplicates."""
    return list(
        dict.fromkeys(
            call.name
            for message in request.messages
            if isinstance(message, AssistantMessage)
            for call in message.calls
        )
    )
