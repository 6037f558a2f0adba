"""The allowed tools of a turn: other tools are not offered, and a call of one ends the turn before
anything runs.
"""

import logging

import pytest

from perdure import Agent, Outcome, errors, tool
from perdure.agents.tools import Tool
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Runtime

ran: list[str] = []


@tool
def a() -> str:
    """The one."""
    ran.append("a")
    return "did a"


@tool
def b() -> str:
    """The other."""
    ran.append("b")
    return "did b"


class Shelf:
    """Finds a and b, and raises for the name that is broken."""

    def resolve(self, name: str) -> Tool | None:
        """By name."""
        if name == "broken":
            raise OSError("no catalogue")
        return {"a": a, "b": b}.get(name)


@pytest.mark.accepts("U1")
async def test_only_what_is_allowed_is_offered(runtime: Runtime) -> None:
    """The resolver has both, the turn allows one."""
    ran.clear()
    model = ScriptedModel(calls(call("a")), says("done"))
    async with runtime(
        Agent(name="worker", model="scripted:x", resolver=Shelf()), model=model
    ) as client:
        await client.run("worker", "go", allowed_tools=["a"])

    assert [item.name for item in model.requests[0].tools] == ["a"]
    assert ran == ["a"]


@pytest.mark.accepts("U2", "U3", "U4")
async def test_call_outside_the_boundary_ends_the_turn_before_anything_runs(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer with an allowed call and another one: neither runs, and the log has a line about
    it.
    """
    ran.clear()
    caplog.set_level(logging.INFO, "perdure")
    async with runtime(
        Agent(name="worker", model="scripted:x", tools=[a, b]),
        model=ScriptedModel(calls(call("a"), call("b"))),
    ) as client:
        with pytest.raises(errors.AutonomyBoundaryError) as caught:
            await client.run("worker", "go", allowed_tools=["a"])

    assert ran == []
    assert (caught.value.context["violation"], caught.value.context["tool"]) == (
        "tool_not_allowed",
        "b",
    )
    assert caught.value.report is not None
    assert caught.value.report.outcome is Outcome.BOUNDARY
    lines = [
        record.getMessage()
        for record in caplog.records
        if record.getMessage().startswith("autonomy_boundary")
    ]
    assert len(lines) == 1
    assert "tool=b" in lines[0]


async def test_empty_list_allows_nothing(runtime: Runtime) -> None:
    """`[]` allows no tool, `None` every tool."""
    model = ScriptedModel(says("done"))
    async with runtime(
        Agent(name="worker", model="scripted:x", tools=[a, b]), model=model
    ) as client:
        await client.run("worker", "go", allowed_tools=[])

    assert model.requests[0].tools == ()


@pytest.mark.accepts("T6")
async def test_resolver_that_finds_nothing_is_soft_and_one_that_raises_is_not(
    runtime: Runtime,
) -> None:
    """With no result, the model is told that there is no such tool; an exception fails the turn
    before the first model call.
    """
    model = ScriptedModel(calls(call("missing")), says("done"))
    async with runtime(
        Agent(name="worker", model="scripted:x", resolver=Shelf()), model=model
    ) as client:
        report = await client.run("worker", "go", allowed_tools=["a", "missing"])
        with pytest.raises(errors.ToolResolverError, match="OSError: no catalogue"):
            await client.run("worker", "go", allowed_tools=["broken"])

    assert report.steps[0].results[0].is_error
    assert model.call_count == 2


@pytest.mark.table(1)
@pytest.mark.accepts("T24")
@pytest.mark.parametrize("parallel", [False, True])
async def test_resolver_that_raises_when_its_tool_is_called_ends_the_turn(
    runtime: Runtime, parallel: bool
) -> None:
    """The model did not cause it; the calls that ran have their results, and the other one has a
    result with the reason.
    """
    asked = []

    class Failing:
        def resolve(self, name: str) -> Tool:
            asked.append(name)
            if len(asked) > 1:
                raise OSError("the registry is down")
            return tool(name="late")(lambda: "late")

    agent = Agent(
        name="worker", model="scripted:x", tools=[a], resolver=Failing(), parallel_tools=parallel
    )
    model = ScriptedModel(calls(call("a"), call("late")), says("never"))
    async with runtime(agent, model=model) as client:
        with pytest.raises(errors.ToolResolverError, match="the registry is down") as caught:
            await client.run("worker", "go", allowed_tools=["a", "late"])

    assert caught.value.report is not None
    [step] = caught.value.report.steps
    assert [(result.is_error, "registry is down" in result.content) for result in step.results] == [
        (False, False),
        (True, True),
    ]
    assert (caught.value.report.outcome, model.call_count) == (Outcome.FAILED, 1)
