"""The order in which a workflow learns of what one workflow task has for it. Pure.

History has the news of a task in the order in which it came: results, signals, ends of children.
The acceptance of an update follows after the task. But the SDK runs the handlers of signals and
updates before it resolves anything else of the same task. A reader that folds in the order of the
history would have another state than the workflow wherever that matters. So it folds what callers
and delegates have sent before everything else of the task, also if it reads it later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

from perdure.base import replace

S = TypeVar("S")
F = TypeVar("F")


@dataclass(frozen=True)
class TaskSoFar(Generic[S, F]):
    """What a reader has of one workflow task.

    Attributes:
        before: The state before the task, with the messages of the task.
        others: The other facts of the task, in the order of history.
    """

    before: S
    others: tuple[F, ...] = ()

    def plus(
        self, state: S, fact: F, apply: Callable[[S, F], S], *, is_message: bool
    ) -> tuple[S, TaskSoFar[S, F]]:
        """Return the state with one more fact of the task, and what there is of the task then."""
        if not is_message:
            return apply(state, fact), replace(self, others=(*self.others, fact))
        before = apply(self.before, fact)
        return reduce(apply, self.others, before), replace(self, before=before)
