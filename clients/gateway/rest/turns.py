"""Turns over HTTP: start them, look at them, and act on them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from operator import not_
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import Field, JsonValue

from perdure import errors
from perdure.base import Value
from perdure.clients.gateway.ids import checked, new_id
from perdure.clients.gateway.inputs import Body, Query, key_of
from perdure.clients.gateway.operations import Accepted, Call, operation
from perdure.clients.gateway.options import (
    Cancelled,
    CommonOptions,
    LabelledPages,
    ModelOptions,
    ModelRetry,
    Reason,
    Reference,
    Seconds,
    budget_of,
    check_limits,
    content_of,
)
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.quotas import check_turns
from perdure.clients.turns.entries import TurnEntry
from perdure.clients.turns.handle import Turn
from perdure.clients.turns.status import TurnStatus
from perdure.errors import ErrorInfo
from perdure.temporal import access
from perdure.values import states
from perdure.values.budgets import Budget, Iterations, Remaining
from perdure.values.effects import EffectRecord
from perdure.values.messages import Message, UserParts
from perdure.values.moments import AMoment
from perdure.values.reports import AgentReport, ForkedFrom, Outcome, UnsettledCall, Usage
from perdure.values.shared_state import SharedState
from perdure.values.tasks import Task
from perdure.values.turn_options import Subject, Version
from perdure.values.webhooks import WebhookUrl


class StartTurn(CommonOptions):
    """The turn to start.

    Attributes:
        agent: The name of the agent.
        task: The task: text, or an object with parts and constraints.
        id: The turn's id; the same id is the same turn. The header `Idempotency-Key` can have it
            instead. Without both, it is a random one.
        context: Named blocks that are placed before the task.
        delay: The time after which the turn begins, such as `PT2H`, or a date with its time zone.
        deadline: The time after which it ends at the latest, from its start, or a date.
        live: Whether its events have the text of the model while it is generated.
        history: Messages of an earlier turn to continue from, as `/messages` returns them.
    """

    agent: str
    task: str | Task
    id: str | None = None
    context: dict[str, str] = {}
    delay: AMoment | None = None
    deadline: AMoment | None = None
    live: bool = False
    history: Annotated[tuple[Message, ...], Field(fail_fast=True)] = ()


class TurnReference(Value):
    """A turn that was started, or found: its complete id, and Temporal's id of its first run."""

    id: str
    run_id: str


class TurnList(Value):
    """Turns in a list: those that are not over first, then the others, the last ended first.

    `next` is the cursor of the next page; null if there is none.
    """

    turns: tuple[TurnEntry, ...]
    next: str | None = None


class TurnMessages(Value):
    """The messages of a turn that is over: the task, the answers of the model, and results."""

    messages: tuple[Message, ...]


class ListTurns(LabelledPages):
    """Which turns to list. `parent` and `schedule` are ids, `version` is that of the agent.

    `subject` is their data subject.
    """

    state: states.OfTurn | None = None
    outcome: Outcome | None = None
    parent: str | None = None
    schedule: str | None = None
    version: Version | None = None
    subject: Subject | None = None


class WaitFor(Query):
    """How many seconds to wait."""

    wait: Seconds = 0


class TurnResult(Value):
    """The result of a turn that is over.

    Attributes:
        id: The turn's id.
        agent: The agent that it was started with.
        last_agent: The agent that had it at the end.
        outcome: How it ended.
        output: The answer: text, or JSON values if the agent has a type; null without an answer.
        last_text: Without an answer, the last text of the model; otherwise empty.
        error: Why there is no answer; null if there is one.
        risk: A reason to doubt the output, such as `truncated`.
        steps: The number of completed steps.
        usage: The tokens of its own model calls.
        cost: The cost in US dollars; null if a price is unknown.
        duration: The time from its start to its end.
        unread: The texts of messages that no answer of the model follows.
        unsettled: Its own calls whose outcome is unknown.
        undoable: The effects of its calls and its delegates' calls that can be undone, the last
            first.
        forked_from: The point in another turn from which it went on.
        shared_state: The shared state of its tools at the end; absent if that is empty.
    """

    id: str
    agent: str
    last_agent: str
    outcome: Outcome
    output: JsonValue = None
    last_text: str = ""
    error: ErrorInfo | None = None
    risk: str | None = None
    steps: int
    usage: Usage
    cost: Decimal | None = None
    duration: timedelta
    unread: tuple[str, ...] = ()
    unsettled: tuple[UnsettledCall, ...] = ()
    undoable: tuple[EffectRecord, ...] = ()
    forked_from: ForkedFrom | None = None
    shared_state: SharedState = Field(default={}, exclude_if=not_)


