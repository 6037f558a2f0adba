"""Names of tools are kept out of activity types, as labels are kept out of search attributes."""

import secrets
import sys
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from perdure import Agent, MCPServer, tool
from perdure.agents.tools import Tool
from perdure.clients import AgentClient, Turn
from perdure.temporal.connect import connect_local
from perdure.temporal.data_converter import chosen
from perdure.temporal.encryption.hiding import LABELS_VARIABLE, VARIABLE
from perdure.temporal.encryption.keys import new_entry
from perdure.temporal.names import CALL_SYNC_TOOL, CALL_TOOL
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn
from perdure.workflows.single_input import OneInput

from ...support.approving import pending

RAW = str(Path(__file__).parents[2] / "support/mcp/raw_server.py")

HIDDEN = "ledgerentry"
"""A part of each name, which stands in no description."""


@tool(requires_approval=True)
async def write_ledgerentry(amount: int) -> str:
    """Write to the books."""
    return f"wrote {amount}"


@tool(read_only=True)
def read_ledgerentry() -> str:
    """Read in the books."""
    return "1 to 7"


def app_of(model: ScriptedModel, *toolboxes: MCPServer) -> AgentWorker:
    """A worker with an agent that has tools, and a delegate that has them too."""
    tools: list[Tool[..., Any]] = [write_ledgerentry, read_ledgerentry]
    clerk = Agent(
        name="clerk",
        model="scripted:m",
        tools=tools,
        toolboxes=toolboxes,
        delegates=["helper"],
    )
    return AgentWorker(
        [clerk, Agent(name="helper", model="scripted:m", tools=tools)],
        providers={"scripted": model},
        task_queue=f"test-{secrets.token_hex(6)}",
    )


def writes() -> ScriptedModel:
    """A model that reads, writes and answers."""
    return ScriptedModel(
        calls(call("read_ledgerentry"), call("write_ledgerentry", amount=5)),
        calls(call("read_ledgerentry")),
        says("done"),
    )


async def history_of(client: AgentClient, turn: Turn[Any]) -> WorkflowHistory:
    """The history as the server has it."""
    return await client.temporal.get_workflow_handle(turn.id).fetch_history()


def types_in(history: WorkflowHistory) -> list[str]:
    """The activity types of calls, in order."""
    scheduled = (
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    )
    return [name for name in scheduled if HIDDEN in name or name in (CALL_TOOL, CALL_SYNC_TOOL)]


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A key, and hidden names."""
    monkeypatch.setenv(VARIABLE, new_entry("k1"))
    monkeypatch.setenv(LABELS_VARIABLE, "no")
    return monkeypatch


@pytest.mark.accepts("G90")
async def test_names_of_tools_are_nowhere_in_history(
    perdure_server: str, env: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of functions, of calls that wait for a person, of a delegate's, and of an MCP server's."""
    pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")
    notes = MCPServer.stdio(HIDDEN, [sys.executable, "-S", RAW, str(tmp_path)])
    model = ScriptedModel(
        calls(call("read_ledgerentry"), call("write_ledgerentry", amount=5)),
        calls(call(f"{HIDDEN}__echo", text="hello")),
        calls(call("delegate_to_agent", agent="helper", task="look")),
        calls(call("read_ledgerentry")),
        says("seen"),
        says("done"),
    )
    app = app_of(model, notes)
    async with app.running(await connect_local(perdure_server)):
        client = await AgentClient.connect(perdure_server, task_queue=app.task_queue)
        turn = await client.start("clerk", "go")
        [one] = await pending(turn)
        await turn.approve(one)
        report = await turn.result()
        own = await history_of(client, turn)
        child = await history_of(client, client.turn(f"{turn.id}/helper-1"))

    assert [result.content for result in report.steps[0].results] == ["1 to 7", "wrote 5"]
    assert not report.steps[1].results[0].is_error
    assert types_in(own) == [CALL_SYNC_TOOL, CALL_TOOL, CALL_TOOL]
    assert types_in(child) == [CALL_SYNC_TOOL]
    stored = b"".join(event.SerializeToString() for event in (*own.events, *child.events))
    assert HIDDEN.encode() not in stored


@pytest.mark.accepts("G90")
@pytest.mark.parametrize("first", ["yes", "no"])
async def test_turn_keeps_its_activity_types(
    perdure_server: str, env: pytest.MonkeyPatch, first: str
) -> None:
    """It goes on at a worker that was started with the other setting, and its history replays."""
    model = writes()
    app = app_of(model)
    env.setenv(LABELS_VARIABLE, first)
    temporal = await connect_local(perdure_server)
    client = await AgentClient.connect(perdure_server, task_queue=app.task_queue)
    async with app.running(temporal):
        turn = await client.start("clerk", "go")
        [one] = await pending(turn)
    env.setenv(LABELS_VARIABLE, {"yes": "no", "no": "yes"}[first])
    other = AgentWorker(
        list(app.registry.agents()), providers={"scripted": model}, task_queue=app.task_queue
    )
    async with other.running(temporal):
        await turn.approve(one)
        report = await turn.result()
        history = await history_of(client, turn)

    assert report.output == "done"
    assert {HIDDEN in name for name in types_in(history)} == {first == "yes"}
    replayer = Replayer(workflows=[AgentTurn], interceptors=[OneInput()], data_converter=chosen())
    await replayer.replay_workflow(WorkflowHistory(turn.id, history.events))
