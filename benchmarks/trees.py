"""Does the bill of a whole tree stay within the budget of its root?

Agents that would make twenty calls each: `make bench-trees`.

The provider is the stub on loopback, which counts bytes and charges by itself. Each limit stands
for the whole tree: one child that hardly stops, five of them at once, and one below a child. Rows
without a limit show what the tree would spend. What came back stands at the end of each: the steps
of the others that the report keeps, and what the root answered. Of a root that fails the report
hangs at the error.

3,000 tokens do not pay for one call of a child, and the tree stops there: a call reserves what it
may cost at most, which is its bytes and 1,500 tokens for what providers add of their own accord;
agents that finish keep as much again for a last answer, so theirs do not even begin.
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
from perdure.testing.stub_provider import Reply, StubProvider, per_million
from perdure.values.budgets import DIMENSIONS, Spending
from perdure.values.reports import ChildReport
from perdure.worker import AgentWorker
from perdure.worker.dev_server import DevServer

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
    """A provider whose root delegates once, to whom its task names, and whose workers ask for a
    tool twenty times.
    """

    def reply(self, body: Mapping[str, Any]) -> Reply:
        """By the task, and by how often the model has answered.

        Without tools nothing is left but to answer.
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
    """A worker with the three agents, which do not care that they repeat themselves."""
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
    """How a tree went, also one that ended in an error."""
    try:
        return await client.run("root", task, budget=budget)
    except errors.PerdureError as error:
        return error.report or AgentReport(turn_id="", agent="root", outcome=Outcome.FAILED)


def billed(stub: StubProvider) -> Spending:
    """What the provider counted, which knows nothing of tool calls."""
    tokens = sum(bill.input_tokens + bill.output_tokens for bill in stub.bills)
    return Spending(usd=stub.spent, tokens=tokens, model_calls=len(stub.bills))


def below(children: Sequence[ChildReport]) -> Iterator[ChildReport]:
    """All agents below the root."""
    for child in children:
        yield child
        yield from below(child.children)


def check(bill: Spending, report: AgentReport, budget: Budget | None) -> None:
    """The bill is within the budget, and booked as it is."""
    for name in DIMENSIONS:
        limit = getattr(budget, name, None)
        assert name == "tool_calls" or getattr(bill, name) == getattr(report.spent, name), (
            f"{name}: what was booked is not what was billed"
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
    """What the provider billed for a tree, and its report."""
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
    """How the others ended, as the model is told by `spawn_agents`."""
    ends = Counter(entry["outcome"] for entry in json.loads(body["messages"][-1]["content"]))
    return ", ".join(f"{count} {end}" for end, count in ends.items())


if __name__ == "__main__":
    asyncio.run(main())