class MoreBudget(Body):
    """What to add to the limits of a turn: amounts, iterations, or both."""

    budget: Budget | None = None
    iterations: Iterations | None = None


class SteerTurn(Body):
    """A message to a running turn.

    Attributes:
        text: The message, or its beginning.
        parts: Images, files and texts that follow.
        id: Its id; the same id is the same message. The header `Idempotency-Key` can have it
            instead.
        now: Whether a running model call is stopped, so that the model reads it at once.
        deny_pending: Whether calls that wait for approval are denied.
    """

    text: str = ""
    parts: UserParts = ()
    id: str | None = None
    now: bool = False
    deny_pending: bool = False


class EmitEvent(Body):
    """An event for a running turn.

    Attributes:
        name: The name by which the model waits for it.
        body: What it holds, any JSON value.
        id: Its id; the same id is the same event. The header `Idempotency-Key` can have it
            instead.
    """

    name: str
    body: JsonValue = None
    id: str | None = None


class ForkTurn(Body):
    """The step from which a new turn continues, and its options.

    Attributes:
        at_step: The number of a complete step; 0 for the task alone, null for the last one.
        say: A message of the user. It is required after a last answer.
        agent: The agent of the new turn.
        model: The model of the new turn; it needs the permission `override`.
        id: The new turn's id, or the header `Idempotency-Key`.
        labels: The labels of the new turn, in place of those of the other.
        instructions: The caller's instructions, in place of those of the other.
        options: Temperature and the like; each overrides that of the other turn.
            `max_output_tokens` needs the permission `budget`.
        output_schema: The JSON schema of the answer, in place of that of the other.
        live: Whether its events have the text of the model while it is generated.
        budget: The limits of the new turn; it needs the permission `budget`.
        max_iterations: The largest number of its steps; it needs the permission `budget`.
        model_retry: Its retries while a provider is unavailable; they need the permission `budget`.
        on_done: The URL of the webhook about the end of the new turn.
        on_wait: The URL of webhooks about its waits.
        version: The version of the agent of the new turn; it needs the permission `override`.
    """

    at_step: int | None = None
    say: str | None = None
    agent: str | None = None
    model: str | None = None
    id: str | None = None
    labels: dict[str, str] | None = None
    instructions: str | None = None
    options: ModelOptions | None = None
    output_schema: dict[str, JsonValue] | None = None
    live: bool | None = None
    budget: Budget | None = None
    max_iterations: Iterations | None = None
    model_retry: ModelRetry | None = None
    on_done: WebhookUrl | None = None
    on_wait: WebhookUrl | None = None
    version: Version | None = None


class ResumeTurn(Body):
    """The limits of the new turn, and its id; a turn that waits takes none of them."""

    id: str | None = None
    budget: Budget | None = None
    max_iterations: Iterations | None = None
    model_retry: ModelRetry | None = None


@operation("POST", "/v1/turns", may="start", takes_key=True)
async def start_turn(call: Call, body: StartTurn) -> Accepted[TurnReference]:
    """Start a turn.

    A turn of this id with the same agent, task and context is returned as it is, running or over.
    """
    caller = call.caller
    check_limits(caller, body, budget_of(body.task))
    turn_id = new_id(call, body.id, body.agent)
    await check_turns(call.client, caller, turn_id)
    turn = await call.client.start(
        body.agent,
        body.task,
        id=turn_id,
        live=body.live,
        fairness=caller.tenant,
        by=caller.subject,
        context=body.context or None,
        delay=body.delay,
        deadline=body.deadline,
        history=body.history,
        **body.common(caller),
    )
    return await _reference(call, turn)


