"""The turn of a delegate, as its parent knows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from perdure.turn.keys import ChildKey
from perdure.turn.wire import Summary, TurnRequest
from perdure.values.budgets import Spending
from perdure.values.reports import ChildReport, Outcome
from perdure.values.tasks import headline


@dataclass(frozen=True)
class Child:
    """The turn of a delegate.

    `waits_for` is set while it waits for a person, or for the end of a provider's limit. `summary`
    is None until it ends, and afterwards if it returned none; `read` is then the summary of its
    history, None if that could not be read. `began` is False for a turn that could not be started,
    which costs nothing.
    """

    key: ChildKey
    turn_id: str
    request: TurnRequest
    lease: Spending
    waits_for: str = ""
    reason: str = ""
    ended: bool = False
    began: bool = True
    summary: Summary | None = None
    read: Summary | None = None

    @property
    def turns(self) -> int:
        """The number of turns in its part of the tree, or its whole lease if that is unknown."""
        if not self.began:
            return 0
        allowed = self.request.lineage.descendants_left if self.request.lineage else None
        return 1 + (self.summary.descendants if self.summary else allowed or 0)

    @property
    def charged(self) -> Spending:
        """The charge for it: the spending in its summary or history, or else its whole lease."""
        return self.known.spent if self.known else self.lease

    @property
    def known(self) -> Summary | None:
        """Its summary, or that of its history; None while it runs, or if neither is known."""
        return self.summary or self.read

    @property
    def cost(self) -> Decimal | None:
        """The charge in US dollars.

        None if the price of its model is unknown, or if its spending is unknown and no lease of
        money bounds it.
        """
        known = self.known
        if known is None:
            return self.lease.usd if self.lease.usd or not self.began else None
        return known.spent.usd if known.is_priced or not known.spent.model_calls else None

    @property
    def report(self) -> ChildReport:
        """The report of it for its parent."""
        summary, known = self.summary, self.known
        return ChildReport(
            turn_id=self.turn_id,
            agent=self.request.agent,
            task=headline(self.request.task),
            outcome=summary.outcome if summary else Outcome.TERMINATED if self.ended else None,
            steps=known.steps if known else 0,
            spent=self.charged,
            cost=self.cost,
            duration=known.duration if known else timedelta(),
            children=known.children if known else (),
            unsettled=known.unsettled if known else 0,
        )
