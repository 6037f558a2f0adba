"""The turn of a script in the simulator, in which nothing goes wrong and nothing is late."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.common import RawValue

from perdure import Agent
from perdure.activities.call_tool import Handler
from perdure.activities.provider import ModelRequest
from perdure.delivery.webhook import Notification
from perdure.temporal.names import STEER, TURN
from perdure.temporal.payloads import pack
from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.reading import catch_up
from perdure.testing.simulation.server.attempts import SimulatedAttempts
from perdure.testing.simulation.server.clock import VirtualClock
from perdure.testing.simulation.server.effects import Effects
from perdure.testing.simulation.server.runs import Activity, RunStage, SimulatedRun
from perdure.testing.simulation.server.sdk import CONVERTER, BegunRun
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.testing.simulation.worker import SimulatedWorker
from perdure.turn.effect_values import Verification
from perdure.turn.wire import Steer, ToolOutput, ToolRun
from perdure.values.answers import ModelAnswer
from perdure.worker import internals
from perdure.worker.assembly import build
from perdure.worker.settings import WorkerSettings

from .script import ROOT, Script

_MOST_STEPS = 20_000


class ScriptedWorld:
    """Models that say what the script has, in the simulator."""

    def __init__(self, server: SimulatedServer, script: Script) -> None:
        self._server = server
        self._script = script

    def answer(self, activity: Activity, request: ModelRequest) -> ModelAnswer:
        """Do what the script has, and return its answer."""
        run = activity.run
        said = self._script.said(run.id, activity.key, request)
        if said.steers:
            content = pack(Steer(text=f"message at {activity.key}"))
            self._server.update(run, f"message at {activity.key}", STEER, content)
        if said.cancels:
            self._server.cancel(run.root, "enough")
        if said.failure is not None:
            raise said.failure
        assert said.answer is not None
        return said.answer

    def result(self, activity: Activity, run: ToolRun, effect_key: str = "") -> ToolOutput:
        """Return nothing: the functions of the tools are called."""
        raise AssertionError

    def resolved(self, definition: RawValue) -> RawValue:
        """A definition as it is: no server lists anything."""
        return definition

    def look_up(self, effect_key: str) -> Verification:
        """Return nothing: the functions of the tools are called."""
        raise AssertionError

    def poll(self, run: ToolRun) -> ToolOutput:
        """Return nothing: no script has a job."""
        raise AssertionError

    def stop(self, run: ToolRun) -> None:
        """Cancel nothing: no script has a job."""
        raise AssertionError

    def receive(self, activity: Activity, sent: Notification) -> int:
        """Return nothing: no script has a webhook."""
        raise AssertionError


class ScriptedWorker(SimulatedWorker):
    """A worker that calls the functions of tools, too."""

    def __init__(
        self, server: SimulatedServer, agents: Sequence[Agent[Any]], world: ScriptedWorld
    ) -> None:
        super().__init__(server, agents, world)
        built = build(self._app(0), WorkerSettings())
        self._handlers = {
            internals.activity_name(one): one
            for one in (*built.others, built.call_model, *built.tools)
        }

    def _handler(self, activity: Activity) -> Handler:
        handler = self._handlers[activity.type]
        if asyncio.iscoroutinefunction(handler):
            return handler

        async def run(raw: Any) -> Any:
            return handler(raw)

        return run

    def execute(self, activity: Activity) -> Payload | Failure:
        try:
            return self._loop.run_until_complete(self._executed(activity)).payload
        except Exception as error:  # noqa: BLE001 - an activity may raise anything
            failure = Failure()
            CONVERTER.failure_converter.to_failure(error, CONVERTER.payload_converter, failure)
            return failure


class ScriptedPeople:
    """People who look once a second, and do what the script has when nothing else happens."""

    def __init__(self, server: SimulatedServer, script: Script) -> None:
        self._server = server
        self._script = script
        self._done: dict[str, int] = {}
        server.clock.later(1, self.look)

    def look(self) -> None:
        """Do the next thing that a turn waits for."""
        root = self._server.run_of(ROOT)
        if root is None:
            return
        runs = [run for run in self._server.runs if not run.closed and run.begun.type == TURN]
        if all(map(_is_quiet, runs)):
            waiting = [run for run in runs if run.read.waiting and run.read.needs_person]
            self._order(root, min(waiting, key=lambda run: run.id))
        self._server.clock.later(1, self.look)

    def _order(self, root: SimulatedRun, run: SimulatedRun) -> None:
        done = self._done[run.id] = self._done.get(run.id, 0) + 1
        order = self._script.order(run.id, run.read, done)
        if order is None:
            self._server.cancel(root, "enough")
            return
        name, content = order
        self._server.update(run, f"order {done} to {run.id}", name, pack(content))


def _is_quiet(run: SimulatedRun) -> bool:
    """Whether nothing happens to a run until somebody does something."""
    pauses = run.read.waiting is not None and run.read.waiting.kind == "provider"
    return not (run.stage is not RunStage.NONE or run.activities or run.signals or pauses)


def simulated(script: Script) -> list[SimulatedRun]:
    """The runs of the turn of a script."""
    choices = Choices(0, ())
    server = SimulatedServer(choices, VirtualClock(choices))
    worker = ScriptedWorker(server, script.agents, ScriptedWorld(server, script))
    server.on_event.append(catch_up)
    Effects(server, SimulatedAttempts(server, worker))
    ScriptedPeople(server, script)
    run_id = server.new_run_id()
    server.start(BegunRun(ROOT, run_id, run_id, TURN, 0), [pack(script.request).payload])
    try:
        for _ in range(_MOST_STEPS):
            if not server.clock.step():
                break
        return server.runs
    finally:
        for run in server.runs:
            run.evict()