@operation("GET", "/v1/turns", may="read")
async def list_turns(call: Call, query: ListTurns) -> TurnList:
    """List turns, delegates included, page by page. The list may lag a second behind.

    A page may have fewer turns than the limit before the end.
    """
    complete = call.caller.own
    listing = call.client.turns(
        query.agent,
        outcome=query.outcome,
        state=query.state,
        labels=query.labels,
        parent=query.parent and complete(query.parent),
        schedule=query.schedule and complete(query.schedule),
        id_prefix=call.caller.prefix or None,
        version=query.version,
        subject=query.subject and complete(query.subject),
    )
    page = await listing.page(query.after, size=query.limit)
    return TurnList(turns=page.entries, next=page.next)


@operation("GET", "/v1/turns/{id:path}/result", may="read")
async def get_result(call: Call, query: WaitFor) -> TurnResult | Accepted[TurnStatus]:
    """Return the result of a turn, or wait for it.

    If the turn is not over after the wait, the answer is 202 with its status.
    """
    with call.stay_open():
        turn = call.client.turn(call.id)
        status = await turn.status()
        if status.outcome is None and not await _is_over(turn, query.wait):
            return await turn.status()
        return _result(*await _ended(turn))


@operation("GET", "/v1/turns/{id:path}/messages", may="read")
async def get_turn_messages(call: Call) -> TurnMessages:
    """Return the messages of a turn that is over, with which another one can begin."""
    turn = call.client.turn(call.id)
    if (await turn.status()).outcome is None:
        raise RefusedError(409, "TURN_RUNNING", "the turn is not over, so its messages change")
    report, _ = await _ended(turn)
    return TurnMessages(messages=report.messages)


@operation("GET", "/v1/turns/{id:path}", may="read")
async def get_turn(call: Call, query: WaitFor) -> TurnStatus:
    """Return the status of a turn.

    With `wait`, the answer comes as soon as the turn is over or needs a person.
    """
    if not query.wait:
        return await call.client.turn(call.id).status()
    with call.stay_open():
        return await call.client.turn(call.id).wait(query.wait)


@operation("POST", "/v1/turns/{id:path}/cancel", may="control")
async def cancel_turn(call: Call, body: Reason) -> Accepted[Cancelled]:
    """Ask a turn to stop. It ends within seconds, with the reason in its result."""
    turn = call.client.turn(call.id)
    cancelled = await turn.cancel(body.reason, by=call.caller.subject)
    return Cancelled(cancelled=cancelled)


@operation("POST", "/v1/turns/{id:path}/add-budget", may="budget")
async def add_budget(call: Call, body: MoreBudget) -> Remaining:
    """Add to the budget of a turn, or to its iterations, and return the rest.

    A turn that waits for that continues. A request that is repeated adds again.
    """
    return await call.client.turn(call.id).add_budget(
        body.budget, iterations=body.iterations, by=call.caller.subject
    )


@operation("POST", "/v1/turns/{id:path}/steer", may="control", takes_key=True)
async def steer_turn(call: Call, body: SteerTurn) -> Accepted[Reference]:
    """Send a message of the user to a running turn."""
    if body.deny_pending:
        call.caller.require("decide")
    message_id = await call.client.turn(call.id).steer(
        content_of(body.text, body.parts),
        id=body.id if body.id is not None else key_of(call.request),
        now=body.now,
        deny_pending=body.deny_pending,
        by=call.caller.subject,
    )
    return Reference(id=message_id)


