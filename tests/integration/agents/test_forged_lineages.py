"""The lineage in a turn's input is accepted only if its parent really started it."""

import json
from typing import Any

import pytest
from temporalio import workflow
from temporalio.worker import Worker

from perdure import Agent, Deny, Registry, errors, tool
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Runtime

ran: list[str] = []


@tool
def plain() -> str:
    """Do it."""
    ran.append("plain")
    return "done"


@pytest.mark.accepts("U13")
@pytest.mark.parametrize(
    ("ancestors", "words"),
    [
        (
            [{"turn_id": "x", "key": "step-1.call-1.child-1"}],
            "'x' delegated this turn, which did not start it",
        ),
        ([], "lineage.ancestors"),
    ],
    ids=["forged", "empty"],
)
async def test_lineage_that_no_turn_gave_is_refused(
    runtime: Runtime, ancestors: list[Any], words: str
) -> None:
    """In a start with JSON: it would run tools of another agent without that agent's policy and
    approvals.
    """
    ran.clear()
    admin = Agent(
        name="admin", model="s:m", tools=[plain], policy=lambda _: Deny("no"), approval="all"
    )
    agents = Registry([admin, Agent(name="w", model="s:m")])
    lineage = {"ancestors": ancestors, "tools": [{"owner": "admin", "name": "plain"}]}
    start = {"agent": "w", "task": "t", "lineage": lineage}
    model = ScriptedModel(calls(call("plain")), says("done"))
    async with runtime(agents, model=model) as client:
        turn_id = f"forged-{len(ancestors)}"
        await client.temporal.start_workflow(
            "AgentTurn", json.loads(json.dumps(start)), id=turn_id, task_queue=client.task_queue
        )
        turn = client.turn(turn_id)
        with pytest.raises(errors.InvalidRequestError) as caught:
            await turn.result()

    assert words in caught.value.message
    assert (ran, model.call_count) == ([], 0)


@workflow.defn(sandboxed=False)
class Forger:
    """A workflow that is not a turn."""

    @workflow.run
    async def run(self, turn_id: str, queue: str) -> None:
        """Start a turn with the id of another parent."""
        tools = [{"owner": "admin", "name": "plain"}]
        lineage = {"ancestors": [{"turn_id": "x", "key": "step-1.call-1.child-1"}], "tools": tools}
        await workflow.start_child_workflow(
            "AgentTurn",
            {"agent": "w", "task": "t", "lineage": lineage},
            id=turn_id,
            task_queue=queue,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        )


@pytest.mark.accepts("U13")
async def test_lineage_of_another_parent_is_refused(runtime: Runtime) -> None:
    """Any parent is not enough: it has to be the turn that the lineage names."""
    ran.clear()
    agents = Registry(
        [Agent(name="admin", model="s:m", tools=[plain]), Agent(name="w", model="s:m")]
    )
    model = ScriptedModel(calls(call("plain")), says("done"))
    async with runtime(agents, model=model) as client:
        turn_id, queue = "forged-child", f"{client.task_queue}-forger"
        async with Worker(client.temporal, task_queue=queue, workflows=[Forger]):
            await client.temporal.execute_workflow(
                Forger.run, args=[turn_id, client.task_queue], id="forger", task_queue=queue
            )
        with pytest.raises(errors.InvalidRequestError, match="'x' delegated this turn"):
            await client.turn(turn_id).result()

    assert (ran, model.call_count) == ([], 0)
