"""The status of a batch, and the results of its tasks."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Generic

from perdure.base import T, Value
from perdure.errors import ErrorInfo
from perdure.values import states
from perdure.values.budgets import Budget, Remaining, Spending
from perdure.values.reports import Outcome


class TaskState(StrEnum):
    """What became of a task of a batch."""

    DONE = "done"
    FAILED = "failed"
    NOT_STARTED = "not_started"


class BatchStatus(Value):
    """The status of a batch.

    Attributes:
        id: The batch's id.
        agent: The name of its agent.
        state: The state of the batch. All except `running` are final, until `retry`. A batch that
            is `completed` has tried every task; in the other final states some were not started.
        total: The number of its tasks.
        done: The number of tasks with an answer, of all rounds.
        failed: The number of tasks whose latest turn ended without one.
        running: The number of turns that run. It includes those that wait.
        waiting: The number of turns that wait for a person or a provider. Each keeps its place
            while it waits. None if the namespace lacks Perdure's search attributes, and in the
            status of a schedule.
        pending: The number of tasks that have not started and will.
        not_started: The number of tasks that have not started and will not.
        at_once: The largest number of turns that run at the same time.
        cost: The cost so far in USD; None if a price is unknown, or what a part of the batch has
            spent that is gone.
        spent: What its turns were charged with so far.
        budget: The budget of the batch; None if it has none.
        left: What is left of it, including what running turns may still spend.
        round: The number of the current round: 1, and one more for each `retry`.
        reason: The reason of a cancellation.
        by: The person or program that has cancelled it; None otherwise, without a name, and in the
            status of a schedule.
        retried_by: The person or program that has started the current round with `retry`; None
            in the first round, and without a name.
        started_at: When the current round was started.
        ended_at: When it ended; None before.
    """

    id: str
    agent: str
    state: states.OfBatch
    total: int
    done: int = 0
    failed: int = 0
    running: int = 0
    waiting: int | None = None
    pending: int = 0
    not_started: int = 0
    at_once: int
    cost: Decimal | None = None
    spent: Spending = Spending()
    budget: Budget | None = None
    left: Remaining = Remaining()
    round: int = 1
    reason: str = ""
    by: str | None = None
    retried_by: str | None = None
    started_at: datetime
    ended_at: datetime | None = None


class BatchResult(Value, Generic[T]):
    """The result of one task of a batch.

    Attributes:
        id: The id of the task within the batch.
        turn_id: The id of its turn; `client.turn(turn_id)` has the messages.
        state: Whether it has an answer.
        outcome: The outcome of the turn; None if it was not started.
        output: The answer: text, or an instance of the type that was asked for. None without an
            answer of that type.
        last_text: Without an answer, the last text of the model; otherwise empty.
        cost: The cost in USD of its turns in all rounds; None if a price is unknown, or if an
            earlier round is no longer retained.
        error: Why there is no answer.
        labels: The labels of the task.
        cursor: The place of this result, to read on after it.
    """

    id: str
    turn_id: str
    state: TaskState
    outcome: Outcome | None = None
    output: T | None = None
    last_text: str = ""
    cost: Decimal | None = None
    error: ErrorInfo | None = None
    labels: dict[str, str] = {}
    cursor: str = ""
