"""Converts the history of a part of a batch to the ends of its turns, without a worker."""

from __future__ import annotations

from typing import Any, NamedTuple

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from perdure.batch.wire import PartRequest
from perdure.temporal.history import HistoryReader
from perdure.temporal.names import BATCH_ORDER
from perdure.temporal.payloads import unpack
from perdure.turn.facts import ChildEnded
from perdure.turn.keys import ChildKey

_KEY = ChildKey(0, 0, 1)


class TurnOfPart(NamedTuple):
    """A turn that has started, or that has ended with `end`."""

    turn_id: str
    end: ChildEnded | None = None


class PartOrdered(NamedTuple):
    """The part was told to begin, or that it will not."""


PartFact = PartRequest | TurnOfPart | PartOrdered


class PartReader(HistoryReader):
    """Reads the events of one part, in order."""

    request: PartRequest | None = None

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
                given = event.workflow_execution_started_event_attributes.input.payloads
                self.request = unpack(await self._raw(given), PartRequest)
                return self.request
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                signal = event.workflow_execution_signaled_event_attributes.signal_name
                return PartOrdered() if signal == BATCH_ORDER else None
            case EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
                begun = event.start_child_workflow_execution_initiated_event_attributes
                self._children[event.event_id] = _KEY
                return TurnOfPart(begun.workflow_id)
            case _:
                return await self._end(event)

    async def _end(self, event: HistoryEvent) -> TurnOfPart | None:
        attributes: Any = getattr(event, event.WhichOneof("attributes") or "", None)
        is_start = event.event_type == EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED
        if is_start or getattr(attributes, "initiated_event_id", 0) not in self._children:
            return None
        turn_id = getattr(attributes, "workflow_id", "")
        if hasattr(attributes, "workflow_execution"):
            turn_id = attributes.workflow_execution.workflow_id
        ended = await self._of_child(event)
        return TurnOfPart(turn_id, ended) if isinstance(ended, ChildEnded) else None
