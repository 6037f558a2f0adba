"""An agent that says what it must not say, and who may see it."""

from __future__ import annotations

import base64
import os
from typing import Any

from pydantic import BaseModel, field_validator
from pydantic_core import to_json

from perdure import Agent, Allow, Deny, Media, OutputGuardrail, ProposedCall, RequireApproval, tool
from perdure.activities.provider import Heard, ModelRequest
from perdure.testing import ScriptedModel, call, calls, says
from perdure.testing.stub_provider import StubProvider
from perdure.values.answers import ModelAnswer
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker
from perdure.worker.telemetry import Telemetry

from .loopback import ANTHROPIC, error_body
from .secret_forms import encodings
from .steered import SteeredModel

REFUSED = "canary-refused"
EARLY = "canary-early"
DELEGATE = "canary-delegate"
BESIDE = "canary-beside"
DECLINED = "canary-declined"
MISFIT = "canary-misfit"
POLICY = "canary-policy"
PERSON = "canary-person"
SECRET = "canary-secret"
PICTURE = "canary-picture"
KEY = "sk-canary/8b+2V=zz0192837465"
"""The key of a provider, which that sends back in an error."""
DATA = base64.b64encode(b"\x89PNG canary" * 9).decode()
"""The data of an image that a tool returns."""
FORMS = {
    **{one: (one,) for one in (REFUSED, EARLY, DELEGATE, BESIDE, DECLINED, MISFIT, POLICY, PERSON)},
    SECRET: tuple(form.decode() for form in encodings(KEY)),
    PICTURE: (DATA,),
}
"""What is looked for: the canaries, with the forms in which each could be written."""
ASKED = {POLICY, PERSON}
"""The arguments of denied calls: whoever follows the turn sees what was asked for."""
TRANSCRIPT = ASKED | {PICTURE}
"""What transcripts have as well."""


@tool
def refund(note: str) -> str:
    """Pay back."""
    return "paid"


@tool(read_only=True)
def photograph() -> Media:
    """Take a photograph."""
    return Media(media_type="image/png", data=DATA)


class Locked(ScriptedModel):
    """A model whose provider refuses the key of the worker, and quotes it."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Raise the error of the provider."""
        os.environ["CANARY_SECRET"] = KEY
        reply = error_body(401, f"Incorrect API key provided: {KEY}.")
        with StubProvider([reply]) as stub:
            return await ANTHROPIC.ask(stub.anthropic_url, request, key="CANARY_SECRET")

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Raise the same."""
        return await self.complete(request)


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
    locked = Agent(name="locked", model="scripted:l", **given)
    below = [kid, busy, shy, counter, locked]
    desk = Agent(
        name="desk",
        model="scripted:d",
        tools=[refund, photograph],
        middleware=[CHECKED],
        max_iterations=20,
        policy=rules,
        delegates=[one.name for one in below],
    )
    return AgentWorker([desk, *below], telemetry=telemetry)


def script(*asked: str, turns: int = 1) -> dict[str, ScriptedModel]:
    """The models of turns that make these calls and are refused; the last one is followed by one
    that answers.
    """
    desk = [
        calls(call("photograph")),
        *(calls(call("refund", note=note)) for note in asked),
        delegated("kid"),
        delegated("busy"),
        delegated("shy"),
        delegated("counter"),
        delegated("locked"),
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
        "locked": Locked(),
    }


def canaries(seen: object) -> set[str]:
    """The canaries in a text, in bytes, or in a value."""
    if isinstance(seen, bytes):
        seen = seen.decode(errors="replace")
    text = seen if isinstance(seen, str) else f"{seen!r} {to_json(seen, fallback=repr).decode()}"
    return {one for one, forms in FORMS.items() if any(form in text for form in forms)}
