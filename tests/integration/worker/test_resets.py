"""Turns that an operator resets: updates and signals are delivered again, and a reader's state
equals the workflow's.
"""

import asyncio
import contextlib
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory

from perdure import Agent, AgentReport, Budget, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient, Turn
from perdure.testing import ScriptedModel, call
from perdure.turn.state import TurnState
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Text

from ...conftest import Runtime, fold_history
from ...support.resets import reset, reset_to, task_ends
from ...support.spending import SOON_S, report_of


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


class Office(ScriptedModel):
    """Two models that derive their progress from the request: a clerk sends letters and delegates,
    its helper sends one.
    """

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.requests.append(request)
        delegate = call("delegate_to_agent", agent="helper", task="Help.")
        clerk = [[call("send", to="Ann"), call("send", to="Bob")], [delegate]]
        script = [[call("send", to="Cid")]] if "helper" in request.model else clerk
        step = len(request.messages) // 2
        parts: Any = tuple(script[step]) if step < len(script) else (Text(text="done"),)
        return ModelAnswer(message=AssistantMessage(parts=parts))


async def serve(client: AgentClient, turn: Turn) -> AgentReport:
    """Decide all waiting calls of a tree until it ends; letters to Bob are denied."""

    async def answer() -> None:
        while True:
            status = await turn.status()
            for name in (turn.id, *(child.id for child in status.children)):
                with contextlib.suppress(errors.PerdureError):
                    one = client.turn(name)
                    for pending in await one.pending_approvals():
                        await (
                            one.deny(pending, "moved")
                            if "Bob" in pending.arguments
                            else one.approve(pending)
                        )
            await asyncio.sleep(0.1)

    answering = asyncio.create_task(answer())
    try:
        return await report_of(turn)
    finally:
        answering.cancel()


@pytest.mark.slow
@pytest.mark.accepts("Y14")
async def test_reader_agrees_with_a_turn_that_was_reset_to_any_of_its_workflow_tasks(
    runtime: Runtime,
) -> None:
    """The runtime compares each run's fold with its summary; the added budget counts where it is
    delivered again.
    """
    clerk = Agent(
        name="clerk",
        model="scripted:clerk",
        tools=[send],
        delegates=["helper"],
        budget=Budget(model_calls=20),
    )
    helper = Agent(name="helper", model="scripted:helper", description="Helps.", tools=[send])

    async with runtime([clerk, helper], model=Office()) as client:
        turn = await client.start("clerk", "go")
        await turn.add_budget(Budget(model_calls=10))
        await serve(client, turn)
        history = await client.history(turn)
        added, limits = [], list[int | None]()
        for event_id in task_ends(history)[1:]:
            async with asyncio.timeout(SOON_S):
                again = await reset(client, turn, event_id)
                await serve(client, again)
            recorded = await client.history(again)
            added.append(
                any(
                    event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED
                    for event in recorded.events
                )
            )
            state: TurnState = await fold_history(client.temporal, recorded)
            assert state.accounts.ledger.budget
            limits.append(state.accounts.ledger.budget.model_calls)

    assert any(added)
    assert limits == [30] * len(added)


@pytest.mark.slow
@pytest.mark.accepts("Y14")
async def test_turn_that_was_reset_twice_finds_the_delegate_of_the_run_between(
    runtime: Runtime,
) -> None:
    """The first id of the delegate was taken at the first reset; a replay gives the second again,
    although the run has another id.
    """
    clerk = Agent(name="clerk", model="scripted:clerk", tools=[send], delegates=["helper"])
    helper = Agent(name="helper", model="scripted:helper", description="Helps.", tools=[send])

    async with runtime([clerk, helper], model=Office()) as client:
        turn = await client.start("clerk", "go")
        while not (await turn.status()).children:
            for pending in await turn.pending_approvals():
                await turn.approve(pending)
            await asyncio.sleep(0.1)
        history = await client.history(turn)
        async with asyncio.timeout(SOON_S):
            again = await reset(client, turn, before_delegate(history))
            first = await serve(client, again)
            after = task_ends(await client.history(again))[-1]
            run_id = await reset_to(client.temporal, turn.id, await again.first_run(), after)
            second = await report_of(client._turn(turn.id, (run_id,)))

    assert [child.turn_id for child in second.children] == [
        child.turn_id for child in first.children
    ]


def before_delegate(history: WorkflowHistory) -> int:
    """The end of the workflow task that has begun a delegate."""
    [begun] = [
        event.event_id
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED
    ]
    return max(event_id for event_id in task_ends(history) if event_id < begun)
