"""The histories of a turn that has continued in new runs, and how long its steps took."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory

from benchmarks.measures import size
from perdure.temporal.histories.runs import describe_last, runs_up_to

_MODEL_CALL = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Chain:
    """The histories of all runs of a turn."""

    histories: Sequence[WorkflowHistory]

    @property
    def bytes(self) -> int:
        return sum(map(size, self.histories))

    @property
    def most_events(self) -> int:
        """The events of the longest run."""
        return max(len(history.events) for history in self.histories)

    def asked(self) -> dict[int, datetime]:
        """When each model call was scheduled, by the number of the step."""
        return {step: at for history in self.histories for step, at in _asked(history)}

    def seconds(self, first: int, last: int) -> float:
        """The seconds from one step to another."""
        times = self.asked()
        return (times[last] - times[first]).total_seconds()

    def seconds_within_runs(self, first: int, last: int) -> float:
        """The seconds from one step to another, without those of each continue-as-new between."""
        times = self.asked()
        begins = {_asked(history)[0][0] for history in self.histories}
        steps = (step for step in range(first, last) if step + 1 not in begins)
        return sum((times[step + 1] - times[step]).total_seconds() for step in steps)

    def pauses(self) -> list[float]:
        """The seconds from the end of the last call of each run to the first call of the next."""
        return [
            (_first_call(following) - _last_call(history)).total_seconds()
            for history, following in itertools.pairwise(self.histories)
        ]


def _last_call(history: WorkflowHistory) -> datetime:
    return next(
        event.event_time.ToDatetime()
        for event in reversed(history.events)
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
    )


def _first_call(history: WorkflowHistory) -> datetime:
    """When the first call of a model or a tool was scheduled: before it, the state is carried."""
    return next(
        event.event_time.ToDatetime()
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_id.startswith("step-")
    )


def _asked(history: WorkflowHistory) -> list[tuple[int, datetime]]:
    out = []
    for event in history.events:
        if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            continue
        key = event.activity_task_scheduled_event_attributes.activity_id
        if found := _MODEL_CALL.fullmatch(key):
            out.append((int(found[1]), event.event_time.ToDatetime()))
    return out


async def chain(client: Client, turn_id: str) -> Chain:
    """Read all runs of a turn."""
    first = client.get_workflow_handle(turn_id)
    run_id = (await first.describe()).run_id
    found = await describe_last(client, turn_id, run_id or "")
    runs = await runs_up_to(client, found)
    return Chain(
        [await client.get_workflow_handle(turn_id, run_id=run).fetch_history() for run in runs]
    )
