"""The agent of the crash tests with local tools.

Its worker is a separate process: `python -m perdure worker tests.support.e2e.local_app:make`.
"""

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path

from perdure import ToolContext, tool
from perdure.worker import AgentWorker

from . import app

LOCATION = f"{__name__}:make"


def runs_of(what: str) -> int:
    """How often a call was begun, according to the journal."""
    journal = Path(os.environ["E2E_JOURNAL"])
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    return sum(json.loads(line)["what"] == what for line in lines)


@tool(read_only=True, local=True, timeout=timedelta(seconds=90))
async def fetch(ctx: ToolContext[None], what: str, first_s: float = 0, slow_runs: int = 1) -> str:
    """Takes `first_s` seconds in its first runs."""
    is_slow = runs_of(what) < slow_runs
    app.note(ctx, what)
    await asyncio.sleep(first_s if is_slow else 0)
    return f"{what} by attempt {ctx.attempt}"


@tool(read_only=True, local=True)
async def die(ctx: ToolContext[None], what: str) -> str:
    """Takes its worker along, as a crash in a C library does."""
    app.note(ctx, what)
    os._exit(7)


def make() -> AgentWorker:
    """The worker that the environment describes."""
    return app.make(tools=(fetch, app.charge, die))
