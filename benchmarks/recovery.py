"""How soon another process goes on after a `kill -9`, with and without a supervisor:
`make -C benchmarks recovery`.

A supervisor with two worker processes runs turns. The process that has the call in flight is
killed, and the time until the next call of the turn is taken. `both` is a model call and a tool of
two turns in one process; the later of the two counts. A workflow task is in progress in a process
that is stopped (SIGSTOP) before the task arrives. A lost machine is a supervisor that is killed
with its processes, beside another supervisor.

The number of kills is the argument, 20 by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType, PendingWorkflowTaskState

from benchmarks.processes import kill_all, supervised_workers, times_served
from benchmarks.with_perdure_killed import CALLS
from perdure.clients import AgentClient, Turn
from perdure.worker.dev.server import DevServer

KILLS = 20
_DELAY = timedelta(seconds=2)
_LOOK_S = 0.005
_PATIENCE_S = 120.0
_COMPLETED = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
_STARTED = PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED

Call = dict[str, Any]


class Site:
    """A task queue, with workers and the calls that they have made."""

    def __init__(self, address: str, queue: str, client: AgentClient, folder: Path) -> None:
        self.client = client
        self._address = address
        self._queue = queue
        self._file = folder / "calls"
        self._log = folder / "log"
        self._names = (f"t{number}" for number in itertools.count())

    @contextlib.asynccontextmanager
    async def workers(self, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run `perdure worker` for the duration of the block."""
        ours = {CALLS: str(self._file), "PERDURE_TASK_QUEUE": self._queue}
        async with supervised_workers(
            "benchmarks.with_perdure_killed:make", self._address, self._log, **ours, **environment
        ) as process:
            yield process

    async def start(self, slow: str, **options: Any) -> tuple[str, Turn]:
        """Start a turn, and return its name too."""
        name = next(self._names)
        return name, await self.client.start("job", f"{name} {slow}", **options)

    def calls(self, turn: str) -> Iterator[Call]:
        """The calls of a turn so far."""
        lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []
        for line in lines:
            with contextlib.suppress(ValueError):  # the last one may be incomplete
                call = json.loads(line)
                if call["turn"] == turn:
                    yield call

    async def call(self, turn: str, what: str = "", after: float = 0.0) -> Call:
        """Wait for a call of a turn."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                for call in self.calls(turn):
                    if call["what"].startswith(what) and call["at"] > after:
                        return call
                await asyncio.sleep(_LOOK_S)

    def release(self, turn: str) -> None:
        """End the slow tool of a turn."""
        Path(f"{self._file}.{turn}").touch()

    async def served(self, processes: int) -> None:
        """Wait until this number of processes has served."""
        async with asyncio.timeout(_PATIENCE_S):
            while times_served(self._log) < processes:  # noqa: ASYNC110 - other processes write it
                await asyncio.sleep(_LOOK_S)


def killed(pid: int) -> float:
    """`kill -9`; return when."""
    now = time.time()
    os.kill(pid, signal.SIGKILL)
    return now


async def in_a_model_call(site: Site) -> float:
    """Seconds from the kill to the next model call."""
    return await _in_a_call(site, "model")


async def in_a_tool(site: Site) -> float:
    """Seconds from the kill to the next run of the tool."""
    return await _in_a_call(site, "tool")


async def _in_a_call(site: Site, what: str) -> float:
    name, turn = await site.start(what)
    at = killed((await site.call(name, what))["pid"])
    took: float = (await site.call(name, after=at))["at"] - at
    await turn.result()
    return took


async def in_both(site: Site) -> float:
    """The same with a model call and a tool in one process: until both go on."""
    name, turn = await site.start("model")
    pid, others = (await site.call(name, "model"))["pid"], []
    while True:
        other, tool_turn = await site.start("tool")
        if (await site.call(other, "tool"))["pid"] == pid:
            break
        site.release(other)
        others.append(tool_turn)
    at = killed(pid)
    calls = await asyncio.gather(site.call(name, after=at), site.call(other, after=at))
    for one in (turn, tool_turn, *others):
        await one.result()
    took: float = max(call["at"] for call in calls) - at
    return took


async def in_a_workflow_task(site: Site) -> float:
    """The same for a turn whose delay ends in a process that is stopped."""
    name, turn = await site.start("nothing", delay=_DELAY)
    handle = site.client.temporal.get_workflow_handle(turn.id)
    identity = ""
    while not identity:
        events = (await handle.fetch_history()).events
        done = [event for event in events if event.event_type == _COMPLETED]
        for event in done[:1]:
            identity = event.workflow_task_completed_event_attributes.identity
        await asyncio.sleep(_LOOK_S)
    pid = int(identity.partition("@")[0])
    os.kill(pid, signal.SIGSTOP)
    state = None
    while state != _STARTED:
        await asyncio.sleep(_LOOK_S)
        state = (await handle.describe()).raw_description.pending_workflow_task.state
    at = killed(pid)
    took: float = (await site.call(name, after=at))["at"] - at
    await turn.result()
    return took


MEASURES: dict[str, Callable[[Site], Awaitable[float]]] = {
    "model call": in_a_model_call,
    "tool": in_a_tool,
    "both": in_both,
    "workflow task": in_a_workflow_task,
}


@contextlib.asynccontextmanager
async def site(address: str) -> AsyncIterator[Site]:
    """A new task queue."""
    with tempfile.TemporaryDirectory() as folder:
        queue = f"recovery-{time.monotonic_ns()}"
        client = await AgentClient.connect(address, task_queue=queue)
        yield Site(address, queue, client, Path(folder))


async def supervised(
    address: str, kills: int, measures: Sequence[str] = tuple(MEASURES)
) -> dict[str, list[float]]:
    """Each measure under one supervisor with two processes."""
    took: dict[str, list[float]] = {name: [] for name in measures}
    async with site(address) as here, here.workers(PERDURE_PROCESSES="2"):
        served = 2
        for _ in range(kills):
            for name in measures:
                await here.served(served)
                took[name].append(await MEASURES[name](here))
                served += 1
    return took


async def alone(address: str, name: str) -> float:
    """One measure with two workers without supervisors."""
    async with (
        site(address) as here,
        here.workers(PERDURE_SUPERVISOR="0"),
        here.workers(PERDURE_SUPERVISOR="0"),
    ):
        await here.served(2)
        return await MEASURES[name](here)


async def lost_machine(address: str, **environment: str) -> float:
    """A model call, where a supervisor is killed with its process, beside another one."""
    async with site(address) as here, here.workers(**environment) as first:
        await here.served(1)
        name, turn = await here.start("model")
        await here.call(name, "model")
        async with here.workers(**environment):
            await here.served(2)
            at = time.time()
            kill_all(first.pid)
            took: float = (await here.call(name, after=at))["at"] - at
            await turn.result()
            return took


async def main(kills: int) -> None:
    """Measure, and print medians and maxima in seconds."""
    async with DevServer(folder=None, port=0, ui=False) as server:
        address = server.address.address
        for name, took in (await supervised(address, kills)).items():
            show(f"{name}, supervisor", took)
        show("model call, no supervisor", [await alone(address, "model call") for _ in range(3)])
        show("workflow task, no supervisor", [await alone(address, "workflow task")])
        show("lost machine", [await lost_machine(address) for _ in range(max(1, kills // 4))])


def show(name: str, took: list[float]) -> None:
    figures = f"median {statistics.median(took):.2f} s, worst {max(took):.2f} s, {len(took)} kills"
    print(f"{name:30} {figures}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else KILLS))
