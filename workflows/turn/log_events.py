"""The events of a turn in the worker's log, one line each, easy to grep.

The events are `turn_started`, `llm_call`, `tool_call`, `turn_failed` and `turn_completed`, of the
logger `perdure.turns` at level INFO (a failed call of a model is a WARNING, and a failed turn has
the level of its error). The line is `event name=value …`; the record's `perdure` attribute has the
same values for a custom formatter. Names chosen by a model or a caller are quoted as in JSON if
they could be taken for more than one word, or for a terminal command. A replay writes nothing. The
records of a turn's end are written once the server has accepted it, and so at most once. A crash
may lose them, and repeat other lines with the same `event_id`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from temporalio import workflow

from perdure import errors
from perdure.errors import ErrorInfo, PerdureError, Severity
from perdure.temporal.encryption import hiding
from perdure.temporal.search_attributes import shown_labels
from perdure.temporal.trace_ids import TURN_ENDED, WAIT_BEGAN, WRITE
from perdure.text import one_line, word
from perdure.turn import approvals, fallback, steps
from perdure.turn.facts import (
    CallFailed,
    ModelAnswered,
    PolicyAnswered,
    Recorded,
    ToolLost,
    ToolReturned,
    Verified,
    WaitEnded,
)
from perdure.turn.keys import (
    ChildKey,
    HandoffKey,
    Key,
    ModelKey,
    ReadKey,
    ToolKey,
    VerifyKey,
    parse_key,
)
from perdure.turn.state import TurnState
from perdure.turn.wait_values import Woken
from perdure.turn.wire import Summary
from perdure.values.losses import Loss
from perdure.values.messages import ToolResult

logger = logging.getLogger("perdure.turns")
# without a logging configuration, Python would print warnings to standard error
logger.addHandler(logging.NullHandler())

_LEVELS = {
    Severity.FATAL: logging.CRITICAL,
    Severity.ERROR: logging.ERROR,
    Severity.WARN: logging.WARNING,
    Severity.INFO: logging.INFO,
}

_ERROR_CHARACTERS = 300

Value = str | int | Decimal | None


def handed_over(before: TurnState, after: TurnState, key: HandoffKey) -> None:
    """Record the end of a handoff, and the new agent if it succeeded."""
    answered_without_a_run(before, after)
    if len(after.handoffs.by) > len(before.handoffs.by):
        _write(after, "handed_over", key, by=before.last_agent, to=after.last_agent)


def turn_started(state: TurnState) -> None:
    """Record that the agent is known, or cannot be resolved."""
    task_type = state.request.task.type if state.request else ""
    _write(
        state,
        "turn_started",
        "start",
        task_type=task_type,
        tier=state.agent.tier if state.agent else "",
    )


def call_ended(before: TurnState, after: TurnState, fact: Recorded, took_ms: int) -> None:
    """Record the end of a model call, a tool call or a policy request.

    `before` and `after` are the states around the fact.
    """
    match fact:
        case PolicyAnswered():
            answered_without_a_run(before, after)
        case ModelAnswered():
            _model_answered(before, after, fact)
        case CallFailed(ModelKey() as key, error):
            _model_failed(before, after, key, error)
        case ToolReturned(_, output) if output.handle is not None or output.inquiry is not None:
            pass  # it waits for its job, or for people
        case ToolReturned(key, output):
            message = output.content if output.is_error else ""
            outcome = "error" if output.is_error else "ok"
            if output.is_unknown:
                outcome = "unknown"
            if output.known is not None:
                outcome = f"{output.known}_before"
            _tool_ended(before, after, key, output.duration_ms, outcome, message)
        case ToolLost(key, loss):
            _tool_ended(before, after, key, took_ms, loss.value)
        case Verified(key, found):
            reason = found.content if found.verdict == "unreadable" else ""
            _tool_ended(before, after, key, took_ms, found.verdict, reason, event="verified")


def _model_answered(before: TurnState, after: TurnState, fact: ModelAnswered) -> None:
    answer = after.open_step.answer or fact.answer
    _write(
        after,
        "llm_call",
        fact.key,
        model=answer.model,
        duration_ms=answer.duration_ms,
        tokens=answer.usage.input_tokens + answer.usage.output_tokens,
        cost_usd=after.open_step.bill.cost if after.open_step.bill else None,
        outcome=answer.stop.value,
    )
    if after.open_step.answer is not before.open_step.answer:  # else it came too late
        answered_without_a_run(before, after)
        _cut_off(after, fact.key.step)


def _model_failed(before: TurnState, after: TurnState, key: ModelKey, error: ErrorInfo) -> None:
    target = fallback.target_of(before, key)
    is_priced = target is not None and target.price is not None
    charged = after.accounts.ledger.spent.usd - before.accounts.ledger.spent.usd
    _write(
        after,
        "llm_call",
        key,
        level=logging.WARNING,  # an outage lasts for many attempts before a turn fails
        model=target.name if target else "",
        duration_ms=None,
        tokens=0,
        cost_usd=charged if is_priced else None,
        outcome=error.code,
        error_text=error.message,
    )


def _tool_ended(
    before: TurnState,
    after: TurnState,
    key: ToolKey | VerifyKey,
    duration_ms: int,
    outcome: str,
    error_text: str = "",
    *,
    event: str = "tool_call",
) -> None:
    open_call = before.open_step.find(key.call)
    if open_call is None:
        return
    _write(
        after,
        event,
        key,
        tool=open_call.call.name,
        duration_ms=duration_ms,
        outcome=outcome,
        error_text=error_text,
        **_decided_by(before, open_call.call.id),
    )


def waits_ended(before: TurnState, after: TurnState, ended: WaitEnded) -> None:
    """Record the calls whose waits are over."""
    for end in ended.woken:
        key = parse_key(end.key)
        if isinstance(key, ToolKey):
            outcome = _outcome_of_wait(before, key, end)
            took_ms = int(end.waited_s * 1000)
            _tool_ended(before, after, key, took_ms, outcome, end.reason)


def _outcome_of_wait(before: TurnState, key: ToolKey, end: Woken) -> str:
    open_call = before.open_step.find(key.call)
    job = open_call.job if open_call else None
    if job is None:
        return "error" if end.by == "refused" else "ok"
    if job.output is None:
        return Loss.TIMED_OUT.value
    return "error" if job.output.is_error else "ok"


def answered_without_a_run(before: TurnState, after: TurnState, *, refused: str = "denied") -> None:
    """Record calls that have a result although nothing ran.

    A policy or a person denied them, an approval expired, the budget is spent, or the fold itself
    knows the answer.
    """
    has_results = after.open_step.calls or after.step_count > before.step_count
    for position, result in enumerate(_results(after) if has_results else (), 1):
        earlier = before.open_step.find(position)
        if result is None or (earlier and earlier.result):
            continue
        key = ToolKey(before.step_count + 1, position)
        outcome = _outcome_of(result, before, key, refused)
        _write(
            before,
            "tool_call",
            key,
            tool=result.name,
            duration_ms=0,
            outcome=outcome,
            error_text=result.content if outcome == "error" else "",
            **_decided_by(after, result.call_id),
        )


def _outcome_of(result: ToolResult, before: TurnState, key: ToolKey, refused: str) -> str:
    """Return the outcome of a call that has this result although nothing ran."""
    if result.content == steps.BESIDE_HANDOFF:
        return "not_run"
    if result.content.startswith((approvals.NOT_RUN, approvals.NOT_ANSWERED)):
        return refused
    if result.content.startswith(steps.NOT_RUN):
        return _unfinished(before, key)
    return "error" if result.is_error else "ok"


def _results(state: TurnState) -> Sequence[ToolResult | None]:
    """Return the results of the calls of the open step, or of the step that was closed last."""
    return [open_call.result for open_call in state.open_step.calls] or (
        state.steps[-1].results if state.steps else ()
    )


def _decided_by(state: TurnState, call_id: str) -> dict[str, Any]:
    """Return who decided about a call of the open step or the last step, if known."""
    decisions = state.open_step.decisions or (state.steps[-1].decisions if state.steps else ())
    decision = approvals.decision_about(call_id, decisions)
    return {"decided_by": decision.by} if decision and decision.by is not None else {}


def _cut_off(state: TurnState, step: int) -> None:
    """Record the calls of an answer that was cut off, declined or rejected, which do not run."""
    if state.open_step.answer is None or state.open_step.calls or state.steps[-1].results:
        return
    for position, call in enumerate(state.open_step.answer.message.calls, 1):
        _write(
            state,
            "tool_call",
            ToolKey(step, position),
            tool=call.name,
            duration_ms=0,
            outcome="not_run",
        )


def _left_open(state: TurnState, took_ms: Callable[[ToolKey], int]) -> None:
    """Record the calls without a result at the end of a turn."""
    for position, open_call in state.open_step.unfinished:
        key = ToolKey(state.step_count + 1, position)
        _write(
            state,
            "tool_call",
            key,
            tool=open_call.call.name,
            duration_ms=took_ms(key),
            outcome=_unfinished(state, key),
        )


def _unfinished(state: TurnState, key: ToolKey) -> str:
    """Return whether a call without a result was never run, or could not be stopped."""
    runs = any(
        isinstance(running, ToolKey | HandoffKey | ChildKey | ReadKey)
        and (running.step, running.call) == (key.step, key.call)
        for running in state.in_flight
    )
    return "unstopped" if runs else "not_run"


def delegation_ended(before: TurnState, after: TurnState, key: ChildKey) -> None:
    """Record the end of a delegate's turn if it completes the call."""
    open_call, results = before.open_step.find(key.call), _results(after)
    if open_call is None or open_call.result is not None:
        return
    result = results[key.call - 1] if key.call <= len(results) else None
    if result is not None:
        took = [
            child.summary.duration_ms
            for child in after.children_of(key.step, key.call)
            if child.summary
        ]
        _tool_call(after, ToolKey(key.step, key.call), result, max(took, default=0))


