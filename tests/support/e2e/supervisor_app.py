"""Workers for the tests of the supervisor."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from perdure import AgentReport, OutputGuardrail, ToolContext, tool
from perdure.worker import AgentWorker

from . import app


@tool
def leave_a_process(ctx: ToolContext[Any], what: str) -> str:
    """Start a program that runs longer than its worker, and wait for it."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as program:
        Path(what).write_text(str(program.pid))
    return "done"


def make_parallel() -> AgentWorker:
    """An agent whose tools run at the same time."""
    return app.make(parallel_tools=True)


def make_leaving() -> AgentWorker:
    """An agent with a tool that starts a program."""
    return app.make((*app.TOOLS, leave_a_process))


def _is_harmless(report: AgentReport[Any]) -> bool:
    """Refuse a password. The first check takes long."""
    journal = Path(os.environ["E2E_JOURNAL"])
    is_first = not journal.exists()
    line = {"what": "check", "attempt": 1 if is_first else 2, "key": "", "pid": os.getpid()}
    with journal.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    time.sleep(60 if is_first else 0)
    return "PASSWORD" not in str(report.output)


def make_guarded() -> AgentWorker:
    """An agent whose answers are checked."""
    return app.make(middleware=[OutputGuardrail(_is_harmless)])


def make_dying() -> AgentWorker:
    """A worker that dies at its start."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")
