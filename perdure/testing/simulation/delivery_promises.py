"""What Perdure promises about webhooks, as checks of a simulated run."""

from __future__ import annotations

import json

from temporalio.common import RawValue

from perdure.delivery.webhook import WebhookCall, WebhookMessage
from perdure.temporal.names import MEMO_WEBHOOK, WEBHOOK
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.observations import Simulated, effects_of, last_runs
from perdure.testing.simulation.reading import memo_of
from perdure.testing.simulation.server.history import attributes
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError
from perdure.testing.simulation.world import URL, ReceivedMessage
from perdure.values.reports import Outcome

PROMISE = "webhooks are delivered or recorded"


def webhooks_are_delivered_or_recorded(simulated: Simulated) -> None:
    """A webhook is delivered or its failure is recorded, and each attempt has the same id.

    It is given up only if its receiver has refused it, at least once.
    There is one for each turn that was started with `on_done`; a turn that is reset to a point
    before it sends another. The message says how the turn has ended. A URL that the worker refuses
    gets nothing.
    """
    runs = simulated.server.runs
    message_ids = set[str]()
    others = [
        (run, *run.parent)
        for run in runs
        if run.begun.type == WEBHOOK and run.parent is not None and not call_of(run).message
    ]
    deliveries = len(others)
    for turn in last_runs(simulated.server):
        events = effects_of(simulated.server, turn)
        mine = [run for run, parent, number in others if number < events.get(parent, 0)]
        others = [one for one in others if one[0] not in mine]
        url = turn.read.request.on_done if turn.read.request else None
        most = 0 if url is None else 1
        if not (url == URL) <= len(mine) <= most:
            message = f"{len(mine)} deliveries to {url} were begun"
            raise BrokenError(PROMISE, message, turn)
        for delivery in mine:
            message_ids.add(_check_delivery(simulated, turn, delivery))
    for delivery, replaced, _ in others:
        message_ids.add(_check_delivery(simulated, replaced, delivery))
    if len(message_ids) != deliveries:
        raise BrokenError(PROMISE, f"several webhooks have the ids {sorted(message_ids)}")


def _check_delivery(simulated: Simulated, turn: SimulatedRun, delivery: SimulatedRun) -> str:
    """Check what a receiver was sent and what is recorded; return the id of the message."""
    call, received = call_of(delivery), check_attempts(simulated, delivery, turn)
    for one in received:
        _check_message(turn, one)
    return call.id


def call_of(delivery: SimulatedRun) -> WebhookCall:
    """Return the input of a delivery."""
    [payload] = attributes(delivery.history.events[0]).input.payloads
    return unpack(RawValue(payload), WebhookCall)


def check_attempts(
    simulated: Simulated, delivery: SimulatedRun, turn: SimulatedRun
) -> list[ReceivedMessage]:
    """Check the attempts of a delivery and its record; return what its receiver was sent."""
    call = call_of(delivery)
    received = [one for one in simulated.world.received if one.delivery == delivery.id]
    if received and call.url != URL:
        raise BrokenError(PROMISE, f"{call.url} is refused, and was sent a message", delivery)
    for one in received:
        if one.id != call.id:
            raise BrokenError(PROMISE, f"an attempt has the id {one.id}, not {call.id}", turn)
        if any(canary in str(one.message) for canary in simulated.world.canaries):
            message = f"a webhook has it: {one.message}"
            raise BrokenError("refused text leaves by no door", message, turn)
    record = json.loads(memo_of(delivery)[MEMO_WEBHOOK].data)
    is_delivered = delivery.closed == "WORKFLOW_EXECUTION_COMPLETED"
    if record["state"] != ("delivered" if is_delivered else "failed"):
        raise BrokenError(PROMISE, f"it has ended with {delivery.closed}: {record}", delivery)
    if is_delivered and not any(200 <= one.status < 300 for one in received):
        raise BrokenError(PROMISE, "no receiver has accepted it", delivery)
    is_refused = call.url != URL or any(one.status >= 300 for one in received)
    if not is_delivered and not is_refused:
        message = f"it was given up, and nobody has refused it: {record}"
        raise BrokenError(PROMISE, message, delivery)
    return received


def _check_message(turn: SimulatedRun, received: ReceivedMessage) -> None:
    """Check a message that a receiver was sent about the end of a turn."""
    assert isinstance(received.message, WebhookMessage)
    told, ended = received.message.data, turn.read.ended
    if turn.is_replaced and told.outcome is Outcome.TERMINATED:
        return  # by a reset, and another reset has replaced the run that went on
    if ended is None or (told.id, told.outcome) != (turn.id, ended.outcome):
        raise BrokenError(PROMISE, f"it says {told}, and the turn has ended with {ended}", turn)