def passed(state: TurnState, event: str, level: int, **fields: Value) -> None:
    """Record that a turn enters or leaves a `Logger` middleware."""
    _write(state, event, event, level=level, error_text="", steps=state.step_count, **fields)


def turn_ended(
    state: TurnState,
    summary: Summary,
    took_ms: Callable[[ToolKey], int],
    error: PerdureError | None = None,
) -> None:
    """Record the end of a turn, after its error if it failed. `took_ms` measures running calls."""
    _left_open(state, took_ms)
    counts = {
        "duration_ms": summary.duration_ms,
        "llm_calls": summary.model_calls,
        "tool_calls": summary.tool_calls,
    }
    if isinstance(error, errors.AutonomyBoundaryError):
        violation, tool = error.context.get("violation"), error.context.get("tool")
        _write(
            state,
            "autonomy_boundary",
            "end",
            level=logging.ERROR,
            violation=str(violation),
            tool=str(tool),
        )
    if error is not None:
        _write(
            state,
            "turn_failed",
            "end",
            level=_LEVELS[error.severity],
            **counts,
            error_class=type(error).__name__,
            error_text=error.message,
        )
    cost = summary.spent.usd if summary.is_priced else None
    _write(
        state,
        "turn_completed",
        "end",
        error_text="",
        **counts,
        cost_usd=cost,
        outcome=summary.outcome.value,
    )
    telemetry = workflow.extern_functions().get(TURN_ENDED)
    if telemetry is not None and not workflow.unsafe.is_replaying():
        _when_taken(telemetry(state, summary, error))


