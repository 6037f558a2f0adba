"""What Perdure promises about the hooks of a gateway, as a check of a simulated run."""

from __future__ import annotations

from temporalio.common import RawValue

from perdure.session.wire import Say
from perdure.temporal.names import SAY
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.calls.deliveries import SentDelivery
from perdure.testing.simulation.observations import Simulated, sessions
from perdure.testing.simulation.server.server import BrokenError

PROMISE = "hooks start once"


def hooks_start_once(simulated: Simulated) -> None:
    """A signed delivery starts one turn or sends one message, however often it is sent.

    One that is not signed starts nothing. What was answered is there.
    """
    for delivery in simulated.world.deliveries.values():
        if delivery.starts == "turn":
            _check_turn(simulated, delivery)
        elif delivery.starts == "message":
            _check_message(simulated, delivery)
    if simulated.world.deliveries:
        _check_known(simulated)


def _check_turn(simulated: Simulated, delivery: SentDelivery) -> None:
    first = {
        run.begun.first_run_id: run
        for run in simulated.server.runs
        if run.read.request is not None and run.read.request.task.content == delivery.text
    }
    started = [run for run in first.values() if run.parent is None]
    known = [run for run in started if run.read.agent is not None]  # others may be begun again
    if len(known) > 1 or (delivery.is_answered and not started):
        raise BrokenError(PROMISE, f"{delivery} has started {len(started)} turns")
    if started and not delivery.is_signed:
        raise BrokenError(PROMISE, f"{delivery} is forged, and has started a turn", started[0])


def _check_message(simulated: Simulated, delivery: SentDelivery) -> None:
    """Check the message of a delivery: it is one update, whose acceptance others check."""
    for runs in sessions(simulated.server).values():
        texts: dict[str, str] = {}
        for run in runs:
            for update in run.updates.values():
                if update.request.input.name == SAY:
                    [payload] = update.request.input.args.payloads
                    texts[update.id] = unpack(RawValue(payload), Say).text
        ids = [update_id for update_id, text in texts.items() if text == delivery.text]
        if len(ids) > 1 or (ids and not delivery.is_signed):
            raise BrokenError(PROMISE, f"{delivery} is these messages: {ids}", runs[-1])


def _check_known(simulated: Simulated) -> None:
    """Check that no turn has the name of a hook and no delivery.

    One that takes back an effect has the id of the turn that has made it, and more.
    """
    ids = {one.id for one in simulated.world.deliveries.values()}
    for run in simulated.server.runs:
        delivered = run.id.partition("/undo-")[0]
        if run.id.startswith("hooks/") and run.parent is None and delivered not in ids:
            raise BrokenError(PROMISE, f"no delivery has begun {run.id}", run)
