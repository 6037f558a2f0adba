"""Does the bill stay within the budget?

A model that never stops, budgets from $0.0001 to $10, and a provider with its own bill.

`make -C benchmarks budgets`. The provider is the stub on loopback, which counts bytes and charges
independently; Perdure has only its price. For each budget and policy the table has the provider's
bill, the cost that Perdure booked, and the work in the report.
"""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Literal

from perdure import Agent, AgentReport, Budget, Outcome, Price, errors, tool
from perdure.activities.providers.openai_chat import OpenAIChat
from perdure.testing import local_runtime
from perdure.testing.stub_provider import StubProvider, never_stops, per_million
from perdure.worker import AgentWorker

BUDGETS = ("0.0001", "0.001", "0.01", "0.05", "0.1", "0.5", "1", "10")
PAGE = "found: " + "words " * 330


@tool(read_only=True)
def look() -> str:
    """Look again."""
    return PAGE


async def spend(
    budget: str, policy: Literal["fail", "finish"], client_of: AgentWorker
) -> AgentReport:
    """The report of a turn with this budget."""
    async with local_runtime(client_of) as client:
        try:
            return await client.run("spender", "Never stop.", budget=Budget(usd=budget))
        except errors.TurnBudgetExceededError as error:
            return error.report or AgentReport(turn_id="", agent="", outcome=Outcome.FAILED)


async def main() -> None:
    """Print the table; fail if a bill exceeds its budget."""
    print(
        f"{'budget':>8} {'policy':<7} {'billed':>12} {'booked':>12} {'calls':>5} {'steps kept':>10}"
        "  outcome"
    )
    for policy in ("fail", "finish"):
        for budget in BUDGETS:
            with StubProvider([], then=never_stops("look"), price=per_million(3, 15)) as stub:
                agent = Agent(
                    name="spender",
                    model="stub:model",
                    tools=[look],
                    max_iterations="unlimited",
                    on_loop="ignore",
                    on_exhausted=policy,
                )
                worker = AgentWorker(
                    agent,
                    providers={
                        "stub": OpenAIChat(base_url=stub.base_url, api_key_env=None, name="stub")
                    },
                    prices={"stub:*": Price(input=3, output=15)},
                )
                report = await spend(budget, policy, worker)
                billed = stub.spent
            figures = (
                f"{billed:>12.6f} {report.cost or 0:>12.6f} {report.model_calls:>5}"
                f" {len(report.steps):>10}"
            )
            print(f"{'$' + budget:>8} {policy:<7} {figures}  {report.outcome}")
            assert billed <= Decimal(budget), "the bill exceeds the budget"
            assert report.cost == billed, "the booked cost differs from the bill"


if __name__ == "__main__":
    asyncio.run(main())
