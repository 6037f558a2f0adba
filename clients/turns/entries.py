"""List entries of turns, read from Temporal's list without querying a turn.

The status of the workflow comes first: a turn that was terminated ran no code at its end, so its
attributes are still `running`. The memo comes next, because every namespace keeps it; the search
attributes come last.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import TypeVar

from pydantic import ValidationError, field_validator
from temporalio.api.enums.v1 import WorkflowExecutionStatus as Status
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client
from temporalio.common import TypedSearchAttributes
from temporalio.converter import WorkflowSerializationContext

from perdure import errors
from perdure.base import Value, Wire
from perdure.errors import ErrorInfo
from perdure.temporal import search_attributes
from perdure.temporal.names import MEMO, MEMO_WAIT
from perdure.temporal.payloads import decoded
from perdure.values import states
from perdure.values.reports import Outcome
from perdure.values.states import State

_ENDS = {
    Status.WORKFLOW_EXECUTION_STATUS_COMPLETED: Outcome.COMPLETED,
    Status.WORKFLOW_EXECUTION_STATUS_FAILED: Outcome.FAILED,
    Status.WORKFLOW_EXECUTION_STATUS_CANCELED: Outcome.CANCELLED,
    Status.WORKFLOW_EXECUTION_STATUS_TERMINATED: Outcome.TERMINATED,
    Status.WORKFLOW_EXECUTION_STATUS_TIMED_OUT: Outcome.TIMED_OUT,
}
"""The outcome of a turn that could not record it itself."""

_STOPPED: Mapping[Outcome, type[errors.PerdureError]] = {
    Outcome.FAILED: errors.PerdureError,
    Outcome.CANCELLED: errors.TurnCancelledError,
    Outcome.TERMINATED: errors.TurnTerminatedError,
    Outcome.TIMED_OUT: errors.TurnTimeoutError,
}
"""The error of a turn that has recorded no code."""

E = TypeVar("E", bound=StrEnum)


class TurnEntry(Value):
    """A turn in a list.

    Attributes:
        id: The turn's id; `client.turn(entry.id)` follows it.
        run_id: Temporal's id of its last run.
        agent: The name of the agent that it was started with.
        task: The task, in one line.
        state: The state of the turn. A `paused` turn waits for budget, for more iterations or to be
            resumed, or was paused in Temporal by an operator.
        waits_for: `approval`, `provider`, `budget`, `iterations`, `resume`, `delay`, `timer` or
            `event`; empty for a turn that waits for none of them.
        outcome: The outcome; None before the end.
        steps: The number of completed steps; None before the end, and if the turn did not record
            it.
        spent: The cost in USD; None before the end, and if the price is unknown.
        labels: The labels that it can be found by.
        parent: The id of the turn that delegated to it, or of its batch; empty for other turns.
        started_at: The time it was started.
        ended_at: The time it ended; None before the end.
        error: Why the turn ended without an answer, as its code with the general message of the
            code; or why the entry lacks values that the turn recorded itself, such as its task:
            this process cannot decode them. None for all other entries.
        last_agent: The name of the agent that had it at the end, another one than `agent` if it was
            handed over; `agent` before the end.
        unsettled: The number of its calls, and of its delegates' calls, whose outcome was unknown
            at the end, also if a person has settled them since; 0 before the end.
        version: The version of the agent that it was started with; empty for an agent without
            versions, and before the agent is known.
    """

    id: str
    run_id: str
    agent: str
    task: str
    state: states.OfTurn
    waits_for: str = ""
    outcome: Outcome | None = None
    steps: int | None = None
    spent: Decimal | None = None
    labels: dict[str, str] = {}
    parent: str = ""
    started_at: datetime
    ended_at: datetime | None = None
    error: ErrorInfo | None = None
    last_agent: str = ""
    unsettled: int = 0
    version: str = ""


class _Note(Wire):
    """The part of a turn's memo that is shown."""

    agent: str = ""
    last_agent: str = ""
    task: str = ""
    outcome: str = ""
    error: str = ""
    steps: int = 0
    unsettled: int = 0
    version: str = ""
    cost: Decimal | None = None
    began: datetime | None = None

    @field_validator("cost", mode="before")
    @classmethod
    def _without_its_unit(cls, value: str) -> str:
        return value.removeprefix("$")


