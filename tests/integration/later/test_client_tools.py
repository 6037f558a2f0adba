"""Tools that the client of a turn runs: their calls wait for it, and go on with its results."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    AgentReport,
    Budget,
    ClientTool,
    Deny,
    ProposedCall,
    RequireApproval,
    ToolOutcome,
    errors,
)
from perdure.events import WaitBegan
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.messages import ToolResult

from ...conftest import Runtime
from ...support.client_tools import CONFIRM, LOCATE, LOOKED, guide, until_calls
from ...support.jobs import until_waiting

BOTH = (call("locate", precise=True), call("confirm"))


def results(report: AgentReport) -> list[ToolResult]:
    """The results of all calls of a turn."""
    return [result for step in report.steps for result in step.results]


@pytest.mark.accepts("F22", "F23")
@pytest.mark.parametrize("parallel", [False, True])
async def test_client_runs_its_tools_and_the_turn_goes_on(runtime: Runtime, parallel: bool) -> None:
    """All of its calls wait at the same time, without an activity, after the agent's own."""
    LOOKED.clear()
    model = ScriptedModel(calls(call("look", at="map"), *BOTH), says("done"))
    agent = guide(parallel_tools=parallel)
    async with runtime(agent, model=model) as client:
        turn = await client.start("guide", "Where am I?", client_tools=[LOCATE, CONFIRM])
        first, second = await until_calls(turn, 2)
        status = await until_waiting(turn, "client")
        described = await client.temporal.get_workflow_handle(turn.id).describe()
        listed = await turn.pending_approvals()
        await client.finish_call(second.token, "no", is_error=True, by="browser")
        [left] = await turn.client_calls()
        await client.finish_call(first.token, {"city": "Bern"})
        report = await turn.result()
        events = [event.fact async for event in turn.events()]
        after = await turn.client_calls()

    assert (first.tool, first.arguments) == ("locate", '{"precise": true}')
    assert first.expires_at - first.since == timedelta(days=1)
    assert left == first
    assert status.doing.startswith("waits for its client to run a tool, until ")
    assert not described.raw_description.pending_activities
    assert [pending.kind for pending in listed] == ["elsewhere", "elsewhere"]
    assert [(result.content, result.outcome) for result in results(report)] == [
        ("saw map", ToolOutcome.DONE),
        ('{"city":"Bern"}', ToolOutcome.DONE),
        ("no", ToolOutcome.FAILED),
    ]
    assert (report.tool_calls, report.spent.tool_calls) == (3, 3)
    assert after == ()
    assert LOOKED == ["map"]
    waits = [fact for fact in events if isinstance(fact, WaitBegan)]
    assert waits[-1].kind == "client"
    told = repr(waits) + status.model_dump_json() + repr(listed)
    assert not any(one.token in told for one in (first, second))
    offered = [item.name for item in model.requests[0].tools]
    assert offered == ["look", "locate", "confirm"]


@pytest.mark.accepts("F24")
async def test_tools_that_an_agent_does_not_take_are_refused(runtime: Runtime) -> None:
    """Those of an agent that takes none, and those with the name of one of its own."""
    model = ScriptedModel(says("done"))
    async with runtime([guide(), guide(name="closed", takes_tools=False)], model=model) as client:
        with pytest.raises(errors.InvalidRequestError, match="takes_tools=True"):
            await client.run("closed", "go", client_tools=[LOCATE])
        with pytest.raises(errors.InvalidRequestError, match="has a tool named look"):
            await client.run("guide", "go", client_tools=[ClientTool(name="look")])
        with pytest.raises(errors.InvalidRequestError, match="has a tool named hand_over"):
            await client.run("guide", "go", client_tools=[ClientTool(name="hand_over")])
        with pytest.raises(errors.InvalidRequestError, match="two tools"):
            await client.start("guide", "go", client_tools=[LOCATE, LOCATE])
        with pytest.raises(errors.InvalidRequestError, match="no JSON schema of an object"):
            await client.start("guide", "go", client_tools=[ClientTool(name="x", parameters={})])
        many = [ClientTool(name=f"t{n}") for n in range(129)]
        with pytest.raises(errors.TooLargeError, match="more than 128"):
            await client.start("guide", "go", client_tools=many)
        with pytest.raises(errors.TooLargeError, match="more than 65536"):
            await client.start(
                "guide", "go", client_tools=[ClientTool(name="x", description="x" * 70_000)]
            )
        turn = await client.start("guide", "go", id="same", client_tools=[LOCATE])
        await turn.result()
        with pytest.raises(errors.TurnConflictError):
            await client.start("guide", "go", id="same", client_tools=[CONFIRM])
    with pytest.raises(errors.ConfigurationError, match="A-Z"):
        ClientTool(name="not a name")
    assert len(model.requests) == 1


