"""The parameters of requests: used ones, refused ones, and those without an effect."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator

from perdure.base import Value
from perdure.clients.gateway.inputs import Body, Query
from perdure.values.budgets import Count
from perdure.values.options import RequestOptions

Ignored = Any
"""A parameter that does not change the answer, or that Perdure has no choice about."""


def _only(*neutral: object, why: str) -> AfterValidator:
    """Refuse a parameter with another value than these, because it would change the answer."""

    def check(value: object) -> object:
        if value not in neutral:
            raise ValueError(f"it is not supported: {why}")
        return value

    return AfterValidator(check)


class ConversationReference(Value):
    """A session by its id."""

    id: str


class CreateResponse(Body):
    """The response to create. A parameter that is null is as if it were absent.

    Attributes:
        model: The name of the agent.
        input: The task as text, or messages of which the last one is the task; or decisions about
            calls that wait.
        previous_response_id: The response after which it goes on.
        conversation: The id of the session, which its first message begins.
        background: Whether the answer comes at once.
        stream: Whether the answer is a stream of events.
        metadata: The labels of the turn.
        temperature: As for `client.start`.
        max_output_tokens: The limit of each answer of the model.
        max_tool_calls: The number of tool calls in the budget of the turn; it needs the permission
            `budget`.
        tool_choice: `none` for an answer without tools.
    """

    model: str
    input: str | list[dict[str, JsonValue]]
    previous_response_id: str | None = None
    conversation: str | ConversationReference | None = None
    background: bool = False
    stream: bool = False
    metadata: dict[str, str] = {}
    temperature: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = None
    max_output_tokens: Annotated[int, Field(gt=0, le=10**9)] | None = None
    max_tool_calls: Count | None = None
    tool_choice: Literal["auto", "none"] = "auto"

    instructions: Annotated[
        Any, _only(None, why="the agent has instructions; put what is special into the input")
    ] = None
    tools: Annotated[Any, _only(None, [], why="the agent has tools of its own")] = None
    text: Annotated[
        Any,
        _only(
            None, {}, {"format": {"type": "text"}}, why="the form of an answer belongs to the agent"
        ),
    ] = None
    reasoning: Annotated[Any, _only(None, {}, why="the agent has the options of its model")] = None
    top_p: Annotated[Any, _only(None, 1, why="the agent has the options of its model")] = None
    top_logprobs: Annotated[Any, _only(None, 0, why="probabilities are not recorded")] = None
    prompt: Annotated[Any, _only(None, why="give the text as input")] = None
    store: Annotated[Any, _only(None, True, why="a turn is recorded in Temporal")] = None
    parallel_tool_calls: Annotated[
        Any, _only(None, True, why="the agent says whether its calls run at the same time")
    ] = None

    include: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_options: Ignored = None
    prompt_cache_retention: Ignored = None
    safety_identifier: Ignored = None
    service_tier: Ignored = None
    stream_options: Ignored = None
    truncation: Ignored = None
    user: Ignored = None

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, body: object) -> object:
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if value is not None}

    @property
    def session(self) -> str | None:
        """The id of the session."""
        conversation = self.conversation
        return conversation.id if isinstance(conversation, ConversationReference) else conversation

    @property
    def options(self) -> RequestOptions | None:
        """The options of requests to models; None if there are none."""
        options = RequestOptions(
            temperature=self.temperature,
            max_output_tokens=self.max_output_tokens,
            tool_choice="none" if self.tool_choice == "none" else None,
        )
        return None if options == RequestOptions() else options


class RetrieveResponse(Query):
    """How a response is retrieved.

    Attributes:
        stream: Whether the answer is a stream of events.
        starting_after: The sequence number of the last known event.
        include: Ignored.
        include_: Ignored.
        include_obfuscation: Ignored.
    """

    stream: bool = False
    starting_after: Annotated[int, Field(ge=-1)] | None = None
    include: Ignored = None
    include_: Ignored = Field(None, alias="include[]")
    include_obfuscation: Ignored = None