@operation("POST", "/v1/turns/{id:path}/events", may="control", takes_key=True)
async def emit_event(call: Call, body: EmitEvent) -> Accepted[Reference]:
    """Send an event to a running turn, which ends the wait of a call for it, or is kept."""
    event_id = await call.client.turn(call.id).emit(
        body.name,
        body.body,
        id=body.id if body.id is not None else key_of(call.request),
        by=call.caller.subject,
    )
    return Reference(id=event_id)


@operation("POST", "/v1/turns/{id:path}/fork", may="start", takes_key=True)
async def fork_turn(call: Call, body: ForkTurn) -> Accepted[TurnReference]:
    """Start a turn that continues from a complete step of another turn, which is not changed.

    Calls after that step may happen again. Without an id, each request starts another turn.
    """
    check_limits(call.caller, body)
    if body.model is not None:
        call.caller.require("override")
    own_id = _optional_id(call, body.id)
    await check_turns(call.client, call.caller, own_id)
    turn = await call.client.turn(call.id).fork(
        body.at_step,
        id=own_id,
        say=body.say,
        agent=body.agent,
        model=body.model,
        labels=body.labels,
        instructions=body.instructions,
        options=None if body.options is None else body.options.options,
        output_schema=body.output_schema,
        live=body.live,
        budget=body.budget,
        max_iterations=body.max_iterations,
        model_retry=body.model_retry,
        on_done=body.on_done,
        on_wait=body.on_wait,
        version=body.version,
        by=call.caller.subject,
    )
    return await _reference(call, turn)


@operation("POST", "/v1/turns/{id:path}/resume", may="start", takes_key=True)
async def resume_turn(call: Call, body: ResumeTurn) -> Accepted[TurnReference]:
    """Continue a turn that ended without an answer, as a new turn, or that waits for a provider.

    Without an id, each request starts another turn.
    """
    check_limits(call.caller, body)
    turn, own_id = call.client.turn(call.id), _optional_id(call, body.id)
    is_limited = call.caller.tenant is not None
    starts = not is_limited or await turn.resume_step() is not None
    if starts and is_limited:
        await check_turns(call.client, call.caller, own_id)
    turn = await turn.resume(
        body.budget,
        max_iterations=body.max_iterations,
        model_retry=body.model_retry,
        id=own_id,
        by=call.caller.subject,
        start=starts,  # a turn that ends now would start one that was not counted
    )
    return await _reference(call, turn)


def _optional_id(call: Call, own_id: str | None) -> str | None:
    """Return the id of a turn that continues another turn; None if the caller names none."""
    chosen = own_id if own_id is not None else key_of(call.request)
    return None if chosen is None else access.TURN.new_id(checked(call, chosen))


async def _reference(call: Call, turn: Turn[Any]) -> TurnReference:
    call.locate(f"/v1/turns/{quote(turn.id)}")
    return TurnReference(id=turn.id, run_id=await turn.first_run())


async def _is_over(turn: Turn[Any], wait: float) -> bool:
    """Wait for the end of a turn, and return whether it is over."""
    try:
        async with asyncio.timeout(wait):
            async for _ in turn.events():
                pass
    except TimeoutError:
        return False
    return True


async def _ended(turn: Turn[Any]) -> tuple[AgentReport[Any], ErrorInfo | None]:
    """Return the report of a turn that is over, and why there is no answer."""
    try:
        return await turn.result(), None
    except errors.PerdureError as raised:
        if raised.report is None:
            raise
        return raised.report, raised.info()


def _result(report: AgentReport[Any], error: ErrorInfo | None) -> TurnResult:
    return TurnResult(
        id=report.turn_id,
        agent=report.agent,
        last_agent=report.last_agent,
        outcome=report.outcome,
        output=report.output,
        last_text=report.last_text,
        error=error,
        risk=report.risk,
        steps=len(report.steps),
        usage=report.usage,
        cost=report.cost,
        duration=report.duration,
        unread=tuple(message.brief for message in report.unread),
        shared_state=report.shared_state,
        unsettled=report.unsettled,
        undoable=report.undoable,
        forked_from=report.forked_from,
    )
