"""Programs that send events by key, to whoever waits for them, and do not know who that is."""

from __future__ import annotations

from datetime import timedelta

from perdure.temporal.keyed_events import start_of
from perdure.temporal.names import EMIT, KEYED_EVENTS, REGISTER_WAITER
from perdure.temporal.payloads import pack
from perdure.testing.simulation.calls.keyed_events import KEYED, PLACES
from perdure.testing.simulation.clients.worker_client import WorkerClient
from perdure.testing.simulation.people import SentRequest
from perdure.testing.simulation.server.commands import local_type
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.sdk import TASK_QUEUE
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.turn.event_keys import workflow_id
from perdure.turn.wait_values import Emit

_PAUSES_S = (1, 0.2, 5, 30, 600, 3590)
_SOON_S = (0, 0, 0.01, 1)
_TIMEOUTS_S = (10, 0.3, 0.15)
_REPEATS_S = 1.5
_ATTEMPTS = 40
_AGAIN = "events sent again"
"""The sequence of the choices whether an event is sent again to a new run."""

Place = tuple[str, str]
"""The name and the key of an event."""


class EventSenders:
    """Send some events, a few of them twice, and others in the moment in which a turn waits."""

    def __init__(self, server: SimulatedServer, client: WorkerClient) -> None:
        self._server = server
        self._client = client
        self._places: list[Place] = []
        self._left = server.choices.pick((3, 6, 12), beside=KEYED)
        client.task_timeout = timedelta(seconds=self._pick(_TIMEOUTS_S))
        server.on_event.append(self._watch)
        self._later()

    def _pick(self, options: tuple[float, ...]) -> float:
        return self._server.choices.pick(options, beside=KEYED)

    def _later(self) -> None:
        if self._left:
            self._left -= 1
            self._server.clock.later(self._pick(_PAUSES_S), self._send_some)

    def _watch(self, run: SimulatedRun) -> None:
        """Send an event in the moment in which a turn is registered.

        One that was sent before is sent again as the workflow that keeps it goes on in a new run.
        """
        is_later = run.begun.type == KEYED_EVENTS and bool(run.begun.continued)
        if is_later and len(run.history) == 1 and self._server.choices.happens(3, beside=_AGAIN):
            self._send_again(run.id)
        is_registered = local_type(run.history.events[-1]) == REGISTER_WAITER
        if is_registered and self._server.choices.happens(2, beside=KEYED):
            self._server.clock.later(self._pick(_SOON_S), self._send_new)

    def _send_some(self) -> None:
        """Send an event: another one, or one that was sent before."""
        if self._places and self._server.choices.happens(4, beside=KEYED):
            self._send(self._server.choices.below(len(self._places), beside=KEYED))
        else:
            self._send_new()
        self._later()

    def _send_again(self, id: str) -> None:
        """Send the last event again that the workflow with this id keeps."""
        numbers = [n for n, place in enumerate(self._places) if workflow_id(*place) == id]
        if numbers:
            self._server.clock.later(0, lambda: self._send(numbers[-1]))

    def _send_new(self) -> None:
        self._places.append(self._server.choices.pick(PLACES, beside=KEYED))
        self._send(len(self._places) - 1)

    def _send(self, number: int) -> None:
        name, key = self._places[number]
        self._server.counts["events by key"] += 1
        self._ask(f"event-{number}", name, key, Emit(name=name, body=str(number)), _ATTEMPTS)

    def _ask(self, event_id: str, name: str, key: str, event: Emit, attempts: int) -> None:
        """Send an event to the workflow that keeps it, until it is answered."""
        start = start_of(name, key, TASK_QUEUE)
        run = self._client.running(start["workflow"], start["arg"], start["id"])
        update = self._server.update(run, event_id, EMIT, pack(event))
        sent = SentRequest(workflow_id(name, key), event_id, EMIT, event, update)

        def look() -> None:
            if attempts and not sent.is_answered:
                self._ask(event_id, name, key, event, attempts - 1)

        self._server.clock.later(_REPEATS_S, look)
