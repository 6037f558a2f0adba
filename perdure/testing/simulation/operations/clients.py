"""The clients of turns in a simulation, which run tools and send the results."""

from __future__ import annotations

from perdure.temporal.names import TURN
from perdure.testing.simulation.operations.sending import ResultSenders
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.testing.simulation.world import SimulatedWorld
from perdure.turn import client_calls


class TurnClients:
    """See which calls wait for the client of a turn, and have results of them sent."""

    def __init__(
        self, server: SimulatedServer, world: SimulatedWorld, senders: ResultSenders
    ) -> None:
        self._server = server
        self._tokens = world.client_tokens
        self._senders = senders
        server.on_event.append(self._watch)

    def _watch(self, run: SimulatedRun) -> None:
        if run.begun.type != TURN or run.closed:
            return
        for call in client_calls.awaited(run.read, run.id):
            if call.token not in self._tokens:
                self._tokens.add(call.token)
                self._server.counts["calls of clients"] += 1
                self._senders.plan(run.id, call.token)
