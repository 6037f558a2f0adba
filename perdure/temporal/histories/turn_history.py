"""Converts Temporal's history to facts, event by event.

This works without a worker and after the end of a turn. An activity's end refers to the event that
scheduled it, so a reader keeps the keys of the activities that it has seen. A reader that starts in
the middle ignores the ends of activities scheduled before. A local activity has one event, a marker
with its result, which holds two facts: that it was scheduled, and its end.

An update that is delivered again after a reset is recorded twice: `ADMITTED` has its input, and
`ACCEPTED`, where the workflow processed it, has only its id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import (
    HistoryEvent,
    MarkerRecordedEventAttributes,
)
from temporalio.api.update.v1 import Input
from temporalio.common import RawValue
from temporalio.converter import DataConverter, decode_typed_search_attributes
from temporalio.exceptions import (
    CancelledError,
    TerminatedError,
    TimeoutError,  # noqa: A004 - Temporal's
    WorkflowAlreadyStartedError,
)

from perdure import errors
from perdure.errors import PerdureError
from perdure.temporal import failures, outcomes
from perdure.temporal.acts import cancellations
from perdure.temporal.encryption.codec import Encryption
from perdure.temporal.histories.workflow_tasks import TaskBoundaries
from perdure.temporal.names import (
    ADD_BUDGET,
    CHILD_NEWS,
    DECIDE,
    EMIT,
    FINISH_CALL,
    MEMO_WAIT,
    RESUME,
    STEER,
    TURN,
)
from perdure.temporal.payloads import NOTHING, decoded, is_foreign, undecodable, unpack
from perdure.temporal.search_attributes import SCHEDULED_FOR
from perdure.turn.facts import (
    AgentResolved,
    CancelRequested,
    ChildScheduled,
    Decided,
    Recorded,
    Scheduled,
    TaskBegan,
    TurnContinued,
    TurnEnded,
    WaitBegan,
    WaitEnded,
)
from perdure.turn.keys import ActivityKey, AgentKey, ChildKey, ModelKey, ToolKey, parse_key
from perdure.turn.wait_values import CallWait, Woken
from perdure.turn.wire import ModelCall, Summary, ToolRun, TurnRequest
from perdure.values.approvals import Decision, PendingApproval
from perdure.values.reports import Outcome

_LOCAL_ACTIVITY = "core_local_activity"
_UNREADABLE = (errors.DecryptionError.code, errors.ErasedError.code)
_LOCAL_ABOUT, _LOCAL_RESULT = "data", "result"
"""The marker of a local activity, as Temporal's core writes it, and its details."""

_SILENT = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED,
    }
)
"""Two thirds of all events: they hold no fact."""

_MARKER = EventType.EVENT_TYPE_MARKER_RECORDED
_SCHEDULED = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
"""As numbers, because Temporal's enum looks up its names in Python each time."""

_ENDS = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: "activity_task_failed_event_attributes",
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: "activity_task_timed_out_event_attributes",
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED: "activity_task_canceled_event_attributes",
}


