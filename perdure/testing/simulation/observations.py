"""What a simulation has shown: its messages and what became of them, and its public events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from temporalio.common import RawValue

from perdure.clients.reading import public_events
from perdure.clients.reading.event_context import EventContext
from perdure.clients.reading.events import is_event
from perdure.session.facts import MessageUnqueued, SessionFact, TurnRecorded
from perdure.session.state import SessionState, apply
from perdure.session.wire import Say
from perdure.temporal.names import SAY, SESSION, STEER, TURN
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.people import People
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun, UpdateResponse
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.testing.simulation.world import SimulatedWorld


@dataclass(frozen=True)
class Simulated:
    """All that a check may look at."""

    server: SimulatedServer
    world: SimulatedWorld
    people: People


def last_runs(server: SimulatedServer) -> Iterator[SimulatedRun]:
    """Yield the last run of each turn."""
    last = {run.begun.first_run_id: run for run in server.runs if run.begun.type == TURN}
    yield from last.values()


def messages_of_turn(server: SimulatedServer, first_run_id: str) -> list[str]:
    """Return the ids of the messages that a turn has accepted without an error, in order."""
    found: list[str] = []
    for run in server.runs:
        if run.begun.first_run_id != first_run_id:
            continue
        for event in run.history.events:
            if name_of(event) == "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
                update = run.updates[attributes(event).protocol_instance_id]
                is_message = update.request.input.name == STEER
                if (
                    is_message
                    and update.answer is not UpdateResponse.FAILED
                    and update.id not in found
                ):
                    found.append(update.id)
    return found


def public_texts(server: SimulatedServer, last: SimulatedRun) -> Iterator[str]:
    """Yield what the public events of a turn show, in all of its runs."""
    context = EventContext()
    for run in server.runs:
        for fact in run.facts if run.begun.first_run_id == last.begun.first_run_id else ():
            about = context.of(fact)
            yield about["text"]
            if is_event(fact):
                shown = public_events.shown(fact, about["calls"], public_events.PRIVATE)
                yield str(shown)


def sessions(server: SimulatedServer) -> dict[str, list[SimulatedRun]]:
    """Return the runs of each session, by its id."""
    found: dict[str, list[SimulatedRun]] = {}
    for run in server.runs:
        if run.begun.type == SESSION:
            found.setdefault(run.id, []).append(run)
    return found


def messages_of_session(runs: Sequence[SimulatedRun]) -> tuple[list[str], dict[str, str]]:
    """Return the ids of the messages that a session has accepted, in order, with their wishes."""
    accepted: list[str] = []
    wishes: dict[str, str] = {}
    for run in runs:
        for event in run.history.events:
            if name_of(event) != "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
                continue
            update = run.updates[attributes(event).protocol_instance_id]
            is_taken = update.request.input.name == SAY and (
                update.answer is not UpdateResponse.FAILED
            )
            if is_taken and update.id not in wishes:
                accepted.append(update.id)
                [payload] = update.request.input.args.payloads
                wishes[update.id] = unpack(RawValue(payload), Say).if_busy
    return accepted, wishes


def failed_updates(runs: Iterable[SimulatedRun]) -> set[str]:
    """Return the ids of the updates that have failed after they were accepted."""
    failed = UpdateResponse.FAILED
    return {one.id for run in runs for one in run.updates.values() if one.answer is failed}


class MessageFates:
    """What has become of the messages of a session.

    Attributes:
        read: The ids of those that a turn has read, in order.
        left: The ids of those that wait, in order, with those of a turn that was not recorded.
        taken_back: The ids of those that their senders have taken back.
    """

    def __init__(self, facts: Iterable[SessionFact]) -> None:
        self.read: list[str] = []
        self.turn_of: dict[str, str] = {}
        self.taken_back: list[str] = []
        state = SessionState()
        for fact in facts:
            before, state = state, apply(state, fact)
            if isinstance(fact, MessageUnqueued) and len(state.queue) < len(before.queue):
                self.taken_back.append(fact.id)
            if before.running is not None and isinstance(fact, TurnRecorded) and not state.running:
                turn = state.turns[-1]
                new = [one for one in turn.messages if one not in turn.unread]
                self.read += new
                self.turn_of |= dict.fromkeys(new[1:], turn.turn_id)
        self.left = [message.id for message in (*state.given, *state.queue)]

    def __str__(self) -> str:
        return f"read: {self.read}, left: {self.left}, taken back: {self.taken_back}"
