"""What a simulation has shown: its messages and what became of them, and its public events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from temporalio.api.history.v1 import HistoryEvent
from temporalio.common import RawValue

from perdure.clients.reading import public_events
from perdure.clients.reading.event_context import EventContext
from perdure.clients.reading.events import is_event
from perdure.session.facts import (
    MessageSent,
    MessageUnqueued,
    SessionClosed,
    SessionContinued,
    SessionFact,
    SteeringFailed,
    TurnBegan,
    TurnInterrupted,
    TurnRecorded,
)
from perdure.session.state import SessionState, apply
from perdure.session.wire import Left, Say, SessionRequest, Unqueue, UpdateResult
from perdure.temporal.histories.turn_history import key_of
from perdure.temporal.names import CALL_MODEL, CLOSE, SAY, SESSION, STEER, TURN, UNQUEUE
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.choices import FORGED
from perdure.testing.simulation.people import People
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun, UpdateResponse
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.testing.simulation.world import SimulatedWorld
from perdure.turn.wire import TurnRequest

_ENDS_OF_CHILDREN = {
    f"CHILD_WORKFLOW_EXECUTION_{how}"
    for how in ("COMPLETED", "FAILED", "CANCELED", "TERMINATED", "TIMED_OUT")
}


class Hearing(Protocol):
    """What was told of the text of models while it was generated."""

    misheard: str


@dataclass(frozen=True)
class Simulated:
    """All that a check may look at.

    Attributes:
        request: The input of the turn or the session; None for a batch or a schedule.
        hearing: What the worker has told of live text.
    """

    server: SimulatedServer
    world: SimulatedWorld
    people: People
    request: TurnRequest | SessionRequest | None
    hearing: Hearing


def last_runs(server: SimulatedServer) -> Iterator[SimulatedRun]:
    """Yield the last run of each turn."""
    last = {run.begun.first_run_id: run for run in server.runs if run.begun.type == TURN}
    yield from last.values()


def chain(server: SimulatedServer, last: SimulatedRun) -> list[SimulatedRun]:
    """Return the runs that a run continues, the first one first, and the run itself.

    A run that was reset is not among them: the next one has its history up to the point.
    """
    runs = {run.begun.run_id: run for run in server.runs}
    found = [last]
    while before := runs.get(found[0].begun.continued):
        found.insert(0, before)
    return found


def effects_of(server: SimulatedServer, last: SimulatedRun) -> dict[SimulatedRun, int]:
    """Return the runs whose calls belong to the history of a run, and up to which event each.

    They are those that it continues, and those that were reset, up to the point.
    """
    found: dict[SimulatedRun, int] = {}
    for run in chain(server, last):
        found[run], base, limit = len(run.history) + 1, run.base, len(run.history) + 1
        while base is not None:
            limit = min(limit, base[1])
            found[base[0]], base = limit, base[0].base
    return found


def messages_of_turn(server: SimulatedServer, last: SimulatedRun) -> list[str]:
    """Return the ids of the messages that a turn has accepted without an error, in order."""
    found: list[str] = []
    for run in chain(server, last):
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


def ended_locally(event: HistoryEvent) -> str | None:
    """Return the key of the local activity whose result an event records; None for all others."""
    if name_of(event) != "MARKER_RECORDED" or "result" not in attributes(event).details:
        return None
    key = key_of(event)
    return None if key is None else str(key)


def sessions(server: SimulatedServer) -> dict[str, list[SimulatedRun]]:
    """Return the runs of each session, by its id, without those that were reset or refused."""
    begun = [run for run in server.runs if not run.id.startswith(FORGED)]
    last = {run.id: run for run in begun if run.begun.type == SESSION}
    return {session_id: chain(server, run) for session_id, run in last.items()}


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


def agents_named(runs: Sequence[SimulatedRun]) -> dict[str, str]:
    """Return the agent that users have named for each turn of a session, by the turn's id.

    It is the one that the last message was meant for that named any, or that of the session.
    """
    found: dict[str, str] = {}
    meant: dict[str, str | None] = {}
    state, named = SessionState(), ""  # in a fork, those of the session that it was made of
    for fact in (fact for run in runs for fact in run.session_facts):
        match fact:
            case SessionContinued(snapshot) if not named:
                named = snapshot.named
            case MessageSent():
                meant[fact.id] = fact.agent
            case TurnBegan(turn_id=turn_id):
                agents = [meant.get(one.id) for one in state.queue]
                named = next((agent for agent in reversed(agents) if agent), named)
                found[turn_id] = named or (state.request.agent if state.request else "")
        state = apply(state, fact)
    return found


def answers_to_close(runs: Sequence[SimulatedRun]) -> Iterator[list[str]]:
    """Yield which messages are left, by each answer to a close at which no turn ran."""
    state = SessionState()
    is_quiet: list[bool] = []
    for fact in (fact for run in runs for fact in run.session_facts):
        if isinstance(fact, SessionClosed):
            is_quiet.append(not state.is_busy)
        state = apply(state, fact)
    answers = [answer for run in runs for answer in _answers(run, CLOSE)]
    for was_quiet, answer in zip(is_quiet, answers, strict=False):
        if was_quiet and answer is not None:
            yield [one.id for one in unpack(answer, Left).unread]


def answers_to_unqueue(runs: Sequence[SimulatedRun]) -> Iterator[tuple[str, bool | None]]:
    """Yield each message that was to be taken back, with the answer; None without one."""
    for run in runs:
        asked: dict[str, str] = {}
        for event in run.history.events:
            content, kind = attributes(event), name_of(event)
            if kind == "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
                update = run.updates[content.protocol_instance_id]
                if update.request.input.name == UNQUEUE:
                    [payload] = update.request.input.args.payloads
                    asked[update.id] = unpack(RawValue(payload), Unqueue).id
            elif kind == "WORKFLOW_EXECUTION_UPDATE_COMPLETED" and content.meta.update_id in asked:
                message_id = asked.pop(content.meta.update_id)
                payloads = content.outcome.success.payloads
                done = unpack(RawValue(payloads[0]), UpdateResult).done if payloads else None
                yield message_id, done
        for message_id in asked.values():
            yield message_id, None


def sent_after_close(runs: Sequence[SimulatedRun]) -> set[str]:
    """Return the ids of the messages of a session that were noted after it was closed."""
    facts = [fact for run in runs for fact in run.session_facts]
    closed = next(
        (n for n, fact in enumerate(facts) if isinstance(fact, SessionClosed)), len(facts)
    )
    return {fact.id for fact in facts[closed:] if isinstance(fact, MessageSent)}


def _answers(run: SimulatedRun, name: str) -> list[RawValue | None]:
    """Return the answers to the accepted updates of a name; None for one that has failed.

    None for one that came in the workflow task that was told of a turn's end, too: the SDK runs its
    handler before.
    """
    answers: dict[str, RawValue | None] = {}
    beside_an_end = set[str]()
    has_ended = was_told = False
    for event in run.history.events:
        content, kind = attributes(event), name_of(event)
        if kind in _ENDS_OF_CHILDREN:
            has_ended = True
        elif kind == "WORKFLOW_TASK_COMPLETED":
            has_ended, was_told = False, has_ended
        elif kind == "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
            if content.accepted_request.input.name == name:
                answers[content.protocol_instance_id] = None
                if was_told:
                    beside_an_end.add(content.protocol_instance_id)
        elif kind == "WORKFLOW_EXECUTION_UPDATE_COMPLETED" and content.meta.update_id in answers:
            payloads = content.outcome.success.payloads
            if payloads and content.meta.update_id not in beside_an_end:
                answers[content.meta.update_id] = RawValue(payloads[0])
    return list(answers.values())


def begins_turn_after_cancel(run: SimulatedRun) -> bool:
    """Return whether a session begins a turn after the task that was told of its cancel."""
    tasks_since: int | None = None
    for event in run.history.events if run.begun.type == SESSION and run.is_cancelled else ():
        match name_of(event):
            case "WORKFLOW_EXECUTION_CANCEL_REQUESTED":
                tasks_since = 0
            case "WORKFLOW_TASK_COMPLETED" if tasks_since is not None:
                tasks_since += 1
            case "START_CHILD_WORKFLOW_EXECUTION_INITIATED" if (tasks_since or 0) > 1:
                return True
    return False


def asks_model_after_cancel(run: SimulatedRun) -> bool:
    """Return whether a turn asks a model after the task that was told of its cancel."""
    tasks_since: int | None = None
    for event in run.history.events if run.begun.type == TURN and run.is_cancelled else ():
        match name_of(event):
            case "WORKFLOW_EXECUTION_CANCEL_REQUESTED":
                tasks_since = 0
            case "WORKFLOW_TASK_COMPLETED" if tasks_since is not None:
                tasks_since += 1
            case "ACTIVITY_TASK_SCHEDULED" if (tasks_since or 0) > 1:
                if attributes(event).activity_type.name == CALL_MODEL:
                    return True
    return False


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
        held: The ids of those that came when a turn was over, and did not begin the next one.
        came_back: For each turn, the ids of those that it begins with and that came too late for
            the turn before, in order.
    """

    def __init__(self, facts: Iterable[SessionFact]) -> None:
        self.read: list[str] = []
        self.turn_of: dict[str, str] = {}
        self.taken_back: list[str] = []
        self.held: list[str] = []
        self.came_back: list[list[str]] = []
        late: set[str] = set()
        failed: set[str] = set()
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
                self.held += [one.id for one in state.queue if state.is_parked and one.id in late]
                late.clear()
            if isinstance(fact, SteeringFailed):
                failed.add(fact.id)
            if isinstance(fact, TurnBegan):
                self.came_back.append([one.id for one in state.given if one.id in failed])
                failed.clear()
            if isinstance(fact, MessageSent) and before.is_over:
                late.add(fact.id)
            if isinstance(fact, TurnInterrupted):
                late.clear()  # whoever interrupts lets the queue wait
        self.left = [message.id for message in (*state.given, *state.queue)]

    def __str__(self) -> str:
        return f"read: {self.read}, left: {self.left}, taken back: {self.taken_back}"
