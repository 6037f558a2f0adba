"""The parameters of chat completions, and their messages."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, JsonValue

from perdure.clients.gateway.inputs import Body
from perdure.clients.gateway.responses.functions import (
    FunctionOutput,
    PastCalls,
    choice_in,
    text_of,
    tools_in,
)
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
from perdure.values.client_tools import ClientTool
from perdure.values.messages import AssistantMessage, Media, Message, Text, ToolCall, UserMessage
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
        metadata: The labels of the turn; `perdure_subject` is its data subject.
        tool_choice: `none` for an answer without tools; with `tools`, `required` or one of them.
        tools: The functions that the client runs, for an agent that takes tools.
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
    tool_choice: JsonValue = "auto"
    tools: list[JsonValue] = []

    n: Annotated[Any, only(None, 1, why="a turn has one answer; ask once for each")] = None
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
    def client_tools(self) -> tuple[ClientTool, ...]:
        """The functions that the client runs."""
        return tools_in(self.tools, is_nested=True)

    @property
    def options(self) -> RequestOptions | None:
        """The options of requests to models; None if there are none."""
        return options_of(
            temperature=self.temperature,
            max_output_tokens=self.max_completion_tokens or self.max_tokens,
            stop_sequences=(self.stop,) if isinstance(self.stop, str) else self.stop,
            tool_choice=choice_in(self.tool_choice, self.client_tools),
            top_p=self.top_p,
        )

    @property
    def output_schema(self) -> dict[str, JsonValue] | None:
        """The JSON schema of the answer; None for text."""
        given = self.response_format.json_schema
        return None if given is None else given.json_schema

    @property
    def outputs(self) -> tuple[FunctionOutput, ...]:
        """The outputs of functions at the end of the messages; empty if they end otherwise."""
        outputs: list[FunctionOutput] = []
        for index in reversed(range(len(self.messages))):
            match self.messages[index]:
                case {"role": "tool", "tool_call_id": str(token), "content": content}:
                    where = f"messages[{index}]"
                    outputs.append(
                        FunctionOutput(token, text_of(content, f"{where}.content"), where)
                    )
                case _:
                    break
        return tuple(reversed(outputs))

    def read(self) -> InputMessages:
        """Return the messages.

        Raises:
            RefusedError: A message is not taken, or the last one is not of the user.
        """
        system: list[str] = []
        messages: list[Message] = []
        past = PastCalls()
        for index, item in enumerate(self.messages):
            where = f"messages[{index}]"
            if item.get("role") in ("system", "developer"):
                system.append(system_text(item.get("content"), where))
            else:
                append(messages, [_message(item, where, past)])
        past.check()
        if not messages or not isinstance(messages[-1], UserMessage):
            raise bad("messages", "the last message must be of the user")
        return InputMessages(messages[-1], tuple(messages[:-1]), tuple(system))


def _message(item: dict[str, JsonValue], where: str, past: PastCalls) -> Message:
    match item:
        case {"role": "tool", "tool_call_id": call_id, "content": content}:
            return past.end(call_id, text_of(content, f"{where}.content"), where)
        case {"role": "assistant", "tool_calls": [_, *_] as calls}:
            parts = tuple(_call(call, f"{where}.tool_calls", past) for call in calls)
            text = item.get("content")
            said = (Text(text=system_text(text, where)),) if text else ()
            return AssistantMessage(parts=(*said, *parts))
        case {"role": "user", "content": str(text)}:
            return UserMessage.of(text)
        case {"role": "user", "content": [*parts]}:
            return UserMessage(
                parts=tuple(_part(part, f"{where}.content[{at}]") for at, part in enumerate(parts))
            )
        case {"role": "function"} | {"role": "assistant", "function_call": _}:
            raise bad(where, "give calls in tool_calls, and their outputs as messages of tool")
        case {"role": "assistant", "content": str(text)}:
            return AssistantMessage(parts=(Text(text=text),))
        case {"role": "assistant", "content": [*parts]}:
            return AssistantMessage(parts=(Text(text=system_text([*parts], where)),))
        case _:
            raise bad(where, "a message has a role, user, assistant or system, and content")


def _call(call: JsonValue, where: str, past: PastCalls) -> ToolCall:
    match call:
        case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
            return past.begin(call_id, name, arguments, where)
        case _:
            raise bad(where, "a call has an id, and a function with name and arguments")


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
