"""Commands that start their own server and worker, when they fail or are interrupted: no process is
left.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from ..support.e2e.command_line import CommandLine, is_alive, wait_until

pytestmark = pytest.mark.slow

HANGS = """
import asyncio
import sys
from contextlib import asynccontextmanager
from perdure import Agent
from perdure.worker import AgentWorker

@asynccontextmanager
async def lifespan():
    print("the lifespan is open", file=sys.stderr, flush=True)
    yield None
    await asyncio.sleep(1000)

app = AgentWorker(Agent(name="talker", model="offline:librarian"), lifespan=lifespan)
"""


@pytest.fixture
def perdure(tmp_path: Path) -> CommandLine:
    """The command line in a folder with a document."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/notice.md").write_text(
        "# Notice\n\nThe notice period is 30 days.\n", encoding="utf-8"
    )
    return CommandLine(tmp_path)


def server_of(perdure: CommandLine) -> int | None:
    """The process of the embedded server, once its state file is there."""
    note = perdure.folder / ".perdure/server.json"
    return int(json.loads(note.read_text(encoding="utf-8"))["pid"]) if note.exists() else None


@pytest.mark.parametrize("command", ["ask", "demo"])
def test_worker_that_cannot_start_ends_the_command_with_its_reason(
    perdure: CommandLine, command: str
) -> None:
    """A model of an unknown provider: the worker's own message and exit code 2, instead of an
    endless wait.
    """
    done = perdure(command, "How long is the notice period?", "--model", "nope:x")

    assert done.returncode == 2
    assert "model 'nope:x': no provider named 'nope'" in done.stderr


def test_temporal_environment_of_another_server_does_not_matter_to_an_embedded_one(
    perdure: CommandLine,
) -> None:
    """Namespace, TLS and address in the user's environment are for another server."""
    environment = {
        "TEMPORAL_NAMESPACE": "prod",
        "TEMPORAL_TLS": "true",
        "TEMPORAL_ADDRESS": "127.0.0.1:9",
    }

    done = perdure("ask", "How long is the notice period?", **environment)

    assert done.returncode == 0, done.stderr
    assert "Source: notice.md" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_ask_leaves_no_process(perdure: CommandLine, number: signal.Signals) -> None:
    """Ctrl-C, SIGTERM or SIGKILL: the server that it started exits too, and frees its folder."""
    with perdure.started("demo", "How long is the notice period?") as command:
        pid = wait_until(lambda: server_of(perdure), "the server is up")
        assert pid is not None
        command.process.send_signal(number)
        command.process.wait(timeout=60)

    wait_until(lambda: not is_alive(pid), "the server ends")
    assert perdure("ask", "How long is the notice period?").returncode == 0


@pytest.mark.accepts("Y4")
def test_lifespan_that_hangs_on_closing_is_cut_short_by_a_second_signal(
    perdure: CommandLine, perdure_server: str
) -> None:
    """The first signal drains, the second one ends the worker within seconds."""
    (perdure.folder / "hangs.py").write_text(HANGS, encoding="utf-8")
    with perdure.started(
        "worker",
        "hangs:app",
        "--address",
        perdure_server,
        PERDURE_TASK_QUEUE=f"hangs-{os.getpid()}",
    ) as worker:
        worker.wait_for("the lifespan is open")  # signals are handled before that
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for("draining")
        worker.process.send_signal(signal.SIGTERM)

        assert worker.process.wait(timeout=60) == 1
