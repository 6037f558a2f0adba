"""Observers of an agent.

They see every step, every wait and the end, in the worker, and change nothing.
"""

from __future__ import annotations

from perdure.values.reports import AgentReport, Step
from perdure.values.tasks import TurnInfo


class Observer:
    """Base of observers of your own.

    Each method may be overridden. What one raises is logged and changes nothing.

    They are called in order, each event once, also after a crash, unless the worker dies while it
    calls them; then the same events come again.
    """

    async def on_step(self, turn: TurnInfo, step: Step) -> None:
        """A step is complete, its results included."""

    async def on_wait(self, turn: TurnInfo, kind: str, reason: str) -> None:
        """The turn begins to wait: for `budget`, `approval`, `provider` or `resume`."""

    async def on_end(self, turn: TurnInfo, report: AgentReport) -> None:
        """The turn is over, well or not."""
