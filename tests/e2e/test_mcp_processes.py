"""MCP servers as processes: none of their processes is left, however the turn or the worker ends.

Each server has a child, and a grandchild that left its process group.
"""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from perdure import Agent, MCPServer, errors
from perdure.testing import ScriptedModel, call, calls

from ..conftest import Runtime, eventually
from ..support.e2e.mcp_app import SERVER
from ..support.e2e.stories import Story, Tell, asks, kill
from ..support.mcp.processes import alive, pids

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only there processes that left their group are found"
)

APP = "tests.support.e2e.mcp_app:make"
SPAWN = asks({"name": "notes__spawn", "arguments": {}})
ROUNDS, AT_ONCE = 5, 6
KILLS, EACH = 4, 5


async def gone(folder: Path) -> None:
    """Wait until all recorded processes have ended."""
    await eventually(lambda: not alive(pids(folder)), f"{len(alive(pids(folder)))} processes end")


@pytest.mark.slow
@pytest.mark.accepts("T15")
async def test_nothing_is_left_of_30_cancelled_turns(runtime: Runtime, tmp_path: Path) -> None:
    """While the worker keeps running: the work for a cancelled call ends with its server, and the
    next turn gets a new server.
    """
    agent = Agent(
        name="keeper",
        model="scripted:x",
        toolboxes=[MCPServer.stdio("notes", [sys.executable, "-S", str(SERVER), str(tmp_path)])],
    )
    model = ScriptedModel(*[calls(call("notes__spawn"))] * (ROUNDS * AT_ONCE))

    async with runtime(agent, model=model) as client:
        for _ in range(ROUNDS):
            before = len(pids(tmp_path))
            turns = [await client.start(agent, "go") for _ in range(AT_ONCE)]
            await eventually(
                lambda before=before: len(pids(tmp_path)) >= before + 1 + 2 * AT_ONCE,  # type: ignore[misc]
                "all have begun",
                within_s=30,
            )
            assert len(alive(pids(tmp_path))) == 1 + 2 * AT_ONCE
            for turn in turns:
                await turn.cancel("enough")
            for turn in turns:
                with pytest.raises(errors.TurnCancelledError) as raised:
                    await turn.result()
                assert raised.value.report is not None
                assert raised.value.report.unstopped == ()
            await gone(tmp_path)

    assert len(pids(tmp_path)) == ROUNDS * (1 + 2 * AT_ONCE)


@pytest.mark.slow
@pytest.mark.accepts("T15")
async def test_nothing_is_left_of_20_turns_whose_workers_are_killed(
    tell: Tell, tmp_path: Path
) -> None:
    """`kill -9` of the worker; only their guard processes can end its servers."""
    story = await tell(SPAWN)

    for _ in range(KILLS):
        await begun(story, tmp_path, EACH)
        await kill(story.workers[-1])
        await gone(tmp_path)
        for turn_id, run_id in story.client.recorded:
            await story.temporal.get_workflow_handle(turn_id, run_id=run_id).terminate()
        story.client.recorded.clear()

    assert len(pids(tmp_path)) == KILLS * (1 + 2 * EACH)


@pytest.mark.slow
@pytest.mark.accepts("T15")
async def test_nothing_is_left_of_a_worker_that_drains(tell: Tell, tmp_path: Path) -> None:
    """SIGTERM, with a grace period shorter than the call."""
    story = await tell(SPAWN)
    await begun(story, tmp_path, 2, PERDURE_GRACE_S="1")

    story.workers[0].send_signal(signal.SIGTERM)
    code = await asyncio.wait_for(story.workers[0].wait(), 60)

    assert code == 0
    assert not alive(pids(tmp_path))


async def begun(story: Story, folder: Path, turns: int, **environment: str) -> None:
    """A worker with all of its turns in a call."""
    before = len(pids(folder))
    await story.worker(APP, E2E_NOTES=str(folder), **environment)
    for _ in range(turns):
        await story.start()
    await eventually(
        lambda: len(pids(folder)) >= before + 1 + 2 * turns, "all have begun", within_s=30
    )
    assert len(alive(pids(folder))) == 1 + 2 * turns
