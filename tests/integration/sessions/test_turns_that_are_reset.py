"""Turns of sessions and delegates that an operator resets: what began them reads the new run."""

import asyncio
import secrets
from decimal import Decimal

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory

from perdure import Agent, Price, tool
from perdure.clients import Turn
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.approvals import PendingApproval
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime, eventually
from ...support.banking import Bank, payer, pays, refunder
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


async def pending_of_another(turn: Turn, first: PendingApproval) -> PendingApproval:
    """The call that waits for a decision, once it is another one."""
    async with asyncio.timeout(SOON_S):
        while (found := await pending_of(turn)) == first:  # noqa: ASYNC110 - the server is asked
            await asyncio.sleep(0.05)
    return found


def turn_signals(history: WorkflowHistory) -> list[int]:
    """The signals that a turn has got, as the ids of their events."""
    signaled = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
    return [event.event_id for event in history.events if event.event_type == signaled]


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


@pytest.mark.accepts("S102")
async def test_message_is_read_once_though_a_reset_of_its_session_sends_it_again(
    runtime: Runtime,
) -> None:
    """A turn that began before the point of the reset has read it, and knows its id."""
    model = ScriptedModel(ASKS, calls(call("send", to="Bob")), ANSWERS)
    worker = AgentWorker([Agent(name="clerk", model="scripted:m", tools=[send])])
    async with runtime(worker, model=model) as client:
        session = client.session(f"chat-{secrets.token_hex(4)}", "clerk")
        turn = await (await session.say("Write to Ann.")).turn()
        first = await pending_of(turn)
        run = client.temporal.get_workflow_handle(session.id)
        begun = await run.fetch_history()
        await session.say("And to Bob.", id="m-2", if_busy="steer")
        await turn.approve(first)
        second = await pending_of_another(turn, first)
        before = len(turn_signals(await client.history(turn)))
        await reset_to(client.temporal, session.id, begun.run_id, task_ends(begun)[-1])
        async with asyncio.timeout(SOON_S):
            while len(turn_signals(await client.history(turn))) == before:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await turn.approve(second)
        async with asyncio.timeout(SOON_S):
            messages = await until_recorded(session, 1)

    assert texts(messages) == ["Write to Ann.", "And to Bob.", "it is sent"]
    assert texts(model.requests[-1].messages).count("And to Bob.") == 1


@pytest.mark.accepts("S108")
async def test_turn_that_begins_again_after_a_reset_takes_back_what_it_did(
    runtime: Runtime,
) -> None:
    """It has an id of its own, although the turn of before the reset is over: so have the turns
    that take effects back.
    """
    bank = Bank()
    pay = payer(bank, undo=refunder(bank))
    agent = Agent(
        name="clerk", model="scripted:m", tools=[pay], on_failure="undo", max_iterations=1
    )
    async with runtime(agent, model=ScriptedModel(pays("i-1"), pays("i-2"))) as client:
        session = client.session(f"chat-{secrets.token_hex(4)}", "clerk")
        await session.say("Pay.")
        await eventually(lambda: len(bank.refunds) == 1, "the first refund")
        await session.wait(SOON_S)
        run = client.temporal.get_workflow_handle(session.id)
        history = await run.fetch_history()
        await reset_to(client.temporal, session.id, history.run_id, task_ends(history)[0])
        await eventually(lambda: len(bank.refunds) == 2, "the refund after the reset")
        await session.wait(SOON_S)
        [turn] = await session.turns()

    assert [refunded for refunded, _ in bank.refunds] == ["i-1", "i-2"]
    assert turn.turn_id.startswith(f"{session.id}/1-")
