"""Values of a batch that are stored in Temporal: its input, its parts, and their messages.

A batch runs its tasks in rounds: the first round runs all of them, and each further round those
that have no answer yet. A round has parts, which hold the tasks and run their turns. The batch
itself holds no task. It gives places and money to the parts in turn, and takes them back.

Amounts in messages are totals since the beginning of the round. So it does not matter if a message
comes twice, or crosses a message of the other side.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from perdure import limits
from perdure.base import Wire
from perdure.turn.effect_values import EffectScopes
from perdure.turn.slot import ScheduledBy, Slot, with_slot
from perdure.turn.wire import TurnRequest
from perdure.values.batch_items import BatchItem, OnError
from perdure.values.budgets import NOTHING, Budget, Spending
from perdure.values.tasks import Task

_DIGITS = 12


class BatchStopReason(StrEnum):
    """The reason why the rest of a batch is not started."""

    FAILED = "failed"
    BUDGET = "budget"
    CANCELLED = "cancelled"
    LOST = "lost"


class Round(Wire):
    """One round of a batch: the digest of its tasks, and the number of its parts."""

    digest: str
    parts: int


class PartRequest(Wire):
    """The input of a part. `common` is the input of its turns, with an empty task.

    `indexed` is set if the namespace has Perdure's search attributes. `schedule` is the id of the
    schedule that has started the batch; empty without a schedule.
    """

    batch: str
    round: int
    part: int
    common: TurnRequest
    items: tuple[BatchItem, ...]
    indexed: bool = False
    priority: int | None = None
    schedule: str = ""

    def turn_id(self, item: BatchItem) -> str:
        """Return the id of an item's turn."""
        return turn_id(self.batch, item.id, self.round)

    def request(self, item: BatchItem, budget: Budget | None = None) -> TurnRequest:
        """Return the input of an item's turn; `budget` overrides its own."""
        changes = {
            "task": item.task,
            "labels": {**self.common.labels, **item.labels},
            "effect_scopes": EffectScopes(session=f"{self.batch} {item.id}"),
        }
        if budget is not None:
            changes["budget"] = budget
        return self.common.model_copy(update=changes)


class PartOrder(Wire):
    """The signal from a batch to a part.

    `slots` and `given` are the places and the money that the part was given in all, and `taken` is
    the money that it gave back, as far as the batch knew. `others` is set while other parts hold
    money that may come back. `most` is the largest spending of a turn so far. `budget` and
    `on_error` are the limits and the rule of the batch. Nothing starts after `until`. With `stop`,
    nothing more starts; `reason` is the reason of a cancellation, which also stops the turns that
    run. `even` is set after an addition to the budget: a share is then no more than an equal part
    of what is unspent.
    """

    slots: int = 0
    given: Spending = NOTHING
    taken: Spending = NOTHING
    others: bool = False
    most: Spending = NOTHING
    budget: Budget | None = None
    on_error: OnError = "go on"
    until: datetime | None = None
    stop: BatchStopReason | None = None
    reason: str = ""
    even: bool = False


class PartNews(Wire):
    """The signal from a part to its batch.

    `freed` and `returned` are the places and the money that it gave back in all, and `spent` is
    what its turns spent. `waits` is set while a task waits for money, and `wanted` is the amount
    that it needs; meanwhile all money that no turn needs is given back. `exhausted` is set if a
    turn could not be paid for, with nothing left anywhere. `run` is the run of the part: after a
    reset there is another run, which counts its news from the point of the reset.
    """

    part: int
    run: str = ""
    number: int = 0
    freed: int = 0
    returned: Spending = NOTHING
    spent: Spending = NOTHING
    most: Spending = NOTHING
    is_priced: bool = True
    done: int = 0
    failed: int = 0
    running: int = 0
    waits: bool = False
    wanted: Spending = NOTHING
    exhausted: bool = False
    over: bool = False


