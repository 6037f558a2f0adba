"""The agent of the long turns, its price, and a provider that counts.

Its worker is a process of its own: `python -m perdure worker tests.support.e2e.long_app:make`.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from perdure import Agent, Price
from perdure.activities.providers import OpenAIChat
from perdure.testing.stub_provider import StubBill, StubProvider, StubReply, per_million
from perdure.values.profiles import ModelProfile
from perdure.worker import AgentWorker

from .app import AGENT, charge, fetch

WINDOW = 8_000
"""Tokens of the model, so that requests do not grow with the turn."""
PRICE = (3, 15)
"""US dollars for a million tokens of input and of output."""
FILLER = "x" * 200


def make() -> AgentWorker:
    """The worker of a clerk that goes on as long as its model wants."""
    provider = OpenAIChat(base_url=os.environ["E2E_PROVIDER"], api_key_env=None, name="stub")
    agent = Agent(
        name=AGENT,
        model="stub:clerk",
        instructions="Do as told.",
        tools=[fetch, charge],
        max_iterations="unlimited",
        on_loop="ignore",
    )
    return AgentWorker(
        agent,
        providers={"stub": provider},
        prices={"stub:*": Price(input=str(PRICE[0]), output=str(PRICE[1]))},
        profiles={"stub:*": ModelProfile(window=WINDOW)},
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: for which step it was, and what the provider billed."""

    step: int
    bill: StubBill


class Counter(StubProvider):
    """Counts on from the last call that a request holds, since requests are shortened.

    It keeps what it billed, and no bodies: they would be gigabytes.
    """

    def __init__(self, steps: int) -> None:
        super().__init__([], price=per_million(*PRICE))
        self.asked: list[Asked] = []
        self._steps = steps

    def reply(self, body: Mapping[str, Any]) -> StubReply:
        """A call of one of the two tools, in turns; words after so many steps."""
        number = _step_of(body)
        if number > self._steps:
            return {"text": "done"}
        name = "fetch" if number % 2 else "charge"
        return {"calls": [{"name": name, "arguments": {"what": f"{number} {FILLER}"}}]}

    def answer(
        self, body: dict[str, Any], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """The stub's reply, which it notes."""
        given = super().answer(body, headers)
        self.asked.append(Asked(_step_of(body), self.bills[-1]))
        self.requests.clear()
        self.headers.clear()
        return given

    def billed_for_answers(self) -> Decimal:
        """The bill of the last request for each step: those before had no answer in history."""
        last = {one.step: one.bill.usd for one in self.asked}
        return sum(last.values(), Decimal(0))


def _step_of(body: Mapping[str, Any]) -> int:
    for message in reversed(body["messages"]):
        for call in message.get("tool_calls", ()):
            return int(json.loads(call["function"]["arguments"])["what"].split()[0]) + 1
    return 1
