"""Converts the history of a part of a batch to the ends of its turns, without a worker."""

from __future__ import annotations

from typing import Any, NamedTuple

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter

from perdure.batch.wire import PartRequest
from perdure.temporal import outcomes
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.temporal.names import BATCH_ORDER, READ_CHILD
from perdure.temporal.payloads import unpack
from perdure.turn.facts import ChildEnded
from perdure.turn.keys import ChildKey
from perdure.turn.wire import ChildRun

_KEY = ChildKey(0, 0, 1)


class TurnOfPart(NamedTuple):
    """A turn that has started, or that has ended with `end`."""

    turn_id: str
    end: ChildEnded | None = None


class PartOrdered(NamedTuple):
    """The part was told to begin, or that it will not."""


PartFact = PartRequest | TurnOfPart | PartOrdered


class PartReader(HistoryReader):
    """Reads the events of one part, in order.

    Attributes:
        request: The input of the part, once it was read.
        refused: The turns whose ids were in use, by their ids. After a reset, the part begins to
            read the end of such a turn and it is no longer in here; a part of an earlier release
            does not.
    """

    def __init__(self, converter: DataConverter) -> None:
        super().__init__(converter)
        self.request: PartRequest | None = None
        self.refused: dict[str, ChildEnded] = {}
        self._found: dict[int, str] = {}

    async def read(self, event: HistoryEvent) -> tuple[PartFact, ...]:
        """Return the fact of an event; none if it is not about turns.

        Raises:
            InvalidRequestError: The workflow was not started as a part.
            PayloadDecodeError: This process lacks the codec of the batch.
        """
        fact = await self._part_fact(event)
        return () if fact is None else (fact,)

    async def _part_fact(self, event: HistoryEvent) -> PartFact | None:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                payloads = event.workflow_execution_started_event_attributes.input.payloads
                self.request = unpack(await self._raw(payloads), PartRequest)
                return self.request
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                signal = event.workflow_execution_signaled_event_attributes.signal_name
                return PartOrdered() if signal == BATCH_ORDER else None
            case EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
                begun = event.start_child_workflow_execution_initiated_event_attributes
                self._children[event.event_id] = _KEY
                return TurnOfPart(begun.workflow_id)
            case EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_FAILED:
                refused = await self._end(event)
                if refused is not None and refused.end is not None:
                    self.refused[refused.turn_id] = refused.end
                return None
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                reads = event.activity_task_scheduled_event_attributes
                if reads.activity_type.name == READ_CHILD:
                    run = unpack(await self._raw(reads.input.payloads), ChildRun)
                    if not run.only_parent:
                        self._found[event.event_id] = run.turn_id
                        self.refused.pop(run.turn_id, None)
                return None
            case _:
                return await self._end_of_found(event) or await self._end(event)

    async def _end_of_found(self, event: HistoryEvent) -> TurnOfPart | None:
        """Return the end of a turn that an activity has read, or could not read."""
        attributes: Any = getattr(event, event.WhichOneof("attributes") or "", None)
        turn_id = self._found.get(getattr(attributes, "scheduled_event_id", 0))
        if turn_id is None:
            return None
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            ended = outcomes.child_found(_KEY, await self._raw(attributes.result.payloads))
        elif hasattr(attributes, "failure"):
            failure = await self._failure(attributes.failure)
            ended = outcomes.child_not_found(_KEY, turn_id, failure)
        else:
            return None  # it has begun
        return TurnOfPart(turn_id, ended)

    async def _end(self, event: HistoryEvent) -> TurnOfPart | None:
        attributes: Any = getattr(event, event.WhichOneof("attributes") or "", None)
        is_start = event.event_type == EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED
        if is_start or getattr(attributes, "initiated_event_id", 0) not in self._children:
            return None
        turn_id = getattr(attributes, "workflow_id", "")
        if hasattr(attributes, "workflow_execution"):
            turn_id = attributes.workflow_execution.workflow_id
        ended = await self._fact(event)
        return TurnOfPart(turn_id, ended) if isinstance(ended, ChildEnded) else None
