"""Chat completions and their chunks, as OpenAI's API describes them."""

from __future__ import annotations

from operator import not_
from typing import Literal

from pydantic import Field

from perdure.base import Value
from perdure.clients.gateway.responses.functions import FunctionItem
from perdure.clients.gateway.responses.values import ResponseUsage

FinishReason = Literal["stop", "length", "tool_calls"]


class CachedTokens(Value):
    """Which tokens of the prompt a cache had."""

    cached_tokens: int


class CompletionUsage(Value):
    """The tokens of a turn's own model calls."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens

    @classmethod
    def of(cls, usage: ResponseUsage) -> CompletionUsage:
        """Return the tokens of a response."""
        return cls(
            prompt_tokens=usage.input_tokens,
            completion_tokens=usage.output_tokens,
            total_tokens=usage.total_tokens,
            prompt_tokens_details=CachedTokens(
                cached_tokens=usage.input_tokens_details.cached_tokens
            ),
        )


class CalledFunction(Value):
    """The function of a call, and its arguments as JSON text."""

    name: str
    arguments: str


class CompletionCall(Value):
    """A call of a function that the client runs. Its id is the token of the call."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction

    @classmethod
    def of(cls, item: FunctionItem) -> CompletionCall:
        """Return a call of a response."""
        called = CalledFunction(name=item.name, arguments=item.arguments)
        return cls(id=item.call_id, function=called)


class ChunkCall(CompletionCall):
    """A call in a stream, with its place among those of the answer."""

    index: int


class CompletionMessage(Value):
    """The answer, or calls of functions that the client runs."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: tuple[CompletionCall, ...] = Field(default=(), exclude_if=not_)


class CompletionChoice(Value):
    """The only choice."""

    index: Literal[0] = 0
    message: CompletionMessage
    finish_reason: FinishReason
    logprobs: None = None


class ChatCompletion(Value):
    """A turn as a chat completion. The id is that of the turn."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[CompletionChoice]
    usage: CompletionUsage | None = None
    metadata: dict[str, str] = {}


class ChunkDelta(Value):
    """What a chunk adds to the answer."""

    role: Literal["assistant"] | None = Field(default=None, exclude_if=lambda role: role is None)
    content: str | None = Field(default=None, exclude_if=lambda content: content is None)
    tool_calls: tuple[ChunkCall, ...] = Field(default=(), exclude_if=not_)


class ChunkChoice(Value):
    """The only choice, as far as a chunk has it."""

    index: Literal[0] = 0
    delta: ChunkDelta = ChunkDelta()
    finish_reason: FinishReason | None = None
    logprobs: None = None


class CompletionChunk(Value):
    """A piece of a chat completion. The last one, with the tokens, has no choice."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: tuple[ChunkChoice, ...] = ()
    usage: CompletionUsage | None = None