def wait_began(state: TurnState, kind: str) -> None:
    """Count a wait of this kind, without logging it."""
    telemetry = workflow.extern_functions().get(WAIT_BEGAN)
    if telemetry is not None and not workflow.unsafe.is_replaying():
        _when_taken(telemetry(state, kind))


def _tool_call(state: TurnState, key: ToolKey, result: ToolResult, duration_ms: int) -> None:
    outcome, message = ("error", result.content) if result.is_error else ("ok", "")
    by = _decided_by(state, result.call_id)
    _write(
        state,
        "tool_call",
        key,
        tool=result.name,
        duration_ms=duration_ms,
        outcome=outcome,
        error_text=message,
        **by,
    )


def _version_of(state: TurnState) -> dict[str, Value]:
    """Return the version of the agent that the turn was started with, if it has versions."""
    version = state.agent.version.started if state.agent else ""
    return {"version": version} if version else {}


def _write(
    state: TurnState,
    event: str,
    key: Key | str,
    *,
    level: int = logging.INFO,
    error_text: str = "",
    **fields: Value,
) -> None:
    """Write a record. `error_text` is an error message, of which the beginning is recorded."""
    if workflow.unsafe.is_replaying() or not logger.isEnabledFor(level):
        return
    info = workflow.info()
    request = state.request
    labels = shown_labels(request.labels) if request else {}
    tells = not hiding.encrypts()  # a message may quote what is encrypted elsewhere
    values: dict[str, Value] = {
        "event_id": f"{info.run_id}/{event}/{key}",
        "agent": request.agent if request else "",
        **_version_of(state),
        **({"last_agent": state.other_agent} if state.other_agent else {}),
        "task": info.workflow_id,
        **fields,
        **({"error": one_line(error_text, _ERROR_CHARACTERS)} if tells and error_text else {}),
        **({f"label.{name}": value for name, value in labels.items()}),
    }
    line = " ".join(
        f"{_shown(name)}={_shown(value)}"
        for name, value in values.items()
        if value not in ("", None)
    )
    _when_taken(
        functools.partial(
            logger.log, level, "%s %s", event, line, extra={"perdure": {"event": event, **values}}
        )
    )


def _when_taken(write: Callable[[], None]) -> None:
    """Write once the server has accepted the task, or now if the worker is not Perdure's."""
    later = workflow.extern_functions().get(WRITE)
    if later is None:
        write()
    else:
        later(write)


def _shown(value: Value) -> str:
    """Return a name or a value for a line, quoted if ambiguous, and without terminal escapes."""
    return word(f"{value:f}" if isinstance(value, Decimal) else str(value))
