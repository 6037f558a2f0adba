"""Many concurrent turns on providers with every kind of failure: each turn ends in time, and no
bill exceeds what was booked.

`PERDURE_CHAOS_TURNS` is the number of turns, `PERDURE_CHAOS_SEED` the seed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from perdure import Agent, AgentReport, Budget, Outcome, Price, RequestOptions, errors, tool
from perdure.activities.provider import Provider
from perdure.activities.providers import Anthropic, OpenAIChat
from perdure.clients import Turn
from perdure.errors import PerdureError
from perdure.testing.stub_provider import StubProvider, StubReply, per_million, said_in
from perdure.testing.stub_replies import StubBill
from perdure.worker import AgentWorker

from ...conftest import Runtime

TURNS = int(os.environ.get("PERDURE_CHAOS_TURNS", "20"))
SEED = os.environ.get("PERDURE_CHAOS_SEED", "0")
PRICE = (100, 400)
"""US dollars for a million tokens of input and of output."""
TIME = timedelta(seconds=20 + 0.3 * TURNS)
BUDGET = Budget(usd="2", time=TIME)
LATE_S = TIME.total_seconds() + 20
"""After its deadline a turn has a second to stop its call; the rest is for a busy machine."""

STEPS: list[StubReply] = [
    {"calls": [{"name": "look", "arguments": {"number": 1}}]},
    {"calls": [{"name": "look", "arguments": {"number": 2}}]},
]
LAST: StubReply = {"text": "done"}

LUCK = {
    "answer": 50,
    "drip": 8,
    "slow down": 8,
    "slow down soon": 4,
    "overloaded": 8,
    "a page": 4,
    "an error in a 200": 4,
    "cut": 5,
    "reset": 3,
    "nothing": 2,
    "hang": 1,
    "no usage": 1,
    "negative usage": 1,
    "absurd usage": 1,
}
"""What may happen to a request, and how often."""

SAID: dict[str, tuple[int, dict[str, str], bytes]] = {
    "slow down": (429, {"retry-after": "1"}, b'{"error": {"message": "slow down"}}'),
    "slow down soon": (429, {"retry-after-ms": "200"}, b'{"error": {"message": "slow down"}}'),
    "overloaded": (529, {}, b'{"error": {"type": "overloaded_error", "message": "overloaded"}}'),
    "a page": (502, {}, b"<html>bad gateway</html>"),
    "an error in a 200": (200, {}, b'{"error": {"message": "not now", "code": 503}}'),
}
"""What costs nothing, because there is no answer."""

USAGE: dict[str, Any] = {"no usage": None, "negative usage": -5, "absurd usage": 10**12}
KNOWN = {"answer", "drip", *SAID}
"""After these outcomes a turn's cost equals the bill exactly."""


