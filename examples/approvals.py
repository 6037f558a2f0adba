"""What an agent may do, and what a person has to allow.

With a model of yours: `perdure dev examples.approvals:app`, then `perdure approvals`.
"""

import asyncio
import json
from datetime import timedelta

from perdure import Agent, Allow, Deny, ProposedCall, RequireApproval, errors, tool
from perdure.clients import AgentClient
from perdure.events import WaitBegan
from perdure.testing import ScriptedModel, call, calls, local_runtime, says
from perdure.worker import AgentWorker


@tool
def refund(ticket: str, euros: int) -> str:
    """Give money back."""
    return f"{euros} euros for {ticket}"


@tool
def delete_customer(name: str) -> str:
    """Forget a customer."""
    return f"{name} is gone"


def policy(proposed: ProposedCall) -> Allow | Deny | RequireApproval:
    euros = json.loads(proposed.arguments).get("euros", 0)
    if euros > 1_000:
        return Deny(reason="no refund is above 1000 euros")
    return RequireApproval(expires=timedelta(hours=8)) if euros > 50 else Allow()


support = Agent(
    name="support", model="openai:gpt-5-mini", tools=[refund, delete_customer], policy=policy
)
app = AgentWorker(support)


async def decide(client: AgentClient) -> None:
    """What a backend does for the people who decide: here, one who halves what is asked for."""
    turn = client.turn("ticket-4711")
    async for event in turn.events():
        if isinstance(event.fact, WaitBegan):
            break
    for pending in await turn.pending_approvals():
        asked = json.loads(pending.arguments)
        print("waits:", pending.tool, asked)
        await turn.approve(pending, arguments={**asked, "euros": asked["euros"] // 2})


async def main() -> None:
    model = ScriptedModel(
        calls(
            call("refund", ticket="1", euros=20),
            call("refund", ticket="2", euros=300),
            call("refund", ticket="3", euros=9_000),
        ),
        says("Done."),
        calls(call("delete_customer", name="Ada")),
    )
    async with local_runtime(app, model=model) as client:
        turn = await client.start(
            "support", "Pay them back.", id="ticket-4711", allowed_tools=["refund"]
        )
        await decide(client)
        report = await turn.result()
        print("results:", *(result.content for result in report.steps[0].results), sep="\n  ")
        try:
            await client.run("support", "Forget Ada.", allowed_tools=["refund"])
        except errors.AutonomyBoundaryError as error:
            print(error.message)


if __name__ == "__main__":
    asyncio.run(main())
