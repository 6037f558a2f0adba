"""`perdure mcp` as an editor starts it: a process that speaks MCP on standard input and output."""

import os
import subprocess
import sys
from typing import Any

import pytest

from perdure import Agent
from perdure.testing import ScriptedModel, says

from ..conftest import Runtime

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

clerk = Agent(name="clerk", model="scripted:clerk")
WITHOUT_MCP = (
    "import sys; sys.modules['mcp'] = None; sys.argv = ['perdure', 'mcp', '--address',"
    " sys.argv[1]]; from perdure.__main__ import main; main()"
)


def editor(perdure: Any, *options: str, mode: str) -> Client:
    """A client that starts the command as a process and stops it at the end."""
    where = [
        "--address",
        perdure.temporal.service_client.config.target_host,
        "--task-queue",
        perdure.task_queue,
    ]
    started = StdioServerParameters(
        command=sys.executable,
        args=["-m", "perdure", "mcp", *where, *options],
        env=dict(os.environ),
    )
    return Client(stdio_client(started), mode=mode)


@pytest.mark.slow
@pytest.mark.accepts("P1")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.table(1)
async def test_turn_outlives_the_editor_that_started_it(runtime: Runtime, mode: str) -> None:
    """The next editor finds it by its id, with its answer."""
    async with runtime(clerk, model=ScriptedModel(says("30 days"))) as perdure:
        async with editor(perdure, "--agent", "clerk", mode=mode) as first:
            started = await first.call_tool(
                "start_turn", {"agent": "clerk", "task": "How long?", "id": f"editor-{mode}"}
            )
            said = first.instructions
        async with editor(perdure, mode=mode) as second:
            ended = await second.call_tool("turn_result", {"turn": f"editor-{mode}"})
        await perdure.turn(f"editor-{mode}").result()

    assert said is not None
    assert "The agents are clerk." in said
    assert started.structured_content is not None
    assert ended.structured_content is not None
    assert started.structured_content["turn"] == f"editor-{mode}"
    assert ended.structured_content["output"] == "30 days"


@pytest.mark.slow
def test_server_that_does_not_answer_is_said_before_the_protocol_begins() -> None:
    """One line on standard error, and nothing on standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "mcp", "--address", "127.0.0.1:1"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout == ""
    assert done.stderr.startswith("perdure: ")
    assert "127.0.0.1:1" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.returncode not in (0, 1)


@pytest.mark.slow
def test_missing_package_is_named(perdure_server: str) -> None:
    """With the command that installs it."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MCP, perdure_server],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stderr == "perdure: perdure mcp needs the package mcp: pip install 'perdure[mcp]'\n"
    assert done.returncode == 2
