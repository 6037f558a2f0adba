"""Reads from histories what people and programs have done, event by event, without a worker.

An input that cannot be decoded is no error: the act has its time and what the event says of it in
plain text, and the reason why the rest cannot be read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionStartedEventAttributes
from temporalio.api.update.v1 import Input
from temporalio.common import RawValue
from temporalio.converter import DataConverter, decode_typed_search_attributes

from perdure import errors, limits, validation
from perdure.batch.wire import BatchRequest
from perdure.errors import PerdureError
from perdure.session.wire import (
    ForgetReminder,
    Say,
    SessionReason,
    SessionRequest,
    SessionSnapshot,
    Unqueue,
)
from perdure.temporal import failures, outcomes
from perdure.temporal.acts import cancellations, sources
from perdure.temporal.acts.erasures import Erasure
from perdure.temporal.histories.turn_history import raw_value
from perdure.temporal.names import (
    ADD_BUDGET,
    BATCH,
    BATCH_PART,
    CLOSE,
    DECIDE,
    EMIT,
    ERASURE,
    FINISH_CALL,
    FORGET_REMINDER,
    INTERRUPT,
    KEYED_EVENTS,
    MEMO_WAIT,
    REMIND,
    RESUME,
    SAY,
    SCHEDULED_BATCH,
    SESSION,
    SETTLEMENT,
    STEER,
    TURN,
    UNQUEUE,
)
from perdure.temporal.payloads import decoded, unpack
from perdure.temporal.search_attributes import SCHEDULE, value_of
from perdure.text import counted, one_line
from perdure.turn import call_tokens
from perdure.turn.effect_values import SettledCall
from perdure.turn.job_values import FinishCall
from perdure.turn.wait_values import Emit, EmitByKey
from perdure.turn.wire import Steer, TurnRequest
from perdure.values.approvals import Decision
from perdure.values.budgets import BudgetUpdate

_RESET = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
_SERVER = ("history-service", "history-resetter")
"""The identities of the server itself: it ends what a parent has left, and what is reset."""
_STARTED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
_TURNS = (TURN, SCHEDULED_BATCH)
"""The types of workflows that have the input of a turn."""


@dataclass(slots=True)
class RecordedAct:
    """What a person or a program has done.

    Attributes:
        name: What was done, such as `approve`.
        at: When.
        key: What tells it apart from other acts on the same workflow, also if it is recorded again
            in a run after a reset.
        by: Who did it; None without a name.
        via: Through what; None if it is not known.
        detail: More, in one line.
        problem: Why the rest cannot be read; empty if it was read.
        about: The turn or the data subject that it is about, if that is not the workflow; empty
            otherwise.
        root: The id and the run of the root of the workflow, for a start by another workflow.
    """

    name: str
    at: datetime
    key: str
    by: str | None = None
    via: str | None = None
    detail: str = ""
    problem: str = ""
    about: str = ""
    root: tuple[str, str] | None = None


@dataclass(slots=True)
class _Read:
    """What the input of a request says."""

    name: str
    by: str | None = None
    detail: tuple[str, ...] = field(default=())


class ActReader:
    """Reads the events of one run of a workflow of a type, in order.

    Attributes:
        acts: The acts so far, by their keys.
        first_run: The first run of the workflow, which has the same id before and after a reset.
    """

    def __init__(self, converter: DataConverter, workflow_type: str) -> None:
        self.acts: dict[str, RecordedAct] = {}
        self.first_run = ""
        self._converter = converter
        self._type = workflow_type
        self._admitted: dict[str, Input] = {}
        self._tools: dict[str, str] = {}

    async def read(self, event: HistoryEvent) -> None:
        """Note the act of an event, if it is one."""
        match event.event_type:
            case kind if kind == _STARTED:
                await self._started(event)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED:
                request = event.workflow_execution_update_admitted_event_attributes.request
                self._admitted[request.meta.update_id] = request.input
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                await self._updated(event)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED:
                self._answered(event)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                await self._signalled(event)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
                self._cancelled(event)
            case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED if self._type == TURN:
                with contextlib.suppress(PerdureError):
                    await self._waits(event)
            case _:
                self._done_in_temporal(event)

    def _note(self, act: RecordedAct) -> None:
        act.detail = one_line(act.detail, limits.NOTE_CHARACTERS)
        act.name = one_line(act.name, limits.NAME_CHARACTERS)
        if act.by is not None and not validation.accepts(validation.By, act.by):
            act.by = one_line(str(act.by), limits.BY_CHARACTERS)  # no client of Perdure sends it
        self.acts.setdefault(act.key, act)

    def _done_in_temporal(self, event: HistoryEvent) -> None:
        """Note what was done without Perdure, or by a start that replaces a turn."""
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
            ended = event.workflow_execution_terminated_event_attributes
            if ended.identity not in _SERVER:
                detail = "; ".join(filter(None, (ended.reason, f"as {ended.identity}")))
                self._note(RecordedAct("terminate", _at(event), _key(event), detail=detail))
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            failed = event.workflow_task_failed_event_attributes
            if failed.cause == _RESET:
                self._note(
                    RecordedAct("reset", _at(event), _key(event), detail=failed.failure.message)
                )

    async def _started(self, event: HistoryEvent) -> None:
        begun = event.workflow_execution_started_event_attributes
        self.first_run = begun.first_execution_run_id
        if begun.continued_execution_run_id or self._type == KEYED_EVENTS:
            return
        name = "erase" if self._type == ERASURE else "start"
        act, request = RecordedAct(name, _at(event), "start"), None
        try:
            raw = await self._raw(begun.input.payloads)
            act.via = sources.via_of(raw.payload)
            memo = await self._memo(begun)
            if self._type in _TURNS:
                request = unpack(raw, TurnRequest)
                read = _turn(request, memo)
            else:
                read = _start_of(self._type, raw, memo, act)
            act.name, act.by, act.detail = read.name, read.by, ", ".join(filter(None, read.detail))
        except PerdureError as error:
            act.problem = _problem(error)
        _by_other(act, begun, request)
        self._note(act)

    async def _memo(self, begun: WorkflowExecutionStartedEventAttributes) -> dict[str, Any]:
        if sources.MEMO_STARTED not in begun.memo.fields:
            return {}
        [value] = await decoded(self._converter, [begun.memo.fields[sources.MEMO_STARTED]])
        return value if isinstance(value, dict) else {}

    async def _updated(self, event: HistoryEvent) -> None:
        accepted = event.workflow_execution_update_accepted_event_attributes
        update_id = accepted.protocol_instance_id
        update = self._admitted.pop(update_id, accepted.accepted_request.input)
        if update.name != REMIND:  # the model's own
            act = RecordedAct(
                _NAMES.get(update.name, update.name), _at(event), f"update/{update_id}"
            )
            await self._read(act, update.name, update.args.payloads, update_id)
            self._note(act)

    async def _signalled(self, event: HistoryEvent) -> None:
        """Note a message or an event that Temporal's own command line has sent as a signal."""
        signal = event.workflow_execution_signaled_event_attributes
        is_ours = signal.HasField("external_workflow_execution")
        if is_ours or signal.signal_name not in (STEER, EMIT) or self._type != TURN:
            return
        act = RecordedAct(
            _NAMES.get(signal.signal_name, signal.signal_name), _at(event), _key(event)
        )
        await self._read(act, signal.signal_name, signal.input.payloads, "")
        if not act.problem:
            act.key = f"signal/{act.detail}"  # a signal is delivered again after a reset
        self._note(act)

    async def _read(
        self, act: RecordedAct, update: str, payloads: Iterable[Payload], update_id: str
    ) -> None:
        """Read the input of a request into an act."""
        try:
            raw = await self._raw(payloads)
            act.via = sources.via_of(raw.payload)
            read = _UPDATES[update](raw, update_id) if update in _UPDATES else _Read(update)
            if update == DECIDE:
                read.detail = self._with_tool(read.detail)
        except PerdureError as error:
            act.problem = _problem(error)
            return
        act.name, act.by, act.detail = read.name, read.by, ", ".join(filter(None, read.detail))
        self._begins_session(act)

    def _begins_session(self, act: RecordedAct) -> None:
        """Say of the start of a session what its first message says, which has begun it."""
        start = self.acts.get("start")
        is_first = act.name == SAY and len(self.acts) == 1
        if is_first and self._type == SESSION and start is not None and start.name == "start":
            start.by, start.via = start.by or act.by, start.via or act.via

    def _with_tool(self, detail: tuple[str, ...]) -> tuple[str, ...]:
        call_id, *rest = detail
        tool = self._tools.get(call_id, "")
        return (f"{tool} {call_id}" if tool else call_id, *rest)

    async def _waits(self, event: HistoryEvent) -> None:
        """Note the tools of the calls that wait, which decisions do not name."""
        memo = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if MEMO_WAIT not in memo:
            return
        [waits_for] = await decoded(self._converter, [memo[MEMO_WAIT]])
        pending = waits_for.get("pending", ()) if isinstance(waits_for, dict) else ()
        self._tools |= {str(call.get("call_id")): str(call.get("tool")) for call in pending}

    def _answered(self, event: HistoryEvent) -> None:
        """Say of an act that it was refused; what a run that ends refuses is sent again."""
        done = event.workflow_execution_update_completed_event_attributes
        key = f"update/{done.meta.update_id}"
        act = self.acts.get(key)
        if act is None or not done.outcome.HasField("failure"):
            return
        code = done.outcome.failure.application_failure_info.type
        if code == failures.RUN_ENDS:
            del self.acts[key]
        else:
            refused = f"refused: {code}"
            act.detail = f"{act.detail}, {refused}" if act.detail else refused

    def _cancelled(self, event: HistoryEvent) -> None:
        asked = event.workflow_execution_cancel_requested_event_attributes
        if asked.external_workflow_execution.workflow_id:
            return  # its parent was cancelled
        reason, by = cancellations.requested(event, self._converter)
        act = RecordedAct(
            "cancel", _at(event), _key(event), by, sources.identified(asked.identity)[0], reason
        )
        if cancellations.is_hidden(event, self._converter):
            act.by, act.detail, act.problem = None, "", _problem(cancellations.unreadable(reason))
        self._note(act)

    async def _raw(self, payloads: Iterable[Payload]) -> RawValue:
        return await raw_value(self._converter, payloads)