async def entry_of(
    client: Client, info: WorkflowExecutionInfo, attributes: TypedSearchAttributes
) -> TurnEntry:
    """Return the entry of a workflow that is a turn."""
    memo, undecodable = await _memo(client, info)
    note = _note(memo.get(MEMO))
    agent = note.agent or search_attributes.value_of(attributes.get(search_attributes.AGENT, ""))
    is_over = info.status in _ENDS
    spent = attributes.get(search_attributes.SPENT)
    labels = attributes.get(search_attributes.LABELS, ())
    outcome = _outcome(info, note, attributes.get(search_attributes.OUTCOME, ""))
    return TurnEntry(
        id=info.execution.workflow_id,
        run_id=info.execution.run_id,
        agent=agent,
        task=note.task,
        state=State.ENDED
        if is_over
        else _state(info, memo.get(MEMO_WAIT), attributes.get(search_attributes.STATE, "")),
        waits_for="" if is_over else _waits_for(memo.get(MEMO_WAIT)),
        outcome=outcome,
        steps=note.steps if note.outcome else attributes.get(search_attributes.STEPS),
        spent=note.cost if note.outcome or spent is None else Decimal(str(spent)),
        labels=search_attributes.labels_of(labels),
        parent=search_attributes.value_of(attributes.get(search_attributes.PARENT, "")),
        started_at=note.began or info.start_time.ToDatetime(tzinfo=UTC),
        ended_at=info.close_time.ToDatetime(tzinfo=UTC) if is_over else None,
        error=undecodable or _error(outcome, note.error),
        last_agent=note.last_agent or agent,
        unsettled=note.unsettled,
        version=note.version or search_attributes.version_in(labels),
    )


def _state(info: WorkflowExecutionInfo, waits_for: object, state_name: str) -> states.OfTurn:
    if info.status != Status.WORKFLOW_EXECUTION_STATUS_RUNNING:
        return State.PAUSED
    kind = _waits_for(waits_for)
    return search_attributes.state_of(kind) if kind else states.of_turn(state_name) or State.RUNNING


def _outcome(info: WorkflowExecutionInfo, note: _Note, name: str) -> Outcome | None:
    """Return the outcome; None before the end."""
    if info.status not in _ENDS:
        return None
    return _known(Outcome, note.outcome or name) or _ENDS[info.status]


def _error(outcome: Outcome | None, code: str) -> ErrorInfo | None:
    """Return the error of a turn by its code; a turn that was stopped may have recorded none."""
    if code:
        return next((e for e in errors.tree() if e.code == code), errors.PerdureError)().info()
    error = _STOPPED.get(outcome) if outcome else None
    return None if error is None else error().info()


def _waits_for(memo: object) -> str:
    return str(memo["kind"]) if isinstance(memo, dict) and "kind" in memo else ""


async def _memo(
    client: Client, info: WorkflowExecutionInfo
) -> tuple[Mapping[str, object], ErrorInfo | None]:
    """Return the turn's memo, or the reason why it cannot be decoded.

    The rest of the list is still usable.
    """
    context = WorkflowSerializationContext(
        namespace=client.namespace, workflow_id=info.execution.workflow_id
    )
    names = [name for name in (MEMO, MEMO_WAIT) if name in info.memo.fields]
    try:
        values = await decoded(
            client.data_converter.with_context(context), [info.memo.fields[name] for name in names]
        )
    except errors.PayloadDecodeError as error:
        return {}, error.info()
    return dict(zip(names, values, strict=True)), None


def _note(memo: object) -> _Note:
    try:
        return _Note.model_validate(memo or {})
    except ValidationError:  # another program's memo of this name
        return _Note()


def _known(cls: type[E], name: str) -> E | None:
    return cls(name) if name in tuple(cls) else None
