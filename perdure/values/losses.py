"""How the answer of a tool call was lost."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from operator import not_

from pydantic import Field

from perdure.base import Value
from perdure.values.moments import in_words


class Loss(StrEnum):
    """The reason why a tool call has no result of its own.

    `no_answer` is a lost answer of which the tool itself tells, and `not_awaited` a call that still
    ran when the turn asked for its last answer. `failed` is a call that could not be run.
    """

    WORKER_LOST = "worker_lost"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    FAILED = "failed"
    BY_OPERATOR = "ended_by_operator"
    NO_ANSWER = "no_answer"
    NOT_AWAITED = "not_awaited"


class CallLoss(Value):
    """How the answer of a call was lost, and when the call was sent.

    Attributes:
        kind: How it was lost.
        sent_at: When the call was sent, in UTC, to the second; None where that is not recorded: in
            turns of releases before, of delegates, and of calls that were not awaited.
    """

    kind: Loss
    sent_at: datetime | None = Field(default=None, exclude_if=not_)

    @classmethod
    def at(cls, kind: Loss, sent_at: datetime) -> CallLoss:
        """Return the loss of a call that was sent at this time."""
        return cls(kind=kind, sent_at=sent_at.replace(microsecond=0))

    @property
    def after(self) -> str:
        """When the call was sent, as a part of a sentence; empty if that is not recorded."""
        return "" if self.sent_at is None else f", after it was sent at {in_words(self.sent_at)}"
