"""What processes write to standard output and standard error: a program with a client, and a worker that cannot start."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .command_line import CommandLine

CALLER = """
import asyncio, sys

from perdure.clients import AgentClient


async def main() -> None:
    client = await AgentClient.connect(sys.argv[1], task_queue="test-nobody-polls")
    await client.start("nobody", "x" * 900_000)
    print("started")


asyncio.run(main())
"""


@pytest.mark.accepts("O21")
@pytest.mark.parametrize("is_handled", [True, False], ids=["logging configured", "logging not configured"])
def test_core_logs_through_python_and_never_to_standard_output(perdure_server: str, is_handled: bool) -> None:
    """A payload of almost a megabyte makes Temporal's core warn."""
    own = "import logging; logging.basicConfig(format='MINE %(name)s %(levelname)s %(message)s')\n" if is_handled else ""
    done = subprocess.run([sys.executable, "-c", own + CALLER, perdure_server], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "started\n"
    assert ("MINE temporalio.core WARNING" if is_handled else "[sdk_core::") in done.stderr
    assert "TMPRL1103" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.accepts("O20", "O25")
def test_module_that_does_not_import_is_shown_with_its_line_and_traceback(perdure: CommandLine, perdure_server: str, tmp_path: Path) -> None:
    """By the check as a row of its table and exit code 1; by a worker as its error and a record in the chosen format."""
    (tmp_path / "broken_app.py").write_text("nothing = {}\napp = nothing['key']\n", encoding="utf-8")
    checked = perdure("worker", "broken_app:app", "--check", "--address", perdure_server)
    started = perdure("worker", "broken_app:app", "--address", perdure_server, PERDURE_LOG_FORMAT="json")

    said = "module 'broken_app' cannot be imported: KeyError: 'key' (broken_app.py:2)"
    first, *_, last = checked.stdout.splitlines()
    assert (checked.returncode, first, last) == (1, f"failed   module broken_app:app  {said}", "1 of 3 failed")
    record, error = started.stderr.splitlines()
    assert (started.returncode, started.stdout, error) == (2, "", f"perdure: {said}")
    assert json.loads(record)["message"] == said
    assert "app = nothing['key']" in json.loads(record)["exception"]
