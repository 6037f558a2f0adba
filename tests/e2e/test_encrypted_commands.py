"""The commands as processes, with a data converter named by their environment."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from temporalio.client import Client

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
