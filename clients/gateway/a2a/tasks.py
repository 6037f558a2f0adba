"""Tasks, as A2A describes them, from the statuses and reports of turns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple, cast

from a2a.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from google.protobuf.json_format import ParseDict, ParseError
from pydantic_core import from_json, to_json

from perdure import errors
from perdure.clients.reading.events import Event
from perdure.clients.turns.entries import TurnEntry
from perdure.clients.turns.status import TurnStatus, Wait
from perdure.delivery import push
from perdure.text import quoted
from perdure.turn.facts import ModelAnswered, Said, TurnStarted
from perdure.turn.waiting import PEOPLE
from perdure.values.approvals import Kind, PendingApproval
from perdure.values.reports import AgentReport, Outcome
from perdure.values.states import State

OVER = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)
"""The states of a task that is over."""
_APPROVE = (
    "The call {tool} waits for approval. To decide, send a message to this task whose only part is"
    ' data: {{"approve": true, "callId": …, "token": …}}, with the values of the data part that'
    " follows. It may have a reason, and an approval other arguments. Text is not taken as a"
    " decision."
)
_SETTLE = (
    "The call {tool} was made, and its outcome is unknown. To say what became of it, send a message"
    ' to this task whose only part is data: {{"settlement": "done", "callId": …, "token": …}}, with'
    " the values of the data part that follows: done if it has taken effect, absent if it has not,"
    " or again to make it again. It may have a result, which the model reads. Text is not taken as"
    " a decision."
)
_ANSWER = (
    "The agent asks by the call {tool}{server}. To answer, send a message to this task whose only"
    ' part is data: {{"answer": …, "callId": …, "token": …}}, with the values of the data part that'
    ' follows, and an answer that fits its schema. To decline, it has "approve": false in place of'
    " the answer, and may have a reason. Text is not taken as an answer. The question is:"
)
_TYPES: dict[Kind, str] = {
    "approval": "approval",
    "outcome": "settlement",
    "question": "question",
    "form": "question",
}
_OUTPUT = "output"
_NUMBER_DIGITS = 9


class TaskIds(NamedTuple):
    """The ids of a task and of its context, as clients of A2A know them."""

    task: str
    context: str

    @classmethod
    def of(cls, task: str) -> TaskIds | None:
        """Return the ids for that of a task, `CONTEXT/NUMBER`; None for other texts.

        A context has no slash, so turns below those of a session are no tasks.
        """
        context, _, number = task.partition("/")
        is_number = number.isascii() and number.isdigit() and len(number) <= _NUMBER_DIGITS
        return cls(task, context) if context and is_number else None

    @property
    def number(self) -> int:
        """The number of the turn in its session."""
        return int(self.task.partition("/")[2])


def submitted(ids: TaskIds) -> Task:
    """Return a task whose turn has not begun, because another turn of its session runs."""
    return Task(
        id=ids.task,
        context_id=ids.context,
        status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
    )


def task_of(
    ids: TaskIds,
    status: TurnStatus,
    report: AgentReport[Any] | None = None,
    history: Iterable[Message] = (),
) -> Task:
    """Return a task. `report` is the report of a turn with an answer."""
    return Task(
        id=ids.task,
        context_id=ids.context,
        status=status_of(ids, status),
        artifacts=[] if report is None else [artifact_of(report)],
        history=history,
    )


def listed(ids: TaskIds, state: TaskState, at: datetime) -> Task:
    """Return a task of a list, without its parts."""
    return Task(id=ids.task, context_id=ids.context, status=TaskStatus(state=state, timestamp=at))


def status_of(ids: TaskIds, status: TurnStatus) -> TaskStatus:
    """Return the status of a task, with a message that says what it waits for, or why it failed."""
    at = status.ended_at or status.since or status.started_at
    task_status = TaskStatus(state=state_of(status), timestamp=at)
    parts = [*_parts(status)]
    if parts:
        task_status.message.CopyFrom(
            _said(ids, f"{TaskState.Name(task_status.state)}-{_place(status)}", parts)
        )
    return task_status


def state_of(status: TurnStatus) -> TaskState:
    """Return the state of a task."""
    if status.state is State.ENDED:
        return _end(status.outcome, status.error)
    is_person_needed = any(wait.kind in PEOPLE for wait in status.waits)
    return TaskState.TASK_STATE_INPUT_REQUIRED if is_person_needed else TaskState.TASK_STATE_WORKING


def state_of_entry(entry: TurnEntry) -> TaskState | None:
    """Return the state of a task in a list; None if only its status tells it."""
    if entry.state is not State.ENDED:
        is_person_needed = entry.waits_for in PEOPLE
        return (
            TaskState.TASK_STATE_INPUT_REQUIRED
            if is_person_needed
            else TaskState.TASK_STATE_WORKING
        )
    if entry.outcome in (Outcome.COMPLETED, Outcome.TRUNCATED, Outcome.CANCELLED):
        return _end(entry.outcome, None)
    return None


def _end(outcome: Outcome | None, error: errors.ErrorInfo | None) -> TaskState:
    name = push.end_of_task(outcome, None if error is None else error.code)
    return cast("TaskState", TaskState.Value(name))


def _place(status: TurnStatus) -> str:
    """Return what tells two messages of the same state apart."""
    tokens = [wait.call.token for wait in status.waits if wait.call is not None]
    return tokens[0] if tokens else str(status.steps)


def _parts(status: TurnStatus) -> Iterator[Part]:
    """Yield the message of a status: the calls that wait, or the error."""
    if status.state is State.ENDED:
        if status.error is not None:
            yield Part(text=f"{status.error.code}: {status.error.message}")
        return
    for wait in status.waits:
        if wait.kind in PEOPLE:
            yield from _waiting(wait)


def _waiting(wait: Wait) -> Iterator[Part]:
    if wait.call is None:
        yield Part(
            text=f"The task waits for {wait.kind}: {wait.reason}. A message does not help; its"
            " operator has to."
        )
        return
    yield Part(text=_words(wait.call))
    yield data_part(_described(wait.call))


def _words(call: PendingApproval) -> str:
    tool = quoted(call.tool)
    if call.question is not None:
        server = call.question.server
        asks = _ANSWER.format(tool=tool, server=f", for the MCP server {server!r}" * bool(server))
        return f"{asks}\n\n{call.question.text}"
    return (_SETTLE if call.is_unknown else _APPROVE).format(tool=tool)


def _described(call: PendingApproval) -> dict[str, object]:
    try:
        arguments = from_json(call.arguments)
    except ValueError:
        arguments = call.arguments
    question = call.question
    asks = {"schema": question.schema_of_answer, "default": question.default} if question else {}
    return {
        **asks,
        "type": _TYPES[call.kind],
        "callId": call.call_id,
        "token": call.token,
        "tool": call.tool,
        "arguments": arguments,
        "reason": call.reason,
        "expiresAt": call.expires_at,
    }


def artifact_of(report: AgentReport[Any]) -> Artifact:
    """Return the answer of a turn: text, or data if the agent has a type."""
    output = report.output
    artifact = Artifact(
        artifact_id=_OUTPUT,
        name=_OUTPUT,
        parts=[Part(text=output) if isinstance(output, str) else data_part(output)],
    )
    if report.risk is not None:
        artifact.metadata.update({"risk": report.risk})
    return artifact


def artifact_with(text: str) -> Artifact:
    """Return a part of the text of an answer, while it is generated."""
    return Artifact(artifact_id=_OUTPUT, name=_OUTPUT, parts=[Part(text=text)])


def data_part(value: object) -> Part:
    """Return a value as a data part, or as JSON text if it is deeper than the format allows.

    The format has numbers of 64 bits with a floating point only.
    """
    written = to_json(value, inf_nan_mode="null")
    try:
        return ParseDict({"data": from_json(written)}, Part())
    except (ParseError, ValueError):
        return Part(text=written.decode(), media_type="application/json")


def said_in(ids: TaskIds, event: Event) -> Message | None:
    """Return the message that an event recorded; None if there is none.

    It is one of the user, or the text of the model beside calls. Its answer is an artifact.
    """
    fact = event.fact
    if isinstance(fact, Said):
        return _of_user(ids, fact.id, fact.text)
    if isinstance(fact, ModelAnswered) and event.calls and event.text:
        return _said(ids, f"step-{event.step}", [Part(text=event.text)])
    return None


def given_in(ids: TaskIds, event: Event) -> Iterator[Message]:
    """Yield the messages of the user that a turn was started with, from its first event."""
    if isinstance(event.fact, TurnStarted):
        request = event.fact.request
        yield _of_user(ids, f"{ids.task}/task", request.task.brief)
        for message in request.said or ():
            yield _of_user(ids, message.id or f"{ids.task}/said", message.brief)


def _of_user(ids: TaskIds, message_id: str, text: str) -> Message:
    return Message(
        message_id=message_id,
        context_id=ids.context,
        task_id=ids.task,
        role=Role.ROLE_USER,
        parts=[Part(text=text)],
    )


def _said(ids: TaskIds, name: str, parts: Iterable[Part]) -> Message:
    return Message(
        message_id=f"{ids.task}/{name}",
        context_id=ids.context,
        task_id=ids.task,
        role=Role.ROLE_AGENT,
        parts=parts,
    )
