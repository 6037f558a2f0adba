"""The parameters of chat completions, and their messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from perdure.clients.gateway.inputs import Body
from perdure.clients.gateway.responses.reading import (
    InputMessages,
    append,
    media,
    system_text,
)
from perdure.clients.gateway.responses.refusals import bad
from perdure.clients.gateway.responses.requests import (
    OWN_TOOLS,
    AnswerFormat,
    Ignored,
    Parameters,
    only,
    options_of,
)
from perdure.values.messages import AssistantMessage, Media, Message, Text, UserMessage
from perdure.values.options import RequestOptions


class JsonSchema(Body):
    """The JSON schema of an answer."""

    name: str = "answer"
    json_schema: dict[str, JsonValue] = Field(default={}, alias="schema")
    description: Ignored = None
    strict: Ignored = None


class ResponseFormat(AnswerFormat):
    """The format of an answer, with its schema in an object."""

    json_schema: JsonSchema | None = None


class StreamOptions(Body):
    """What a stream has besides its pieces. `include_obfuscation` is ignored."""

    include_usage: bool = False
    include_obfuscation: Ignored = None


class CreateCompletion(Parameters):
    """The chat completion to create.

    Attributes:
        model: The name of the agent.
        messages: The messages so far; the last one is the task, and those before it its history.
        stream: Whether the answer is a stream of chunks.
        stream_options: Whether the stream ends with the tokens.
        temperature: As for `client.start`.
        top_p: The share of the likeliest words.
        max_tokens: The limit of each answer of the model.
        max_completion_tokens: The same.
        stop: Strings at which an answer ends.
        response_format: The format of the answer, as text or by a JSON schema.
        metadata: The labels of the turn.
        tool_choice: `none` for an answer without tools.
    """

    model: str
    messages: list[dict[str, JsonValue]]
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    temperature: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    max_tokens: Annotated[int, Field(gt=0, le=10**9)] | None = None
    max_completion_tokens: Annotated[int, Field(gt=0, le=10**9)] | None = None
    stop: Annotated[str, Field(min_length=1)] | list[str] | None = None
    response_format: ResponseFormat = ResponseFormat()
    metadata: dict[str, str] = {}
    tool_choice: Literal["auto", "none"] = "auto"

    n: Annotated[Any, only(None, 1, why="a turn has one answer; ask once for each")] = None
    tools: Annotated[Any, only(None, [], why=OWN_TOOLS)] = None
    functions: Annotated[Any, only(None, [], why=OWN_TOOLS)] = None
    logprobs: Annotated[Any, only(None, False, why="probabilities are not recorded")] = None
    top_logprobs: Annotated[Any, only(None, 0, why="probabilities are not recorded")] = None
    logit_bias: Annotated[Any, only(None, {}, why="the agent has the options of its model")] = None
    presence_penalty: Annotated[
        Any, only(None, 0, why="the agent has the options of its model")
    ] = None
    frequency_penalty: Annotated[
        Any, only(None, 0, why="the agent has the options of its model")
    ] = None
    modalities: Annotated[Any, only(None, ["text"], why="an answer is text")] = None
    audio: Annotated[Any, only(None, why="an answer is text")] = None
    web_search_options: Annotated[Any, only(None, why=OWN_TOOLS)] = None
    parallel_tool_calls: Annotated[
        Any, only(None, True, why="the agent says whether its calls run at the same time")
    ] = None

    function_call: Ignored = None
    prediction: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_retention: Ignored = None
    reasoning_effort: Ignored = None
    safety_identifier: Ignored = None
    seed: Ignored = None
    service_tier: Ignored = None
    store: Ignored = None
    user: Ignored = None
    verbosity: Ignored = None

    @property
    def options(self) -> RequestOptions | None:
        """The options of requests to models; None if there are none."""
        return options_of(
            temperature=self.temperature,
            max_output_tokens=self.max_completion_tokens or self.max_tokens,
            stop_sequences=(self.stop,) if isinstance(self.stop, str) else self.stop,
            tool_choice="none" if self.tool_choice == "none" else None,
            top_p=self.top_p,
        )

    @property
    def output_schema(self) -> dict[str, JsonValue] | None:
        """The JSON schema of the answer; None for text."""
        given = self.response_format.json_schema
        return None if given is None else given.json_schema

    def read(self) -> InputMessages:
        """Return the messages.

        Raises:
            RefusedError: A message is not taken, or the last one is not of the user.
        """
        system: list[str] = []
        messages: list[Message] = []
        for index, item in enumerate(self.messages):
            where = f"messages[{index}]"
            if item.get("role") in ("system", "developer"):
                system.append(system_text(item.get("content"), where))
            else:
                append(messages, [_message(item, where)])
        if not messages or not isinstance(messages[-1], UserMessage):
            raise bad("messages", "the last message must be of the user")
        return InputMessages(messages[-1], tuple(messages[:-1]), tuple(system))


def _message(item: dict[str, JsonValue], where: str) -> Message:
    match item:
        case {"role": "user", "content": str(text)}:
            return UserMessage.of(text)
        case {"role": "user", "content": [*parts]}:
            return UserMessage(
                parts=tuple(_part(part, f"{where}.content[{at}]") for at, part in enumerate(parts))
            )
        case {"role": "assistant", "tool_calls": [_, *_]} | {"role": "tool" | "function"}:
            raise bad(where, f"calls and their results are not taken: {OWN_TOOLS}")
        case {"role": "assistant", "content": str(text)}:
            return AssistantMessage(parts=(Text(text=text),))
        case {"role": "assistant", "content": [*parts]}:
            return AssistantMessage(parts=(Text(text=system_text([*parts], where)),))
        case _:
            raise bad(where, "a message has a role, user, assistant or system, and content")


def _part(part: JsonValue, where: str) -> Text | Media:
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text=text)
        case {"type": "image_url", "image_url": {"url": str(address)}}:
            return media(address, "image", "image/jpeg", where)
        case {"type": "file", "file": {"file_data": str(address)}}:
            return media(address, "", "application/pdf", where)
        case _:
            raise bad(where, "give text, image_url, or file with file_data")
