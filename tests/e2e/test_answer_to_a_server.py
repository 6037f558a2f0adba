"""A task of an MCP server asks a person, who answers with `perdure answer`, as a user runs it."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest

from ..support.e2e.command_line import CommandLine, beside_a_worker, wait_until

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ..support.mcp.task_server import asking, needs, task_server

AGENTS = """
from perdure import Agent, MCPServer
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

model = ScriptedModel(calls(call("works__build", what="a house")), says("It stands."))
builds = MCPServer.http("works", "http://127.0.0.1:{port}/mcp")
app = AgentWorker(
    [Agent(name="builder", model="mine:m", toolboxes=[builds])], providers={{"mine": model}}
)
"""
FLOORS = {"type": "integer", "minimum": 1}


def build(perdure: CommandLine, turn_id: str) -> tuple[str, list[str], str]:
    """Start a turn, answer what the server asks, and return what was shown, refused and said."""
    with perdure.started("run", "builder", "Build.", "--id", turn_id):
        wait_until(lambda: "call_1_1" in perdure("approvals", turn_id).stdout, "the server asks")
        shown = perdure("approvals", turn_id).stdout
        refused = [
            perdure("answer", turn_id, "call_1_1", answer).stderr
            for answer in ('{"floors": 0}', '{"floors": 2, "cellar": true}', "two")
        ]
        perdure("answer", turn_id, "call_1_1", '{"floors": 2}', "--by", "anna@example.com")
        wait_until(lambda: "completed" in perdure("show", turn_id).stdout, "the turn ends")
        return shown, refused, perdure("show", turn_id).stdout


@pytest.mark.slow
@pytest.mark.accepts("J20")
async def test_person_answers_a_server_on_the_command_line(
    perdure_server: str, tmp_path: Path
) -> None:
    """What does not fit is refused at once, and the server gets what fits, once."""
    turn_id = f"house-{secrets.token_hex(4)}"
    async with task_server() as server:
        server.new = needs(go=asking("How many floors?", floors=FLOORS))
        with beside_a_worker(AGENTS.format(port=server.port), tmp_path, perdure_server) as perdure:
            shown, refused, said = await asyncio.to_thread(build, perdure, turn_id)

    assert "form" in shown
    assert "How many floors?" in shown
    assert "'works'" in shown or '"works"' in shown
    assert all(refused)
    assert server.answers == [{"go": {"action": "accept", "content": {"floors": 2}}}]
    assert "answered by anna@example.com" in " ".join(said.split())
