"""The report or the error for a caller at the end of a turn. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure import errors, limits
from perdure.errors import PerdureError
from perdure.schemas import output_type
from perdure.schemas.strict_schema import Schema
from perdure.text import clip
from perdure.turn import effects, undo, unsettled, withheld
from perdure.turn.facts import TurnEnded
from perdure.turn.state import TurnState
from perdure.turn.wire import Summary
from perdure.values import reports
from perdure.values.effects import within
from perdure.values.reports import AgentReport, Outcome


def error_of(ended: TurnEnded, cancel_reason: str | None) -> PerdureError | None:
    """Return the caller's error for the end of a turn; None for a turn with an answer."""
    match ended.outcome:
        case Outcome.COMPLETED | Outcome.TRUNCATED:
            return None
        case Outcome.BUDGET_EXHAUSTED if ended.summary and ended.summary.error is None:
            return None
        case Outcome.CANCELLED:
            return errors.TurnCancelledError(
                f"the turn was cancelled: {cancel_reason}" if cancel_reason else None
            )
        case Outcome.TERMINATED:
            return errors.TurnTerminatedError(
                f"the turn was terminated: {ended.reason}" if ended.reason else None
            )
        case Outcome.TIMED_OUT if ended.summary is None or ended.summary.error is None:
            return errors.TurnTimeoutError(ended.reason)
        case _:
            info = ended.summary.error if ended.summary else None
            return errors.from_info(info) if info else PerdureError(ended.reason)


def summary(
    state: TurnState,
    outcome: Outcome,
    duration: timedelta,
    *,
    output: str = "",
    risk: str | None = None,
    error: PerdureError | None = None,
) -> Summary:
    """Return the summary of a turn, with bounded fields."""
    return Summary(
        agent=state.request.agent if state.request else "",
        last_agent=state.other_agent,
        outcome=outcome,
        output=clip(output, limits.SUMMARY_BYTES // 2),
        risk=risk,
        steps=state.step_count,
        model_calls=state.accounts.model_calls,
        tool_calls=state.tool_calls,
        usage=state.accounts.usage,
        spent=state.charged,
        is_priced=state.is_priced,
        duration_ms=int(duration.total_seconds() * 1000),
        length=state.transcript.length,
        digest=state.transcript.digest,
        error=error.info() if error else None,
        children=reports.bounded(
            [child.report for child in state.children], limits.SUMMARY_BYTES // 4
        ),
        descendants=state.descendants,
        effects=within(effects.gathered(state), limits.SUMMARY_BYTES // 4),
        unsettled=unsettled.count(state),
    )


def report_of(turn_id: str, summary: Summary) -> AgentReport[Any]:
    """Return the report of a turn from its summary, without steps and messages."""
    return AgentReport(
        turn_id=turn_id,
        agent=summary.agent,
        last_agent=summary.last_agent or summary.agent,
        outcome=summary.outcome,
        output=summary.output,
        risk=summary.risk,
        usage=summary.usage,
        model_calls=summary.model_calls,
        tool_calls=summary.tool_calls,
        cost=summary.spent.usd if summary.is_priced else None,
        spent=summary.spent,
        duration=summary.duration,
        children=summary.children,
    )


def report(
    turn_id: str,
    state: TurnState,
    outcome: Outcome,
    *,
    risk: str | None = None,
    duration: timedelta = timedelta(),
) -> AgentReport[Any]:
    """Return the report of a turn from its facts, including what a summary omits or truncates.

    Answers that the checks of the agent have not let pass are withheld.
    """
    state = withheld.shown(state)
    fields = {
        "output": state.output,
        "duration": duration,
        "steps": state.all_steps,
        "messages": state.all_messages,
        "messages_from": state.whole_from,
        "children": tuple(child.report for child in state.children),
        "unread": state.unread,
        "unstopped": tuple(str(key) for key in state.in_flight),
        "unsettled": tuple(unsettled.calls(state)),
        "undoable": undo.undoable(state, turn_id),
        "forked_from": state.request.forked_from if state.request else None,
        "shared_state": state.shared,
    }
    return report_of(turn_id, summary(state, outcome, duration, risk=risk)).model_copy(
        update=fields
    )


def without_answer(report: AgentReport[Any]) -> AgentReport[Any]:
    """Return the report of a turn that has no answer: its text is only the last of the model."""
    return report.model_copy(update={"output": None, "last_text": report.output})


def typed(report: AgentReport[Any], expected_type: Any, schema: Schema | None) -> AgentReport[Any]:
    """Return the report with its output as an instance of a type.

    Without a type, the output is text, or JSON values if there is a schema.

    Raises:
        OutputInvalidError: The answer is not such an instance.
    """
    try:
        output = output_type.read(report.output, expected_type, schema)
    except ValueError as error:
        model = report.steps[-1].model if report.steps else report.agent
        message = (
            f"{model}: {output_type.OBJECTION}: {error}{_other_type_note(expected_type, schema)}"
        )
        raise errors.OutputInvalidError(
            message, context={"model": model}, report=without_answer(report)
        ) from None
    return report.model_copy(update={"output": output})


def _other_type_note(output: Any, schema: Schema | None) -> str:
    """Return the note for an answer that was requested with the schema of another type."""
    try:
        is_same = output is None or schema is None or output_type.schema_of(output) == schema
    except PerdureError:
        is_same = True
    if is_same:
        return ""
    return (
        "; the turn was held to another type or another version of this one, and typed(str) reads"
        " its answer as text"
    )
