"""MCP connections and server processes: what ends them, and that they end."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, MCPServer
from perdure.errors import TurnCancelledError
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.turn.facts import ModelAnswered, TurnStarted

from ...conftest import Run, Runtime, eventually
from ...support.mcp.processes import alive, pids
from ...support.spending import until

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from perdure.activities.mcp.pool import Pool
from perdure.activities.mcp.process import ServerProcess
from perdure.values.messages import UNKNOWN_NOTE

RAW = str(Path(__file__).parents[2] / "support/mcp/raw_server.py")


def notes(folder: Path, **options: Any) -> MCPServer:
    """The hand-written server."""
    return MCPServer.stdio("notes", [sys.executable, "-S", RAW, str(folder)], **options)


@pytest.mark.slow
async def test_connection_that_nobody_uses_is_closed_and_opened_again(tmp_path: Path) -> None:
    """Without a request for that."""
    pool = Pool(idle_s=0.3)
    first = await pool.tools(notes(tmp_path))
    await eventually(lambda: not alive(pids(tmp_path)), "it is closed")

    assert await pool.tools(notes(tmp_path)) == first
    assert len(pids(tmp_path)) == 2
    await pool.close()
    assert not alive(pids(tmp_path))


STUBBORN = (
    'trap "" TERM HUP INT; echo $$ >> {pids}; sleep 1000 & echo $! >> {pids}; echo "{{}}"; while'
    " true; do sleep 1000; done"
)


@pytest.mark.table(1)
@pytest.mark.accepts("T15")
@pytest.mark.parametrize(
    ("command", "code"),
    {
        "ends with its input": (["cat"], 0),
        "ends by itself": (["sh", "-c", "exit 3"], 3),
        "does not listen to signals": (["sh", "-c", STUBBORN], 143),
    }.values(),
    ids=["cat", "exit", "stubborn"],
)
async def test_process_ends_with_its_context(
    tmp_path: Path, command: Sequence[str], code: int
) -> None:
    """And so do its children."""
    filled = [word.format(pids=tmp_path / "pids") if word is STUBBORN else word for word in command]
    process = ServerProcess(filled, {"PATH": "/usr/bin:/bin"})

    async with process:
        if command[-1] is STUBBORN:
            await eventually(lambda: len(pids(tmp_path)) == 2, "it has begun")

    assert process.exit_code == code
    assert not alive(pids(tmp_path))


@pytest.mark.slow
@pytest.mark.accepts("T15")
async def test_server_that_does_not_read_is_an_error_result(run: Run, tmp_path: Path) -> None:
    """Arguments larger than the pipe's buffer wait to be written; the timeout applies all the
    same.
    """
    asked = calls(call("notes__freeze"), call("notes__echo", text="x" * 500_000))

    report = await run(
        ScriptedModel(asked, says("done")),
        toolboxes=[notes(tmp_path, timeout=timedelta(seconds=2))],
        parallel_tools=True,
    )

    assert [result.is_error for result in report.steps[0].results] == [True, True]
    assert report.duration < timedelta(seconds=12)


@pytest.mark.slow
@pytest.mark.accepts("T15")
async def test_worker_environment_is_not_in_the_history(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last stderr of a server goes to the model without the keys."""
    monkeypatch.setenv("NOTES_KEY", "s3cret-k3y")

    report = await run(
        ScriptedModel(calls(call("notes__die")), says("done")),
        toolboxes=[notes(tmp_path, env=["NOTES_KEY"])],
    )

    told = report.steps[0].results[0].content.removesuffix(UNKNOWN_NOTE)
    assert told.endswith("it said: fatal: key [NOTES_KEY] is broken")
    assert "s3cret" not in json.dumps(report.steps[0].results[0].content)


@pytest.mark.slow
@pytest.mark.accepts("T15")
async def test_who_asks_a_frozen_server_is_not_stuck_with_it(
    runtime: Runtime, tmp_path: Path
) -> None:
    """When the call that froze the server is stopped, a turn that waits for the same server
    continues with a new one.
    """
    clerk = Agent(name="clerk", model="scripted:x", toolboxes=[notes(tmp_path)])
    scripts = {
        "freeze": ScriptedModel(calls(call("notes__freeze"))),
        "echo": ScriptedModel(calls(call("notes__echo", text="a")), says("done")),
    }
    async with runtime(clerk, model=ByTask(scripts)) as client:
        frozen = await client.start(clerk, "freeze")
        await until(frozen, ModelAnswered)
        other = await client.start(clerk, "echo")
        await until(other, TurnStarted)
        # by now it has most likely requested the tools from the server, which is not visible from
        # outside
        await asyncio.sleep(1)
        await frozen.cancel()
        report = await other.result()
        with contextlib.suppress(TurnCancelledError):
            await frozen.result()

    assert report.steps[0].results[0].content == "a"
    assert report.duration < timedelta(seconds=15)
    assert len(pids(tmp_path)) == 2
