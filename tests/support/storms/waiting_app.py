"""An agent that waits for times and events, asks people, and starts jobs whose results come later:
`python -m perdure worker tests.support.storms.waiting_app:make`.

The service of the jobs is a folder: a line in `jobs.jsonl` for each job that was asked for, and a
file in `results` for each one that is done and has to be looked up.
"""

import asyncio
import json
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from perdure import ToolContext, tool
from perdure.toolboxes import asking, waiting
from perdure.worker import AgentWorker

from ..e2e.app import make as make_clerk

STARTS_S = 0.4
"""How long the service takes to answer after it has begun a job."""
POLL_S = 0.3


@dataclass(frozen=True, slots=True)
class Asked:
    """A line of the service: it was asked to begin a job."""

    what: str
    attempt: int
    key: str
    token: str


class Jobs:
    """The service of the jobs."""

    def __init__(self, folder: Path) -> None:
        self._lines = folder / "jobs.jsonl"
        self._results = folder / "results"

    def begin(self, asked: Asked) -> None:
        """Record a request durably."""
        fields = {name: getattr(asked, name) for name in Asked.__slots__}
        with self._lines.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(fields) + "\n")
            lines.flush()
            os.fsync(lines.fileno())

    def asked(self) -> list[Asked]:
        """All requests, in order, without an unfinished last line."""
        if not self._lines.exists():
            return []
        lines = self._lines.read_text(encoding="utf-8").splitlines(keepends=True)
        return [Asked(**json.loads(line)) for line in lines if line.endswith("\n")]

    def done(self, what: str, result: str) -> None:
        """End a job that is looked up."""
        self._results.mkdir(exist_ok=True)
        written = self._results / f"{what}.part"
        written.write_text(result, encoding="utf-8")
        written.rename(self._results / what)

    def result(self, what: str) -> str | None:
        """The result of a job; None if there is none yet."""
        try:
            return (self._results / what).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None


def here() -> Jobs:
    """The service of this process."""
    return Jobs(Path(os.environ["E2E_JOURNAL"]).parent)


async def begin(ctx: ToolContext[None], what: str) -> str:
    """Have the service begin a job, and return its handle."""
    here().begin(Asked(what, ctx.attempt, ctx.idempotency_key, ctx.call_token))
    await asyncio.sleep(STARTS_S)
    return f"job {what}"


def look_up(handle: str) -> str | None:
    """Ask the service for the result of a job."""
    return here().result(handle.removeprefix("job "))


@tool(later=True, idempotent=True)
async def deploy(ctx: ToolContext[None], what: str) -> str:
    """Begins a job, whose result is sent. The service knows it by its key."""
    return await begin(ctx, what)


@tool(later=True)
async def order(ctx: ToolContext[None], what: str) -> str:
    """Begins a job, whose result is sent. May not run again."""
    return await begin(ctx, what)


@tool(
    later=True,
    idempotent=True,
    poll=look_up,
    poll_every=timedelta(seconds=POLL_S),
)
async def build(ctx: ToolContext[None], what: str) -> str:
    """Begins a job, whose result is looked up."""
    return await begin(ctx, what)


def make() -> AgentWorker:
    """The worker that the environment describes."""
    return make_clerk(
        [deploy, order, build],
        toolboxes=[waiting(), asking()],
        parallel_tools=True,
        max_iterations=30,
    )


def make_release() -> AgentWorker:
    """The worker of a release: a later one declares that no call waits for more than an hour."""
    longest = timedelta(days=40) if os.environ["E2E_RELEASE"] == "first" else timedelta(hours=1)
    return make_clerk([], toolboxes=[waiting(longest=longest)])
