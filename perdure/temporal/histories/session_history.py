"""Converts the history of a session to facts, event by event."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import (
    HistoryEvent,
    WorkflowExecutionUpdateAcceptedEventAttributes,
)
from temporalio.api.update.v1 import Input
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from perdure import errors
from perdure.errors import PerdureError
from perdure.session.facts import (
    MessageSent,
    MessageSteered,
    MessageUnqueued,
    ReminderDue,
    ReminderForgotten,
    ReminderSet,
    SessionBudgetAdded,
    SessionClosed,
    SessionContinued,
    SessionFact,
    SessionResumed,
    SessionStarted,
    SteeringFailed,
    TurnBegan,
    TurnInterrupted,
    TurnOver,
    TurnRecorded,
)
from perdure.session.state import SessionState, apply
from perdure.session.wire import (
    ForgetReminder,
    Remind,
    Reminder,
    Say,
    SessionReason,
    SessionRequest,
    SessionSnapshot,
    TurnPart,
    Unqueue,
)
from perdure.temporal import outcomes
from perdure.temporal.acts import cancellations
from perdure.temporal.histories.turn_history import raw_value
from perdure.temporal.names import (
    ADD_BUDGET,
    CLOSE,
    FORGET_REMINDER,
    INTERRUPT,
    MEMO_REMINDER,
    REMIND,
    RESUME,
    SAY,
    STEER,
    UNQUEUE,
)
from perdure.temporal.payloads import decoded, unpack
from perdure.turn.wire import Origin, Steer
from perdure.values.content import MessageContent
from perdure.values.messages import Message, digest_of

_SILENT = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED,
    }
)
"""Most events: they hold no fact."""

_RECORD_KEY = re.compile(r"turn-(\d+)\.part-(\d+)")

_TURN_ENDS = {
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED: (
        "child_workflow_execution_completed_event_attributes"
    ),
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_FAILED: (
        "child_workflow_execution_failed_event_attributes"
    ),
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_CANCELED: (
        "child_workflow_execution_canceled_event_attributes"
    ),
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TERMINATED: (
        "child_workflow_execution_terminated_event_attributes"
    ),
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TIMED_OUT: (
        "child_workflow_execution_timed_out_event_attributes"
    ),
}
_CLOSED = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: "it is closed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "it failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "it was cancelled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: "it was terminated",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: "its time is up",
}
_RECORD_FAILED = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: "activity_task_failed_event_attributes",
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: "activity_task_timed_out_event_attributes",
}


def record_key(number: int, part: int) -> str:
    """Return the id of the activity that records a part of a turn."""
    return f"turn-{number}.part-{part}"


def started(payload: RawValue) -> SessionStarted | SessionContinued:
    """Return the fact of the input of a run.

    Raises:
        InvalidRequestError: It is not the input of a session.
    """
    try:
        return SessionContinued(unpack(payload, SessionSnapshot))
    except PerdureError:
        return SessionStarted(unpack(payload, SessionRequest))


def sent(message_id: str, payload: RawValue) -> MessageSent:
    """Return the fact of an update that sends a message.

    Raises:
        InvalidRequestError: The input is not a message.
    """
    message = unpack(payload, Say)
    content = MessageContent.recorded(message.text, message.parts)
    return MessageSent(
        message_id,
        content.brief,
        message.if_busy,
        message.by,
        message.agent,
        content.parts,
        message.client_tools,
        message.shared_state,
    )


def reminder_set(update_id: str, payload: RawValue) -> ReminderSet:
    """Return the fact of an update that sets a reminder.

    Raises:
        InvalidRequestError: The input is not a reminder.
    """
    remind = unpack(payload, Remind)
    reminder_id = update_id.removeprefix(f"{REMIND}-")
    return ReminderSet(Reminder(id=reminder_id, at=remind.at, text=remind.text))


def cancelled(reason: str, by: str | None = None) -> SessionClosed:
    """Return the fact of a request to cancel the session, which takes no more messages then."""
    return SessionClosed(reason or "it was cancelled", by)


class SessionReader:
    """Creates facts from the events of one run of a session, in order."""

    def __init__(self, converter: DataConverter, *, is_worker: bool = False) -> None:
        self._converter = converter
        self._is_worker = is_worker
        self._admitted: dict[str, Input] = {}
        self._answered: frozenset[str] = frozenset()
        self._turns: dict[int, int] = {}
        self._records: dict[int, int] = {}
        self._signals: dict[int, str] = {}
        self._count = 0

    async def facts(self, event: HistoryEvent) -> tuple[SessionFact, ...]:
        """Return the fact of an event; none if it holds none."""
        if event.event_type in _SILENT:
            return ()
        fact = await self._fact(event)
        return () if fact is None else (fact,)

    async def _fact(self, event: HistoryEvent) -> SessionFact | None:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                return await self._started(event)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED:
                request = event.workflow_execution_update_admitted_event_attributes.request
                self._admitted[request.meta.update_id] = request.input
                return None
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                return await self._updated(
                    event.workflow_execution_update_accepted_event_attributes
                )
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
                return cancelled(*cancellations.requested(event, self._converter))
            case kind if kind in _CLOSED:
                return SessionClosed(_CLOSED[kind])
            case kind if kind in _TURN_ENDS:
                number = self._turns.get(getattr(event, _TURN_ENDS[kind]).initiated_event_id)
                return None if number is None else TurnOver(number)
            case _:
                return await self._of_command(event)

    async def _started(self, event: HistoryEvent) -> SessionFact | None:
        payloads = event.workflow_execution_started_event_attributes.input.payloads
        try:
            fact = started(await self._raw(payloads))
        except errors.InvalidRequestError:
            return None
        if isinstance(fact, SessionContinued):
            self._count = fact.snapshot.count
            self._answered = frozenset(answer.id for answer in fact.snapshot.answered)
        return fact

    async def _of_command(self, event: HistoryEvent) -> SessionFact | None:
        """Return the fact of something that the session started, or of how that went."""
        match event.event_type:
            case EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
                begun = event.start_child_workflow_execution_initiated_event_attributes
                self._count += 1
                self._turns[event.event_id] = self._count
                return TurnBegan(self._count, begun.workflow_id)
            case EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_FAILED:
                failed = event.start_child_workflow_execution_failed_event_attributes
                number = self._turns[failed.initiated_event_id]
                self._count -= 1
                return TurnOver(number, began=False)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                match = _RECORD_KEY.fullmatch(
                    event.activity_task_scheduled_event_attributes.activity_id
                )
                if match:
                    self._records[event.event_id] = int(match[1])
                return None
            case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
                return await self._reminded(event)
            case EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED:
                return await self._steered(event)
            case EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED:
                refused = event.signal_external_workflow_execution_failed_event_attributes
                message_id = self._signals.get(refused.initiated_event_id)
                return None if message_id is None else SteeringFailed(message_id)
            case _:
                return await self._recorded(event)

    async def _steered(self, event: HistoryEvent) -> SessionFact | None:
        signal = event.signal_external_workflow_execution_initiated_event_attributes
        if signal.signal_name != STEER:
            return None
        message = unpack(await self._raw(signal.input.payloads), Steer)
        self._signals[event.event_id] = message.id
        return MessageSteered(message.id)

    async def _reminded(self, event: HistoryEvent) -> SessionFact | None:
        memo = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if MEMO_REMINDER not in memo:
            return None
        [reminder_id] = await decoded(self._converter, [memo[MEMO_REMINDER]])
        return ReminderDue(str(reminder_id))

    async def _recorded(self, event: HistoryEvent) -> SessionFact | None:
        if event.event_type in _RECORD_FAILED:
            failed = getattr(event, _RECORD_FAILED[event.event_type])
            number = self._records.get(failed.scheduled_event_id)
            return None if number is None else TurnRecorded(number, None)
        if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            return None
        done = event.activity_task_completed_event_attributes
        number = self._records.get(done.scheduled_event_id)
        if number is None:
            return None
        return recorded_turn(number, await self._raw(done.result.payloads))

    async def _updated(
        self, accepted: WorkflowExecutionUpdateAcceptedEventAttributes
    ) -> SessionFact | None:
        update_id = accepted.protocol_instance_id
        update = self._admitted.pop(update_id, accepted.accepted_request.input)
        if update_id in self._answered:
            return None  # it took effect in an earlier run of the session
        payload = await self._raw(update.args.payloads)
        match update.name:
            case str(name) if name == SAY:
                return sent(update_id, payload)
            case str(name) if name == UNQUEUE:
                return MessageUnqueued(unpack(payload, Unqueue).id)
            case str(name) if name == REMIND:
                return reminder_set(update_id, payload)
            case str(name) if name == FORGET_REMINDER:
                forgotten = unpack(payload, ForgetReminder)
                return ReminderForgotten(forgotten.id, forgotten.by)
            case str(name) if name == INTERRUPT:
                asked = unpack(payload, SessionReason)
                return TurnInterrupted(asked.reason, asked.by)
            case str(name) if name == CLOSE:
                asked = unpack(payload, SessionReason)
                return SessionClosed(asked.reason, asked.by)
            case str(name) if name == ADD_BUDGET:
                added = outcomes.added(payload)
                return None if added.more is None else SessionBudgetAdded(added.more, added.by)
            case str(name) if name == RESUME:
                return SessionResumed(outcomes.resumed(payload).by)
            case _:
                return None

    async def _raw(self, payloads: object) -> RawValue:
        return await raw_value(self._converter, payloads, is_worker=self._is_worker)  # type: ignore[arg-type]


def recorded_turn(number: int, result: RawValue) -> TurnRecorded:
    """Return the fact of an activity that recorded a part of a turn.

    A result that an operator gave to it in Temporal counts as a history that cannot be read.
    """
    try:
        return TurnRecorded(number, unpack(result, TurnPart))
    except PerdureError:
        return TurnRecorded(number, None)


async def session_facts(
    client: Client, session_id: str, run_id: str, *, is_worker: bool = False
) -> AsyncGenerator[tuple[HistoryEvent, SessionFact | None], None]:
    """Yield the events of a run of a session so far, each with its fact."""
    reader = SessionReader(client.data_converter, is_worker=is_worker)
    handle = client.get_workflow_handle(session_id, run_id=run_id)
    async for event in handle.fetch_history_events():
        for fact in await reader.facts(event) or (None,):
            yield event, fact


async def messages_before(
    client: Client, origin: Origin, turn_id: str, *, is_worker: bool = False
) -> tuple[Message, ...]:
    """Return the messages of a session that one of its turns begins after.

    Raises:
        TranscriptMismatchError: The session has others than the turn says.
    """
    state = SessionState()
    facts = session_facts(client, origin.turn_id, origin.run_id, is_worker=is_worker)
    async with contextlib.aclosing(facts):
        async for _, fact in facts:
            if isinstance(fact, TurnBegan) and fact.turn_id == turn_id:
                break
            state = state if fact is None else apply(state, fact)
    digest = digest_of(state.messages)
    if digest != origin.digest:
        raise errors.TranscriptMismatchError(
            f"session {origin.turn_id!r} holds {digest[:16]} in its {len(state.messages)} messages"
            f" before turn {turn_id!r}, and not {origin.digest[:16]}; nothing was sent"
        )
    return state.messages


async def read_session(
    client: Client, session_id: str, run_id: str, *, is_worker: bool = False
) -> SessionState:
    """Return the state of a run of a session so far."""
    state = SessionState()
    async for _, fact in session_facts(client, session_id, run_id, is_worker=is_worker):
        state = state if fact is None else apply(state, fact)
    return state
