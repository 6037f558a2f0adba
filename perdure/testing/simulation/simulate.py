"""Simulates turns, sessions and batches: one for each seed, with all checks, and shrinks them."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from traceback import format_exception
from typing import Any, Literal, get_args

from perdure import errors
from perdure.agents.agent import Agent
from perdure.session.wire import SessionRequest
from perdure.temporal.names import SESSION, TURN
from perdure.temporal.payloads import pack, parsing_once
from perdure.testing.simulation import promises, shrinking
from perdure.testing.simulation.agents import (
    some_agents,
    some_guarded_agents,
    some_request,
    some_session,
    that_undo,
)
from perdure.testing.simulation.batch_people import BatchPeople
from perdure.testing.simulation.batches import SimulatedBatch, some_batch
from perdure.testing.simulation.calls.keyed_events import KEYED
from perdure.testing.simulation.calls.logins import LOGINS
from perdure.testing.simulation.choices import CLOCKS, FORGERS, INPUTS, PAUSES, STREAMS, Choices
from perdure.testing.simulation.features.earlier_release import FEATURE as EARLIER
from perdure.testing.simulation.features.earlier_release import EarlierRelease
from perdure.testing.simulation.features.schedule_people import SchedulePeople
from perdure.testing.simulation.features.schedules import SimulatedSchedule, some_schedule
from perdure.testing.simulation.observations import Simulated
from perdure.testing.simulation.operations.afterwards import Afterwards
from perdure.testing.simulation.operations.branches import Branches
from perdure.testing.simulation.operations.builds import Builds
from perdure.testing.simulation.operations.clients import TurnClients
from perdure.testing.simulation.operations.clocks import Clocks
from perdure.testing.simulation.operations.deploys import Deploys
from perdure.testing.simulation.operations.forging import Forger
from perdure.testing.simulation.operations.keyed_events import EventSenders
from perdure.testing.simulation.operations.logging_in import LoggingIn
from perdure.testing.simulation.operations.pausing import Pausing
from perdure.testing.simulation.operations.push import FEATURE as PUSH
from perdure.testing.simulation.operations.push import PushClients
from perdure.testing.simulation.operations.reminding import Reminding
from perdure.testing.simulation.operations.resetting import TurnResets
from perdure.testing.simulation.operations.resetting_others import OPERATORS, OtherResets
from perdure.testing.simulation.operations.sending import ResultSenders
from perdure.testing.simulation.operations.streaming_updates import UpdateStreams
from perdure.testing.simulation.operations.terminating import Terminator
from perdure.testing.simulation.people import People
from perdure.testing.simulation.reading import catch_up
from perdure.testing.simulation.server.attempts import SimulatedAttempts
from perdure.testing.simulation.server.clock import VirtualClock
from perdure.testing.simulation.server.effects import Effects
from perdure.testing.simulation.server.resets import Resets
from perdure.testing.simulation.server.schedules import SimulatedSchedules
from perdure.testing.simulation.server.sdk import BegunRun
from perdure.testing.simulation.server.server import BrokenError, SimulatedServer
from perdure.testing.simulation.session_people import SessionPeople
from perdure.testing.simulation.story import story
from perdure.testing.simulation.worker import SimulatedWorker
from perdure.testing.simulation.world import SimulatedWorld
from perdure.turn.wire import TurnRequest

_MOST_STEPS = 30_000

Kind = Literal["turn", "session", "batch", "schedule"]
"""What is simulated: a turn with its delegates, or a session, a batch or a schedule of turns."""
Request = TurnRequest | SessionRequest | SimulatedBatch | SimulatedSchedule
"""The input of what is simulated."""

KINDS: tuple[Kind, ...] = get_args(Kind)

_INPUTS: dict[Kind, Callable[[Choices, Sequence[Agent[Any]]], Request]] = {
    "turn": some_request,
    "session": some_session,
    "batch": some_batch,
    "schedule": some_schedule,
}


@dataclass(frozen=True)
class Simulation:
    """One simulated turn, session or batch, after its end.

    Attributes:
        seed: The seed.
        kind: What was simulated.
        choices: The choices that were made.
        counts: How often what happened.
        broken: The promise that was broken; None if all were kept.
        server: The server with all histories.
    """

    seed: int
    kind: Kind
    choices: tuple[int, ...]
    counts: Counter[str]
    broken: BrokenError | None
    server: SimulatedServer

    @property
    def story(self) -> str:
        """What happened, event by event, as text for a person."""
        return story(self.server, self.broken)


def simulate(
    seed: int,
    agents: Sequence[Agent[Any]] | None = None,
    request: Request | None = None,
    *,
    kind: Kind = "turn",
    choices: Sequence[int] | None = None,
    focus: Collection[str] = (),
) -> Simulation:
    """Simulate one turn, session or batch, with everything that may happen to it.

    Args:
        seed: The seed of all choices.
        agents: The agents; by default, some of all kinds. Their tools are not called: results are
            made up. Their policies, guardrails and the types of their answers come from the code.
        request: The input of the turn, the session or the batch, of the first of the agents by
            default.
        kind: What is simulated.
        choices: The choices to make instead of the choices of the seed, until they are used up.
            Then nothing else goes wrong.
        focus: The only features of those in `FEATURES` that the simulation has, instead of some at
            random. What is simulated with a focus stays the same when another feature is added.

    Raises:
        ConfigurationError: An agent cannot be simulated: it has MCP servers.
    """
    made = Choices(seed, choices, kind, focus)
    _refuse(agents or ())
    server = SimulatedServer(made, VirtualClock(made))
    if agents is None:
        is_plain = kind == "turn" and not (made.all_features or made.aims_at(INPUTS))
        agents = some_agents(made) if is_plain else some_guarded_agents(made)
        agents = agents if kind == "batch" else that_undo(made, agents)
    if request is None:
        request = _INPUTS[kind](made, agents)
    has_guards = any(agent.middleware for agent in agents)
    notes_messages = kind != "turn" or has_guards
    world = SimulatedWorld(made, notes_messages=notes_messages, bills_most=made.bills_most)
    worker = SimulatedWorker(server, agents, world)
    if made.has(EARLIER):
        worker.earlier = EarlierRelease(server)
    server.on_event.append(catch_up)
    server.on_task += promises.AFTER_TASKS
    scene = _Scene(server, world, worker, agents, request)
    broken = None
    try:
        with _without_collection(), parsing_once():
            scene.play()
    except BrokenError as error:
        is_old = worker.earlier is not None and worker.earlier.did_not_keep(error.promise)
        server.counts["promises that an earlier release did not keep"] += is_old
        broken = None if is_old else error
    except Exception as error:  # noqa: BLE001 - whatever it is, its story is told
        broken = BrokenError("nothing raises", "".join(format_exception(error)[-4:]))
    finally:
        for run in server.runs:
            run.evict()
    return Simulation(seed, kind, tuple(made.made), server.counts, broken, server)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Leave garbage alone for a moment: nearly all objects of a simulation live as long as it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Scene:
    """One simulation, before its end."""

    def __init__(
        self,
        server: SimulatedServer,
        world: SimulatedWorld,
        worker: SimulatedWorker,
        agents: Sequence[Agent[Any]],
        request: Request,
    ) -> None:
        self._server = server
        self._world = world
        self._worker = worker
        self._agents = agents
        self._request = request
        self._attempts = SimulatedAttempts(server, worker)
        self._effects = Effects(server, self._attempts)

    def play(self) -> None:
        """Simulate until nothing happens any more.

        Raises:
            BrokenError: A promise was broken.
        """
        server, request = self._server, self._request
        input_ = request if isinstance(request, TurnRequest | SessionRequest) else None
        senders = ResultSenders(server, self._world.jobs)
        if server.choices.has("client tools"):
            TurnClients(server, self._world, senders)
        if server.choices.has(CLOCKS):
            Clocks(server)
        people = self._begun(request)
        simulated = Simulated(server, self._world, people, input_, self._worker)
        self._meet(request, people)
        for _ in range(_MOST_STEPS):
            if not server.clock.step():
                break
            for check in promises.ALWAYS:
                check(simulated)
        for check in promises.AT_THE_END:
            check(simulated)
        for run in server.runs:
            server.replayed(run, refuses=True).evict()

    def _meet(self, request: Request, people: People) -> None:
        """Let others have to do with what is simulated, as its features are."""
        server = self._server
        if server.choices.has("builds"):
            Builds(server)
        if server.choices.has(KEYED):
            EventSenders(server, self._worker.client)
        if server.choices.has(LOGINS):
            LoggingIn(server, self._world.diary, people)
        if isinstance(request, TurnRequest) and _has_push(server.choices):
            PushClients(server, self._worker.client, people)
        if server.choices.has(FORGERS):
            Forger(server)
        if server.choices.has(STREAMS):
            UpdateStreams(server, people)
        if server.choices.has(PAUSES):
            Pausing(server, self._attempts)
        if server.choices.has(OPERATORS) and not isinstance(request, SimulatedSchedule):
            resets = Resets(server, self._attempts, self._effects)
            OtherResets(server, resets, self._world, people)
        if server.choices.all_features:
            Deploys(server, self._worker, self._agents)
            Terminator(server, self._effects.terminate)

    def _begun(self, request: Request) -> People:
        """Begin what is simulated, and return the people around it."""
        server = self._server
        if isinstance(request, SimulatedBatch):
            timeout, terminate = _timeout(server), self._effects.terminate
            return BatchPeople(server, "batch", request, task_timeout=timeout, terminate=terminate)
        if isinstance(request, SimulatedSchedule):
            schedules = SimulatedSchedules(server, _timeout(server))
            self._worker.client.schedules = schedules
            stored = self._worker.run(request.stored(self._worker.client))
            schedule = schedules.create(request.definition.id, stored, request.times)
            return SchedulePeople(server, schedules, schedule, request.definition.if_running)
        if isinstance(request, SessionRequest):
            workflow_id, workflow_type = "session", SESSION
            names = [agent.name for agent in self._agents]
            people: People = SessionPeople(server, workflow_id, names=names)
        else:
            workflow_id, workflow_type = "turn", TURN
            people = People(server, workflow_id)
        run_id, timeout = server.new_run_id(), _timeout(server)
        begun = BegunRun(workflow_id, run_id, run_id, workflow_type, 0, task_timeout=timeout)
        server.start(begun, [pack(request).payload])
        if workflow_type == SESSION and server.choices.has("reminders"):
            Reminding(server, people)
        Afterwards(server, self._worker, people, self._world.payments, timeout)
        if server.choices.has("hooks"):
            from perdure.testing.simulation.operations.hooks import HookDeliveries

            world, worker, agents = self._world, self._worker, self._agents
            HookDeliveries(server, worker, world, people, agents, timeout)
        if workflow_type == TURN and server.choices.all_features:
            resets = Resets(server, self._attempts, self._effects)
            TurnResets(server, resets, self._world, people)
            Branches(server, self._worker, people, timeout)
        return people


def _has_push(choices: Choices) -> bool:
    """Return whether clients ask for push notifications: not of turns that wait for months.

    The workflow that notifies them looks at such a turn each hour.
    """
    return choices.has(PUSH) and not choices.has_waits and not choices.has(KEYED)


def _timeout(server: SimulatedServer) -> timedelta:
    """Return a workflow task timeout, which limits the length of histories."""
    short, shorter = timedelta(seconds=0.3), timedelta(seconds=0.15)
    long = timedelta(seconds=10)
    return server.choices.pick((long, long, short, shorter))


def shrunk(
    simulation: Simulation,
    agents: Sequence[Agent[Any]] | None = None,
    request: Request | None = None,
    focus: Collection[str] = (),
) -> Simulation:
    """Return a shorter simulation that breaks the same promise.

    It is of the same agents, input and focus.
    """
    assert simulation.broken is not None
    promise, kind = simulation.broken.promise, simulation.kind

    def tried(choices: Sequence[int]) -> Simulation | None:
        again = simulate(simulation.seed, agents, request, kind=kind, choices=choices, focus=focus)
        return again if again.broken is not None and again.broken.promise == promise else None

    return shrinking.shrink(simulation, lambda one: one.choices, tried)


def _refuse(agents: Iterable[Agent[Any]]) -> None:
    for agent in agents:
        if agent.servers:
            raise errors.ConfigurationError(
                f"agent {agent.name}: MCP servers cannot be simulated yet"
            )
