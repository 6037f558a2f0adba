"""Run the code blocks of `docs/approvals.md`."""

from dataclasses import replace
from datetime import timedelta

import pytest

from perdure import Agent, ProposedCall, Registry, RequireApproval, tool
from perdure.clients import AgentClient, Turn
from perdure.errors import AutonomyBoundaryError
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

from ..support.docs.until import until
from .conftest import Tell


@tool(read_only=True)
def read_ticket(number: str) -> str:
    """Read a ticket."""
    return "How long?"


@tool
def close_ticket(number: str) -> str:
    """Close a ticket."""
    return f"closed {number}"


@tool(requires_approval=True)
def refund(ticket: str, euros: int) -> str:
    """Give money back."""
    return f"{euros} euros for {ticket}"


SUPPORT = Agent(name="support", model="main", tools=[read_ticket, close_ticket, refund])
SCRIPTS = {
    "Answer ticket 4711.": ScriptedModel(calls(call("close_ticket", number="4711"))),
    "Close three.": ScriptedModel(
        calls(*[call("close_ticket", call_id=f"call_{n}", number=f"471{n}") for n in (3, 4, 5)]),
        says("done"),
    ),
    "Pay them back.": ScriptedModel(
        calls(call("refund", ticket="2", euros=300), call("refund", ticket="3", euros=80)),
        says("done"),
    ),
}


def eight_hours(call: ProposedCall) -> RequireApproval:
    """A policy that this test adds."""
    return RequireApproval(expires=timedelta(hours=8))


async def waiting(
    client: AgentClient, turn_id: str, task: str, number: int, **options: object
) -> Turn:
    """A turn with this number of calls that wait for approval."""
    turn = await client.start("support", task, id=turn_id, **options)  # type: ignore[arg-type]

    async def all_of_them() -> bool:
        return (
            len([entry async for entry, _ in client.pending_approvals() if entry.id == turn.id])
            == number
        )

    await until(all_of_them, f"{number} calls wait")
    return turn


@pytest.mark.slow  # five commands, each a process
async def test_calls_wait_and_are_decided_as_the_page_says(tell: Tell) -> None:
    """By Python and by the command line; a call that is not allowed ends the turn."""
    async with tell("approvals") as story:
        registry = Registry([SUPPORT])
        client = await story.works(AgentWorker(registry), ByTask(SCRIPTS))
        story.given(client=client)
        await story.through("Restrict the tools of a turn")
        with pytest.raises(AutonomyBoundaryError):
            await story["turn"].result()

        await story.through("Which calls wait for a person")
        registry.add(replace(SUPPORT, policy=story["policy"]), replace=True)
        turn = await waiting(client, "ticket-4711", "Close three.", 3, labels={"team": "trainees"})
        console = await story.up_to("Approve or deny a call", "console")
        decided = await turn.result()

        registry.add(replace(SUPPORT, policy=eight_hours), replace=True)
        turn = await waiting(client, "ticket-4712", "Pay them back.", 2)
        await story.run(console)
        refunded = await turn.result()

    assert [line.split()[:2] for line in story.printed.splitlines()] == [
        ["ticket-4711", "close_ticket"]
    ] * 3
    told = [
        result.content.partition("\n[A person changed")[0]
        for report in (decided, refunded)
        for result in report.steps[0].results
    ]
    denied = "This call was not run: it was denied: the customer called"
    assert told == ["closed 4713", "closed 4712", denied, "150 euros for 2", denied]
