"""The fields of a fact that any watcher of the turn may see. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perdure.errors import ErrorInfo
from perdure.turn import ending
from perdure.turn.facts import (
    ApprovalNeeded,
    BudgetAdded,
    CallFailed,
    CallFinished,
    CancelRequested,
    ChildEnded,
    ChildScheduled,
    ChildTold,
    Decided,
    Emitted,
    Fact,
    HandedOver,
    HookEnded,
    JobStopped,
    ModelAnswered,
    PolicyAnswered,
    Polled,
    Resumed,
    Said,
    Scheduled,
    ToolLost,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    Verified,
    WaitBegan,
    WaitEnded,
)
from perdure.turn.keys import HookKey, Key, ModelKey, PolicyKey, ReadKey, ToolKey, VerifyKey
from perdure.turn.wait_values import TurnEvent, Woken
from perdure.turn.wire import ToolOutput
from perdure.values.approvals import Decision, PendingApproval
from perdure.values.messages import ToolCall
from perdure.values.tasks import headline

PRIVATE = frozenset({"task", "arguments", "results", "errors"})
"""The fields that are shown only on request."""

Shown = Iterator[tuple[str, Any]]


def shown(fact: Fact, calls: Sequence[ToolCall], include: frozenset[str]) -> dict[str, Any]:
    """Return the public fields of a fact, and those in `include`."""
    return dict(_shown(fact, calls, include))


def _shown(fact: Fact, calls: Sequence[ToolCall], include: frozenset[str]) -> Shown:
    match fact:
        case TurnStarted():
            yield from _of_start(fact, include)
        case Scheduled(key):
            yield from _of_activity(key, calls, include)
        case ModelAnswered() | HandedOver():
            yield from _of_agent(fact, calls, include)
        case ChildScheduled() | ChildEnded() | ChildTold():
            yield from _of_child(fact, include)
        case Decided() | BudgetAdded() | Said() | Emitted() | Resumed() | CallFinished():
            yield from _of_updates(fact, include)
        case WaitBegan(calls=(_, *_)) | WaitEnded(woken=(_, *_)):
            yield from _of_call_waits(fact, calls, include)
        case WaitBegan() | WaitEnded() | ApprovalNeeded() | PolicyAnswered() | CancelRequested():
            yield from _of_waits(fact, include)
        case ToolReturned() | ToolLost() | Verified() | Polled() | JobStopped():
            yield from _of_call(fact, include)
        case CallFailed() | HookEnded() | TurnEnded():
            yield from _of_end(fact, include)
        case _:
            return


def _of_start(fact: TurnStarted, include: frozenset[str]) -> Shown:
    request, slot = fact.request, fact.slot
    yield from _asked_for(include, task=headline(request.task))
    if "task" in include:
        yield "text", request.task.brief
    if slot is not None and request.schedule is not None:
        yield "schedule", {"id": request.schedule.id, "at": slot.at}
    if request.forked_from is not None:
        yield "forked_from", request.forked_from.model_dump(exclude={"by"})


def _of_activity(key: Key, calls: Sequence[ToolCall], include: frozenset[str]) -> Shown:
    yield "activity", _activity(key)
    if calls and isinstance(key, ToolKey):
        yield from _asked_for(include, arguments=calls[0].arguments)


def _of_agent(
    fact: ModelAnswered | HandedOver, calls: Sequence[ToolCall], include: frozenset[str]
) -> Shown:
    match fact:
        case ModelAnswered(_, answer):
            yield "calls", [_call(call, include) for call in calls]
            yield "stop", answer.stop
            yield "usage", answer.usage
            yield "cost", answer.cost
            if answer.model:
                yield "model", answer.model
        case HandedOver(_, agent):
            yield "to", agent.name


def _of_child(fact: ChildScheduled | ChildEnded | ChildTold, include: frozenset[str]) -> Shown:
    yield "child_number", fact.key.child
    match fact:
        case ChildScheduled(_, turn_id, request):
            yield "child", {"turn": turn_id, "agent": request.agent}
            yield from _asked_for(include, task=headline(request.task))
        case ChildEnded(_, summary, reason):
            yield "outcome", summary.outcome if summary else None
            if summary is not None:
                yield from _asked_for(include, results=summary.output)
            yield from _asked_for(include, errors=reason)
        case ChildTold(_, news):
            yield "waits_for", news.waits_for or None
            yield from _asked_for(include, errors=news.reason)


def _of_updates(
    fact: Decided | BudgetAdded | Said | Emitted | Resumed | CallFinished, include: frozenset[str]
) -> Shown:
    match fact:
        case Decided(decision):
            yield from _of_decision(decision, include)
        case BudgetAdded(more, by, iterations):
            yield "more", more
            if iterations is not None:
                yield "iterations", iterations
            yield from _author(by, include)
        case Said(message_id, text, now, by=by):
            yield "message_id", message_id
            yield "now", now
            if "task" in include:
                yield "text", text
            yield from _author(by, include)
        case Emitted(event, by):
            yield from _of_event(event, include)
            yield from _author(by, include)
        case Resumed(by):
            yield from _author(by, include)
        case CallFinished(_, output, by=by):
            yield from _of_output(output, include)
            yield from _author(by, include)


def _of_output(output: ToolOutput, include: frozenset[str]) -> Shown:
    yield "is_error", output.is_error
    yield from _asked_for(include, results=output.content)


def _of_event(event: TurnEvent, include: frozenset[str]) -> Shown:
    yield "event_id", event.id
    yield "name", event.name
    if event.key:
        yield "key", event.key
    if "task" in include:
        yield "text", event.body


def _of_decision(decision: Decision, include: frozenset[str]) -> Shown:
    yield "approve", decision.approve
    if decision.settlement is not None:
        yield "settlement", decision.settlement
    if decision.answer is not None:
        yield "is_answer", True
    yield from _asked_for(
        include,
        arguments=decision.arguments,
        results=decision.answer,
        errors=decision.reason,
    )
    yield from _author(decision.by, include)


def _author(by: str | None, include: frozenset[str]) -> Shown:
    """Yield who has done something, as named by the caller: a private value, like a reason."""
    if by is not None and "errors" in include:
        yield "by", by


def _of_waits(
    fact: WaitBegan | WaitEnded | ApprovalNeeded | PolicyAnswered | CancelRequested,
    include: frozenset[str],
) -> Shown:
    match fact:
        case WaitBegan(kind, reason, pending, until=until):
            yield "waits_for", kind
            if until is not None:
                yield "until", until
            yield "pending", [_pending(approval, include) for approval in pending]
            yield from _asked_for(include, errors=reason)
        case WaitEnded(expired):
            yield "expired", expired
        case PolicyAnswered(_, ruling):
            yield "verdict", ruling.verdict.kind
        case CancelRequested(reason, by):
            yield from _asked_for(include, errors=reason)
            yield from _author(by, include)
        case ApprovalNeeded(_, reason):
            yield from _asked_for(include, errors=reason)


def _of_call_waits(
    fact: WaitBegan | WaitEnded, calls: Sequence[ToolCall], include: frozenset[str]
) -> Shown:
    if isinstance(fact, WaitBegan):
        yield from _of_waits(fact, include)
        yield "calls", [_call(call, include) for call in calls]
    else:
        named = zip(calls, fact.woken, strict=False)
        yield "woken", [_woken(call, end, include) for call, end in named]


def _of_call(
    fact: ToolReturned | ToolLost | Verified | Polled | JobStopped, include: frozenset[str]
) -> Shown:
    match fact:
        case ToolReturned(_, output):
            yield "is_error", output.is_error
            yield "is_unknown", output.is_unknown
            if output.known is not None:
                yield "known", output.known
            if output.handle is not None:
                yield "is_job", True
            if output.inquiry is not None:
                yield "asks", True
            yield from _asked_for(include, results=output.handle or output.content)
        case ToolLost(_, loss, message, error, sent_at):
            yield "loss", loss
            if sent_at is not None:
                yield "sent_at", sent_at
            yield from _error(error, include)
            if error is None:
                yield from _asked_for(include, errors=message)
        case Verified(_, found):
            yield "verdict", found.verdict
            yield from _asked_for(include, results=found.content)
        case Polled() | JobStopped():
            yield from _of_job(fact, include)


def _of_job(fact: Polled | JobStopped, include: frozenset[str]) -> Shown:
    match fact:
        case Polled(_, None):
            yield "found", False
        case Polled(_, ToolOutput() as output):
            yield "found", output.inquiry is None
            if output.inquiry is not None:
                yield "asks", True
            else:
                yield from _of_output(output, include)
        case JobStopped(_, problem):
            yield "stopped", not problem
            yield from _asked_for(include, errors=problem)


def _of_end(fact: CallFailed | HookEnded | TurnEnded, include: frozenset[str]) -> Shown:
    match fact:
        case CallFailed(_, error, lost):
            yield "lost", lost
            yield from _error(error, include)
        case HookEnded(_, error):
            yield from _error(error, include)
        case TurnEnded(outcome):
            ended = ending.error_of(fact, None)
            yield "outcome", outcome
            yield from _error(ended.info() if ended else None, include)


def _call(call: ToolCall, include: frozenset[str]) -> dict[str, Any]:
    return {
        "call_id": call.id,
        "tool": call.name,
        **dict(_asked_for(include, arguments=call.arguments)),
    }


def _woken(call: ToolCall, end: Woken, include: frozenset[str]) -> dict[str, Any]:
    fields = {"call_id": call.id, "tool": call.name, "by": end.by, "waited_s": end.waited_s}
    event = {"event_id": end.event_id} if end.event_id else {}
    return {**fields, **event, **dict(_asked_for(include, errors=end.reason))}


def _pending(approval: PendingApproval, include: frozenset[str]) -> dict[str, Any]:
    fields = {"call_id": approval.call_id, "tool": approval.tool, "expires_at": approval.expires_at}
    special = {"is_unknown": approval.is_unknown, "is_question": approval.is_question}
    shown = {name: True for name, is_so in special.items() if is_so}
    why = approval.reason if approval.is_unknown else None
    private = _asked_for(include, arguments=approval.arguments, errors=why)
    return {**fields, **shown, **dict(private)}


def _error(error: ErrorInfo | None, include: frozenset[str]) -> Shown:
    yield "error", error.code if error else None
    if error is not None:
        yield from _asked_for(include, errors=error.message)


def _asked_for(include: frozenset[str], **private: str | None) -> Shown:
    """Return the private values that are requested and not empty, by name."""
    names = {"task": "task", "arguments": "arguments", "results": "result", "errors": "message"}
    yield from (
        (names[name], value) for name, value in private.items() if name in include and value
    )


def _activity(key: Key) -> str:
    match key:
        case HookKey("observe"):
            return "observers"
        case HookKey():
            return "middleware"
        case PolicyKey():
            return "policy"
        case VerifyKey():
            return "verify"
        case ReadKey():
            return "delegate"
        case ModelKey():
            return "model"
        case ToolKey():
            return "tool"
        case _:
            return "agent"
