"""The reports of turns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from operator import not_
from typing import Generic

from pydantic import Field

from perdure.base import T, Value
from perdure.text import counted, in_units
from perdure.values.approvals import Decision
from perdure.values.budgets import Spending
from perdure.values.effects import EffectRecord
from perdure.values.losses import CallLoss
from perdure.values.messages import AssistantMessage, Message, ToolResult, UserMessage
from perdure.values.shared_state import SharedState


class Outcome(StrEnum):
    """The outcome of a turn."""

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
    """The reason why a model stopped, in one vocabulary for all providers."""

    END = "end"
    TOOL_CALLS = "tool_calls"
    STOP_SEQUENCE = "stop_sequence"
    MAX_TOKENS = "max_tokens"
    REFUSED = "refused"
    OTHER = "other"


class Usage(Value):
    """The numbers of tokens used.

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

    `reason` is the code of its error, or the reason why it was not asked.
    """

    model: str
    reason: str


class LeftOut(Value):
    """The part of a transcript that was not sent: too long for the model, or before a handoff.

    The report's messages are complete.

    Attributes:
        results: The number of tool results that were replaced by a note of their size.
        steps: The number of whole steps that were left out.
        bytes: The bytes of text in both, and in user messages before the turn.
    """

    results: int = 0
    steps: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        counts = ((self.results, "tool result"), (self.steps, "step"))
        named = [counted(count, noun) for count, noun in counts if count]
        return f"{' and '.join(named) or 'what was said before'}, {in_units(self.bytes)}"


class Step(Value):
    """One model call with the results of the tool calls that it requested.

    `number` counts from 1; `model` is the model that answered, `tried` has the failed attempts
    before that and the models that were skipped. `cost` is in US dollars, None if the price is
    unknown; `overrun` means that the provider billed more than its upper bound. `left_out` is the
    part of the transcript that was not sent, None if it was sent in full. `decisions` are people's
    decisions about its calls, in order. `agent` is the agent that made it, empty for the agent that
    the turn was started with.
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
    agent: str = ""


class ChildReport(Value):
    """The report of a delegate's turn, as its parent knows it.

    `outcome` is None while it runs. `spent` is what it was charged with, its own delegates
    included. For a turn without a summary (it was terminated, or still ran when its parent ended),
    it is read from its history, and is at least its lease if it still ran. If the history could not
    be read, it is the lease, and so 0 in a dimension without a limit: the spending there is
    unknown. `cost` is the money of `spent`, None if that or the price is unknown. `unsettled` is
    the number of calls whose outcome is unknown, its own delegates included: the report of its own
    turn lists them.
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
    unsettled: int = Field(default=0, exclude_if=not_)


class UnsettledCall(Value):
    """A tool call that may have taken effect, or may still do so, although it has no result.

    Attributes:
        step: The number of its step.
        call_id: Its id.
        tool: The name of the tool.
        arguments: Its arguments as JSON, as the model wrote them.
        reason: What the model has read as its result; empty for a call that still ran when the turn
            ended.
        loss: How its answer was lost, and when it was sent; None for a call that still ran when the
            turn ended.
    """

    step: int
    call_id: str
    tool: str
    arguments: str
    reason: str = ""
    loss: CallLoss | None = None


class ForkedFrom(Value):
    """The point in another turn from which a turn goes on.

    Attributes:
        turn_id: The id of the other turn.
        step: The number of its last step whose messages were taken over; 0 for the task alone.
        by: Who forked or resumed the other turn; None without a name.
    """

    turn_id: str
    step: int
    by: str | None = None


class AgentReport(Value, Generic[T]):
    """The report of a turn: returned on success, attached to every error of a turn.

    Attributes:
        agent: The agent that the turn was started with.
        output: The answer, as an instance of the requested type; text without a type. None in the
            report of a turn without an answer.
        last_text: Without an answer, the last text of the model, if it wrote any. Empty with an
            answer, and if the agent has checks after the turn.
        risk: A reason to doubt the output, such as `truncated`; otherwise None.
        steps: The completed steps.
        messages: The transcript; for a fork, after the messages that it took over, and for a turn
            of a session, after the messages of the turns before, unless their history is gone. It
            can be given to another turn as `history`. A mark is in the place of an answer that the
            checks of the agent have not let pass.
        messages_from: The number of the step from which `steps` and `messages` are complete: 1,
            unless the history of an earlier run of a long turn is no longer retained.
        usage: The tokens of its own model calls; `spent` includes the tokens of its delegates.
        model_calls: The number of its own requests, repeated attempts included.
        tool_calls: The number of its own calls that have a result, including denied calls and calls
            that did not run.
        cost: The cost in US dollars, with attempts whose outcome is unknown at their upper bound;
            None if the price, or the spending of a delegate, is unknown.
        spent: The amount charged to the budget; it may exceed the actual spending if a delegate
            left no summary and its history could not be read.
        children: The turns of its delegates, in the order in which they were started.
        unread: The messages that were sent to the turn with `steer` and that no answer of the model
            follows.
        unstopped: The ids of activities that were still running when the turn ended.
        unsettled: The calls whose outcome is unknown, in their order. Somebody has to find out what
            became of them: the model has only read that nobody knows. Calls that a person has
            settled since are left out. `ChildReport.unsettled` is the number of such calls of a
            delegate, when it ended.
        undoable: The effects of its calls and its delegates' calls that `Turn.undo` can take back,
            the last first. What was taken back since the end is still here: see `Turn.effects`.
        forked_from: The point in another turn from which it went on; None for other turns.
        last_agent: The agent that had the turn at the end: the one that it was last handed over to,
            or else `agent`.
        shared_state: The shared state of its tools at the end.
    """

    turn_id: str
    agent: str
    outcome: Outcome
    output: T = None  # type: ignore[assignment]  # of an error's report, which is of any type
    last_text: str = ""
    risk: str | None = None
    steps: tuple[Step, ...] = ()
    messages: tuple[Message, ...] = ()
    messages_from: int = 1
    usage: Usage = Usage()
    model_calls: int = 0
    tool_calls: int = 0
    cost: Decimal | None = None
    spent: Spending = Spending()
    duration: timedelta = timedelta()
    children: tuple[ChildReport, ...] = ()
    unread: tuple[UserMessage, ...] = ()
    unstopped: tuple[str, ...] = ()
    unsettled: tuple[UnsettledCall, ...] = ()
    undoable: tuple[EffectRecord, ...] = ()
    forked_from: ForkedFrom | None = None
    last_agent: str = ""
    shared_state: SharedState = Field(default={}, exclude_if=not_)


def bounded(children: Sequence[ChildReport], most_bytes: int) -> tuple[ChildReport, ...]:
    """Return the part of a tree that fits, without its lower levels or its last branches."""
    shortened = tuple(children)
    if _size(shortened) > most_bytes:
        shortened = tuple(child.model_copy(update={"children": ()}) for child in shortened)
    while _size(shortened) > most_bytes:
        shortened = shortened[: len(shortened) // 2]
    return shortened


def _size(children: Sequence[ChildReport]) -> int:
    return sum(len(child.model_dump_json()) for child in children)
