"""Live text on the command line while a model answers, and when the worker of a streamed call is
killed.
"""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.clients import TextBegins, TextVoid
from perdure.clients.reading.live_text import Piece
from perdure.testing.stub_provider import StubProvider

from ..support.e2e.command_line import CommandLine
from ..support.e2e.stories import Tell, kill, says

WORDS = "The quick brown fox jumps over the lazy dog, as it has done every day of its life."
AGENTS = """
import os
from perdure import Agent
from perdure.activities.providers import OpenAIChat
from perdure.worker import AgentWorker

stub = OpenAIChat(base_url=os.environ["STUB"], api_key_env=None, name="stub")
app = AgentWorker(Agent(name="talker", model="stub:m"), providers={"stub": stub})
"""


@pytest.mark.slow
@pytest.mark.accepts("E2", "Y2")
async def test_words_of_a_worker_that_was_killed_are_taken_back(tell: Tell) -> None:
    """Killed while its model answers: the next attempt streams a different text, and only that
    counts.
    """
    story = await tell({**says(WORDS), "pace_s": 0.3})
    worker = await story.worker()
    turn = await story.start(live=True)
    said: list[Piece] = []

    async with asyncio.timeout(60):
        async for one in turn.text():
            said.append(one)
            if len(said) == 3:
                await kill(worker)
                await story.worker()

    report = await story.report(turn)
    again = said.index(TextBegins(1, attempt=2))
    assert said[again - 1] == TextVoid(1)
    assert "".join(one for one in said[:again] if isinstance(one, str)) in WORDS
    assert (
        "".join(one for one in said[again:] if isinstance(one, str))
        == report.output
        == f"{WORDS} #2"
    )
    assert len(said[again:]) > 2
    assert story.requests() == {1: 2}


@pytest.fixture
def perdure(perdure_server: str, tmp_path: Path) -> Iterator[CommandLine]:
    """The command line beside a worker whose model answers slowly."""
    here = CommandLine(tmp_path)
    (here.folder / "agents.py").write_text(AGENTS, encoding="utf-8")
    queue = f"test-{secrets.token_hex(6)}"
    with StubProvider([{"text": WORDS, "pace_s": 0.25}]) as stub:
        here.environment |= {
            "TEMPORAL_ADDRESS": perdure_server,
            "PERDURE_TASK_QUEUE": queue,
            "PERDURE_GRACE_S": "1",
            "STUB": stub.base_url,
        }
        with here.started("worker", "agents:app") as worker:
            worker.wait_for(queue)
            yield here


@pytest.mark.accepts("E2")
@pytest.mark.slow
def test_command_prints_what_the_model_says_while_it_speaks(perdure: CommandLine) -> None:
    """Word by word with `--stream`, next to the answer; a later `show` prints the same turn at
    once, and the answer only once.
    """
    command = [
        sys.executable,
        "-m",
        "perdure",
        "run",
        "talker",
        "Hi.",
        "--stream",
        "--id",
        f"fox-{secrets.token_hex(4)}",
    ]
    with subprocess.Popen(
        command,
        cwd=perdure.folder,
        env=perdure.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as running:
        assert running.stderr is not None
        printed, seen_at = "", 0.0
        while letter := running.stderr.read(1):
            printed += letter
            seen_at = seen_at or (time.monotonic() if "quick" in printed else 0.0)
        took = time.monotonic() - seen_at

    shown = perdure("show", command[-1], "--stream").stdout
    assert running.returncode == 0
    assert took > 1
    assert [text.count(WORDS) for text in (printed, shown)] == [1, 1]
    assert f"step-1  {WORDS}\n" in printed


@pytest.mark.slow
def test_command_prints_the_answer_once_without_it(perdure: CommandLine) -> None:
    """At the end, as without the option."""
    printed = perdure("run", "talker", "Hi.").stdout

    assert printed == f"{WORDS}\n"
