"""The Response object and its items, as OpenAI's API describes them."""

from __future__ import annotations

from operator import not_
from typing import Literal

from pydantic import Field, JsonValue

from perdure.base import Value
from perdure.clients.gateway.responses.functions import FunctionItem, ToolObject
from perdure.values.questions import Question

SERVER = "perdure"
"""The label of the server that runs the tools: the agent's own, not the client."""

Status = Literal["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
ErrorCode = Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]


class OutputText(Value):
    """Text of the model."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()


class OutputMessage(Value):
    """A text of the model: `commentary` if the answer also calls tools, which is known later."""

    type: Literal["message"] = "message"
    id: str
    role: Literal["assistant"] = "assistant"
    status: ItemStatus
    content: tuple[OutputText, ...] = ()
    phase: Literal["commentary", "final_answer"] | None = None


class ToolError(Value):
    """The error result of a tool."""

    type: Literal["mcp_tool_execution_error"] = "mcp_tool_execution_error"
    content: str


class ToolCallItem(Value):
    """A call of one of the agent's tools, which the client has nothing to do with."""

    type: Literal["mcp_call"] = "mcp_call"
    id: str
    server_label: str = SERVER
    name: str
    arguments: str
    status: Literal["in_progress", "completed", "incomplete", "failed"] = "in_progress"
    approval_request_id: str | None = None
    output: str | None = None
    error: ToolError | None = None


class ApprovalRequest(Value):
    """A call that waits for a person.

    With `is_unknown`, a field that the API does not have, it was made, and its outcome is unknown:
    it is not approved, and a denial leaves it unknown. `reason` tells what is known. With
    `question`, another one, the model asks a person: the response to the request has `approve` as
    true and the `answer`, or declines.
    """

    type: Literal["mcp_approval_request"] = "mcp_approval_request"
    id: str
    server_label: str = SERVER
    name: str
    arguments: str
    is_unknown: bool = Field(default=False, exclude_if=not_)
    reason: str = Field(default="", exclude_if=not_)
    question: Question | None = Field(default=None, exclude_if=not_)


Item = OutputMessage | ToolCallItem | ApprovalRequest | FunctionItem


class InputDetails(Value):
    """Which input tokens a prompt cache had."""

    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(Value):
    """The tokens of reasoning, which are not known apart from the others."""

    reasoning_tokens: int = 0


class ResponseUsage(Value):
    """The tokens of a turn's own model calls."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails = OutputDetails()
    total_tokens: int


class ResponseError(Value):
    """The error of a turn without an answer; the message begins with Perdure's code."""

    code: ErrorCode
    message: str


class IncompleteDetails(Value):
    """Why an answer is incomplete: a limit cut it, or made it the last one."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ConversationRef(Value):
    """The session of a turn."""

    id: str


class TextFormat(Value):
    """The format of an answer. The type of an agent's answer is not told."""

    type: Literal["text"] = "text"


class SchemaFormat(Value):
    """The format of an answer for which a request gave a JSON schema."""

    type: Literal["json_schema"] = "json_schema"
    name: str = "answer"
    json_schema: dict[str, JsonValue] = Field(serialization_alias="schema")
    strict: Literal[True] = True
    description: None = None


class TextOptions(Value):
    """The options of texts."""

    format: TextFormat | SchemaFormat = TextFormat()


class FunctionChoice(Value):
    """The function that the model is to call first."""

    type: Literal["function"] = "function"
    name: str


class Reasoning(Value):
    """The options of reasoning, which belong to the agent."""

    effort: None = None
    summary: None = None


class ResponseObject(Value):
    """A turn as a response.

    Clients with strict types refuse a response that lacks a field of the API. What belongs to the
    agent, or has no effect, has the default of the API.

    Attributes:
        id: The turn's id.
        object: Always `response`.
        created_at: The start of the turn, in whole seconds since 1970.
        completed_at: The end of a turn with an answer, likewise.
        status: `queued` until the agent is known, then `in_progress`, also while the turn waits.
        model: The agent that the turn was started with.
        output: Texts of the model, calls of tools, and calls that wait, in the order of history.
        error: The error of a turn that failed.
        incomplete_details: Why its answer is incomplete.
        usage: Its tokens, at the end.
        metadata: Its labels.
        previous_response_id: The turn from which it was forked.
        conversation: The session that it belongs to.
        background: As the request said that is answered. True where the response is retrieved: a
            turn does not depend on the request that started it.
        store: Always true: a turn is in Temporal until its retention is over.
        temperature: The temperature that the request gave, or the default.
        max_output_tokens: The limit of each answer of the model that the request gave.
        max_tool_calls: The number of tool calls in the budget of the turn.
        instructions: Those that the request gave; the agent's own are not told.
        text: The format of the answer that the request gave, or text.
        top_p: As the request gave it, or the default.
        parallel_tool_calls: Always true: an answer of the model may have several calls. Whether
            they run at the same time belongs to the agent.
        tool_choice: As the request said, or `auto`.
        tools: The functions that the client runs. Other tools belong to the agent.
    """

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Status
    model: str
    output: tuple[Item, ...] = ()
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    usage: ResponseUsage | None = None
    metadata: dict[str, str] = {}
    previous_response_id: str | None = None
    conversation: ConversationRef | None = None
    background: bool = True
    store: Literal[True] = True
    temperature: float = 1
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    instructions: str | None = None
    parallel_tool_calls: Literal[True] = True
    tool_choice: str | FunctionChoice = "auto"
    tools: tuple[ToolObject, ...] = ()

    text: TextOptions = TextOptions()
    reasoning: Reasoning = Reasoning()
    truncation: Literal["disabled"] = "disabled"
    top_p: float = 1
    presence_penalty: Literal[0] = 0
    frequency_penalty: Literal[0] = 0
    top_logprobs: Literal[0] = 0
    service_tier: Literal["default"] = "default"
    safety_identifier: None = None
    prompt_cache_key: None = None


class DeletedResponse(Value):
    """A response that is not there any more."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class CountedTokens(Value):
    """The tokens of an input, estimated by its bytes."""

    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int
    is_estimate: Literal[True] = True


Event = dict[str, JsonValue]
"""An event of a stream, as JSON values."""
