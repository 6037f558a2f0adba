"""A tool is subject to several policies: its owner's, and those of the agents through which it was
inherited.
"""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, Allow, Deny, ProposedCall, Registry, RequireApproval, errors, tool
from perdure.agents.definitions import AgentDefinition, ToolDefinition
from perdure.agents.policy import policies_of, strictest
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.approvals import PolicyCall

from ...conftest import Runtime
from ...support.approving import pending
from ...support.delegating import delegate

Said = Allow | Deny | RequireApproval
ran: list[str] = []


@tool
def danger(what: str) -> str:
    """Do it."""
    ran.append(what)
    return "done"


def agents(top: Any = None, middle: Any = None, low: Any = None, **fields: Any) -> Registry:
    """Three agents, of which the first passes its tool down to the last."""
    return Registry(
        [
            Agent(name="top", model="s:top", tools=[danger], delegates=["middle"], policy=top),
            Agent(name="middle", model="s:middle", delegates=["low"], policy=middle, **fields),
            Agent(name="low", model="s:low", policy=low),
        ]
    )


def models() -> dict[str, ScriptedModel]:
    """The last of them calls the tool of the first."""
    return {
        "top": ScriptedModel(delegate("middle", "go"), says("top is done")),
        "middle": ScriptedModel(delegate("low", "go"), says("middle is done")),
        "low": ScriptedModel(calls(call("danger", what="x")), says("low is done")),
    }


def rules(verdict: Said, asked: list[str]) -> Callable[[ProposedCall], Said]:
    """A policy for one tool, which records the agents it is called for."""

    def policy(proposed: ProposedCall) -> Said:
        if proposed.tool != "danger":
            return Allow()
        asked.append(proposed.agent)
        return verdict

    return policy


@pytest.mark.accepts("A7")
@pytest.mark.parametrize("who", ["top", "middle", "low"])
@pytest.mark.slow
async def test_any_policy_on_the_way_down_denies(runtime: Runtime, who: str) -> None:
    """The policies of the owner, of the agent in between, and of the caller are all evaluated."""
    ran.clear()
    asked: list[str] = []
    given = {
        name: rules(Deny(reason=f"{who} says no") if name == who else Allow(), asked)
        for name in ("top", "middle", "low")
    }
    model = models()
    async with runtime(agents(**given), model=model) as client:
        await client.run("top", "go")

    [result] = model["low"].requests[-1].messages[-1].results  # type: ignore[union-attr]
    assert (ran, result.content) == ([], f"This call was not run: it was denied: {who} says no")
    assert sorted(asked) == ["low", "middle", "top"]


@pytest.mark.slow
@pytest.mark.accepts("A7")
async def test_policy_in_the_middle_denies_where_it_is_the_only_one(runtime: Runtime) -> None:
    """A call that its own model may not make does not run further down either."""
    ran.clear()
    model = models()
    async with runtime(
        agents(middle=rules(Deny(reason="not below me"), [])), model=model
    ) as client:
        await client.run("top", "go")

    [result] = model["low"].requests[-1].messages[-1].results  # type: ignore[union-attr]
    assert (ran, result.content) == ([], "This call was not run: it was denied: not below me")


@pytest.mark.accepts("A7")
async def test_tool_runs_below_where_all_policies_allow_it(runtime: Runtime) -> None:
    """All verdicts allow it."""
    ran.clear()
    asked: list[str] = []
    allowing = rules(Allow(), asked)
    async with runtime(agents(allowing, allowing, allowing), model=models()) as client:
        await client.run("top", "go")

    assert (ran, sorted(asked)) == (["x"], ["low", "middle", "top"])


@pytest.mark.slow
@pytest.mark.accepts("A7")
@pytest.mark.parametrize("wants", ["all", "changes"])
async def test_approval_that_an_agent_in_between_wants_is_asked_below(
    runtime: Runtime, wants: Any
) -> None:
    """Even if the policies above and below allow the call."""
    ran.clear()
    allowing = rules(Allow(), [])
    async with runtime(agents(allowing, None, allowing, approval=wants), model=models()) as client:
        turn = await client.start("top", "go", id=f"boss-{wants}")
        await _approve(client, f"{turn.id}/middle-1")  # delegating is a call as well
        assert ran == []
        await _approve(client, f"{turn.id}/middle-1/low-1")
        await turn.result()

    assert ran == ["x"]


async def _approve(client: AgentClient, turn_id: str) -> None:
    """Approve the waiting call of a turn, once it is there."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(errors.TurnNotFoundError):
                turn = client.turn(turn_id)
                [one] = await pending(turn)
                await turn.approve(one)
                return
            await asyncio.sleep(0.05)


HOUR, DAYS = timedelta(hours=1), timedelta(days=2)


@pytest.mark.accepts("A7")
@pytest.mark.parametrize(
    ("said", "together"),
    [
        ([Allow(), Allow()], Allow()),
        ([Allow(), RequireApproval(), Deny(reason="a"), Deny(reason="b")], Deny(reason="a")),
        (
            [RequireApproval(expires=DAYS), Allow(), RequireApproval(expires=HOUR)],
            RequireApproval(expires=HOUR),
        ),
        ([RequireApproval(expires=DAYS), RequireApproval()], RequireApproval()),
    ],
)
def test_strictest_answer_counts(said: list[Said], together: Said) -> None:
    """A denial first, then the approval that expires earliest; one without a time has 24 hours."""
    assert strictest(said) == together


def test_definition_of_an_earlier_release_names_the_owner_alone() -> None:
    """The owner's policy and the caller's are evaluated."""
    data = {
        "name": "t",
        "description": "",
        "parameters": {},
        "activity": "t",
        "is_idempotent": False,
        "timeout_s": 1,
        "schema_digest": "",
    }
    inherited = ToolDefinition.model_validate({**data, "owner": "top", "has_policy": True})
    agent = AgentDefinition(name="low", instructions="", model="m:m", tools=(inherited,))

    assert policies_of(agent, inherited) == ("top",)
    assert policies_of(agent.model_copy(update={"has_policy": True}), inherited) == ("top", "low")
    assert (
        PolicyCall.model_validate_json(
            '{"turn_id":"t","agent":"top","tool":"t","call_id":"c","arguments":"{}"}'
        ).policies
        == ()
    )