_CHILD_ENDS = {
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_FAILED: (
        "start_child_workflow_execution_failed_event_attributes"
    ),
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


_Reader = Callable[[Any, HistoryEvent], Coroutine[Any, Any, Recorded | None]]


class HistoryReader:
    """Creates facts from the events of one run, in order.

    `is_worker` means that this process runs the turn, and so has its codec. A payload that remains
    encoded then is a result that an operator gave to an activity, and becomes a fact, as it does
    for the turn itself. Otherwise it is a `PayloadDecodeError`.
    """

    def __init__(self, converter: DataConverter, *, is_worker: bool = False) -> None:
        self._converter = converter
        self._is_worker = is_worker
        self._keys: dict[int, ActivityKey] = {}
        self._runs: dict[int, Sequence[Payload]] = {}
        self._children: dict[int, ChildKey] = {}
        self._admitted: dict[str, Input] = {}
        self._answered: frozenset[str] = frozenset()
        self._tasks = TaskBoundaries()

    async def facts(self, event: HistoryEvent) -> tuple[Recorded, ...]:
        """Return the facts of an event, in their order: none, one, or two of a local activity.

        Before the first fact of a workflow task comes a `TaskBegan`.
        """
        self._tasks.see(event)
        if event.event_type in _SILENT:
            return ()
        facts = await self._facts(event)
        return (TaskBegan(), *facts) if facts and self._tasks.begins() else facts

    async def _facts(self, event: HistoryEvent) -> tuple[Recorded, ...]:
        if event.event_type == _MARKER:
            return await self._ended_locally(event)
        fact = await self._fact(event)
        return () if fact is None else (fact,)

    async def _fact(self, event: HistoryEvent) -> Recorded | None:
        read = self._readers.get(event.event_type)
        return None if read is None else await read(self, event)

    async def _cancelled(self, event: HistoryEvent) -> Recorded:
        return CancelRequested(*cancellations.requested(event, self._converter))

    async def _admit(self, event: HistoryEvent) -> None:
        request = event.workflow_execution_update_admitted_event_attributes.request
        self._admitted[request.meta.update_id] = request.input

    async def _signalled(self, event: HistoryEvent) -> Recorded | None:
        """Return the fact of a signal: news of a delegate, a message, or an event by key."""
        signalled = event.workflow_execution_signaled_event_attributes
        if signalled.signal_name not in (CHILD_NEWS, STEER, EMIT):
            return None
        raw_values = [await self._raw([payload]) for payload in signalled.input.payloads]
        if signalled.signal_name == STEER:
            return outcomes.said_in_signal(raw_values)
        if signalled.signal_name == EMIT:
            return outcomes.emitted_in_signal(raw_values)
        return outcomes.news_in(raw_values)

    async def _scheduled(self, event: HistoryEvent) -> Recorded | None:
        key = key_of(event)
        if key is None:
            return None
        self._keys[event.event_id] = key
        payloads = event.activity_task_scheduled_event_attributes.input.payloads
        if isinstance(key, ToolKey):
            self._runs[event.event_id] = payloads
        if not isinstance(key, ModelKey):
            return Scheduled(key)
        return Scheduled(key, unpack(await self._raw(payloads), ModelCall))

    async def _completed(self, event: HistoryEvent) -> Recorded | None:
        done = event.activity_task_completed_event_attributes
        key = self._keys.get(done.scheduled_event_id)
        if key is None:
            return None
        self._runs.pop(done.scheduled_event_id, None)
        return outcomes.completed(key, await self._raw(done.result.payloads))

    async def _ended_locally(self, event: HistoryEvent) -> tuple[Recorded, ...]:
        """Return the facts of a local activity: an agent that was resolved, or a call of a tool.

        An activity without a result is repeated as an ordinary activity, and is not a fact.
        """
        result = event.marker_recorded_event_attributes.details.get(_LOCAL_RESULT)
        key = key_of(event)
        if result is None or not isinstance(key, AgentKey | ToolKey):
            return ()
        fact = outcomes.completed(key, await self._raw(result.payloads))
        if isinstance(key, ToolKey):
            return Scheduled(key), fact
        return (fact,) if isinstance(fact, AgentResolved) else ()

    async def _started(self, event: HistoryEvent) -> Recorded | None:
        begun = event.workflow_execution_started_event_attributes
        if len(begun.input.payloads) != 1:
            return None
        raw = await self._raw(begun.input.payloads)
        at = decode_typed_search_attributes(begun.search_attributes).get(SCHEDULED_FOR)
        last = begun.last_completion_result.payloads
        try:
            fact = outcomes.started(raw, at, await self._raw(last) if at and last else None)
        except PerdureError:
            return None
        if isinstance(fact, TurnContinued):
            self._answered = frozenset(fact.continuation.updates)
        return fact

    async def _request(self, payloads: Sequence[Payload]) -> TurnRequest | None:
        """Return the input of a turn if it is valid."""
        if len(payloads) != 1:
            return None
        raw = await self._raw(payloads)
        try:
            return unpack(raw, TurnRequest)
        except PerdureError:
            return None

    async def _updated(self, event: HistoryEvent) -> Recorded | None:
        accepted = event.workflow_execution_update_accepted_event_attributes
        update_id = accepted.protocol_instance_id
        update = self._admitted.pop(update_id, accepted.accepted_request.input)
        if update_id in self._answered:
            return None  # it took effect in an earlier run of the turn
        if update.name == ADD_BUDGET:
            return outcomes.added(await self._raw(update.args.payloads))
        if update.name == DECIDE:
            return Decided(unpack(await self._raw(update.args.payloads), Decision))
        if update.name == STEER:
            return outcomes.said(update_id, await self._raw(update.args.payloads))
        if update.name == EMIT:
            return outcomes.emitted(update_id, await self._raw(update.args.payloads))
        if update.name == FINISH_CALL:
            return outcomes.call_finished(await self._raw(update.args.payloads))
        if update.name == RESUME:
            return outcomes.resumed(await self._raw(update.args.payloads))
        return None

    async def _waits(self, event: HistoryEvent) -> Recorded | None:
        memo = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if MEMO_WAIT not in memo:
            return None
        [waits_for] = await decoded(self._converter, [memo[MEMO_WAIT]])
        if not isinstance(waits_for, dict):
            return WaitEnded()
        if "woken" in waits_for:
            return WaitEnded(woken=tuple(map(Woken.model_validate, waits_for["woken"])))
        if "kind" not in waits_for:
            return WaitEnded(tuple(waits_for["expired"]))
        pending = tuple(
            PendingApproval.model_validate(approval) for approval in waits_for.get("pending", ())
        )
        since = _time_in(waits_for, "since")
        until = _time_in(waits_for, "until")
        return WaitBegan(
            str(waits_for["kind"]),
            str(waits_for["reason"]),
            pending,
            since,
            until,
            waits_for.get("attempt", 0),
            bool(waits_for.get("limit")),
            tuple(map(CallWait.model_validate, waits_for.get("calls", ()))),
        )

    async def _child_scheduled(self, event: HistoryEvent) -> Recorded | None:
        begun = event.start_child_workflow_execution_initiated_event_attributes
        request = await self._request(begun.input.payloads)
        key = parse_key(request.lineage.ancestors[-1].key) if request and request.lineage else None
        if not isinstance(key, ChildKey) or request is None:
            return None
        self._children[event.event_id] = key
        return ChildScheduled(key, begun.workflow_id, request)

    async def _child_ended(self, event: HistoryEvent) -> Recorded | None:
        attributes = getattr(event, _CHILD_ENDS[event.event_type])
        key = self._children.get(attributes.initiated_event_id)
        match event.event_type:
            case _ if key is None:
                return None
            case EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_FAILED:
                return outcomes.child_failed(
                    key, WorkflowAlreadyStartedError(attributes.workflow_id, TURN)
                )
            case EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED:
                return outcomes.child_completed(key, await self._raw(attributes.result.payloads))
            case EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_FAILED:
                return outcomes.child_failed(key, await self._failure(attributes.failure))
            case EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_CANCELED:
                return outcomes.child_failed(key, CancelledError())
            case EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TERMINATED:
                return outcomes.child_failed(key, TerminatedError(""))
            case _:
                return outcomes.child_failed(
                    key, TimeoutError("", type=None, last_heartbeat_details=[])
                )

    async def _ended_badly(self, event: HistoryEvent) -> Recorded | None:
        attributes = getattr(event, _ENDS[event.event_type])
        key = self._keys.get(attributes.scheduled_event_id)
        if key is None:
            return None
        failure = attributes.failure if hasattr(attributes, "failure") else _cancelled()
        run = await self._run(attributes.scheduled_event_id)
        return outcomes.failed(key, await self._failure(failure), run)

    async def _run(self, scheduled: int) -> ToolRun | None:
        """Return the input of a call of a tool; None for other activities."""
        payloads = self._runs.pop(scheduled, None)
        return None if payloads is None else unpack(await self._raw(payloads), ToolRun)

    async def _closed(self, event: HistoryEvent) -> Recorded:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
                raw = await self._raw(
                    event.workflow_execution_completed_event_attributes.result.payloads
                )
                summary = unpack(raw, Summary)
                return TurnEnded(summary.outcome, summary)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
                failure = await self._failure(
                    event.workflow_execution_failed_event_attributes.failure
                )
                failed_summary = failures.summary_in(failure)
                return TurnEnded(
                    failed_summary.outcome if failed_summary else Outcome.FAILED,
                    failed_summary,
                    reason=str(failure),
                )
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
                return TurnEnded(Outcome.CANCELLED)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
                return TurnEnded(
                    Outcome.TERMINATED,
                    reason=event.workflow_execution_terminated_event_attributes.reason,
                )
            case _:
                return TurnEnded(
                    Outcome.TIMED_OUT, reason="the server's timeout for the workflow is over"
                )

    async def _failure(self, failure: Failure) -> BaseException:
        """Decode a failure to the original exception.

        Raises:
            PayloadDecodeError: Its message or details are encoded by a codec that this process does
                not have. Temporal's own converter would return the message "Encoded failure".
        """
        try:
            exception = await self._converter.decode_failure(failure)
        except errors.KeyStoreError:
            raise
        except Exception as error:
            raise undecodable(error, failure.application_failure_info.details.payloads) from error
        if (
            failure.HasField("encoded_attributes")
            and is_foreign(failure.encoded_attributes)
            and not self._is_worker
        ):
            is_ours = isinstance(self._converter.payload_codec, Encryption)
            if not is_ours:
                raise undecodable(None, [failure.encoded_attributes])
            if getattr(exception, "type", None) in _UNREADABLE:
                raise errors.from_info(failures.error_in(exception))
        return exception

    async def _raw(self, payloads: Iterable[Payload]) -> RawValue:
        return await raw_value(self._converter, payloads, is_worker=self._is_worker)

    _readers: ClassVar[dict[int, _Reader]] = {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: _started,
        EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED: _scheduled,
        EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED: _completed,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED: _cancelled,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED: _admit,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: _updated,
        EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED: _waits,
        EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED: _child_scheduled,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: _signalled,
        **dict.fromkeys(_ENDS, _ended_badly),
        **dict.fromkeys(_CHILD_ENDS, _child_ended),
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: _closed,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: _closed,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: _closed,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: _closed,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: _closed,
    }
    """What reads an event, by its type. All other events hold no fact."""


async def raw_value(
    converter: DataConverter, payloads: Iterable[Payload], *, is_worker: bool = False
) -> RawValue:
    """Return the first of an event's payloads, decoded by the codec.

    Raises:
        PayloadDecodeError: This process lacks the codec, unless it `is_worker`.
    """
    received = list(payloads)
    if not received:
        return NOTHING
    [raw] = await decoded(converter, received[:1], [RawValue])
    assert isinstance(raw, RawValue)
    if is_foreign(raw.payload) and not is_worker:
        raise undecodable(None, [raw.payload])
    return raw


def key_of(event: HistoryEvent) -> ActivityKey | None:
    """Return the key of the activity that this event schedules, if any.

    A local activity has one event, its end.
    """
    if event.event_type == _MARKER:
        return _key_of_marker(event.marker_recorded_event_attributes)
    if event.event_type != _SCHEDULED:
        return None
    key = parse_key(event.activity_task_scheduled_event_attributes.activity_id)
    return None if isinstance(key, ChildKey) else key


def _key_of_marker(marker: MarkerRecordedEventAttributes) -> ActivityKey | None:
    """Return the key of the local activity that this marker records, if any."""
    if marker.marker_name != _LOCAL_ACTIVITY:
        return None
    [about] = marker.details[_LOCAL_ABOUT].payloads
    key = parse_key(json.loads(about.data)["activity_id"])
    return None if isinstance(key, ChildKey) else key


def _time_in(memo: Mapping[str, Any], name: str) -> datetime | None:
    return datetime.fromisoformat(memo[name]) if memo.get(name) else None


def _cancelled() -> Failure:
    failure = Failure(message="cancelled")
    failure.canceled_failure_info.SetInParent()
    return failure
