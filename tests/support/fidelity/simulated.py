"""The turn or the session of a script in the simulator, where nothing goes wrong or is late."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.common import RawValue

from perdure import Agent
from perdure.activities.call_tool import Handler
from perdure.activities.provider import ModelRequest
from perdure.delivery.webhook import Notification
from perdure.session.wire import SessionRequest
from perdure.temporal.names import MOVE_ON, SESSION, TURN
from perdure.temporal.payloads import pack
from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.reading import catch_up
from perdure.testing.simulation.server.attempts import SimulatedAttempts
from perdure.testing.simulation.server.clock import VirtualClock
from perdure.testing.simulation.server.effects import Effects
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.resets import Resets
from perdure.testing.simulation.server.runs import Activity, SimulatedRun, Update
from perdure.testing.simulation.server.sdk import CONVERTER, BegunRun
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.testing.simulation.worker import SimulatedWorker
from perdure.turn.effect_values import Verification
from perdure.turn.wire import ToolOutput, ToolRun
from perdure.values.answers import ModelAnswer
from perdure.worker import internals
from perdure.worker.assembly import build
from perdure.worker.settings import WorkerSettings

from .acts import FILLING, FILLS, OVER, REASON, Act, Scene, answer_of, refusal_of, stops
from .quiet import is_waiting
from .resetting import points
from .script import Script

_MOST_STEPS = 20_000
_BETWEEN_S = 0.01
"""The time between two things that happen during a model call, which takes 50 ms."""


class ScriptedServer(SimulatedServer):
    """A server that draws nothing."""

    def new_run_id(self) -> str:
        """Return the id of a new run, from which its random numbers come."""
        number = len(self.runs) + 1
        return f"{number:08x}-0000-4000-8000-{number:012x}"


class SimulatedActs:
    """Does what people do in the simulator."""

    def __init__(self, server: SimulatedServer, effects: Effects, resets: Resets) -> None:
        self._resets = resets
        self._server = server
        self._effects = effects
        self._sent: list[tuple[Act, SimulatedRun, Update]] = []

    def do(self, act: Act) -> None:
        """Do something, unless the workflow is over."""
        run = self._server.last_run_of(act.to)
        assert run is not None
        match act.name:
            case "cancel":
                self._server.cancel(run, REASON)
            case "terminate":
                self._effects.terminate(run)
            case "fill":
                for _ in range(FILLS):
                    fields = {"signal_name": MOVE_ON, "input": {"payloads": [FILLING]}}
                    self._server.deliver(run, "WORKFLOW_EXECUTION_SIGNALED", fields)
            case "reset":
                self._resets.reset(run, points(run.history.events)[act.point])
            case _:
                update = self._server.update(run, act.id, act.name, pack(act.content))
                self._sent.append((act, run, update))

    def do_all(self, acts: Sequence[Act]) -> None:
        """Do one thing after another, until one cancels the turn that runs."""
        if acts:
            first, *others = acts
            self.do(first)
            self._server.clock.later(_BETWEEN_S, partial(self._go_on, first, others))

    def _go_on(self, done: Act, others: Sequence[Act]) -> None:
        answers = self.answers
        if not stops(done, answers[-1][1] if done.id else "", answers[:-1]):
            self.do_all(others)

    @property
    def answers(self) -> list[tuple[str, str]]:
        """What was answered to the updates, in their order."""
        return [(act.id, _answer(run, update)) for act, run, update in self._sent]


def _answer(run: SimulatedRun, update: Update) -> str:
    if update.failure is not None:
        return refusal_of(update.failure)
    for event in run.history.events:
        if name_of(event) == "WORKFLOW_EXECUTION_UPDATE_COMPLETED":
            content = attributes(event)
            if content.meta.update_id == update.id:
                return answer_of(content.outcome.success.payloads)
    return OVER


class ScriptedWorld:
    """Models that say what the script has, in the simulator."""

    def __init__(self, server: SimulatedServer, script: Script) -> None:
        self._server = server
        self._script = script
        self.acts: SimulatedActs

    def answer(self, activity: Activity, request: ModelRequest) -> ModelAnswer:
        """Do what the script has, and return its answer."""
        said = self._script.said(activity.run.id, activity.key, request)
        self.acts.do_all(said.acts)
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

    def __init__(self, server: SimulatedServer, script: Script, acts: SimulatedActs) -> None:
        self._server = server
        self._script = script
        self._acts = acts
        self._before: list[int] = []
        server.clock.later(1, self.look)

    def look(self) -> None:
        """Do the next thing that the script has, if all runs wait and are the same as before."""
        runs = [run for run in self._server.runs if not run.closed]
        if not runs:
            return
        before, self._before = self._before, [len(run.history) for run in self._server.runs]
        if all(is_waiting(run.history.events) for run in runs) and self._before == before:
            act = self._script.next_act(self._scene(runs))
            if act is not None:
                self._acts.do(act)
        self._server.clock.later(1, self.look)

    def _scene(self, opened: Sequence[SimulatedRun]) -> Scene:
        """What people see."""
        sessions = [run.session for run in self._server.runs if run.begun.type == SESSION]
        turns = [run for run in opened if run.read.waiting and run.read.needs_person]
        return Scene(
            {run.id: run.read for run in turns},
            sessions[-1] if sessions else None,
            {run.id: list(points(run.history.events)) for run in opened},
        )


def simulated(script: Script) -> tuple[list[SimulatedRun], list[tuple[str, str]]]:
    """All runs of a script, and what was answered to updates."""
    choices = Choices(0, ())
    server = ScriptedServer(choices, VirtualClock(choices))
    world = ScriptedWorld(server, script)
    worker = ScriptedWorker(server, script.agents, world)
    server.on_event.append(catch_up)
    attempts = SimulatedAttempts(server, worker)
    effects = Effects(server, attempts)
    resets = Resets(server, attempts, effects)
    acts = world.acts = SimulatedActs(server, effects, resets)
    ScriptedPeople(server, script, acts)
    run_id = server.new_run_id()
    kind = SESSION if isinstance(script.request, SessionRequest) else TURN
    server.start(BegunRun(script.root, run_id, run_id, kind, 0), [pack(script.request).payload])
    if script.first is not None:
        acts.do(script.first)
    try:
        for _ in range(_MOST_STEPS):
            if not server.clock.step():
                break
        assert all(run.closed for run in server.runs), "it goes on for ever"
        return server.runs, acts.answers
    finally:
        for run in server.runs:
            run.evict()
