"""Forks of a simulated turn and of its forks, and turns that go on after their end.

The client's own code finds the points in the simulated histories and makes the input of the new
turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, Protocol, cast

from temporalio.client import Client

from perdure import errors
from perdure.clients.turns.fork_options import UNCHANGED
from perdure.clients.turns.forks import Forks
from perdure.session.wire import SessionRequest
from perdure.temporal.search_marks import Marks
from perdure.testing.simulation.choices import BRANCHES
from perdure.testing.simulation.clients.starting_client import StartingClient
from perdure.testing.simulation.people import People
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.turn.wire import TurnRequest
from perdure.values.budgets import Budget

_PAUSES_S = (30, 5, 1, 100)
_MODELS = (None, None, "model:second")
_BUDGETS = (
    None,
    Budget(usd=40),
    Budget(tokens=30_000, tool_calls=5),
    Budget(model_calls=4),
)


class Loop(Protocol):
    """What runs a coroutine at once."""

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run it to its end, and return its result."""


class NoMarks(Marks):
    """No search attributes, as in a namespace that has none of Perdure's."""

    async def of(self, request: TurnRequest | SessionRequest) -> None:
        """Return None."""


class Branches:
    """Whoever forks and resumes the turns of a simulation, in most of them not at all.

    Attributes:
        people: Those who look after the turns that were started so.
    """

    def __init__(
        self, server: SimulatedServer, loop: Loop, people: People, task_timeout: timedelta
    ) -> None:
        client = cast("Client", StartingClient(server, task_timeout))
        self._server = server
        self._loop = loop
        self._first = people
        self._forks = Forks(client, NoMarks(client), lambda started: cast("Any", started))
        self._ids = [people.workflow_id]
        self._left = 4 if server.choices.aims_at(BRANCHES) else server.choices.pick((0, 0, 0, 1, 3))
        self._later()

    def _later(self) -> None:
        if self._left:
            self._left -= 1
            self._server.clock.later(self._server.choices.pick(_PAUSES_S), self._branch)

    def _branch(self) -> None:
        """Fork or resume one of the turns; it may not be at a point from which that is possible."""
        run = self._server.last_run_of(self._server.choices.pick(self._ids))
        if run is not None:
            with contextlib.suppress(errors.InvalidRequestError):
                is_over = run.closed and not self._server.choices.happens(3)
                branch = self._resumed(run) if is_over else self._forked(run)
                started = self._loop.run(branch)
                if started is not None:
                    self._look_after(started.turn_id)
        self._later()

    async def _forked(self, run: SimulatedRun) -> Any:
        choices = self._server.choices
        steps: Sequence[int | None] = (None, *range(run.read.step_count + 1))
        changes: dict[str, Any] = {
            **UNCHANGED,
            "model": choices.pick(_MODELS),
            "budget": choices.pick(_BUDGETS),
            "max_iterations": choices.pick((None, None, 4)),
        }
        changes["say"] = choices.pick(("go on", "", "do it otherwise"))
        point = await self._forks.point(run.id, run.begun.run_id, choices.pick(steps))
        started = await self._forks.start(point, turn_id=None, by="somebody", **changes)
        self._server.counts["forks"] += 1
        return started

    async def _resumed(self, run: SimulatedRun) -> Any:
        point = await self._forks.resume_point(run.id, run.begun.run_id)
        if point is None:
            return None
        budget = self._server.choices.pick(_BUDGETS)
        started = await self._forks.start(point, "", None, by="somebody", budget=budget)
        self._server.counts["resumes"] += 1
        return started

    def _look_after(self, turn_id: str) -> None:
        self._ids.append(turn_id)
        people = People(self._server, turn_id)
        people.sent = self._first.sent
