"""An agent that says what it must not say, and who may see it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, field_validator
from pydantic_core import to_json

from perdure import Agent, Allow, Deny, OutputGuardrail, ProposedCall, RequireApproval, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker
from perdure.worker.telemetry import Telemetry

from .steered import SteeredModel

REFUSED = "canary-refused"
EARLY = "canary-early"
DELEGATE = "canary-delegate"
BESIDE = "canary-beside"
DECLINED = "canary-declined"
MISFIT = "canary-misfit"
POLICY = "canary-policy"
PERSON = "canary-person"
CANARIES = (REFUSED, EARLY, DELEGATE, BESIDE, DECLINED, MISFIT, POLICY, PERSON)
ASKED = {POLICY, PERSON}
"""The arguments of denied calls: whoever follows the turn sees what was asked for."""


@tool
def refund(note: str) -> str:
    """Pay back."""
    return "paid"


def rules(proposed: ProposedCall) -> Allow | Deny | RequireApproval:
    """Deny one call, and ask a person about another one."""
    if POLICY in str(proposed.arguments):
        return Deny("not allowed")
    return RequireApproval() if PERSON in str(proposed.arguments) else Allow()


def delegated(agent: str) -> Any:
    return calls(call("delegate_to_agent", agent=agent, task="help"))


class Count(BaseModel):
    """An answer whose validator quotes what does not fit."""

    count: str

    @field_validator("count")
    @classmethod
    def _is_a_number(cls, value: str) -> str:
        if not value.isdecimal():
            raise ValueError(f"{value} is no number")
        return value


CHECKED = OutputGuardrail(lambda report: "canary" not in str(report.output))


def app(telemetry: Telemetry | None = None) -> AgentWorker:
    """Guarded agents."""
    given: dict[str, Any] = {"tools": [refund], "middleware": [CHECKED]}
    kid = Agent(name="kid", model="scripted:k", **given)
    busy = Agent(name="busy", model="scripted:b", **given, max_iterations=1, on_exhausted="fail")
    shy = Agent(name="shy", model="scripted:s", **given)
    counter = Agent(name="counter", model="scripted:c", **given, output=Count)
    below = [kid, busy, shy, counter]
    names = [one.name for one in below]
    desk = Agent(name="desk", model="scripted:d", **given, policy=rules, delegates=names)
    return AgentWorker([desk, *below], telemetry=telemetry)


def script(*asked: str, turns: int = 1) -> dict[str, ScriptedModel]:
    """The models of turns that make these calls and are refused; the last one is followed by one
    that answers.
    """
    desk = [
        *(calls(call("refund", note=note)) for note in asked),
        delegated("kid"),
        delegated("busy"),
        delegated("shy"),
        delegated("counter"),
        says(f"It is {EARLY}."),
        says(f"It is {REFUSED}."),
    ]
    busy = calls(call("refund", note="x"), text=f"It is {BESIDE}.")
    return {
        "desk": SteeredModel(*desk * turns, says("Hello."), during=f"It is {EARLY}."),
        "kid": ScriptedModel(*[says(f"It is {DELEGATE}.")] * turns),
        "busy": ScriptedModel(*[busy] * turns),
        "shy": ScriptedModel(*[says(f"No {DECLINED}.", stop=StopReason.REFUSED)] * turns),
        "counter": ScriptedModel(*[says(to_json({"count": MISFIT}).decode())] * 3 * turns),
    }


def canaries(seen: object) -> set[str]:
    """The canaries in a text, in bytes, or in a value."""
    if isinstance(seen, bytes):
        seen = seen.decode(errors="replace")
    text = seen if isinstance(seen, str) else f"{seen!r} {to_json(seen, fallback=repr).decode()}"
    return {one for one in CANARIES if one in text}