class PartAccount(Wire):
    """What a batch knows of a part that has begun. `silent_since` is the time of the last sign."""

    order: PartOrder
    news: PartNews
    silent_since: datetime

    @property
    def slots(self) -> int:
        """The places that it holds."""
        return max(self.order.slots - self.news.freed, 0)


class BatchProgress(Wire):
    """The state of a batch, which its later runs take over.

    `next_part` is the first part that has not begun; the parts in `active` have. The other counters
    count parts that are over. `updates` are the ids of the last additions to the budget.
    """

    began: datetime
    next_part: int = 1
    active: dict[int, PartAccount] = {}
    done: int = 0
    failed: int = 0
    spent: Spending = NOTHING
    most: Spending = NOTHING
    is_priced: bool = True
    lost: int = 0
    stop: BatchStopReason | None = None
    reason: str = ""
    updates: tuple[str, ...] = ()


class BatchRequest(Wire):
    """The input of a batch.

    `before` has the earlier rounds, `answered` the number of their answers, and `spent` what they
    spent. `progress` is set in a later run of the workflow, and `schedule` if a schedule has
    started the batch: what it spends counts in the total budget of that. `by` is who has started a
    further round.
    """

    agent: str
    digest: str
    items: int
    parts: int = Field(ge=0, le=limits.BATCH_PARTS)
    at_once: int = Field(ge=1)
    budget: Budget | None = None
    on_error: OnError = "go on"
    before: tuple[Round, ...] = ()
    answered: int = 0
    spent: Spending = NOTHING
    is_priced: bool = True
    progress: BatchProgress | None = None
    schedule: ScheduledBy | None = None
    by: str | None = None

    @property
    def rounds(self) -> tuple[Round, ...]:
        """All rounds, the current round last."""
        return (*self.before, Round(digest=self.digest, parts=self.parts))


class BatchNote(Wire):
    """The description of a batch in its memo.

    `items` and the counters are about the batch as a whole. `running` are the turns that have
    started and not ended. A batch that a schedule has started has no `rounds` before its tasks are
    stored. `retried_by` is who has started the current round with a retry.
    """

    agent: str
    items: int
    at_once: int
    on_error: OnError = "go on"
    rounds: tuple[Round, ...]
    began: datetime | None = None
    done: int = 0
    failed: int = 0
    running: int = 0
    spent: Spending = NOTHING
    is_priced: bool = True
    budget: Budget | None = None
    stop: BatchStopReason | None = None
    reason: str = ""
    lost: int = 0
    over: bool = False
    retried_by: str | None = None


class StoreCall(Wire):
    """Input of the activity that stores the tasks of a batch that a schedule has started.

    The tasks are in the input of its workflow. `slot` is the time for which it was started.
    """

    slot: Slot | None = None
    priority: int | None = None
    fairness: str | None = None


class StoredTasks(Wire):
    """The tasks of a batch, once its parts have them."""

    digest: str
    items: int
    parts: int


class PartEnd(Wire):
    """The result of a part. `expired` is set if its batch was never started, or ended before."""

    done: int = 0
    failed: int = 0
    expired: bool = False


def common_of(request: TurnRequest, slot: Slot | None) -> TurnRequest:
    """Return what the turns of a batch of a schedule have in common, by the input of the batch."""
    batch = request.schedule.batch if request.schedule else None
    changes = {
        "task": Task(content=""),
        "context": with_slot(request.context, request.schedule, slot),
        "budget": batch.turn_budget if batch else None,
        "schedule": None,
    }
    return request.model_copy(update=changes)


def turn_id(batch: str, item: str, number: int) -> str:
    """Return the id of the turn of an item in a round, counted from 1."""
    return f"{batch}/{item}" + (f"~{number}" if number > 1 else "")


def part_id(batch: str, number: int, digest: str, part: int) -> str:
    """Return the workflow id of a part of a round, both counted from 1.

    It names the digest of all tasks, so uploads of other tasks under the same id never mix.
    """
    return f"{batch}:{number}-{digest[:_DIGITS]}:part-{part}"
