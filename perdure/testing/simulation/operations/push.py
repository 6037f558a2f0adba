"""Clients of A2A in a simulation, which ask for push notifications about a turn."""

from __future__ import annotations

from functools import partial

from perdure.delivery.push import PushCall
from perdure.temporal.names import BEGIN_PUSH, PUSH
from perdure.temporal.payloads import pack
from perdure.testing.simulation.clients.worker_client import WorkerClient
from perdure.testing.simulation.people import People, SentRequest
from perdure.testing.simulation.server.runs import UpdateResponse
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.testing.simulation.world import REFUSED_URL, URL

FEATURE = "push"
"""The feature of push notifications, and the sequence of all that has to do with them."""

_PAUSES_S = (0, 0.5, 5, 40)
_CANCELS = "push cancels"
"""The sequence of cancels of what notifies."""
_CANCELS_AFTER_S = (0, 0, 0.02, 0.2, 2)
_REPEATS_S = 1.5
_ATTEMPTS = 40


class PushClients:
    """Ask for push notifications, at any moment; some to a receiver that the worker refuses."""

    def __init__(self, server: SimulatedServer, client: WorkerClient, people: People) -> None:
        self._server = server
        self._client = client
        self._turn_id = people.workflow_id
        for number in range(server.choices.pick((1, 2), beside=FEATURE)):
            pause_s = server.choices.pick(_PAUSES_S, beside=FEATURE)
            server.clock.later(pause_s, partial(self._begin, number))

    def _begin(self, number: int) -> None:
        """Start the workflow that notifies a receiver, and ask it whether it does."""
        url = self._server.choices.pick((URL, *(URL,) * 6, REFUSED_URL), beside=FEATURE)
        call = PushCall(
            id=f"p{number}", url=url, turn_id=self._turn_id, task=self._turn_id, context="c"
        )
        workflow_id = f"{self._turn_id}/push-{number}"
        self._server.counts["push notifications"] += 1
        self._client.running(PUSH, pack(call), workflow_id)
        update_id = f"begin-{number}"
        run = self._server.run_of(workflow_id)
        assert run is not None
        update = self._server.update(run, update_id, BEGIN_PUSH, pack(call))
        if self._server.choices.happens(4, beside=_CANCELS):
            pause_s = self._server.choices.pick(_CANCELS_AFTER_S, beside=_CANCELS)
            self._server.clock.later(pause_s, partial(self._cancel, workflow_id))
        self._repeat(SentRequest(workflow_id, update_id, BEGIN_PUSH, call, update), _ATTEMPTS)

    def _cancel(self, workflow_id: str) -> None:
        """Let an operator cancel the workflow that notifies a receiver."""
        run = self._server.run_of(workflow_id)
        if run is not None and self._server.cancel(run, "not needed"):
            self._server.counts["cancelled push notifications"] += 1

    def _repeat(self, sent: SentRequest, attempts: int) -> None:
        """Send the update again, if the run has ended before it was answered."""
        run = self._server.run_of(sent.workflow_id)
        if run is None or sent.is_answered or not attempts:
            return
        if sent.last.answer in (UpdateResponse.RUN_CLOSED, UpdateResponse.REJECTED):
            sent.last = self._server.update(run, sent.id, sent.name, pack(sent.content))
        self._server.clock.later(_REPEATS_S, partial(self._repeat, sent, attempts - 1))
