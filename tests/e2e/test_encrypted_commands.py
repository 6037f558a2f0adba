"""The commands as processes, with a data converter named by their environment."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.converter import DataConverter

from perdure.clients import AgentClient
from perdure.temporal.data_converter import encrypting
from perdure.temporal.encryption.keys import new_entry, parsed

from ..support.approving import pending
from ..support.e2e.command_line import CommandLine

pytestmark = pytest.mark.slow

AGENTS = """
from perdure import Agent

talker = Agent(name="talker", model="offline:librarian")
"""
TASK = "canary-4711"


@pytest.mark.accepts("P15", "P16", "P17", "P18")
async def test_commands_share_turns_that_only_they_can_read(
    perdure_server: str, tmp_path: Path
) -> None:
    """A worker and a caller with the variable; without it, and with a converter that cannot be
    loaded, a command says what to set.
    """
    here, queue, turn_id = (
        CommandLine(tmp_path),
        f"test-{secrets.token_hex(6)}",
        f"locked-{secrets.token_hex(6)}",
    )
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    (tmp_path / "codec.py").write_text(
        (Path(__file__).parents[1] / "support/encrypting.py").read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    here.environment |= {
        "TEMPORAL_ADDRESS": perdure_server,
        "PERDURE_TASK_QUEUE": queue,
        "PERDURE_GRACE_S": "1",
    }
    with_key = {"PERDURE_DATA_CONVERTER": "codec:converter"}
    with here.started("worker", "agents:talker", **with_key) as worker:
        worker.wait_for(queue)
        ran = here("run", "talker", TASK, "--id", turn_id, **with_key)
    history = (
        await (await Client.connect(perdure_server)).get_workflow_handle(turn_id).fetch_history()
    )
    shown = here("show", turn_id, **with_key)
    without = here("show", turn_id, "--json")
    unloaded = here("show", turn_id, PERDURE_DATA_CONVERTER="codec:broken")
    lines = [json.loads(line) for line in without.stdout.splitlines()]

    assert (ran.returncode, shown.returncode) == (0, 0), ran.stderr
    assert TASK in shown.stdout
    assert [
        event.event_id for event in history.events if TASK.encode() in event.SerializeToString()
    ] == []
    assert (without.returncode, [(line["kind"], line["code"]) for line in lines]) == (
        2,
        [("error", "PAYLOAD_DECODE")],
    )
    assert "a codec that this process does not have (set PERDURE_DATA_CONVERTER)" in without.stderr
    assert unloaded.returncode == 2
    assert "codec:broken() of PERDURE_DATA_CONVERTER failed: ValueError in " in unloaded.stderr
    assert "planted-key" not in unloaded.stderr + unloaded.stdout


PAYING = '''
from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker


@tool(requires_approval=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return "paid"


payer = AgentWorker(
    Agent(name="payer", model="scripted:payer", tools=[pay]),
    providers={"scripted": ScriptedModel(calls(call("pay", to="anna")), says("done"))},
)
'''


@pytest.mark.accepts("G11")
async def test_worker_without_the_key_of_a_running_turn_stops_at_once(
    perdure_server: str, tmp_path: Path
) -> None:
    """With the id of the turn and the name of the key; its supervisor does not start it again."""
    here, queue, turn_id = (
        CommandLine(tmp_path),
        f"test-{secrets.token_hex(6)}",
        f"kept-{secrets.token_hex(6)}",
    )
    (tmp_path / "paying.py").write_text(PAYING, encoding="utf-8")
    here.environment |= {
        "TEMPORAL_ADDRESS": perdure_server,
        "PERDURE_TASK_QUEUE": queue,
        "PERDURE_GRACE_S": "1",
    }
    entry = new_entry("k1")
    key = {"PERDURE_ENCRYPTION_KEYS": entry}
    converter = encrypting(DataConverter.default, parsed(entry, "the test"))
    client = await AgentClient.connect(perdure_server, task_queue=queue, data_converter=converter)
    with here.started("worker", "paying:payer", **key) as worker:
        worker.wait_for(queue)
        await pending(await client.start("payer", TASK, id=turn_id))
    refused = here("worker", "paying:payer")
    broken = here("worker", "paying:payer", PERDURE_ENCRYPTION_KEYS="k1:planted-key")
    await client.temporal.get_workflow_handle(turn_id).terminate()

    assert (refused.returncode, broken.returncode) == (2, 2)
    assert f"the worker cannot start: {turn_id} runs on the task queue" in refused.stderr
    assert "encrypted with the key 'k1'" in refused.stderr
    assert "the key 'k1' of entry 1 of PERDURE_ENCRYPTION_KEYS is not base64" in broken.stderr
    assert "planted" not in broken.stderr
