"""Payments in a simulation: effects with keys, which are looked up when their answer was lost.

The ledger is that of a service that does not recognize keys, so whatever is made twice is in it
twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from perdure.agents.tools import tool
from perdure.testing.simulation.choices import BESIDE, Choices
from perdure.testing.simulation.server.runs import Activity
from perdure.turn.effect_values import Verification
from perdure.turn.wire import ToolOutput

SETTLED = timedelta(seconds=60)
"""No attempt has its effect later after its loss: the longest takes 40 s."""


@tool(read_only=True)
def find(a: int = 0) -> str | None:
    """Look a payment up; a simulation does that in its own ledger."""
    return None


@tool(effect=["a"], verify=find, settle=SETTLED)
def pay(a: int = 0) -> str:
    """Pay once, and look it up if the answer was lost."""
    return f"paid {a}"


@tool(effect=["a"], verify=find, settle=SETTLED, idempotent=True, on_unknown="fail")
def order(a: int = 0) -> str:
    """Order once, again if the order was lost, and fail if nobody knows."""
    return f"ordered {a}"


@tool(effect=["a"])
def mail(a: int = 0) -> str:
    """Send once; nobody can look it up."""
    return f"sent {a}"


TOOLS = (pay, order, mail)


@dataclass(frozen=True)
class Payment:
    """What an attempt of a call has brought about: the effect with this key."""

    activity: Activity
    key: str


class Payments:
    """The service: what was paid, ordered and sent, in order."""

    def __init__(self, choices: Choices) -> None:
        self.ledger: list[Payment] = []
        self._choices = choices

    def make(self, activity: Activity, key: str) -> ToolOutput:
        """Return the result of a call, which may have no answer."""
        fate = self._choices.below(8, beside=BESIDE)
        if fate == 6:
            return ToolOutput(content="declined", is_error=True)
        self.ledger.append(Payment(activity, key))
        if fate == 7:
            return ToolOutput(content="no answer", is_error=True, is_unknown=True)
        return ToolOutput(content=f"made: {activity.key}")

    def look_up(self, key: str) -> Verification:
        """Return whether an effect is there.

        Raises:
            ApplicationError: The service is away.
        """
        fate = self._choices.below(9, beside=BESIDE)
        if fate == 7:
            raise ApplicationError("away")
        if fate == 8:
            return Verification(verdict="unreadable", content="closed")
        is_there = any(payment.key == key for payment in self.ledger)
        return Verification(verdict="found" if is_there else "absent", content="found")
