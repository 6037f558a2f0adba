"""MCP's conformance suite: with the gateway as a server, and with an agent as a client."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from perdure import Agent
from perdure.clients.gateway import Caller
from perdure.testing import ScriptedModel, says

from ...conftest import Runtime
from ...support.gateway.served import served
from ...support.mcp import conformance
from ...support.mcp.conformance import CLIENT, LOGINS, SERVER, NotInstalledError, Scenario


@pytest.fixture(scope="module")
def suite() -> Path:
    """The suite."""
    try:
        return conformance.installed()
    except NotInstalledError as error:
        pytest.skip(str(error))


def compared(results: list[conformance.Result], scenarios: tuple[Scenario, ...]) -> None:
    """Check that each scenario has passed, or is known not to apply."""
    failed = {result.name: result.failures for result in results if result.failures}

    assert {result.name for result in results} == {scenario.name for scenario in scenarios}
    assert failed.keys() == {each.name for each in scenarios if not each.passes}, failed


@pytest.mark.slow
@pytest.mark.accepts("H242")
async def test_gateway_is_a_server_as_the_page_says(
    runtime: Runtime, suite: Path, tmp_path: Path
) -> None:
    """The suite sends no token, so everybody is a caller here."""
    agent = Agent(name="desk", model="main")
    async with (
        runtime(agent, model=ScriptedModel(says("done"))) as client,
        served(client, auth=lambda _: Caller("suite@example.com", "suite")) as http,
    ):
        url = f"{str(http.base_url).rstrip('/')}/mcp"
        results = await conformance.run(suite, tmp_path, "server", "--url", url, "--suite", "all")

    compared(results, SERVER)


@pytest.mark.slow
@pytest.mark.accepts("H243")
async def test_agent_is_a_client_as_the_page_says(suite: Path, tmp_path: Path) -> None:
    """A turn on a server of its own for each scenario."""
    results: list[conformance.Result] = []
    for scenario in CLIENT:
        results += await as_client(suite, tmp_path, scenario)

    compared(results, CLIENT)


@pytest.mark.slow
@pytest.mark.accepts("G145")
@pytest.mark.parametrize("scenario", LOGINS, ids=lambda scenario: scenario.name)
async def test_person_logs_in_for_a_client_as_the_page_says(
    suite: Path, tmp_path: Path, scenario: Scenario
) -> None:
    """What passes passes without a warning."""
    [result] = await as_client(suite, tmp_path, scenario)

    compared([result], (scenario,))
    assert not result.warnings


async def as_client(suite: Path, output: Path, scenario: Scenario) -> list[conformance.Result]:
    """Run a scenario with an agent as the client."""
    program = Path(conformance.__file__).with_name("conformance_client.py")
    command = ("client", "--command", f"{sys.executable} {program}", "--timeout", "90000")
    return await conformance.run(
        suite, output / scenario.name, *command, "--scenario", scenario.name
    )
