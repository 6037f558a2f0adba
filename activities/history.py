"""From Temporal's history to facts, event by event.

Works without a worker and after the end of a turn. An activity's end names the event that scheduled it, so a reader keeps the keys of the
activities it has seen; a reader that begins in the middle finds no key for those scheduled before, and makes no fact of their end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from perdure import errors
from perdure.activities import failures, outcomes
from perdure.activities.payloads import NOTHING, unpack
from perdure.errors import PerdureError
from perdure.facts import CancelRequested, Fact, Key, Scheduled, TurnEnded, TurnStarted
from perdure.reports import Outcome
from perdure.wire import Summary, TurnRequest

_ENDS = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: "activity_task_failed_event_attributes",
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: "activity_task_timed_out_event_attributes",
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED: "activity_task_canceled_event_attributes",
}


class HistoryReader:
    """Makes facts of one run's events, given in their order."""

    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self._keys: dict[int, Key] = {}

    async def fact(self, event: HistoryEvent) -> Fact | None:
        """The fact of an event; None where it holds none."""
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                return await self._started(event.workflow_execution_started_event_attributes.input.payloads)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                return self._scheduled(event)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                done = event.activity_task_completed_event_attributes
                key = self._keys.get(done.scheduled_event_id)
                return outcomes.completed(key, await self._raw(done.result.payloads)) if key else None
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
                return CancelRequested(event.workflow_execution_cancel_requested_event_attributes.cause)
            case kind if kind in _ENDS:
                return await self._ended_badly(event)
            case _:
                return await self._closed(event)

    def _scheduled(self, event: HistoryEvent) -> Fact | None:
        key = key_of(event)
        if key is None:
            return None
        self._keys[event.event_id] = key
        return Scheduled(key)

    async def _started(self, payloads: Sequence[Payload]) -> Fact | None:
        if len(payloads) != 1:
            return None
        try:
            return TurnStarted(unpack(await self._raw(payloads), TurnRequest))
        except PerdureError:
            return None

    async def _ended_badly(self, event: HistoryEvent) -> Fact | None:
        attributes = getattr(event, _ENDS[event.event_type])
        key = self._keys.get(attributes.scheduled_event_id)
        if key is None:
            return None
        failure = attributes.failure if hasattr(attributes, "failure") else _cancelled()
        return outcomes.failed(key, await self._converter.decode_failure(failure))

    async def _closed(self, event: HistoryEvent) -> Fact | None:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
                raw = await self._raw(event.workflow_execution_completed_event_attributes.result.payloads)
                summary = unpack(raw, Summary)
                return TurnEnded(summary.outcome, summary)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
                failure = await self._converter.decode_failure(event.workflow_execution_failed_event_attributes.failure)
                found = failures.summary_in(failure)
                return TurnEnded(found.outcome if found else Outcome.FAILED, found, reason=str(failure))
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
                return TurnEnded(Outcome.CANCELLED)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
                return TurnEnded(Outcome.TERMINATED, reason=event.workflow_execution_terminated_event_attributes.reason)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
                return TurnEnded(Outcome.TIMED_OUT, reason="the server's timeout for the workflow is over")
            case _:
                return None

    async def _raw(self, payloads: Iterable[Payload]) -> RawValue:
        given = list(payloads)
        if not given:
            return NOTHING
        [raw] = await self._converter.decode(given[:1], [RawValue])
        assert isinstance(raw, RawValue)
        return raw


def key_of(event: HistoryEvent) -> Key | None:
    """The key of an activity that this event schedules."""
    if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        return None
    return Key.parse(event.activity_task_scheduled_event_attributes.activity_id)


async def first_request(client: Client, turn_id: str, run_id: str) -> TurnRequest:
    """What a run was started with.

    Raises:
        InvalidRequestError: Its input is not that of a turn.
    """
    async for event in client.get_workflow_handle(turn_id, run_id=run_id).fetch_history_events(page_size=1):
        fact = await HistoryReader(client.data_converter).fact(event)
        if isinstance(fact, TurnStarted):
            return fact.request
        break
    raise errors.InvalidRequestError(f"{turn_id!r} was not started as a turn")


def _cancelled() -> Failure:
    failure = Failure(message="cancelled")
    failure.canceled_failure_info.SetInParent()
    return failure
