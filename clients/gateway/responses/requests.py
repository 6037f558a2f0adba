"""The parameters of requests: used ones, refused ones, and those without an effect."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from perdure.base import Value
from perdure.clients.gateway import subjects
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.inputs import Body, Query
from perdure.clients.gateway.responses.functions import choice_in, tools_in
from perdure.values.budgets import Count
from perdure.values.client_tools import ClientTool
from perdure.values.options import NO_OPTIONS, RequestOptions

Ignored = Any
"""A parameter that does not change the answer, or that Perdure has no choice about."""


OWN_TOOLS = (
    "the agent has tools of its own; for a tool of your own, bring a function in tools, or give it"
    " to the agent, such as by an MCP server"
)
"""Why a request cannot bring other tools than functions."""


def options_of(*, top_p: float | None, **options: Any) -> RequestOptions | None:
    """Return the options of requests to models; None if there are none."""
    extra: dict[str, JsonValue] = {} if top_p is None else {"top_p": top_p}
    made = RequestOptions(**options, extra=extra)
    return None if made == NO_OPTIONS else made


def only(*neutral: object, why: str) -> AfterValidator:
    """Refuse a parameter with another value than these, because it would change the answer."""

    def check(value: object) -> object:
        if value not in neutral:
            raise ValueError(f"it is not supported: {why}")
        return value

    return AfterValidator(check)


class ConversationReference(Value):
    """A session by its id."""

    id: str


class Parameters(Body):
    """The parameters of a request. One that is null is as if it were absent.

    Attributes:
        metadata: The labels of the turn; `perdure_subject` is its data subject.
    """

    metadata: dict[str, str] = {}

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the turn."""
        return subjects.labels_in(self.metadata)

    def subject(self, caller: Caller) -> str | None:
        """Return the data subject of the turn, which is one of the tenant's; None without one.

        Raises:
            InvalidRequestError: It is not a name.
        """
        return subjects.own(caller, self.metadata.get(subjects.FIELD))

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, body: object) -> object:
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if value is not None}


class AnswerFormat(Body):
    """The format of an answer: text, or JSON by what `json_schema` has."""

    type: Literal["text", "json_schema"] = "text"
    json_schema: Any = None

    @model_validator(mode="after")
    def _has_its_schema(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("a format is of the type text, or of json_schema with a schema")
        return self


class FormatParameter(AnswerFormat):
    """The format of an answer, with its schema beside its name."""

    json_schema: dict[str, JsonValue] | None = Field(default=None, alias="schema")
    name: Ignored = None
    description: Ignored = None
    strict: Ignored = None

    @property
    def output_schema(self) -> dict[str, JsonValue] | None:
        """The JSON schema of the answer; None for text."""
        return self.json_schema


class TextParameter(Body):
    """What is asked of a text. `verbosity` has no effect: it is the agent's."""

    format: FormatParameter = FormatParameter()
    verbosity: Literal["low", "medium", "high"] | None = None


class CreateResponse(Parameters):
    """The response to create.

    Attributes:
        model: The name of the agent.
        input: The task as text, or messages of which the last one is the task; or decisions about
            calls that wait.
        previous_response_id: The response after which it goes on.
        conversation: The id of the session, which its first message begins.
        background: Whether the answer comes at once.
        stream: Whether the answer is a stream of events.
        metadata: The labels of the turn; `perdure_subject` is its data subject.
        temperature: As for `client.start`.
        max_output_tokens: The limit of each answer of the model.
        max_tool_calls: The number of tool calls in the budget of the turn; it needs the permission
            `budget`.
        tool_choice: `none` for an answer without tools; with `tools`, `required` or one of them.
        tools: The functions that the client runs, for an agent that takes tools.
        instructions: Those of the caller, for an agent that takes any.
        text: The format of the answer, as text or by a JSON schema.
        top_p: The share of the likeliest words.
        reasoning: Without an effect: it is the agent's.
        store: Without an effect: a turn is recorded in Temporal.
        delegates: Whether a stream has the text of the turns below, in events of the type
            `perdure:delegate_text`. OpenAI's API does not have it.
    """

    model: str
    input: str | list[dict[str, JsonValue]]
    previous_response_id: str | None = None
    conversation: str | ConversationReference | None = None
    background: bool = False
    stream: bool = False
    temperature: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = None
    max_output_tokens: Annotated[int, Field(gt=0, le=10**9)] | None = None
    max_tool_calls: Count | None = None
    tool_choice: JsonValue = "auto"
    tools: list[JsonValue] = []

    instructions: str | None = None
    text: TextParameter = TextParameter()
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    reasoning: Ignored = None
    store: bool = True
    delegates: bool = False

    top_logprobs: Annotated[Any, only(None, 0, why="probabilities are not recorded")] = None
    prompt: Annotated[Any, only(None, why="give the text as input")] = None
    parallel_tool_calls: Annotated[
        Any, only(None, True, why="the agent says whether its calls run at the same time")
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

    @property
    def session(self) -> str | None:
        """The id of the session."""
        conversation = self.conversation
        return conversation.id if isinstance(conversation, ConversationReference) else conversation

    @property
    def client_tools(self) -> tuple[ClientTool, ...]:
        """The functions that the client runs."""
        return tools_in(self.tools)

    @property
    def options(self) -> RequestOptions | None:
        """The options of requests to models; None if there are none."""
        return options_of(
            temperature=self.temperature,
            max_output_tokens=self.max_output_tokens,
            tool_choice=choice_in(self.tool_choice, self.client_tools),
            top_p=self.top_p,
        )

    @property
    def output_schema(self) -> dict[str, JsonValue] | None:
        """The JSON schema of the answer; None for text."""
        return self.text.format.output_schema

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The names of the parameters that were given and have no effect."""
        given = {
            "reasoning": bool(self.reasoning),
            "store": not self.store,
            "text.verbosity": self.text.verbosity is not None,
        }
        return tuple(name for name, is_given in given.items() if is_given)


class CountTokens(CreateResponse):
    """The input whose tokens are estimated, as for a response; everything may be left out."""

    model: str = ""
    input: str | list[dict[str, JsonValue]] | None = None  # type: ignore[assignment]


class RetrieveResponse(Query):
    """How a response is retrieved.

    Attributes:
        stream: Whether the answer is a stream of events.
        starting_after: The sequence number of the last known event.
        delegates: As of a response that is created.
        include: Ignored.
        include_: Ignored.
        include_obfuscation: Ignored.
    """

    stream: bool = False
    starting_after: Annotated[int, Field(ge=-1)] | None = None
    delegates: bool = False
    include: Ignored = None
    include_: Ignored = Field(None, alias="include[]")
    include_obfuscation: Ignored = None
