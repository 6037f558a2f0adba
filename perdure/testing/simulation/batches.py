"""Batches of all kinds: their tasks, limits and budgets, for simulations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from perdure.agents.agent import Agent
from perdure.testing.simulation.agents import some_budget, some_request
from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.world import REFUSED_URL, URL
from perdure.turn.slot import ScheduledBy
from perdure.turn.wire import TurnRequest
from perdure.values.batch_items import BatchItem, OnError, ScheduledBatch
from perdure.values.budgets import Budget
from perdure.values.tasks import Task


@dataclass(frozen=True)
class SimulatedBatch:
    """A batch to simulate.

    Attributes:
        common: The input of its turns, whatever their task.
        items: The tasks.
        at_once: The largest number of turns at once.
        part_items: The largest number of tasks in a part.
        budget: The budget of the batch.
        on_error: What it does after a turn without an answer.
    """

    common: TurnRequest
    items: tuple[BatchItem, ...]
    at_once: int = 2
    part_items: int = 3
    budget: Budget | None = None
    on_error: OnError = "go on"

    @property
    def of_schedule(self) -> TurnRequest:
        """The input of the workflow by which a schedule starts it."""
        stored = ScheduledBatch(
            items=self.items,
            at_once=self.at_once,
            on_error=self.on_error,
            turn_budget=self.common.budget,
        )
        schedule = ScheduledBy(id="plan", timezone="UTC", batch=stored)
        fields = {"budget": self.budget, "schedule": schedule, "task": Task(content="")}
        return self.common.model_copy(update=fields)


def some_batch(choices: Choices, agents: Sequence[Agent[Any]]) -> SimulatedBatch:
    """Return a batch of the first agent; a smaller one if its turns have delegates."""
    count = choices.pick((2, 1, 3, 5, 7, 0, 12))
    if len(agents) > 1:
        count = min(count, 5)
    on_error: OnError = choices.pick(("go on", "go on", "go on", "stop"))
    return SimulatedBatch(
        common=some_request(choices, agents).model_copy(
            update={"on_done": _url(choices), "client_tools": ()}
        ),
        items=tuple(_item(choices, number) for number in range(1, count + 1)),
        at_once=choices.pick((2, 1, 3, 12)),
        part_items=choices.pick((2, 1, 3, 100)),
        budget=_budget(choices, count),
        on_error=on_error,
    )


def _url(choices: Choices) -> str | None:
    """Return the URL of a webhook, which the worker may refuse; mostly none."""
    return choices.pick((None, None, URL, URL, REFUSED_URL)) if choices.happens(2) else None


def _item(choices: Choices, number: int) -> BatchItem:
    task = Task(content=f"task {number}", requires_human_approval=choices.happens(12))
    return BatchItem(id=f"t{number}", task=task)


def _budget(choices: Choices, count: int) -> Budget | None:
    """Return the budget of a batch: enough for all of its tasks, or not."""
    given = some_budget(choices)
    if given is None:
        return None
    factor = choices.pick((count or 1, 1, 2))
    limits = {name: value * factor for name, value in given if value is not None}
    if "time" in limits:
        limits["time"] = choices.pick((timedelta(minutes=30), limits["time"]))
    return Budget.model_validate(limits)
