"""Turns with Perdure's own toolboxes; `examples/trusted_tools.py` has one that succeeds."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from perdure import Agent, errors
from perdure.testing import ScriptedModel, call, calls, says
from perdure.toolboxes import calculator, clock, fetch, files, shell

from ...conftest import Run, Runtime, eventually


@pytest.mark.slow
async def test_turn_goes_on_after_everything_that_is_refused(run: Run, tmp_path: Path) -> None:
    """Each refusal is an error result for the model, without the path of the folder."""
    (tmp_path / "secret.txt").write_text("swordfish")
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "link.md").symlink_to("../secret.txt")
    os.mkfifo(folder / "pipe.md")
    hostile = [
        call("read_file", path="../secret.txt"),
        call("read_file", path="/etc/passwd"),
        call("read_file", path="link.md"),
        call("read_file", path="pipe.md"),
        call("read_file", path="a\0b"),
        call("list_files", pattern="../*"),
        call("fetch", url="http://127.0.0.1/"),
        call("fetch", url="http://2130706433/"),
        call("fetch", url="http://[::ffff:169.254.169.254]/"),
        call("fetch", url="file:///etc/passwd"),
        call("now", time_zone="../../etc/passwd"),
        call("calculate", expression="9 ** 9 ** 9"),
        call("run_program", program="sh", arguments=["-c", "env"]),
    ]
    boxes = [
        files(folder),
        fetch(),
        clock(),
        calculator(),
        shell(folder, ["ls"], requires_approval=False),
    ]
    report = await run(ScriptedModel(calls(*hostile), says("I may not.")), toolboxes=boxes)
    results = report.steps[0].results

    assert report.output == "I may not."
    assert [result.is_error for result in results] == [True] * len(hostile)
    assert not any(
        str(tmp_path) in result.content or "swordfish" in result.content for result in results
    )


@pytest.mark.slow
async def test_cancel_of_a_turn_ends_its_command(runtime: Runtime, tmp_path: Path) -> None:
    """And all of its child processes: none is left after the turn."""
    command = "echo begun > begun; sh -c 'echo $$ > pid; sleep 300; true' & wait"
    box = shell(tmp_path, "anything", timeout=timedelta(minutes=5), requires_approval=False)
    agent = Agent(name="clerk", model="m", toolboxes=[box])
    async with runtime(
        agent, model=ScriptedModel(calls(call("run_command", command=command)))
    ) as client:
        turn = await client.start("clerk", "Wait.")
        await eventually(
            lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"),
            "the command runs",
        )
        await turn.cancel("enough")
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()

    assert not _is_running(int((tmp_path / "pid").read_text()))


def _is_running(pid: int) -> bool:
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return bool(state) and not state.startswith("Z")
