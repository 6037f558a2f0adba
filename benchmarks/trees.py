"""Does the bill of a whole tree stay within the budget of its root?

Agents that would make twenty calls each: `make -C benchmarks trees`.

The provider is the stub on loopback, which counts bytes and charges independently. Each limit
applies to the whole tree: one child that hardly stops, five of them at once, and one below a child.
Rows without a limit show what the tree would spend. The last columns have the results: the
delegates' steps in the report, and the root's answer. For a root that fails, the report is that of
the error.

3,000 tokens do not pay for one call of a child, and the tree stops there: a call reserves its
maximum, which is its bytes and 1,500 tokens for what providers add on their own; agents with
`finish` reserve as much again for a last answer, so theirs do not even start.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from perdure import Agent, AgentReport, Budget, Outcome, Price, errors, tool
from perdure.activities.providers.openai_chat import OpenAIChat
from perdure.clients import AgentClient
from perdure.testing import local_runtime
from perdure.testing.stub_provider import StubProvider, StubReply, per_million
from perdure.values.budgets import DIMENSIONS, Spending
from perdure.values.reports import ChildReport
from perdure.worker import AgentWorker
from perdure.worker.dev.server import DevServer

WOULD_MAKE = 20
"""Calls of an agent that does the work, when nothing stops it."""
SHAPES = {"one child": ("worker", 1), "five at once": ("worker", 5), "three levels": ("manager", 1)}
LIMITS: tuple[Budget | None, ...] = (
    None,
    Budget(model_calls=5),
    Budget(model_calls=5, tokens=3_000),
    Budget(tokens=3_000),
    Budget(tokens=30_000),
    Budget(tokens=300_000),
    Budget(usd="0.01"),
    Budget(usd="0.10"),
    Budget(usd="0.50"),
)
Policy = Literal["fail", "finish"]
POLICIES: tuple[Policy, ...] = ("fail", "finish")


@tool(read_only=True)
def look() -> str:
    """Look again."""
    return "found: " + "words " * 30


class Restless(StubProvider):
    """A provider whose root delegates once, as its task says, and whose workers make twenty tool
    calls.
    """

    def reply(self, body: Mapping[str, Any]) -> StubReply:
        """By the task, and the number of earlier answers.

        Without tools it can only answer.
        """
        role, _, rest = _task(body).partition(" ")
        answered = sum(message["role"] == "assistant" for message in body["messages"])
        if not body.get("tools"):
            return {"text": f"{role}: that is as far as I came"}
        if role == "work":
            return (
                {"calls": [{"name": "look", "arguments": {}}]}
                if answered < WOULD_MAKE - 1
                else {"text": "worker: done"}
            )
        if answered:
            return {"text": f"told: {_told(body)}"}
        agent, count = rest.split() if role == "root" else ("worker", "1")
        task = "manage" if agent == "manager" else "work"
        return {
            "calls": [
                {
                    "name": "spawn_agents",
                    "arguments": {
                        "tasks": [
                            {"agent": agent, "task": f"{task} {n}"} for n in range(int(count))
                        ]
                    },
                }
            ]
        }


def app(stub: StubProvider, policy: Policy) -> AgentWorker:
    """A worker with the three agents, which ignore loops."""
    agents = [
        Agent(
            name=name,
            model="stub:model",
            tools=[look] if name == "worker" else [],
            delegates=delegates,
            max_iterations="unlimited",
            on_loop="ignore",
            on_exhausted=policy,
            on_child_error="collect",
        )
        for name, delegates in (
            ("root", ["manager", "worker"]),
            ("manager", ["worker"]),
            ("worker", ()),
        )
    ]
    provider = OpenAIChat(base_url=stub.base_url, api_key_env=None, name="stub")
    return AgentWorker(
        agents, providers={"stub": provider}, prices={"stub:*": Price(input=3, output=15)}
    )


async def report_of(client: AgentClient, task: str, budget: Budget | None) -> AgentReport:
    """The report of a tree, also if it ended with an error."""
    try:
        return await client.run("root", task, budget=budget)
    except errors.PerdureError as error:
        return error.report or AgentReport(turn_id="", agent="root", outcome=Outcome.FAILED)


def billed(stub: StubProvider) -> Spending:
    """The provider's bill, which does not count tool calls."""
    tokens = sum(bill.input_tokens + bill.output_tokens for bill in stub.bills)
    return Spending(usd=stub.spent, tokens=tokens, model_calls=len(stub.bills))


def below(children: Sequence[ChildReport]) -> Iterator[ChildReport]:
    """All agents below the root."""
    for child in children:
        yield child
        yield from below(child.children)


def check(bill: Spending, report: AgentReport, budget: Budget | None) -> None:
    """Check that the bill is within the budget, and booked exactly."""
    for name in DIMENSIONS:
        limit = getattr(budget, name, None)
        assert name == "tool_calls" or getattr(bill, name) == getattr(report.spent, name), (
            f"{name}: the booked amount differs from the bill"
        )
        assert limit is None or getattr(bill, name) <= limit, f"{name}: the bill exceeds the budget"


def row(
    shape: str, budget: Budget | None, policy: Policy, bill: Spending, report: AgentReport
) -> str:
    """A line of the table."""
    given = [f"{name} {value}" for name, value in budget or () if value is not None]
    limit = ", ".join(given) or "none"
    children = list(below(report.children))
    came = f"{sum(child.steps for child in children):>3} steps by {len(children)}"
    figures = (
        f"{bill.model_calls:>5} {bill.tokens:>8} {'$' + f'{bill.usd:.6f}':>11}"
        f" {'$' + f'{report.spent.usd:.6f}':>11}"
    )
    return (
        f"{shape:<13} {limit:<28} {policy:<7} {figures}  {report.outcome:<17} {came:<15}"
        f" {report.output[:40]!r}"
    )


async def spend(
    address: str, shape: str, budget: Budget | None, policy: Policy
) -> tuple[Spending, AgentReport]:
    """The provider's bill for a tree, and its report."""
    agent, count = SHAPES[shape]
    with Restless([], price=per_million(3, 15)) as stub:
        async with local_runtime(app(stub, policy), address=address) as client:
            report = await report_of(client, f"root {agent} {count}", budget)
        return billed(stub), report


async def main() -> None:
    """Print the table; fail if a bill exceeds its budget."""
    columns = f"{'calls':>5} {'tokens':>8} {'billed':>11} {'booked':>11}"
    print(
        f"{'tree':<13} {'limit':<28} {'policy':<7} {columns}  {'outcome':<17} {'work kept':<15}"
        " answer"
    )
    async with DevServer(folder=None, port=0, ui=False) as server:
        for policy in POLICIES:
            for shape in SHAPES:
                for budget in LIMITS:
                    bill, report = await spend(server.address.address, shape, budget, policy)
                    print(row(shape, budget, policy, bill, report), flush=True)
                    check(bill, report, budget)


def _task(body: Mapping[str, Any]) -> str:
    content = next(message["content"] for message in body["messages"] if message["role"] == "user")
    return content if isinstance(content, str) else str(content[0]["text"])


def _told(body: Mapping[str, Any]) -> str:
    """The outcomes of the delegates, as `spawn_agents` returned them."""
    ends = Counter(entry["outcome"] for entry in json.loads(body["messages"][-1]["content"]))
    return ", ".join(f"{count} {end}" for end, count in ends.items())


if __name__ == "__main__":
    asyncio.run(main())
