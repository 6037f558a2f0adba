"""The tasks, with a `kill -9` of the worker process before, in and after the call.

All turns of a configuration are in their call when the process is killed: `before` its request is
sent, `in` the call, when the service has made the effect and has not answered, or `after` the
answer, when the tool has not returned yet. The supervisor starts another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.effects.behaviours import Behaviour
from benchmarks.effects.episodes import begun, ended, serving
from benchmarks.effects.grading import Graded, graded
from benchmarks.effects.templates import TEMPLATES, Case, Template
from benchmarks.effects.tools import GATE, KILL, Configuration
from perdure.clients import AgentClient
from perdure.testing import Fault, StubService
from tests.support.e2e.stories import kill_all, supervised

MOMENTS = {"before": Fault.NONE, "in": Fault.TIMEOUT_POST, "after": Fault.NONE}
"""The moments of a kill, and how the service answers the call."""
APP = "benchmarks.effects.app:make"
ROOT = Path(__file__).parents[2]
PATIENCE_S, LOOK_S = 180.0, 0.1
_HEARTBEAT = {"PERDURE_HEARTBEAT_S": "1", "PERDURE_HEARTBEAT_TOLERANCE_S": "4"}


@dataclass
class Round:
    """Turns that lose their worker at one moment.

    Attributes:
        client: Starts the turns.
        folder: Where tools note that they wait for their end.
        configuration: How the tools are declared.
        moment: A key of `MOMENTS`.
        services: Those of the turns so far.
    """

    client: AgentClient
    folder: Path
    configuration: Configuration
    moment: str
    services: list[tuple[Template, StubService]] = field(default_factory=list)

    @property
    def is_ready(self) -> bool:
        """Whether every turn so far is in its call."""
        if self.moment == "in":
            return all(len(one.effects) == len(task.records) for task, one in self.services)
        return len(list(self.folder.iterdir())) == len(self.services)

    async def episode(self, behaviour: Behaviour, template: Template) -> Graded:
        """Run a turn with a service of its own."""
        case = Case(template, MOMENTS[self.moment])
        terms = template.terms(honours_keys=self.configuration.honours_keys, hold_s=PATIENCE_S)
        async with serving(case.fault, terms) as service:
            self.services.append((template, service))
            turn = await begun(
                self.client,
                self.configuration,
                behaviour,
                template,
                service,
                **{KILL: self.moment},
            )
            claim, statements = await ended(turn, template)
            service.settle()
            return graded(case, behaviour, service.effects, statements, claim)


async def run(
    configuration: Configuration, moment: str, behaviours: Sequence[Behaviour], address: str
) -> list[Graded]:
    """Run every task with every behaviour, and kill their worker once."""
    queue = f"effects-{configuration.name}-{moment}"
    with tempfile.TemporaryDirectory() as folder:
        client = await AgentClient.connect(address, task_queue=queue)
        async with working(queue, address, Path(folder)) as worker:
            notes = Path(folder) / "notes"
            killing = Round(client, notes, configuration, moment)
            count = len(behaviours) * len(TEMPLATES)
            episodes = [killing.episode(each, task) for task in TEMPLATES for each in behaviours]
            running = asyncio.gather(*episodes)
            await until(lambda: len(killing.services) == count and killing.is_ready, running)
            for process in supervised(worker.pid):
                os.kill(process, signal.SIGKILL)
            return await running


@contextlib.asynccontextmanager
async def working(
    queue: str, address: str, folder: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker process with its supervisor for the duration of the block."""
    notes = folder / "notes"
    notes.mkdir()
    ours = {**_HEARTBEAT, GATE: str(notes), "PERDURE_TASK_QUEUE": queue}
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perdure", "worker", APP, "--address", address),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=asyncio.subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **ours, "PYTHONPATH": str(ROOT)},
        )
    try:
        yield process
    finally:
        await kill_all(process)


async def until(is_so: Callable[[], bool], running: asyncio.Future[list[Graded]]) -> None:
    """Wait until something is so; raise what the turns raise before it."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            if running.done():
                running.result()
                raise AssertionError("all turns were over before the kill")
            await asyncio.sleep(LOOK_S)