def _start_of(workflow_type: str, raw: RawValue, memo: dict[str, Any], act: RecordedAct) -> _Read:
    """Return what the input of a workflow says.

    Raises:
        PerdureError: It is of another kind.
    """
    by = memo.get("by")
    if workflow_type == SETTLEMENT:
        settled = unpack(raw, SettledCall)
        act.about = settled.turn_id
        decision = settled.decision
        said = (f"{settled.tool} {decision.call_id}", decision.settlement or "")
        return _Read("settle", decision.by, said)
    if workflow_type == ERASURE:
        erasure = unpack(raw, Erasure)
        act.about = erasure.subject
        return _Read("erase", erasure.by, (erasure.key or "erased before",))
    if workflow_type == SESSION:
        return _start_of_session(raw)
    if workflow_type == BATCH_PART:
        return _Read("start", by)
    if workflow_type == BATCH:
        batch = unpack(raw, BatchRequest)
        about = (f"agent {batch.agent}", counted(batch.items, "task"))
        return _Read("retry", batch.by, about) if batch.before else _Read("start", by, about)
    raise errors.InvalidRequestError(f"nothing is known of a {workflow_type}")


def _turn(request: TurnRequest, memo: dict[str, Any]) -> _Read:
    """Return what the input of a turn says, or that of a batch of a schedule."""
    agent, origin = f"agent {request.agent}", request.forked_from
    if request.undo is not None:
        record = request.undo.record
        return _Read("undo", request.undo.by, (f"{record.tool} {record.call_id}", agent))
    if origin is not None:
        place = f"turn {origin.turn_id} after step {origin.step}"
        return _Read(str(memo.get("act") or "fork"), origin.by, (place, agent))
    return _Read("start", memo.get("by"), (agent,))


