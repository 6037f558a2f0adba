"""A turn says where it comes from only if it does come from there."""

import json
from typing import Any

import pytest

from perdure import Agent, Deny, Registry, errors, tool
from perdure.testing import ScriptedModel, call, calls, says

from ..conftest import Runtime

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
        ([{"turn_id": "x", "key": "step-1.call-1.child-1"}], "'x' delegated this turn, which did not start it"),
        ([], "lineage.ancestors"),
    ],
    ids=["forged", "empty"],
)
async def test_lineage_that_no_turn_gave_is_refused(runtime: Runtime, ancestors: list[Any], words: str) -> None:
    """By a start in JSON: it would run tools of another agent past its policy and past its approvals."""
    ran.clear()
    admin = Agent(name="admin", model="s:m", tools=[plain], policy=lambda _: Deny("no"), approval="all")
    agents = Registry([admin, Agent(name="w", model="s:m")])
    lineage = {"ancestors": ancestors, "tools": [{"owner": "admin", "name": "plain"}]}
    start = {"agent": "w", "task": "t", "lineage": lineage}
    model = ScriptedModel(calls(call("plain")), says("done"))
    async with runtime(agents, model=model) as client:
        turn_id = f"forged-{len(ancestors)}"
        await client.temporal.start_workflow("AgentTurn", json.loads(json.dumps(start)), id=turn_id, task_queue=client.task_queue)
        turn = await client.get(turn_id)
        with pytest.raises(errors.InvalidRequestError) as caught:
            await turn.result()

    assert words in caught.value.message
    assert (ran, model.call_count) == ([], 0)
