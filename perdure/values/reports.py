"""How a turn went."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Generic

from perdure.base import T, Value
from perdure.text import in_units
from perdure.values.approvals import Decision
from perdure.values.budgets import Spending
from perdure.values.messages import AssistantMessage, Message, ToolResult


class Outcome(StrEnum):
    """How a turn ended."""

    COMPLETED = "completed"
    TRUNCATED = "truncated"
    BUDGET_EXHAUSTED = "budget_exhausted"
    MAX_ITERATIONS = "max_iterations"
    BOUNDARY = "boundary"
    LOOP = "loop"
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
    """Tokens.

    `input_tokens` includes those read from and written to a prompt cache; `output_tokens` includes
    thinking.
    """

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


class Tried(Value):
    """A model, as `provider:model`, that did not answer.

    `reason` is the code of its error, or why it was not asked.
    """

    model: str
    reason: str


class LeftOut(Value):
    """What was not sent of a transcript that is too long for the model.

    The report's messages have it all.

    Attributes:
        results: So many tool results were replaced by a note of their size.
        steps: So many whole steps were left out.
        bytes: Of text, in both, and in what users had said before the turn.
    """

    results: int = 0
    steps: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        counts = ((self.results, "tool result"), (self.steps, "step"))
        named = [f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count]
        return f"{' and '.join(named) or 'what was said before'}, {in_units(self.bytes)}"


class Step(Value):
    """One model call with the results of the tool calls it asked for.

    `number` counts from 1; `model` is the one that answered, `tried` holds the attempts before that
    and who was passed over. `cost` is in US dollars, None where nobody knows the price; `overrun`
    says that the provider billed more than its upper bound. `left_out` is what was not sent of the
    transcript, None where that was sent whole. `decisions` are what people decided about its calls,
    first to last.
    """

    number: int
    model: str
    message: AssistantMessage
    results: tuple[ToolResult, ...] = ()
    stop: StopReason = StopReason.END
    usage: Usage = Usage()
    cost: Decimal | None = None
    overrun: bool = False
    tried: tuple[Tried, ...] = ()
    left_out: LeftOut | None = None
    decisions: tuple[Decision, ...] = ()


class ChildReport(Value):
    """How the turn of a delegate went, as its parent knows it.

    `outcome` is None while it runs. `spent` is what it was charged with, its own delegates
    included. For one that left no summary (it was terminated, or still ran when its parent ended)
    it is what its history says, and for one that still ran at least its lease. Where that could not
    be read it is its lease, and so 0 in a dimension without a limit: what it spent there is
    unknown. `cost` is the money of `spent`, None where that or the price is unknown.
    """

    turn_id: str
    agent: str
    task: str = ""
    outcome: Outcome | None = None
    steps: int = 0
    spent: Spending = Spending()
    cost: Decimal | None = None
    duration: timedelta = timedelta()
    children: tuple[ChildReport, ...] = ()


class AgentReport(Value, Generic[T]):
    """How a turn went: returned on success, attached to every error of a turn.

    Attributes:
        output: The answer, as an instance of the type that was asked for; text without one. Of a
            turn that failed, the last words, if there are any; an answer that no middleware let
            pass is in `messages` alone.
        risk: A reason to doubt the output, such as `truncated`; None where there is none.
        steps: The completed steps.
        messages: The transcript. It can be given to another turn as `history`.
        usage: Tokens of its own model calls; `spent` counts those of its delegates too.
        model_calls: Requests made by itself, repeated attempts included.
        tool_calls: Calls of its own that have a result, those included that were denied or not run.
        cost: US dollars, attempts whose outcome is unknown at their upper bound included;
            None where the price, or what a delegate spent, is unknown.
        spent: What the budget was charged with; at least what was spent, where a delegate left no
            summary and its history could not be read.
        children: The turns of its delegates, in the order they were started.
        unstopped: What was still running when the turn ended.
    """

    turn_id: str
    agent: str
    outcome: Outcome
    output: T = ""  # type: ignore[assignment]
    risk: str | None = None
    steps: tuple[Step, ...] = ()
    messages: tuple[Message, ...] = ()
    usage: Usage = Usage()
    model_calls: int = 0
    tool_calls: int = 0
    cost: Decimal | None = None
    spent: Spending = Spending()
    duration: timedelta = timedelta()
    children: tuple[ChildReport, ...] = ()
    unstopped: tuple[str, ...] = ()


def bounded(children: Sequence[ChildReport], most_bytes: int) -> tuple[ChildReport, ...]:
    """As much of a tree as fits: first its lower levels go, then its last branches."""
    kept = tuple(children)
    if _size(kept) > most_bytes:
        kept = tuple(child.model_copy(update={"children": ()}) for child in kept)
    while _size(kept) > most_bytes:
        kept = kept[: len(kept) // 2]
    return kept


def _size(children: Sequence[ChildReport]) -> int:
    return sum(len(child.model_dump_json()) for child in children)
