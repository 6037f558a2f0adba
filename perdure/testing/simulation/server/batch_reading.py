"""What the histories of a batch and of its parts say, for the checks of a simulation."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.common import RawValue

from perdure.batch.wire import BatchNote, BatchRequest, PartNews, PartOrder, PartRequest
from perdure.temporal.histories.part_history import PartFact
from perdure.temporal.names import BATCH_NEWS, BATCH_ORDER, MEMO_BATCH
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.turn.facts import ChildEnded
from perdure.workflows.moving import ONE_TASK


@dataclass(eq=False)
class PartRead:
    """What the history of a part of a batch says, by the product's own reader.

    Attributes:
        request: The input of the part.
        begun: The ids of the turns that it has begun.
        ends: The ends of turns, by their ids.
    """

    request: PartRequest | None = None
    begun: list[str] = field(default_factory=list)
    ends: dict[str, ChildEnded] = field(default_factory=dict)

    def apply(self, fact: PartFact) -> None:
        """Take in a fact."""
        match fact:
            case PartRequest():
                self.request = fact
            case (str(turn_id), None):
                self.begun.append(turn_id)
            case (str(turn_id), ChildEnded() as end):
                self.ends[turn_id] = end
            case _:
                pass


@dataclass(eq=False)
class BatchRead:
    """What the history of a run of a batch says.

    Attributes:
        note: The description in the memo.
        orders: The last order that was sent to each part, also by earlier runs.
        news: The last news of each part, also those that earlier runs had.
        in_flight: The number of orders whose arrival the batch does not know yet.
        passing: The timer with which the batch waits for the next workflow task, before it goes on
            in a new run; empty while it does not.
    """

    note: BatchNote | None = None
    orders: dict[int, PartOrder] = field(default_factory=dict)
    news: dict[int, PartNews] = field(default_factory=dict)
    in_flight: int = 0
    passing: str = ""

    def apply(self, event: HistoryEvent) -> None:
        """Take in an event."""
        content = attributes(event)
        match name_of(event):
            case "WORKFLOW_EXECUTION_STARTED":
                self._begin(content)
            case "WORKFLOW_PROPERTIES_MODIFIED":
                self._describe(content.upserted_memo)
            case "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED":
                if content.signal_name == BATCH_ORDER:
                    self.in_flight += 1
                    part = content.workflow_execution.workflow_id.rpartition("-")[2]
                    self.orders[int(part)] = unpack(RawValue(content.input.payloads[0]), PartOrder)
            case (
                "EXTERNAL_WORKFLOW_EXECUTION_SIGNALED" | "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED"
            ):
                self.in_flight -= 1
            case "WORKFLOW_EXECUTION_SIGNALED" if content.signal_name == BATCH_NEWS:
                self._hear(unpack(RawValue(content.input.payloads[0]), PartNews))
            case "TIMER_STARTED" if content.start_to_fire_timeout.ToTimedelta() == ONE_TASK:
                self.passing = content.timer_id
            case "TIMER_FIRED" if content.timer_id == self.passing:
                self.passing = ""
            case _:
                pass

    def _hear(self, news: PartNews) -> None:
        """Take in news, but not those of a part that only asks whether there is a batch."""
        known = self.news.get(news.part)
        is_of_later_run = known is not None and known.run not in ("", news.run)
        if news.number or is_of_later_run:
            self.news[news.part] = news

    def _begin(self, started: Any) -> None:
        request = unpack(RawValue(started.input.payloads[0]), BatchRequest)
        self._describe(started.memo)
        for part, account in request.progress.active.items() if request.progress else ():
            self.orders[part], self.news[part] = account.order, account.news

    def _describe(self, memo: Any) -> None:
        fields = memo.fields
        if MEMO_BATCH in fields:
            self.note = BatchNote.model_validate(json.loads(fields[MEMO_BATCH].data))
