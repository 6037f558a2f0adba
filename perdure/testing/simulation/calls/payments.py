"""Payments in a simulation: effects with keys, which are looked up when their answer was lost.

The ledger is that of a service that does not recognize keys, so whatever is made twice is in it
twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from perdure.agents.tools import tool
from perdure.testing.simulation.choices import BESIDE, Choices
from perdure.testing.simulation.server.runs import Activity
from perdure.turn.effect_values import Verification
from perdure.turn.keys import ToolKey, parse_key
from perdure.turn.wire import ToolOutput, ToolRun
from perdure.values.effects import EffectRecord

SETTLED = timedelta(seconds=60)
"""No attempt has its effect later after its loss: the longest takes 40 s."""


@tool(read_only=True)
def find(a: int = 0) -> str | None:
    """Look a payment up; a simulation does that in its own ledger."""
    return None


@tool
def refund(a: int = 0) -> str:
    """Pay back; nobody can look it up."""
    return f"paid {a} back"


@tool(verify=find, settle=SETTLED, requires_approval=True)
def cancel(a: int = 0) -> str:
    """Cancel an order, if somebody approves it."""
    return f"cancelled {a}"


@tool(effect=["a"], verify=find, settle=SETTLED, undo=refund)
def pay(a: int = 0) -> str:
    """Pay once, and look it up if the answer was lost."""
    return f"paid {a}"


@tool(effect=["a"], verify=find, settle=SETTLED, idempotent=True, on_unknown="fail", undo=cancel)
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
    """What an attempt of a call has brought about: the effect with this key.

    Attributes:
        tool: The tool that was called.
        call_id: The id of its call.
        amount: What was paid, ordered or sent.
        undoes: The call that it takes back; None for all others.
    """

    activity: Activity
    key: str
    tool: str
    call_id: str
    amount: object
    undoes: EffectRecord | None = None

    @property
    def turn_id(self) -> str:
        """The turn of the call."""
        return self.activity.run.id

    @property
    def step(self) -> int:
        """The step of the call."""
        key = parse_key(self.activity.key)
        assert isinstance(key, ToolKey)
        return key.step


class Payments:
    """The service: what was paid, ordered and sent, in order."""

    def __init__(self, choices: Choices) -> None:
        self.ledger: list[Payment] = []
        self._choices = choices

    def make(self, activity: Activity, run: ToolRun, key: str) -> ToolOutput:
        """Return the result of a call, which may have no answer."""
        request = activity.run.read.request
        payment = Payment(
            activity,
            key,
            run.tool or activity.type,
            run.call_id,
            amount_of(run.arguments),
            request.undo.record if request is not None and request.undo is not None else None,
        )
        fate = self._choices.below(8, beside=BESIDE)
        if fate == 6:
            return ToolOutput(content="declined", is_error=True)
        self.ledger.append(payment)
        if fate == 7:
            return ToolOutput(content="no answer", is_error=True, is_unknown=True)
        return ToolOutput(content=f"made: {activity.key}")

    def has_made(self, turn_id: str, step: int, call_id: str) -> bool:
        """Return whether a call of a turn has had its effect."""
        return any(
            payment.turn_id == turn_id and payment.step == step and payment.call_id == call_id
            for payment in self.ledger
        )

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


def amount_of(arguments: str) -> object:
    """Return the amount in the arguments of a call, which its effect depends on."""
    return json.loads(arguments or "{}").get("a", 0)


def some_payment(choices: Choices) -> tuple[str, str]:
    """Return the tool and the arguments of a call with an effect, which is often the same one."""
    name = choices.pick(("pay", "pay", "order", "mail"), beside="pays often")
    return name, choices.pick(('{"a": 1}', '{"a": 1}', '{"a": 4}'), beside="pays often")
