"""A call that is given up in the same workflow task that would schedule it leaves nothing in
history.
"""

from __future__ import annotations

import secrets

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from perdure import Budget
from perdure.agents.definitions import AgentDefinition, Target
from perdure.turn.context_window import Cut
from perdure.turn.facts import AgentResolved, BudgetAdded, Fact, Scheduled, TurnStarted
from perdure.turn.fold import fold
from perdure.turn.keys import AgentKey, ModelKey
from perdure.turn.wire import ModelCall, TurnRequest
from perdure.values.tasks import Task
from perdure.workflows.turn.turn_context import Board

AGENT = AgentDefinition(
    name="x",
    instructions="",
    model="a:m",
    targets=(Target(model="a:m"), Target(model="b:m")),
    on_exhausted="finish",
)
BEGUN: list[Fact] = [
    TurnStarted(TurnRequest(agent="x", task=Task(content="go"), budget=Budget(tokens=100_000))),
    AgentResolved(AgentKey(), AGENT),
]
CALL = ModelCall.of("0" * 16, model="b:m", passed=("a:m: benched",), cut=Cut(steps=1, opening=0))
MORE = BudgetAdded(Budget(tokens=5))


@workflow.defn(sandboxed=False)
class GivesUp:
    """Records a call and other facts, and gives the call up."""

    @workflow.run
    async def run(self, is_last: bool) -> list[bool]:
        board = Board()
        for fact in BEGUN:
            board.note(fact)
        one, other = Scheduled(ModelKey(1, is_last=is_last), CALL), Scheduled(ModelKey(1, 2), CALL)
        for fact in (one, MORE, other):
            board.note(fact)
        board.withdraw(one)
        without_one = board.state == fold([*BEGUN, MORE, other])
        board.withdraw(other)
        without_both = board.state == fold([*BEGUN, MORE])
        was_new = board.is_new(MORE) and not board.is_new(one)
        await workflow.sleep(0.01)
        return [without_one, without_both, was_new, not board.is_new(MORE)]


@pytest.mark.slow
async def test_call_that_was_never_handed_out_leaves_no_trace(perdure_server: str) -> None:
    """Other facts of that task stay; what is already in history is not repeated."""
    client, queue = await Client.connect(perdure_server), f"test-{secrets.token_hex(6)}"
    async with Worker(client, task_queue=queue, workflows=[GivesUp]):
        for is_last in (False, True):
            told = await client.execute_workflow(
                GivesUp.run, is_last, id=f"{queue}-{is_last}", task_queue=queue
            )
            assert told == [True, True, True, True]
