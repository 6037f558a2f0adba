"""`FakeMCPServer`: tests replace the MCP servers of an agent by functions."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from perdure import Agent, MCPServer, Registry, TurnInfo, errors
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Runtime

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from perdure.testing import FakeMCPServer

GITHUB = MCPServer.stdio(
    "github", ["a-program-that-is-not-there"], env=["GITHUB_TOKEN"], timeout=timedelta(seconds=1)
)
AGENT = Agent(name="triage", model="openai:gpt-5-mini", toolboxes=[GITHUB])


def list_issues(label: str, limit: int = 10) -> list[str]:
    """Issues with a label."""
    return [f"{label} {number}" for number in range(min(limit, 2))]


async def merge(number: int) -> str:
    """Merge a pull request."""
    raise ValueError(f"{number} has conflicts")


async def wait_for_checks() -> str:
    """Wait until the checks are over."""
    await asyncio.sleep(60)
    return "green"


@pytest.mark.accepts("P23")
async def test_functions_are_the_tools_of_a_server(runtime: Runtime) -> None:
    """A result, an error and a timeout, without the program, its variables or a network."""
    github = FakeMCPServer(list_issues, merge, wait_for_checks)
    asked = calls(
        call("github__list_issues", label="bug"),
        call("github__merge", number=7),
        call("github__wait_for_checks"),
    )
    model = ScriptedModel(asked, says("two bugs"))
    async with runtime(AGENT, model=model, mcp={"github": github}) as client:
        report = await client.run("triage", "What is there?")

    listed, merged, waited = report.steps[0].results
    (offered, *_) = model.requests[0].tools
    assert (offered.name, offered.description, offered.parameters["required"]) == (
        "github__list_issues",
        "Issues with a label.",
        ["label"],
    )
    assert ("bug 0" in listed.content, listed.is_error) == (True, False)
    assert ("7 has conflicts" in merged.content, merged.is_error, waited.is_error) == (
        True,
        True,
        True,
    )
    assert github.calls[:2] == [("list_issues", {"label": "bug"}), ("merge", {"number": 7})]


@pytest.mark.slow
@pytest.mark.accepts("P23")
async def test_server_goes_down_in_the_middle_of_a_turn_and_before_one(runtime: Runtime) -> None:
    """During a turn, the call is an error result for the model; a turn that starts then fails."""
    github = FakeMCPServer(list_issues)

    def breaks() -> str:
        """Break."""
        github.is_down = True
        return "broken"

    github.server.add_tool(breaks)
    both = ScriptedModel(
        calls(call("github__breaks")),
        calls(call("github__list_issues", label="bug")),
        says("it is down"),
    )
    async with runtime(AGENT, model=both, mcp={"github": github}) as client:
        report = await client.run("triage", "What is there?")
        with pytest.raises(
            errors.ConfigurationError, match=r"the MCP server 'github'.*the fake server is down"
        ):
            await client.run("triage", "And now?")

    assert report.steps[0].results[0].content == "broken"
    assert report.steps[1].results[0].is_error
    assert "the fake server is down" in report.steps[1].results[0].content
    assert github.calls == [("breaks", {})]


@pytest.mark.accepts("P23")
async def test_agents_of_factories_get_fakes_and_a_misspelt_name_is_refused(
    runtime: Runtime,
) -> None:
    """Without the check, the real server would be called."""
    registry = Registry()

    def triage(_: TurnInfo) -> Agent:
        return AGENT

    registry.add(triage)
    github = FakeMCPServer(list_issues)
    model = ScriptedModel(calls(call("github__list_issues", label="bug")), says("two"))
    async with runtime(registry, model=model, mcp={"github": github}) as client:
        assert (await client.run("triage", "How many?")).output == "two"
    with pytest.raises(
        errors.ConfigurationError,
        match="no agent has an MCP server named 'gihub'; they have github",
    ):
        async with runtime(AGENT, model=model, mcp={"gihub": github}):
            pass

    assert github.calls == [("list_issues", {"label": "bug"})]
