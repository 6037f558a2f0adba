"""One request to a model of pydantic-ai.

Imported with the first request alone, because it loads that library.

| of ours | of pydantic-ai's |
|---|---|
| system prompt | one instruction |
| tools | function tools, with their JSON schema as it is; the adapter makes of it what its vendor takes |
| calls in a request without tools | function tools of these names that may not be called: some vendors refuse calls without tools |
| tool choice | `tool_choice`; a name as a list of one |
| a schema for the answer, without tools | native output, if the model's profile says it can and no calls stand before; else a forced tool |
| `extra` | further fields of `ModelSettings`; they come last |
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
"""Settings that say what is asked, of whom or how often, so that a bill may be above its reservation."""


def model_of(models: str | Model, name: str) -> Model:
    """The model of this name, or the one that was given.

    Raises:
        ConfigurationError: pydantic-ai cannot make it.
    """
    if isinstance(models, Model):
        return models
    failure: errors.ConfigurationError
    try:
        return infer_model(f"{models}:{name}")
    except (ImportError, UserError) as error:
        failure = errors.ConfigurationError(pydantic_ai_errors.without_secrets(str(error)))
    except Exception as error:  # noqa: BLE001 - vendors' libraries have classes of their own, and texts that may hold secrets
        failure = errors.ConfigurationError(
            f"pydantic-ai cannot make the model {one_line(f'{models}:{name}', 200)!r}:"
            f" {type(error).__name__}"
        )
    raise failure


async def ask(model: Model, request: ModelRequest, heard: Heard | None) -> ModelAnswer:
    """Ask, once. With `heard` the answer comes as a stream, if the model can.

    Raises:
        LLMError: The table of `pydantic_ai_errors` says which subclass.
    """
    failure: errors.LLMError
    with http_errors.about(request.model):
        try:
            response = await _response(model, request, heard)
        except errors.PerdureError:
            raise
        except Exception as error:  # noqa: BLE001 - none of the vendors' exceptions may get out: their texts may hold a key
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
            words = "" if parameters.output_tools else _words(event)
            if words:
                heard(words)
        response = stream.get()
    if not _is_whole(response, model):
        with http_errors.billed(Usage()):
            raise errors.LLMUnavailableError(
                f"{request.model}: the stream ended before the answer did"
            )
    return response


def _words(event: ModelResponseStreamEvent) -> str:
    """What an event adds to the text of the answer."""
    match event:
        case (
            PartStartEvent(part=TextPart(content=words))
            | PartDeltaEvent(delta=TextPartDelta(content_delta=words))
        ):
            return words
        case _:
            return ""


def _is_whole(response: ModelResponse, model: Model) -> bool:
    """Whether a stream came to its end.

    Every vendor says why the model stopped; one that runs in this process need not.
    """
    return (
        bool(response.finish_reason or (response.provider_details or {}).get("finish_reason"))
        or model.provider is None
    )


def _profile(model: Model) -> ModelProfile:
    """What pydantic-ai knows of the model; nothing of one that stands for several."""
    try:
        return model.profile
    except NotImplementedError:
        return ModelProfile()


def settings_of(model: Model, request: ModelRequest) -> ModelSettings:
    """The options as pydantic-ai has them.

    Raises:
        LLMInvalidRequestError: `extra` has a field that may not be set, or the chosen tool is not
            offered.
    """
    given = request.options
    wish = options.choice(request) if request.tools else ("none" if _called(request) else None)
    settings: dict[str, Any] = {
        "max_tokens": given.max_output_tokens,
        "temperature": given.temperature,
        "stop_sequences": list(given.stop_sequences or ()) or None,
        "tool_choice": wish if wish in (None, "auto", "required", "none") else [wish],
        "max_retries": None if "max_retries" in model.unsupported_settings else 0,
    }
    told = {name: value for name, value in settings.items() if value is not None}
    return cast("ModelSettings", options.with_extra(told, request, RESERVED))


def parameters_of(request: ModelRequest, profile: ModelProfile) -> ModelRequestParameters:
    """Tools, system prompt, and the form of the answer."""
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
    """The tools that were called before, each once."""
    return list(
        dict.fromkeys(
            call.name
            for message in request.messages
            if isinstance(message, AssistantMessage)
            for call in message.calls
        )
    )
