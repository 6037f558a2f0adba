"""`perdure dev --reload`: a worker restarts when its code changes, and turns continue with the new
code.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.clients import AgentClient, Turn
from perdure.worker.dev.lock import only_worker

from ..support.e2e.command_line import CommandLine, Started, is_alive, wait_until

DESK = '''
from perdure import Agent, ToolMessage, tool
from perdure.testing import FunctionModel, call, calls, says
from perdure.worker import AgentWorker
from words import WORD

@tool(requires_approval=True)
def word() -> str:
    """Say the word."""
    return WORD

def practice(request):
    results = [
        one.content
        for message in request.messages
        if isinstance(message, ToolMessage)
        for one in message.results
    ]
    return calls(call("word")) if len(results) < 3 else says(" ".join(results))

desk = Agent(name="desk", model="practice:any", tools=[word])
app = AgentWorker(desk, providers={"practice": FunctionModel(practice)})
'''
SERVES = "worker    desk on task queue"


def workers(dev: Started, count: int) -> None:
    """Wait until this number of worker processes was started."""
    wait_until(lambda: dev.stderr.count(SERVES) >= count, f"{count} workers in {dev.stderr!r}")


async def approve_next(turn: Turn[str]) -> None:
    """Approve the waiting call, and wait until the next one waits or the turn has ended."""
    await turn.wait(60)
    [pending] = await turn.pending_approvals()
    await turn.approve(pending)
    await turn.wait(60)


@pytest.mark.slow
@pytest.mark.accepts("E27")
async def test_turn_goes_on_with_the_code_that_was_edited(tmp_path: Path) -> None:
    """Each call runs the saved code. No worker runs during a syntax error. Ctrl-C ends
    everything.
    """
    (tmp_path / "desk.py").write_text(DESK, encoding="utf-8")
    words = tmp_path / "words.py"
    words.write_text("WORD = 'one'\n", encoding="utf-8")
    perdure = CommandLine(tmp_path)
    with perdure.started("dev", "desk:app", "--reload", "--port", "0", "--no-ui") as dev:
        address = dev.wait_for(r"Temporal  (\S+)")[1]
        workers(dev, 1)
        client = await AgentClient.connect(address)
        turn = await client.start("desk", "go", output=str)
        await approve_next(turn)

        words.write_text("WORD = 'two'\n", encoding="utf-8")
        workers(dev, 2)
        await approve_next(turn)

        words.write_text("WORD = 'three'\nWORD = = 4\n", encoding="utf-8")
        dev.wait_for(
            r"\nperdure: .*SyntaxError: invalid syntax \(words\.py, line 2\).*\nno worker runs"
            r" until this is mended"
        )
        words.write_text("WORD = 'three'\n", encoding="utf-8")
        workers(dev, 3)
        await approve_next(turn)
        report = await turn.result()
        note = json.loads((tmp_path / ".perdure/server.json").read_text(encoding="utf-8"))
        code = dev.interrupt()

    assert report.output == "one two three"
    assert code == 0
    assert not is_alive(note["pid"])
    with only_worker(tmp_path / ".perdure", "perdure", "another"):
        pass  # the last worker process has ended too, because it held this open
