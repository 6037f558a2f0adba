"""The systems with their settings, and the processes that run their jobs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError

from benchmarks.peers.matrix.tools import CLERK, MODEL, SERVICE
from benchmarks.peers.processes import Told, telling
from perdure import errors
from perdure.clients import AgentClient
from tests.support.e2e.stories import kill_all, supervised

LOOK_S, LOADING_S = 0.01, 600.0
_HERE = "benchmarks.peers.matrix"
_SERVES = "Ctrl-C drains it"


@dataclass(frozen=True)
class System:
    """A system with its settings.

    Attributes:
        name: Its name.
        variant: `defaults`, `best`, or another word for its settings.
        module: The module with its job.
        workflow: The type of its workflow on Temporal; empty for a library.
        is_supervised: Whether `perdure worker` runs it.
        by_hand_s: Seconds after which a turn is continued by hand; None if nobody has to. DBOS has
            continued it then, and only waits for its result.
    """

    name: str
    variant: str
    module: str
    workflow: str = ""
    is_supervised: bool = False
    by_hand_s: float | None = None

    @property
    def slug(self) -> str:
        """A name for task queues, files and jobs."""
        return f"{self.name}-{self.variant}".replace(" ", "-")


SYSTEMS = (
    System("perdure", "defaults", f"{_HERE}.on_perdure", "AgentTurn", is_supervised=True),
    System("perdure", "no supervisor", f"{_HERE}.on_perdure", "AgentTurn"),
    System("pydantic-ai", "defaults", f"{_HERE}.on_pydantic_ai", "defaults"),
    System("pydantic-ai", "best", f"{_HERE}.on_pydantic_ai", "best"),
    System("openai-agents", "defaults", f"{_HERE}.on_openai_agents", "defaults"),
    System("openai-agents", "best", f"{_HERE}.on_openai_agents", "best"),
    System("langgraph", "defaults", f"{_HERE}.on_langgraph", by_hand_s=10),
    System("langgraph", "best", f"{_HERE}.on_langgraph"),
    System("dbos", "defaults", f"{_HERE}.on_dbos", by_hand_s=0),
    System("dbos", "best", f"{_HERE}.on_dbos", by_hand_s=0),
)
CONTROL = System("perdure", "careless", f"{_HERE}.on_perdure", "AgentTurn")
"""A negative control: `charge` is declared repeatable, and sends no key."""


@dataclass(frozen=True)
class Fork:
    """A process that was forked, with what `Told` needs of one."""

    pid: int
    stdout: asyncio.StreamReader
    stdin: asyncio.StreamWriter


@dataclass
class Crew:
    """The process that works, and the one that has loaded everything and forks."""

    system: System
    address: str
    environment: Mapping[str, str]
    stack: AsyncExitStack
    folder: Path
    working: list[Told] = field(default_factory=list)
    _loaded: Told | None = None

    async def start(self) -> None:
        """Start the first process."""
        system = self.system
        arguments = (system.module, system.variant, self.address, system.slug)
        self._loaded = await self.stack.enter_async_context(
            telling(f"{_HERE}.process", *arguments, **self.environment)
        )
        async with asyncio.timeout(LOADING_S):
            await self._loaded.until("loaded")
        await self.take_over()

    async def prepare(self) -> None:
        """Wait until a process works."""

    async def take_over(self) -> None:
        """Fork a process, and wait until it works."""
        assert self._loaded is not None
        path = self.folder / f"{self.system.slug}-{len(self.working)}.socket"
        connected: asyncio.Future[Told] = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pid = int((await reader.readline()).split()[1])
            told = Told(cast("Any", Fork(pid, reader, writer)))
            connected.set_result(told)
            with contextlib.suppress(ConnectionError):
                await told.read()

        server = await asyncio.start_unix_server(accept, path)
        self.stack.callback(server.close)
        async with asyncio.timeout(LOADING_S):
            await self._loaded.say(str(path))
            told = await connected
            self.stack.callback(_kill, told.process.pid)
            await told.until("ready")
        self.working.append(told)

    async def kill(self) -> str:
        """Kill the process that works; return the evidence."""
        pid = self.working[-1].process.pid
        _kill(pid)
        while _is_there(pid):  # noqa: ASYNC110 - another process
            await asyncio.sleep(LOOK_S)
        return f"process {pid} is gone"

    async def run(self, job: str, task: str) -> tuple[str, str]:
        """Run a job; return its outcome, and its answer or its error."""
        await self.working[-1].say(f"run {job} {task}")
        return await self.end(job)

    async def end(self, job: str) -> tuple[str, str]:
        """Wait for the end of a job, in whichever process."""
        while True:
            for told in self.working:
                for line in told.of("ended"):
                    if line[1] == job:
                        end = json.loads(" ".join(line[2:]))
                        return end["outcome"], end["text"]
            await asyncio.sleep(LOOK_S)

    async def again(self, job: str) -> None:
        """Continue a job by hand, as a person does."""
        await self.working[-1].say(f"again {job}")

    async def give_up(self, job: str) -> None:
        """Leave a job that does not end."""


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@dataclass
class OnTemporal(Crew):
    """The same with a Temporal server, which has the turns."""

    async def run(self, job: str, task: str) -> tuple[str, str]:
        client = await Client.connect(self.address)
        start: Any = task
        if self.system.workflow == "AgentTurn":
            start = {"agent": CLERK, "task": task}
        handle: Any = await client.start_workflow(
            self.system.workflow, start, id=job, task_queue=self.system.slug
        )
        try:
            if self.system.workflow == "AgentTurn":
                report = await AgentClient.from_temporal(client).turn(job).result()
                return str(report.outcome), str(report.output)
            return "completed", str(await handle.result())
        except (WorkflowFailureError, errors.PerdureError) as error:
            return "failed", f"{type(error).__name__}: {error}"

    async def give_up(self, job: str) -> None:
        client = await Client.connect(self.address)
        with contextlib.suppress(RPCError):  # it has ended after all
            await client.get_workflow_handle(job).terminate()


@dataclass
class Supervised(OnTemporal):
    """`perdure worker`, whose supervisor starts a killed process again."""

    _supervisor: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        log = self.folder / f"{self.system.slug}.log"
        command = ("perdure", "worker", f"{self.system.module}:make", "--address", self.address)
        with log.open("wb") as output:
            self._supervisor = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        self.stack.push_async_callback(kill_all, self._supervisor)
        while _SERVES not in log.read_text(errors="replace"):
            assert self._supervisor.returncode is None, log.read_text(errors="replace")
            await asyncio.sleep(LOOK_S)

    async def prepare(self) -> None:
        while not self._children():  # noqa: ASYNC110 - another process
            await asyncio.sleep(LOOK_S)

    async def take_over(self) -> None:
        """The supervisor does it."""

    async def kill(self) -> str:
        pids = self._children()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        while set(pids) & set(self._children()):  # noqa: ASYNC110 - another process
            await asyncio.sleep(LOOK_S)
        return f"processes {pids} are gone" if pids else ""

    def _children(self) -> list[int]:
        assert self._supervisor is not None
        return supervised(self._supervisor.pid)


@contextlib.asynccontextmanager
async def crew(
    system: System, address: str, folder: Path, witness: Mapping[str, str]
) -> AsyncIterator[Crew]:
    """A crew that works, for the duration of the block."""
    environment = {
        MODEL: witness["model"],
        SERVICE: witness["service"],
        "PERDURE_TASK_QUEUE": system.slug,
        "LANGSMITH_TRACING": "false",
        "OPENAI_API_KEY": "none",
        "NO_PROXY": "*",
    }
    async with AsyncExitStack() as stack:
        found: Crew
        if system.is_supervised:
            found = Supervised(system, address, environment, stack, folder)
        elif system.workflow:
            found = OnTemporal(system, address, environment, stack, folder)
        else:
            url = f"sqlite:///{folder / system.slug}.db"
            found = Crew(system, url, environment, stack, folder)
        await found.start()
        yield found
