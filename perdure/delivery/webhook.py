"""The webhooks of a turn: messages about its waits and its end, and what a delivery needs. Pure.

The message has the form of Standard Webhooks: a type, a time and data.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from operator import not_
from typing import Literal

from pydantic import Field

from perdure.base import Wire
from perdure.delivery.push import PushMessage
from perdure.turn import ending
from perdure.turn.state import TurnState
from perdure.turn.wire import Summary
from perdure.values.approvals import PendingApproval
from perdure.values.reports import Outcome, Usage


class WebhookError(Wire):
    """The error of a turn: its stable code, and a message for people."""

    code: str
    message: str


class WebhookTurn(Wire):
    """A turn that is over.

    Attributes:
        id: The turn's id.
        agent: The agent that it was started with.
        last_agent: The agent that had it at the end.
        outcome: How it ended.
        output: The answer as text, at most 32 KiB of it; JSON if the agent has a type. If `error`
            is set there is no answer, and this is the last text of the model.
        risk: A reason to doubt the output, such as `truncated`.
        error: Why there is no answer; null if there is one.
        steps: The number of completed steps.
        model_calls: The number of its own model calls.
        tool_calls: The number of its own tool calls.
        usage: The tokens of its own model calls.
        cost: The cost in US dollars, delegates included; null if a price is unknown.
        duration_ms: The time from its start to its end.
        labels: Its labels.
        schedule: The id of the schedule that started it; null without a schedule.
        unsettled: The number of calls whose outcome is unknown, delegates included.
    """

    id: str
    agent: str
    last_agent: str
    outcome: Outcome
    output: str
    risk: str | None
    error: WebhookError | None
    steps: int
    model_calls: int
    tool_calls: int
    usage: Usage
    cost: Decimal | None
    duration_ms: int
    labels: dict[str, str]
    schedule: str | None
    unsettled: int = 0


class WebhookWait(Wire):
    """A turn that waits.

    Attributes:
        id: The id of the turn that waits: a person decides about this one.
        root: The id of the first turn, if it is a delegate; otherwise its own.
        agent: The agent that it was started with.
        last_agent: The agent that has it.
        kind: What it waits for: `approval`, `budget`, `iterations`, `resume` or `provider`.
        reason: Why.
        until: When it goes on by itself; null if it does not.
        pending: The calls that somebody has to decide about, with long arguments clipped. Their
            `token` binds a decision to what is shown here.
        labels: Its labels.
        schedule: The id of the schedule that started it; null without a schedule.
    """

    id: str
    root: str
    agent: str
    last_agent: str
    kind: str
    reason: str
    until: datetime | None
    pending: tuple[PendingApproval, ...]
    labels: dict[str, str]
    schedule: str | None


class WaitMessage(Wire):
    """The body of a webhook about a turn that waits.

    Attributes:
        type: `turn.waiting`.
        timestamp: When the wait began.
        data: The turn.
    """

    type: Literal["turn.waiting"]
    timestamp: datetime
    data: WebhookWait

    def body(self) -> bytes:
        """Return the body of the request."""
        return self.model_dump_json().encode()


class WebhookCall(Wire):
    """Input of the workflow that delivers a webhook.

    `id` is the id of the message, the same for every attempt. `run_id` is the run of the turn.
    Without a message, it is about the end of that run, which has not ended yet when this is
    written.
    """

    id: str
    url: str
    turn_id: str
    run_id: str
    message: WaitMessage | None = Field(default=None, exclude_if=not_)


class WebhookMessage(Wire):
    """The body of a webhook about a turn that is over.

    Attributes:
        type: `turn.` and the outcome, such as `turn.completed`.
        timestamp: When the turn ended.
        data: The turn.
    """

    type: str
    timestamp: datetime
    data: WebhookTurn

    def body(self) -> bytes:
        """Return the body of the request."""
        return self.model_dump_json().encode()


class Notification(Wire):
    """Input of the activity that sends a message.

    `id` is the id of the message. `token` is sent with a message about a task of A2A.
    """

    id: str
    url: str
    message: WaitMessage | WebhookMessage | PushMessage
    token: str | None = None


class Delivered(Wire):
    """The answer of a receiver that has the message: its status, and the number of attempts."""

    status: int
    attempts: int = 1


def message_about(
    turn_id: str, state: TurnState, summary: Summary, ended_at: datetime
) -> WebhookMessage:
    """Return the message about the end of a turn. Its error is the error that a caller gets."""
    request, ended = state.request, state.ended
    assert request is not None
    assert ended is not None
    error = ending.error_of(ended, state.cancel_reason)
    turn = WebhookTurn(
        id=turn_id,
        agent=request.agent,
        last_agent=summary.last_agent or request.agent,
        outcome=summary.outcome,
        output=summary.output,
        risk=summary.risk,
        error=None if error is None else WebhookError(code=error.code, message=error.message),
        steps=summary.steps,
        model_calls=summary.model_calls,
        tool_calls=summary.tool_calls,
        usage=summary.usage,
        cost=summary.spent.usd if summary.is_priced else None,
        duration_ms=summary.duration_ms,
        labels=request.labels,
        schedule=request.schedule.id if request.schedule else None,
        unsettled=summary.unsettled,
    )
    return WebhookMessage(type=f"turn.{summary.outcome}", timestamp=ended_at, data=turn)
