"""Observers of an agent.

They are called for every step, every wait and the end, in the worker, and change nothing.
"""

from __future__ import annotations

from perdure.values.reports import AgentReport, Step
from perdure.values.tasks import TurnInfo


class Observer:
    """Base class of user-defined observers.

    Each method may be overridden. Exceptions are logged and have no other effect.

    The methods are called in order, once for each event, also after a crash. If the worker dies
    during a call, the same events come again.
    """

    async def on_step(self, turn: TurnInfo, step: Step) -> None:
        """Called when a step is complete, with its results."""

    async def on_wait(self, turn: TurnInfo, kind: str, reason: str) -> None:
        """Called when the turn begins to wait.

        `kind` is `approval`, `budget`, `iterations`, `provider` or `resume`.
        """

    async def on_end(self, turn: TurnInfo, report: AgentReport) -> None:
        """Called when the turn is over, with or without success.

        The report's `steps` and `messages` may begin in the middle of a long turn, see
        `messages_from`.
        """
