"""The agent of the crash tests, with tools that start jobs whose results come later.

Its worker is a separate process: `python -m perdure worker tests.support.e2e.jobs_app:make`. Each
start of a job is in the journal, and its token in a file beside that.
"""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

from perdure import ToolContext, tool
from perdure.worker import AgentWorker

from . import app


def file_of(kind: str, what: str) -> Path:
    """The file of the service about a job: its `token`, or its `result`."""
    return Path(f"{os.environ['E2E_JOURNAL']}.{what}.{kind}")


def result_of(handle: str) -> str | None:
    """Ask the service for the result of a job."""
    result = file_of("result", handle)
    return result.read_text() if result.exists() else None


def cancel(handle: str) -> None:
    """Cancel a job."""
    file_of("cancelled", handle).touch()


async def started(ctx: ToolContext[None], what: str, first_s: float) -> str:
    """Start a job, whose service is told the token; the first attempt takes `first_s` seconds."""
    app.note(ctx, what)
    with file_of("tokens", what).open("a") as tokens:
        tokens.write(f"{ctx.call_token}\n")
    await asyncio.sleep(first_s if ctx.attempt == 1 else 0)
    return what


LONG = timedelta(seconds=90)


@tool(idempotent=True, later=True, timeout=LONG, cancel=cancel)
async def launch(ctx: ToolContext[None], what: str, first_s: float = 0) -> str:
    """Start a job that sends its result."""
    return await started(ctx, what, first_s)


@tool(later=True, timeout=LONG, poll=result_of, poll_every=timedelta(seconds=0.5))
async def follow(ctx: ToolContext[None], what: str, first_s: float = 0) -> str:
    """Start a job that is asked for its result."""
    return await started(ctx, what, first_s)


def make() -> AgentWorker:
    """The worker that the environment describes, and an agent with these tools."""
    return app.make((*app.TOOLS, launch, follow), parallel_tools=True)
