"""The standard output and standard error of a program with a client, and of a worker that cannot
start.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.e2e.command_line import CommandLine

CALLER = """
import asyncio, sys

from perdure.clients import AgentClient


async def main() -> None:
    client = await AgentClient.connect(sys.argv[1], task_queue="test-nobody-polls")
    await client.start("nobody", "x" * 900_000)
    print("started")
    sys.stdin.read()


asyncio.run(main())
"""


OWN_RUNTIME = """
import logging
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig

forwarding = LogForwardingConfig(logger=logging.getLogger("mine"))
config = LoggingConfig(filter="WARN", forwarding=forwarding)
Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=config)))
"""
CONFIGURED = (
    "import logging\nlogging.basicConfig(format='MINE %(name)s %(levelname)s %(message)s')\n"
)


@pytest.mark.accepts("O21")
@pytest.mark.parametrize(
    ("begins", "shown"),
    [
        ("", "[sdk_core::"),
        (CONFIGURED, "MINE temporalio.core WARNING "),
        (CONFIGURED + OWN_RUNTIME, "MINE mine-sdk_core::"),
    ],
    ids=["no logging", "logging", "a runtime of its own"],
)
@pytest.mark.table(1)
def test_core_logs_through_python_and_never_to_standard_output(
    perdure_server: str, begins: str, shown: str
) -> None:
    """Temporal's core warns about a payload of almost a megabyte; a default runtime that the
    program has set is kept.
    """
    command = [sys.executable, "-c", begins + CALLER, perdure_server]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        warned = process.stderr.readline()  # core forwards its records a moment later
        out, _ = process.communicate()

    assert warned.startswith(shown)
    assert "TMPRL1103" in warned
    assert "\x1b" not in warned
    assert out == "started\n"


@pytest.mark.accepts("O20", "O25")
@pytest.mark.slow
def test_module_that_does_not_import_is_shown_with_its_line_and_traceback(
    perdure: CommandLine, perdure_server: str, tmp_path: Path
) -> None:
    """The check shows it as a row of its table, with exit code 1; the worker as its error and a
    record in the chosen format.
    """
    (tmp_path / "broken_app.py").write_text(
        "nothing = {}\napp = nothing['key']\n", encoding="utf-8"
    )
    checked = perdure("worker", "broken_app:app", "--check", "--address", perdure_server)
    started = perdure(
        "worker", "broken_app:app", "--address", perdure_server, PERDURE_LOG_FORMAT="json"
    )

    said = "module 'broken_app' cannot be imported: KeyError: 'key' (broken_app.py:2)"
    first, *_, last = checked.stdout.splitlines()
    assert (checked.returncode, first, last) == (
        1,
        f"failed   module broken_app:app  {said}",
        "1 of 3 failed",
    )
    record, error = started.stderr.splitlines()
    assert (started.returncode, started.stdout, error) == (2, "", f"perdure: {said}")
    assert json.loads(record)["message"] == said
    assert "app = nothing['key']" in json.loads(record)["exception"]