class Chaotic(StubProvider):
    """A provider whose behaviour is random for each request, by its turn and the number of earlier
    requests.

    It bills complete and partial answers.
    """

    def __init__(self, name: str) -> None:
        super().__init__(STEPS, then=LAST, price=per_million(*PRICE))
        self._name = name
        self._asked: Counter[str] = Counter()
        self.lucks: defaultdict[str, list[str]] = defaultdict(list)

    def served(
        self, body: dict[str, Any], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], Iterable[bytes]]:
        """Send an answer, or fail."""
        task = task_of(body)
        with self._lock:
            self._asked[task] += 1
            luck = random.Random(f"{SEED} {self._name} {task} {self._asked[task]}").choices(
                list(LUCK), list(LUCK.values())
            )[0]
            self.lucks[task].append(luck)
        if luck in SAID:
            self._record(body, headers, StubBill())
            status, own, content = SAID[luck]
            return status, {"content-length": str(len(content)), **own}, [content]
        status, own, content = self.answer(body, headers)
        if luck in USAGE:
            told = json.loads(content)
            content = json.dumps(
                {**told, "usage": dict.fromkeys(told["usage"], USAGE[luck])}
            ).encode()
        return status, {**own, "content-length": str(len(content))}, self._unlucky(luck, content)

    def _unlucky(self, luck: str, content: bytes) -> Iterator[bytes]:
        """The pieces of an answer; the connection closes after the last one, possibly in
        mid-answer.
        """
        half = len(content) // 2
        match luck:
            case "drip":
                for start in range(0, len(content), half // 3):
                    self._closing.wait(0.1)
                    yield content[start : start + half // 3]
            case "cut":
                yield content[:half]
            case "reset":
                return
            case "hang":
                yield content[:half]
                self._closing.wait(LATE_S)
            case _:
                yield content

    def billed(self) -> dict[str, Decimal]:
        """The bill of each turn, in US dollars."""
        bills: defaultdict[str, Decimal] = defaultdict(Decimal)
        for body, bill in zip(self.requests, self.bills, strict=True):
            bills[task_of(body)] += bill.usd
        return bills


def task_of(body: Mapping[str, Any]) -> str:
    """The task of the turn that a request is of."""
    content = next(message["content"] for message in said_in(body) if message["role"] == "user")
    return content if isinstance(content, str) else str(content[0]["text"])


@tool(read_only=True)
def look(number: int) -> str:
    """Look somewhere."""
    return f"seen {number}"


@pytest.mark.slow
@pytest.mark.accepts("U6", "U9", "B8", "B15", "M4", "M9")
async def test_turns_on_chaotic_providers_end_in_time_and_book_every_bill(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer or a typed error; the bills of its two providers are at most what the turn booked,
    which is at most its budget.
    """
    monkeypatch.setenv("CHAOS_KEY", "sk-chaos-0123456789")
    with Chaotic("one") as one, Chaotic("two") as two:
        providers: dict[str, Provider] = {
            "one": OpenAIChat(base_url=one.base_url, api_key_env="CHAOS_KEY", name="one"),
            "two": Anthropic(base_url=two.anthropic_url, api_key_env="CHAOS_KEY", name="two"),
        }
        agent = Agent(
            name="asker",
            model=["one:m", "two:m"],
            tools=[look],
            options=RequestOptions(max_output_tokens=200),
        )
        prices = {
            f"{name}:*": Price(input=str(PRICE[0]), output=str(PRICE[1])) for name in providers
        }
        async with runtime(AgentWorker(agent, providers=providers, prices=prices)) as client:
            turns = [
                await client.start("asker", f"go {number}", budget=BUDGET)
                for number in range(TURNS)
            ]
            ends = dict(
                zip(
                    (f"go {number}" for number in range(TURNS)),
                    await asyncio.gather(*map(ended, turns)),
                    strict=True,
                )
            )

    bills = {
        task: one.billed().get(task, Decimal()) + two.billed().get(task, Decimal()) for task in ends
    }
    booked = {task: report.spent.usd for task, (report, _, _) in ends.items()}
    lucks = {task: one.lucks[task] + two.lucks[task] for task in ends}
    outcomes = Counter(report.outcome for report, _, _ in ends.values())
    print(f"{dict(outcomes)}; {dict(Counter(luck for had in lucks.values() for luck in had))}")
    assert {task: (bills[task], booked[task]) for task in ends if bills[task] > booked[task]} == {}
    assert {task: booked[task] for task in ends if booked[task] > Decimal(2)} == {}
    certain = [task for task in ends if set(lucks[task]) <= KNOWN]
    assert len(certain) > TURNS // 4
    assert {
        task: (bills[task], booked[task], lucks[task])
        for task in certain
        if bills[task] != booked[task]
    } == {}
    assert {
        task: type(error)
        for task, (_, error, _) in ends.items()
        if error is not None and type(error) not in TYPED
    } == {}
    assert {task: took for task, (_, _, took) in ends.items() if took > LATE_S} == {}
    assert outcomes[Outcome.COMPLETED] > TURNS // 4
    assert set(LUCK) == {luck for had in lucks.values() for luck in had} or TURNS < 200


TYPED = (errors.ModelChainExhaustedError, errors.TurnBudgetExceededError)
"""The possible errors here: every model failed, or the time was up."""


async def ended(turn: Turn) -> tuple[AgentReport, PerdureError | None, float]:
    """The end of a turn, and its duration in seconds."""
    began = time.monotonic()
    end = (await asyncio.gather(turn.result(), return_exceptions=True))[0]
    took_s = time.monotonic() - began
    if isinstance(end, AgentReport):
        return end, None, took_s
    assert isinstance(end, PerdureError)
    assert end.report is not None
    return end.report, end, took_s
