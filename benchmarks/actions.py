"""What Temporal Cloud would bill for a turn: `python -m benchmarks.actions [HEARTBEATS_S
[CALLS_S]]`.

The unit is the action. The server counts its own, as the metric `action`. A step is a model call
and a tool call that takes four tenths of its time; its price is the difference between a turn of
two steps and a turn of one. Each row has a server of its own, so that all run at once. The memo at
the end of a turn is counted here; the list of actions on docs.temporal.io does not name it. The
search attribute by which the SDK records a patch is not billed, and not counted.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import sys
from collections import Counter
from datetime import timedelta

import httpx
from temporalio.client import Client

from perdure import Agent, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, call, calls
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker
from perdure.worker.dev.server import DevServer
from perdure.worker.settings import WorkerSettings

BEATS_S, CALLS_S = "1,3,10", "0,5,60"
TOOL_SHARE = 0.4
NAMES = {
    "grpc_StartWorkflowExecution": "start",
    "grpc_RecordActivityTaskHeartbeat": "heartbeats",
    "grpc_UpdateWorkflowExecution": "updates",
    "grpc_SignalWorkflowExecution": "signals",
    "command_ScheduleActivityTask": "activities",
    "command_StartTimer": "timers",
    "command_StartChildWorkflowExecution": "children",
    "command_UpsertWorkflowSearchAttributes": "search attributes",
    "command_ModifyWorkflowProperties": "memo",
    "command_BatchMarkers": "local activities",
}
_COUNTED = re.compile(r'^action\{action_type="(\w+)",namespace="default".*\} (\d+)$', re.MULTILINE)

Actions = Counter[str]


class Slow:
    """A model that takes its time for a tool call, and none for the answer."""

    def __init__(self, seconds: float, steps: int) -> None:
        self._seconds = seconds
        self._model = ScriptedModel(*[calls(call("look"))] * steps, "done")
        self._left = steps

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self._left -= 1
        await asyncio.sleep(self._seconds if self._left >= 0 else 0)
        return await self._model.complete(request)

    async def close(self) -> None:
        pass


def looking(seconds: float) -> Agent:
    """An agent whose tool takes a share of the time of its model."""

    @tool(read_only=True, timeout=timedelta(minutes=5))
    async def look() -> str:
        """Look."""
        await asyncio.sleep(TOOL_SHARE * seconds)
        return "seen"

    return Agent(name="looker", model="slow:x", tools=[look])


async def counted(address: str, metrics: str, seconds: float, steps: int, beat_s: float) -> Actions:
    """The actions of one turn."""
    before = await read(metrics)
    app = AgentWorker(
        looking(seconds),
        providers={"slow": Slow(seconds, steps)},
        task_queue=secrets.token_hex(4),
    )
    settings = WorkerSettings(heartbeat=timedelta(seconds=beat_s))
    client = await Client.connect(address)
    async with app.running(client, settings=settings):
        turns = AgentClient.from_temporal(client, task_queue=app.task_queue)
        turn = await turns.start("looker", "go")
        await turn.result()
        found = await settled(metrics, before) - before
    found["search attributes"] -= 1  # that of the patch
    return found


async def read(metrics: str) -> Actions:
    """All actions that the server has counted, by kind."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(metrics)).text
    return Counter({NAMES.get(name, name): int(count) for name, count in _COUNTED.findall(text)})


async def settled(metrics: str, before: Actions) -> Actions:
    """All actions once the end of the turn is counted: the server adds them up in intervals."""
    last, found = before, await read(metrics)
    while found["memo"] == before["memo"] or found != last:
        await asyncio.sleep(0.5)
        last, found = found, await read(metrics)
    return found


async def measure(seconds: float, beat_s: float) -> tuple[Actions, Actions]:
    """The actions of a turn of one step, and those of one more step."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    args = [f"--metrics-port={port}"]
    async with DevServer(folder=None, port=0, ui=False, extra_args=args) as server:
        metrics = f"http://127.0.0.1:{port}/metrics"
        one, two = [
            await counted(server.address.address, metrics, seconds, steps, beat_s)
            for steps in (1, 2)
        ]
    return one, two - one


def line(found: Actions) -> str:
    """The sum, and its parts."""
    parts = ", ".join(f"{name} {count}" for name, count in sorted(found.items()) if count)
    return f"{found.total()} ({parts})"


async def main(beats: str = BEATS_S, calls_of: str = CALLS_S) -> None:
    """Measure all rows and print them."""
    rows = [
        (float(beat), float(seconds))
        for beat in beats.split(",")
        for seconds in calls_of.split(",")
    ]
    found = await asyncio.gather(*(measure(seconds, beat_s) for beat_s, seconds in rows))
    for (beat_s, seconds), (one, step) in zip(rows, found, strict=True):
        print(f"heartbeats every {beat_s:g} s, model calls of {seconds:g} s")
        print(f"  a turn of one step  {line(one)}")
        print(f"  one more step       {line(step)}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
