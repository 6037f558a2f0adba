"""How a turn went."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

from perdure.messages import AssistantMessage, Message, ToolResult
from perdure.values import Value


class Outcome(StrEnum):
    """How a turn ended."""

    COMPLETED = "completed"
    TRUNCATED = "truncated"
    MAX_ITERATIONS = "max_iterations"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    TERMINATED = "terminated"


class StopReason(StrEnum):
    """Why a model stopped writing, in one vocabulary for all providers."""

    END = "end"
    TOOL_CALLS = "tool_calls"
    STOP_SEQUENCE = "stop_sequence"
    MAX_TOKENS = "max_tokens"
    REFUSED = "refused"
    OTHER = "other"


class Usage(Value):
    """Tokens. `input_tokens` includes those read from and written to a prompt cache; `output_tokens` includes thinking."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


class Step(Value):
    """One model call with the results of the tool calls it asked for. `number` counts from 1; `model` is the one that answered."""

    number: int
    model: str
    message: AssistantMessage
    results: tuple[ToolResult, ...] = ()
    stop: StopReason = StopReason.END
    usage: Usage = Usage()


class AgentReport(Value):
    """How a turn went: returned on success, attached to every error of a turn.

    Attributes:
        output: The last words of the agent; empty where there are none.
        risk: A reason to doubt the output, such as `truncated`; None where there is none.
        steps: The completed steps.
        messages: The transcript. It can be given to another turn as `history`.
        model_calls: Requests made, repeated attempts included.
        tool_calls: Calls that have a result.
        cost: None: nobody counts money yet.
        unstopped: What was still running when the turn ended.
    """

    turn_id: str
    agent: str
    outcome: Outcome
    output: str = ""
    risk: str | None = None
    steps: tuple[Step, ...] = ()
    messages: tuple[Message, ...] = ()
    usage: Usage = Usage()
    model_calls: int = 0
    tool_calls: int = 0
    cost: Decimal | None = None
    duration: timedelta = timedelta()
    unstopped: tuple[str, ...] = ()