def _start_of_session(raw: RawValue) -> _Read:
    try:
        snapshot = unpack(raw, SessionSnapshot)
    except PerdureError:
        return _Read("start", None, (f"agent {unpack(raw, SessionRequest).agent}",))
    fork = snapshot.forked_from
    agent = f"agent {snapshot.session.agent}"
    if fork is None:
        return _Read("start", None, (agent,))
    return _Read("fork", fork.by, (f"session {fork.session_id} after turn {fork.at_turn}", agent))


def _by_other(
    act: RecordedAct, begun: WorkflowExecutionStartedEventAttributes, request: TurnRequest | None
) -> None:
    """Say what has started a workflow, if that was a schedule or another workflow."""
    attributes = decode_typed_search_attributes(begun.search_attributes)
    parent, schedule = begun.parent_workflow_execution.workflow_id, attributes.get(SCHEDULE)
    if parent:
        act.via, above = _parent(parent, request)
        root = begun.root_workflow_execution
        act.root = (root.workflow_id, root.run_id) if root.workflow_id else None
    elif schedule:
        act.via, above = "schedule", value_of(schedule)
    else:
        return
    act.by = None
    act.detail = ", ".join(filter(None, (f"{act.via or 'workflow'} {above}", act.detail)))


def _parent(parent: str, request: TurnRequest | None) -> tuple[str | None, str]:
    """Return what the parent of a turn is, and its id."""
    if request is None:
        return None, parent
    if request.lineage is not None or request.undo is not None:
        return "turn", parent
    if request.session is not None:
        return "session", parent
    return "batch", parent.rsplit(":", 2)[0]  # the parent is a part of it


