"""The tasks, with a `kill -9` of the worker process before, in and after the call.

All turns of a configuration are in their call when the process is killed: `before` its request is
sent, `in` the call, when the service has made the effect and has not answered, or `after` the
answer, when the tool has not returned yet. The supervisor starts another process.
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
        configuration: How the tools are declared.
        moment: A key of `MOMENTS`.
        services: Those of the turns so far.
    """

    client: AgentClient
    configuration: Configuration
    moment: str
    services: list[tuple[Template, StubService]] = field(default_factory=list)

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
            killing = Round(client, configuration, moment)
            count = len(behaviours) * len(TEMPLATES)
            episodes = [killing.episode(each, task) for task in TEMPLATES for each in behaviours]
            running = asyncio.gather(*episodes)
            await until(
                lambda: len(killing.services) == count and is_ready(moment, notes, killing.services)
            )
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


async def run_loops(
    configuration: Configuration, moment: str, behaviours: Sequence[Behaviour]
) -> list[Graded]:
    """The same with loops without Perdure, which begin again in another process."""
    cases = [(each, Case(task, MOMENTS[moment])) for task in TEMPLATES for each in behaviours]
    async with contextlib.AsyncExitStack() as stack:
        services = [
            await stack.enter_async_context(
                serving(
                    case.fault,
                    case.template.terms(honours_keys=configuration.honours_keys, hold_s=PATIENCE_S),
                )
            )
            for _, case in cases
        ]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        notes, file = folder / "notes", folder / "loops"
        notes.mkdir()
        loops = [
            {"behaviour": each, "tool": case.template.tool, "url": service.url}
            for (each, case), service in zip(cases, services, strict=True)
        ]
        given = {"configuration": configuration.name, "kill": moment, "loops": loops}
        file.write_text(json.dumps(given), encoding="utf-8")
        killed = await looping(file, notes)
        served = [(case.template, one) for (_, case), one in zip(cases, services, strict=True)]
        await until(lambda: is_ready(moment, notes, served))
        killed.kill()
        await killed.communicate()
        said, _ = await (await looping(file, notes)).communicate()
        return [
            graded(case, each, service.effects, [], claim)
            for (each, case), service, claim in zip(cases, services, json.loads(said), strict=True)
        ]


async def looping(file: Path, notes: Path) -> asyncio.subprocess.Process:
    """A process that runs the loops of a file."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.effects.handwritten", str(file)),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, GATE: str(notes)},
    )


def is_ready(moment: str, notes: Path, services: Sequence[tuple[Template, StubService]]) -> bool:
    """Whether every turn or loop is in its call, at the moment of the kill."""
    if moment == "in":
        return all(len(one.effects) == len(task.records) for task, one in services)
    return len(list(notes.iterdir())) == len(services)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - other processes bring it about
            await asyncio.sleep(LOOK_S)
