"""The tasks on other frameworks, with a `kill -9` of their process before, in and after the call.

As in `benchmarks.effects.kills`, all jobs of a row are in their call when their process is killed.
Another process takes over as the framework's documentation says: on Temporal it is another worker;
DBOS continues what is pending when it is launched; a thread of LangGraph is invoked again without
an input, since nothing else continues it. Services, ledgers and kills are in this process, and
models, tools and frameworks in those of `benchmarks.peers.matrix.process`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError

from benchmarks.effects import kills
from benchmarks.effects.behaviours import Behaviour
from benchmarks.effects.grading import Graded
from benchmarks.effects.peers.jobs import NO_END, Job, Setting, port_of
from benchmarks.effects.peers.rows import ON_TEMPORAL, ROWS, behaviours_of, ends
from benchmarks.effects.peers.temporal import ANSWER
from benchmarks.effects.rows import by_behaviour
from benchmarks.effects.tools import GATE, note_of
from benchmarks.peers.matrix.systems import Crew, System
from tests.support.docs.measured import AFTER_KILLS, NOT_LANDED

DATABASE = "jobs.db"
READY_S, LIMIT_S, LOOK_S, QUIET_S = 300.0, 180.0, 0.1, 3.0
"""Seconds in which all jobs come into their call, and in which they end when another process has
taken over: a lost attempt of an activity is noticed after 60 s, so two minutes are left for more.
"""


@dataclass(frozen=True)
class Killed:
    """What became of a job, and whether there is evidence that the kill came at its moment."""

    graded: Graded
    has_landed: bool


class Runner(Protocol):
    """Starts jobs by their names, and has what became of them."""

    async def begin(self, names: Sequence[str]) -> None:
        """Start them."""

    def has_saved(self) -> bool:
        """Whether all that was done so far is on the disk."""

    async def go_on(self) -> None:
        """Continue those that have not ended, in the process that has taken over."""

    def claims(self) -> dict[str, str]:
        """What those that have ended say, or the type of their error."""

    async def give_up(self) -> None:
        """Stop the others."""


@dataclass
class Turns:
    """Jobs in the processes of a library, which write what became of them."""

    crew: Crew
    names: Sequence[str] = ()

    async def begin(self, names: Sequence[str]) -> None:
        """Start them."""
        self.names = names
        for name in names:
            await self.crew.working[-1].say(f"run {name} {name}")

    def has_saved(self) -> bool:
        """Whether nothing has been written for some seconds: LangGraph writes in the background."""
        written = [file.stat().st_mtime for file in self.crew.folder.glob(f"{DATABASE}*")]
        return time.time() - max(written, default=math.inf) > QUIET_S

    async def go_on(self) -> None:
        """Have the library continue each that has not ended."""
        for name in set(self.names) - set(self.claims()):
            await self.crew.again(name)

    def claims(self) -> dict[str, str]:
        """What those that have ended say, or the type of their error."""
        lines = [line for told in self.crew.working for line in told.of("ended")]
        ended = {line[1]: json.loads(" ".join(line[2:])) for line in lines}
        return {name: _claim(**end) for name, end in ended.items()}

    async def give_up(self) -> None:
        """Do nothing: they end with their process."""


def _claim(outcome: str, text: str) -> str:
    return text if outcome == "completed" else text.partition(":")[0]


@dataclass
class Workflows:
    """Jobs on Temporal."""

    client: Client
    queue: str
    running: dict[str, asyncio.Task[str]] = field(default_factory=dict)

    async def begin(self, names: Sequence[str]) -> None:
        """Start them."""
        for name in names:
            handle = await self.client.start_workflow(ANSWER, name, id=name, task_queue=self.queue)
            self.running[name] = asyncio.create_task(_ended(handle.result()))

    def has_saved(self) -> bool:
        """Whether the server has recorded it: it has, before it hands out a call."""
        return True

    async def go_on(self) -> None:
        """Do nothing: the worker that has taken over continues them."""

    def claims(self) -> dict[str, str]:
        """What those that have ended say, or the type of their error."""
        return {name: task.result() for name, task in self.running.items() if task.done()}

    async def give_up(self) -> None:
        """Terminate the others."""
        for name in set(self.running) - set(self.claims()):
            self.running[name].cancel()
            with contextlib.suppress(RPCError):  # it has ended after all
                await self.client.get_workflow_handle(name).terminate()


async def _ended(result: Awaitable[object]) -> str:
    try:
        return str(await result)
    except WorkflowFailureError as error:
        return type(error).__name__


async def run(row: str, moment: str, address: str) -> list[Killed]:
    """Run all tasks of a row, and kill their process once.

    Args:
        row: The row.
        moment: A key of `MOMENTS`.
        address: The address of a Temporal server.
    """
    _, setting = ROWS[row]
    services = kills.opened(moment, behaviours_of(row), honours_keys=setting.sends_key)
    async with services as jobs, _opened(row, moment, address, jobs.folder) as (crew, runner):
        named = {_name(setting, moment, job): job for job in jobs.jobs}
        await runner.begin([*named])
        landed = await _struck(crew, runner, jobs, named)
        await crew.take_over()
        await runner.go_on()
        await _until(lambda: len(runner.claims()) == len(named), LIMIT_S)
        claims = runner.claims()
        await runner.give_up()
        return [
            Killed(job.graded(claims.get(name, NO_END)), name in landed)
            for name, job in named.items()
        ]


def _name(setting: Setting, moment: str, job: kills.Job) -> str:
    port = port_of(job.service)
    return Job(setting, job.behaviour, job.case.template, port, moment).name


async def _struck(
    crew: Crew, runner: Runner, jobs: kills.Round, named: Mapping[str, kills.Job]
) -> set[str]:
    """Kill the process when all jobs are in their call; return those that were when it was gone."""
    pid = crew.working[-1].process.pid
    await _until(lambda: all(is_in_call(jobs, *one, pid) for one in named.items()), READY_S)
    await _until(runner.has_saved, READY_S)
    await crew.kill()
    in_call = {name for name, job in named.items() if is_in_call(jobs, name, job, pid)}
    return in_call - set(runner.claims())


@contextlib.asynccontextmanager
async def _opened(
    row: str, moment: str, address: str, notes: Path
) -> AsyncIterator[tuple[Crew, Runner]]:
    """A process of a row, for the duration of the block; its calls note that they can be killed."""
    module, setting = ROWS[row]
    framework = row.partition(",")[0]
    system = System(f"{framework} {moment}", setting.slug, module)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        is_on_temporal = framework in ON_TEMPORAL
        given = address if is_on_temporal else f"sqlite:///{folder / DATABASE}"
        environment = {GATE: str(notes), "LANGSMITH_TRACING": "false", "OPENAI_API_KEY": "none"}
        crew = Crew(system, given, environment, stack, folder)
        await crew.start()
        if is_on_temporal:
            yield crew, Workflows(await Client.connect(address), system.slug)
        else:
            yield crew, Turns(crew)


def is_in_call(jobs: kills.Round, name: str, job: kills.Job, pid: int) -> bool:
    """Whether a job is in its first call, at the moment of the kill, in this process.

    By the ledger of the service, and by the note of the call. In the call, the service has not
    answered: it holds the connection for longer than anything waits here.
    """
    has_sent = jobs.moment != "before"
    wanted = len(job.case.template.records) if has_sent else 0
    is_there = job.service.writes == has_sent and len(job.service.effects) == wanted
    if jobs.moment == "in":
        return is_there
    note = note_of(jobs.folder, name)
    return is_there and note.exists() and note.read_text(encoding="utf-8") == str(pid)


async def _until(is_so: Callable[[], bool], limit_s: float) -> None:
    """Wait until something is so, or the time is over."""
    until = time.monotonic() + limit_s
    while not is_so() and time.monotonic() < until:  # noqa: ASYNC110 - other processes
        await asyncio.sleep(LOOK_S)


def figures(killed: Sequence[Killed], behaviours: Sequence[Behaviour]) -> dict[str, list[int]]:
    """What is counted for each behaviour; a job whose kill did not land counts apart."""
    landed = [one.graded for one in killed if one.has_landed]
    apart = [one.graded.behaviour for one in killed if not one.has_landed]
    counts = by_behaviour(landed, behaviours)
    return {
        **{measure: counts[measure] for measure in AFTER_KILLS},
        **ends(landed, behaviours),
        NOT_LANDED: [apart.count(behaviour) for behaviour in behaviours],
    }
