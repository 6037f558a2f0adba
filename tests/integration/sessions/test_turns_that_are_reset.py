"""Turns of sessions and delegates that an operator resets: what began them reads the new run."""

import asyncio
import secrets
from decimal import Decimal

import pytest

from perdure import Agent, Price, tool
from perdure.clients import Turn
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.approvals import PendingApproval
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime
from ...support.conversing import texts, until_recorded
from ...support.resets import reset_to, task_ends
from ...support.spending import SOON_S

ASKS, ANSWERS = calls(call("send", to="Ann")), says("it is sent")


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


async def pending_of(turn: Turn) -> PendingApproval:
    """The call that waits for a decision."""
    async with asyncio.timeout(SOON_S):
        while True:
            if found := await turn.pending_approvals():
                return found[0]
            await asyncio.sleep(0.05)


async def reset_while_it_waits(client: RecordingClient, turn_id: str) -> None:
    """Reset a turn to the last of its tasks, once it waits for a decision; then approve."""
    turn = client.turn(turn_id)
    await pending_of(turn)
    ends = task_ends(await client.history(turn))
    await reset_to(client.temporal, turn_id, await turn.first_run(), ends[-1])
    again = client.turn(turn_id)
    await again.approve(await pending_of(again))


@pytest.mark.accepts("S80")
async def test_session_records_a_turn_that_was_reset_while_it_ran(runtime: Runtime) -> None:
    """Its messages are in the record, so the next turn knows them, and what it has cost."""
    agent = Agent(name="clerk", model="scripted:m", tools=[send])
    worker = AgentWorker([agent], prices={"scripted:*": Price(input=1000, output=1000)})
    async with runtime(worker, model=ScriptedModel(ASKS, ANSWERS)) as client:
        session = client.session(f"chat-{secrets.token_hex(4)}", "clerk")
        sent = await session.say("Write to Ann.")
        await reset_while_it_waits(client, (await sent.turn()).id)
        async with asyncio.timeout(SOON_S):
            messages = await until_recorded(session, 1)
        status = await session.status()

    assert texts(messages) == ["Write to Ann.", "it is sent"]
    assert status.spent.usd > Decimal(0)
