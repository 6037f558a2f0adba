"""Workers for the tests of the supervisor."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from perdure import ToolContext, tool
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


def make_dying() -> AgentWorker:
    """A worker that dies at its start."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")
