"""The budget of all turns of a schedule together. Pure.

It is in the input of the turns: each turn knows what is left when it starts, and adds what it has
spent to the input of the next turn when it ends.
"""

from __future__ import annotations

from datetime import datetime

from perdure.base import Wire
from perdure.turn.ledger import Ledger, in_words
from perdure.values.budgets import DIMENSIONS, NOTHING, Budget, Spending

_KEPT = 20
"""The number of runs that are known to be counted: more than the server's list of the last ones."""
_SHORT = 12


class ScheduleAccount(Wire):
    """What the turns of a schedule may spend together, and what those that are over have spent.

    Turns count that were started after `since`. `settled` are the last runs that were counted, by
    the ends of the ids of their first runs.
    """

    total: Budget
    since: datetime
    spent: Spending = NOTHING
    settled: tuple[str, ...] = ()

    @property
    def _ledger(self) -> Ledger:
        return Ledger(self.total, self.spent)

    @property
    def spent_limit(self) -> str:
        """The first limit of which nothing is left, in words; empty if all have a rest."""
        for name in DIMENSIONS:
            if self._ledger.remaining(name) == 0:
                spent, total = getattr(self.spent, name), getattr(self.total, name)
                return f"{in_words(name, spent)} of {in_words(name, total)}"
        return ""

    def within(self, budget: Budget | None) -> Budget | None:
        """Return the budget of a turn: what is left, within its own. It is its own at the end."""
        if self.spent_limit:
            return budget
        return self._ledger.rest.within(budget)

    def limits(self, budget: Budget | None) -> bool:
        """Return whether a limit of a turn's budget is what was left, and not a smaller limit."""
        for name in DIMENSIONS:
            remaining, limit = self._ledger.remaining(name), getattr(budget, name, None)
            if remaining is not None and limit is not None and limit >= remaining:
                return True
        return False

    def counts(self, run_id: str) -> bool:
        """Return whether a run was counted."""
        return run_id[-_SHORT:] in self.settled

    def settle(self, run_id: str, spent: Spending) -> ScheduleAccount:
        """Count what a run has spent."""
        settled = (*self.settled, run_id[-_SHORT:])[-_KEPT:]
        return self.model_copy(update={"spent": self.spent + spent, "settled": settled})


class SettleScheduleCall(Wire):
    """Input of the activity that counts a turn in the budget of its schedule.

    `run_id` is the turn's first run. `is_limited` is set if it ended because nothing more was left
    of that budget.
    """

    schedule_id: str
    run_id: str
    spent: Spending
    is_limited: bool = False
