"""People who say what became of a call after its turn has gone on, or take its effect back.

The client's own code finds the calls in the simulated histories, and starts the workflows.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from functools import partial
from typing import Any, cast

from temporalio.client import Client

from perdure import errors
from perdure.clients.turns import settling, undoing
from perdure.clients.turns.starting import Starter
from perdure.temporal.names import TURN
from perdure.testing.simulation.calls.payments import SETTLED, Payments
from perdure.testing.simulation.clients.starting_client import StartingClient
from perdure.testing.simulation.operations.branches import Loop, NoMarks
from perdure.testing.simulation.people import People
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.turn import unsettled
from perdure.values.reports import UnsettledCall

_AFTERWARDS = "afterwards"
_PAUSES_S = (60, 10, 150)
_SOON_S = (1, 0, 5)
_SURE_S = SETTLED.total_seconds()
"""So long after a loss, no attempt has its effect any more, and people look into the ledger."""


class Afterwards:
    """Whoever settles calls and takes effects back, in some simulations nobody.

    They look after the turns that take effects back, too: these may wait for an approval.
    """

    def __init__(
        self,
        server: SimulatedServer,
        loop: Loop,
        people: People,
        payments: Payments,
        task_timeout: timedelta,
    ) -> None:
        self._client = cast("Client", StartingClient(server, task_timeout))
        self._server = server
        self._loop = loop
        self._people = people
        self._payments = payments
        self._asked: set[tuple[str, int, str]] = set()
        pays_often = server.choices.pays_often
        self._left = server.choices.pick((2, 0, 6), beside=_AFTERWARDS) if pays_often else 0
        server.on_event.append(self._watch)
        self._later()

    def _later(self) -> None:
        if self._left:
            self._left -= 1
            pause_s = self._server.choices.pick(_PAUSES_S, beside=_AFTERWARDS)
            self._server.clock.later(pause_s, self._act)

    def _watch(self, run: SimulatedRun) -> None:
        """Look after a turn that takes an effect back, and see what has become unknown."""
        if run.begun.type != TURN:
            return
        if len(run.history) == 1 and run.takes_back:
            self._server.counts["effects to take back"] += 1
            self._people.come_back()
        for call in self._lost_of(run) if run.read.effects else ():
            self._asked.add((run.id, call.step, call.call_id))
            if self._server.choices.happens(2, beside=_AFTERWARDS):
                pause_s = self._server.choices.pick(_SOON_S, beside=_AFTERWARDS)
                self._server.clock.later(pause_s, partial(self._settle, run, call))

    def _act(self) -> None:
        """Take back what a turn has done that is over."""
        turns = {run.id: run for run in self._server.runs if run.begun.type == TURN}
        over = [run for run in turns.values() if run.closed and run.read.effects]
        if over:
            run = self._server.choices.pick(over, beside=_AFTERWARDS)
            with contextlib.suppress(errors.PerdureError):
                self._loop.run(self._undo(run))
        self._later()

    def _lost_of(self, run: SimulatedRun) -> list[UnsettledCall]:
        """Return the calls of a turn whose outcome is unknown, and that nobody has asked for."""
        is_paid = {record.call_id for record in run.read.effects if record.status == "unknown"}
        unknown = set(unsettled.calls(run.read))
        return [
            call
            for call in unsettled.made(run.read)
            if call in unknown
            and call.call_id in is_paid
            and (run.id, call.step, call.call_id) not in self._asked
        ]

    def _settle(self, run: SimulatedRun, call: UnsettledCall, *, is_sure: bool = False) -> None:
        """Say what the ledger of the service has, unless it is known meanwhile.

        What is not there may still come, until some time has passed.
        """
        last = self._server.last_run_of(run.id)
        if last is None or last.begun.first_run_id != run.begun.first_run_id or last.base:
            return
        if call not in unsettled.made(last.read):
            return
        is_there = self._payments.has_made(run.id, call.step, call.call_id)
        if not is_there and not is_sure:
            again = partial(self._settle, run, call, is_sure=True)
            self._server.clock.later(_SURE_S, again)
            return
        made = settling.MadeCall(call, is_known=call not in tuple(unsettled.calls(last.read)))
        settlement: Any = "done" if is_there else "absent"
        said = settling.decision(made, settlement, "it was looked up by hand", "somebody")
        with contextlib.suppress(errors.ApprovalConflictError):
            self._loop.run(settling.record(self._client, run.id, last.begun.run_id, made, said))
            self._server.counts["settled afterwards"] += 1

    async def _undo(self, run: SimulatedRun) -> None:
        """Take back the effect of one of the calls of a turn."""
        records = await undoing.effects_of(self._client, run.id, run.begun.run_id)
        record = self._server.choices.pick(records, beside=_AFTERWARDS)
        await undoing.start(
            self._client, self._starter, run.id, run.begun.run_id, record, "somebody"
        )
        self._server.counts["undone by people"] += 1

    def _starter(self, task_queue: str) -> Starter:
        return Starter(self._client, task_queue, NoMarks(self._client))
