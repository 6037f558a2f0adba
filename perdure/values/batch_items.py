"""The tasks of a batch, and the batch that a schedule runs. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from perdure.base import Wire
from perdure.values.budgets import Budget
from perdure.values.tasks import Task

OnError = Literal["go on", "stop"]
"""What a batch does after a turn without an answer."""


class BatchItem(Wire):
    """One task of a batch."""

    id: str
    task: Task
    labels: dict[str, str] = {}


class ScheduledBatch(Wire):
    """The batch that a schedule runs at each of its times.

    Its agent, its budget and what its turns have in common are in the input that it comes with.
    """

    items: tuple[BatchItem, ...] = ()
    at_once: int = Field(default=10, ge=1)
    on_error: OnError = "go on"
    turn_budget: Budget | None = None