@pytest.mark.accepts("F25")
async def test_policy_sees_calls_of_the_client_and_approval_is_its_own(runtime: Runtime) -> None:
    """`approval="all"` asks nobody about them; a policy may deny one, or have a person asked."""
    seen: list[ProposedCall] = []

    def policy(proposed: ProposedCall) -> Any:
        seen.append(proposed)
        verdicts = {"confirm": Deny("no"), "locate": RequireApproval()}
        return verdicts[proposed.tool]

    model = ScriptedModel(calls(*BOTH), says("done"), calls(call("locate")), says("done"))
    agents = [guide(policy=policy), guide(name="strict", approval="all")]
    async with runtime(agents, model=model) as client:
        turn = await client.start("guide", "go", client_tools=[LOCATE, CONFIRM])
        await until_waiting(turn, "approval")
        before = await turn.client_calls()
        await turn.approve("call_1_1", arguments={"precise": False})
        [waiting] = await until_calls(turn)
        await client.finish_call(waiting.token, "Bern")
        report = await turn.result()
        other = await client.start("strict", "go", client_tools=[LOCATE])
        [unasked] = await until_calls(other)
        await client.finish_call(unasked.token, "Bern")
        await other.result()

    assert {(one.tool, one.arguments) for one in seen} == {
        ("locate", '{"precise": true}'),
        ("confirm", "{}"),
    }
    assert before == ()
    assert waiting.arguments == '{"precise":false}'
    located, confirmed = results(report)
    assert located.outcome is ToolOutcome.DONE
    assert confirmed.outcome is ToolOutcome.DENIED


@pytest.mark.accepts("F26")
async def test_allowed_tools_hold_for_the_client_as_well(runtime: Runtime) -> None:
    """A tool that is not among them is not offered, and a call of it ends the turn."""
    model = ScriptedModel(calls(call("confirm")))
    async with runtime(guide(), model=model) as client:
        with pytest.raises(errors.AutonomyBoundaryError):
            await client.run(
                "guide", "go", client_tools=[LOCATE, CONFIRM], allowed_tools=["locate"]
            )

    assert [item.name for item in model.requests[0].tools] == ["locate"]


@pytest.mark.accepts("F27")
async def test_cancel_and_the_time_of_the_turn_end_the_wait(runtime: Runtime) -> None:
    """The report says that the client may have run the tool; its result comes too late then."""
    model = ScriptedModel(calls(call("locate")), calls(call("locate")))
    async with runtime(guide(), model=model) as client:
        turn = await client.start("guide", "go", client_tools=[LOCATE])
        [waiting] = await until_calls(turn)
        await turn.cancel("enough")
        with pytest.raises(errors.TurnCancelledError) as cancelled:
            await turn.result()
        with pytest.raises(errors.TurnOverError):
            await client.finish_call(waiting.token, "Bern")
        short = await client.start(
            "guide", "go", client_tools=[LOCATE], budget=Budget(time=timedelta(seconds=1))
        )
        with pytest.raises(errors.TurnBudgetExceededError):
            await short.result()

    report = cancelled.value.report
    assert report is not None
    [unsettled] = report.unsettled
    assert unsettled.tool == "locate"


@pytest.mark.accepts("F28")
async def test_result_of_a_call_counts_once(runtime: Runtime) -> None:
    """A forged token, and that of another turn, are refused; a message does not end the wait."""
    model = ScriptedModel(calls(call("locate")), says("done"))
    async with runtime(guide(), model=model) as client:
        turn = await client.start("guide", "go", client_tools=[LOCATE])
        [waiting] = await until_calls(turn)
        with pytest.raises(errors.InvalidRequestError):
            await client.finish_call(waiting.token[:-6] + "AAAAAA", "no")
        with pytest.raises(errors.TooLargeError):
            await client.finish_call(waiting.token, "x" * 70_000)
        await turn.steer("Hurry.")
        assert await turn.client_calls() == (waiting,)
        await asyncio.gather(*(client.finish_call(waiting.token, "Bern") for _ in range(3)))
        report = await turn.result()
        with pytest.raises(errors.TurnOverError):
            await client.finish_call(waiting.token, "Basel")

    assert [result.content for result in results(report)] == ["Bern"]
    assert "Hurry." in str(model.requests[-1].messages)
