"""The tasks, with a `kill -9` of the process before, in and after the call.

All turns of a row are in their call when the process is killed: `before` its request is sent, `in`
the call, when the service has made the effect and has not answered, or `after` the answer, when the
tool has not returned yet. The supervisor of the worker starts another process. Loops without
Perdure begin again in another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.effects.behaviours import Behaviour
from benchmarks.effects.episodes import begun, ended, serving
from benchmarks.effects.grading import Graded, Statement, graded
from benchmarks.effects.templates import TEMPLATES, Case
from benchmarks.effects.tools import GATE, KILL, Configuration
from perdure.clients import AgentClient, Turn
from perdure.testing import Fault, StubService
from tests.support.e2e.stories import kill_all, supervised

MOMENTS = {"before": Fault.NONE, "in": Fault.TIMEOUT_POST, "after": Fault.NONE}
"""The moments of a kill, and how the service answers the call."""
APP = "benchmarks.effects.app:make"
LOOPS = "benchmarks.effects.handwritten"
ROOT = Path(__file__).parents[2]
PATIENCE_S, LOOK_S = 600.0, 0.1
_HEARTBEAT = {"PERDURE_HEARTBEAT_S": "1", "PERDURE_HEARTBEAT_TOLERANCE_S": "4"}


@dataclass(frozen=True)
class Job:
    """A task for a model with a behaviour, and its service."""

    behaviour: Behaviour
    case: Case
    service: StubService

    def graded(self, claim: str, statements: Sequence[Statement] = ()) -> Graded:
        """What became of it."""
        self.service.settle()
        return graded(self.case, self.behaviour, self.service.effects, statements, claim)


@dataclass(frozen=True)
class Round:
    """Jobs that lose their process at one moment.

    Attributes:
        moment: A key of `MOMENTS`.
        folder: Where each call notes that it waits for its end.
        jobs: The jobs.
    """

    moment: str
    folder: Path
    jobs: Sequence[Job]

    @property
    def is_ready(self) -> bool:
        """Whether every job is in its call, at the moment of the kill."""
        if self.moment == "in":
            return all(
                len(job.service.effects) == len(job.case.template.records) for job in self.jobs
            )
        return len(list(self.folder.iterdir())) == len(self.jobs)


@contextlib.asynccontextmanager
async def opened(
    moment: str, behaviours: Sequence[Behaviour] = (*Behaviour,), *, honours_keys: bool
) -> AsyncIterator[Round]:
    """Every task with every behaviour, each with a service for the duration of the block."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        jobs = []
        for template in TEMPLATES:
            terms = template.terms(honours_keys=honours_keys, hold_s=PATIENCE_S)
            case = Case(template, MOMENTS[moment])
            for behaviour in behaviours:
                service = await stack.enter_async_context(serving(case.fault, terms))
                jobs.append(Job(behaviour, case, service))
        yield Round(moment, folder, jobs)


async def run(configuration: Configuration, moment: str, address: str) -> list[Graded]:
    """Run turns on Perdure, and kill their worker once."""
    queue = f"effects-{configuration.name}-{moment}"
    client = await AgentClient.connect(address, task_queue=queue)
    services = opened(moment, honours_keys=configuration.honours_keys)
    async with services as jobs, working(queue, address, jobs) as worker:
        turns = [await _begun(client, configuration, moment, job) for job in jobs.jobs]
        await until(lambda: jobs.is_ready)
        for process in supervised(worker.pid):
            os.kill(process, signal.SIGKILL)
        return [await _ended(job, turn) for job, turn in zip(jobs.jobs, turns, strict=True)]


async def _begun(client: AgentClient, configuration: Configuration, moment: str, job: Job) -> Turn:
    label = {KILL: moment}
    return await begun(
        client, configuration, job.behaviour, job.case.template, job.service, **label
    )


async def _ended(job: Job, turn: Turn) -> Graded:
    claim, statements = await ended(turn, job.case.template)
    return job.graded(claim, statements)


@contextlib.asynccontextmanager
async def working(
    queue: str, address: str, jobs: Round
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker process with its supervisor for the duration of the block."""
    command = ("perdure", "worker", APP, "--address", address)
    worker = await started(jobs, *command, PERDURE_TASK_QUEUE=queue, **_HEARTBEAT)
    try:
        yield worker
    finally:
        await kill_all(worker)


async def run_loops(configuration: Configuration, moment: str) -> list[Graded]:
    """Run loops without Perdure, kill their process once, and begin again in another one."""
    async with opened(moment, honours_keys=configuration.honours_keys) as jobs:
        loops = [
            {"behaviour": job.behaviour, "tool": job.case.template.tool, "url": job.service.url}
            for job in jobs.jobs
        ]
        given = json.dumps({"configuration": configuration.name, "kill": moment, "loops": loops})
        first = await started(jobs, LOOPS, given)
        await until(lambda: jobs.is_ready)
        first.kill()
        await first.communicate()
        second = await started(jobs, LOOPS, given)
        claims, _ = await second.communicate()
        return [job.graded(claim) for job, claim in zip(jobs.jobs, json.loads(claims), strict=True)]


async def started(
    jobs: Round, module: str, *arguments: str, **environment: str
) -> asyncio.subprocess.Process:
    """A process whose calls note that they can be killed."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, **environment, GATE: str(jobs.folder), "PYTHONPATH": str(ROOT)},
    )


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - other processes bring it about
            await asyncio.sleep(LOOK_S)