def _decision(raw: RawValue, _: str) -> _Read:
    decision = unpack(raw, Decision)
    name = "approve" if decision.approve else "deny"
    if decision.settlement is not None:
        name = "settle"
    if decision.answer is not None:
        return _Read("answer", decision.by, (decision.call_id,))
    edited = "with other arguments" if decision.arguments is not None else ""
    said = (decision.call_id, decision.settlement or "", edited)
    is_reason = decision.settlement is None  # otherwise it is the result of the call
    return _Read(name, decision.by, (*said, decision.reason if is_reason else ""))


def _added(raw: RawValue, _: str) -> _Read:
    update = unpack(raw, BudgetUpdate)
    amounts = update.model_dump(mode="json", exclude={"by"}, exclude_none=True)
    return _Read(ADD_BUDGET, update.by, tuple(f"{name} {value}" for name, value in amounts.items()))


def _resumed(raw: RawValue, _: str) -> _Read:
    return _Read(RESUME, outcomes.resumed(raw).by)


def _steered(raw: RawValue, update_id: str) -> _Read:
    message = unpack(raw, Steer)
    return _Read(STEER, message.by, (f"message {update_id or message.id}",))


def _emitted(raw: RawValue, update_id: str) -> _Read:
    if update_id:
        event = unpack(raw, Emit)
        return _Read(EMIT, event.by, (event.name, f"event {update_id}"))
    by_key = unpack(raw, EmitByKey)
    return _Read(EMIT, by_key.by, (by_key.name, f"event {by_key.id}"))


def _finished(raw: RawValue, _: str) -> _Read:
    finish = unpack(raw, FinishCall)
    place = call_tokens.parse(finish.token).key
    return _Read("finish", finish.by, (f"{place}", "failed" if finish.is_error else ""))


def _said(raw: RawValue, update_id: str) -> _Read:
    message = unpack(raw, Say)
    busy = "" if message.if_busy == "queue" else message.if_busy
    return _Read(SAY, message.by, (f"message {update_id}", busy))


def _reasoned(name: str) -> Callable[[RawValue, str], _Read]:
    def read(raw: RawValue, _: str) -> _Read:
        asked = unpack(raw, SessionReason)
        return _Read(name, asked.by, (asked.reason,))

    return read


def _unqueued(raw: RawValue, _: str) -> _Read:
    unqueue = unpack(raw, Unqueue)
    return _Read(UNQUEUE, unqueue.by, (f"message {unqueue.id}",))


def _forgotten(raw: RawValue, _: str) -> _Read:
    forgotten = unpack(raw, ForgetReminder)
    return _Read(FORGET_REMINDER, forgotten.by, (f"reminder {forgotten.id}",))


_NAMES = {FINISH_CALL: "finish"}
"""What an update is called, if its input cannot be read and its own name is another one."""
_UPDATES: dict[str, Callable[[RawValue, str], _Read]] = {
    DECIDE: _decision,
    ADD_BUDGET: _added,
    RESUME: _resumed,
    STEER: _steered,
    EMIT: _emitted,
    FINISH_CALL: _finished,
    SAY: _said,
    INTERRUPT: _reasoned(INTERRUPT),
    CLOSE: _reasoned(CLOSE),
    UNQUEUE: _unqueued,
    FORGET_REMINDER: _forgotten,
}
"""What reads the input of an update, by its name. Others are listed by their names alone."""


def _problem(error: PerdureError) -> str:
    """Return why something cannot be read.

    Raises:
        KeyStoreError: It can be read later, so it is none.
    """
    if isinstance(error, errors.KeyStoreError):
        raise error
    return one_line(f"{error.code}: {error.message}", limits.NOTE_CHARACTERS)


def _at(event: HistoryEvent) -> datetime:
    return event.event_time.ToDatetime(tzinfo=UTC)


def _key(event: HistoryEvent) -> str:
    """Return what tells an event apart: a run after a reset begins with the same events."""
    return f"{event.event_type}/{event.event_time.ToNanoseconds()}"
