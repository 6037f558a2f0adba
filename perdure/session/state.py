"""The fold from facts to the state of a session. Pure.

The workflow and every reader of its history apply the same facts. A message may be known to the
workflow before the end of a turn that history has before the message, so the two facts may come in
either order.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce

from pydantic_core import to_json

from perdure import errors, limits
from perdure.base import replace
from perdure.session.bounds import bounded
from perdure.session.facts import (
    MessageSent,
    MessageSteered,
    MessageUnqueued,
    ReminderDue,
    ReminderForgotten,
    ReminderSet,
    SessionBudgetAdded,
    SessionClosed,
    SessionContinued,
    SessionFact,
    SessionResumed,
    SessionStarted,
    SteeringFailed,
    TurnBegan,
    TurnInterrupted,
    TurnOver,
    TurnRecorded,
)
from perdure.session.wire import (
    Queued,
    Reminder,
    SessionFork,
    SessionRequest,
    SessionSnapshot,
    SessionTurn,
    TurnEnd,
)
from perdure.turn import carry
from perdure.turn.effect_values import EffectScopes
from perdure.turn.ledger import Ledger
from perdure.turn.media import without_oldest
from perdure.turn.wire import TurnRequest
from perdure.values.budgets import DIMENSIONS, NOTHING, Budget, Spending
from perdure.values.client_tools import tools_size
from perdure.values.content import MEDIA_ELSEWHERE, parts_size
from perdure.values.effects import EffectRecord, latest, within
from perdure.values.messages import Message, canonical
from perdure.values.reports import Outcome
from perdure.values.shared_state import SharedState, size_of
from perdure.values.tasks import Task


@dataclass(frozen=True)
class SessionState:
    """Everything that follows from the facts of a session so far.

    Attributes:
        request: The input of the session.
        agent: The agent that answers the next message: the agent that answered last.
        named: The agent that a caller named last, whose rules hold in the turns.
        count: The number of turns that were started.
        turns: The last turns that are over, with their ends.
        running: The turn that runs, or whose messages are not recorded yet.
        is_over: Whether that turn is over.
        queue: The messages that wait for the next turn.
        given: The messages that the running turn was given or sent, until it is recorded.
        steered: The ids of those that were sent to it, also if they came too late, in order.
        messages: The recorded messages, which the next turn begins with.
        starts: The places in them where a turn begins.
        dropped: The number of turns whose messages are not among them any more.
        ledger: The budget and what was spent of it.
        parts: The messages of the turn that is being recorded, so far.
        is_parked: Whether the queue waits for the next message, because a turn was cancelled, or
            could not be begun.
        is_interrupted: Whether the running turn was asked to stop.
        goes_on: Whether a turn reads the queue even if the running turn ends as cancelled.
        forked_from: The point in another session from which it goes on; None for other sessions.
        effects: What is known of the effects of its turns.
        effect_scope: The scope of these effects, if that is another session's.
        reminders: The reminders that are not due yet; of a closed session, those that never came.
        shared_state: The shared state that the last turn has ended with, or has begun with.
        closed: The reason why the session takes no more messages; None while it does.
    """

    request: SessionRequest | None = None
    agent: str = ""
    named: str = ""
    count: int = 0
    turns: tuple[SessionTurn, ...] = ()
    running: SessionTurn | None = None
    is_over: bool = False
    queue: tuple[Queued, ...] = ()
    given: tuple[Queued, ...] = ()
    steered: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()
    starts: tuple[int, ...] = ()
    dropped: int = 0
    ledger: Ledger = Ledger()
    closed: str | None = None
    parts: tuple[Message, ...] = ()
    is_parked: bool = False
    is_interrupted: bool = False
    goes_on: bool = False
    forked_from: SessionFork | None = None
    effects: tuple[EffectRecord, ...] = ()
    effect_scope: str = ""
    reminders: tuple[Reminder, ...] = ()
    shared_state: SharedState = field(default_factory=dict)

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs."""
        return self.running is not None and not self.is_over

    @property
    def may_start(self) -> bool:
        """Whether a turn begins with the queue as soon as none runs."""
        return bool(self.queue) and not self.is_parked and not self.is_spent

    def is_taken_back(self, message_id: str) -> bool:
        """Return whether a message that was given to the last turn neither waits nor was read."""
        last = self.turns[-1] if self.turns else None
        was_read = last is not None and message_id in {*last.messages} - {*last.unread}
        return not was_read and all(one.id != message_id for one in (*self.queue, *self.given))

    @property
    def is_spent(self) -> bool:
        """Whether the turns that are recorded have spent a limit of the budget."""
        recorded = replace(self.ledger, held={}, reserved=NOTHING)
        return any(recorded.remaining(name) == 0 for name in DIMENSIONS)

    def check_room(self, message: MessageSent, most_bytes: int = limits.UNREAD_MEDIA_BYTES) -> None:
        """Refuse a message that does not fit into the queue.

        `most_bytes` is the limit of the messages with images or files together, as JSON.

        Raises:
            SessionBusyError: Too many messages wait, or they are too large together.
            TooLargeError: The message alone is too large.
        """
        text, parts = _size(message.text), parts_size(message.parts)
        if text > limits.UNREAD_BYTES:
            raise errors.TooLargeError(
                f"the message is {text} bytes of JSON, more than {limits.UNREAD_BYTES}; give"
                " the agent a tool that reads the rest",
                context={"bytes": text, "limit": limits.UNREAD_BYTES},
            )
        if text + parts > most_bytes:
            raise errors.TooLargeError(
                f"the message is {text + parts} bytes of JSON, more than {most_bytes};"
                f" {MEDIA_ELSEWHERE}",
                context={"bytes": text + parts, "limit": most_bytes},
            )
        waiting = (*self.queue, *self.given[1:])
        bytes_ = text + sum(_size(queued.text) for queued in waiting)
        with_parts = bytes_ + parts + sum(parts_size(queued.parts) for queued in waiting)
        with_parts += tools_size(message.client_tools)
        with_parts += sum(tools_size(queued.client_tools) for queued in waiting)
        with_parts += size_of(message.shared_state)
        with_parts += sum(size_of(queued.shared_state) for queued in waiting)
        is_full = len(waiting) >= limits.UNREAD_MESSAGES or bytes_ > limits.UNREAD_BYTES
        if is_full or with_parts > most_bytes:
            raise errors.SessionBusyError(
                f"{len(waiting)} messages wait in the session, of at most"
                f" {limits.UNREAD_MESSAGES}, {limits.UNREAD_BYTES} bytes of text, and"
                f" {most_bytes} bytes together; send this one again when a turn has read them",
                context={"messages": len(waiting), "limit": limits.UNREAD_MESSAGES},
            )

    def next_turn(self, session_id: str, run_id: str) -> TurnRequest:
        """Return the input of a turn that reads the messages of the queue.

        The first message is its task.
        """
        assert self.request is not None
        first, *following = self.queue
        named, agent = self.chosen
        return TurnRequest(
            **{**self.request.passed_on(), "budget": self._left},
            agent=named,
            handed_to=None if agent == named else agent,
            task=Task(content=first.parts or first.text),
            live=self.request.live,
            said=tuple(queued.message for queued in following) or None,
            session=session_id,
            origin=carry.after_session(session_id, run_id, self.messages),
            effects=within(self.effects, limits.SUMMARY_BYTES // 4),
            effect_scopes=EffectScopes(session=self.effect_scope or session_id),
            client_tools=next((m.client_tools for m in reversed(self.queue) if m.client_tools), ()),
            shared_state=self.shared_for_next,
        )

    @property
    def shared_for_next(self) -> SharedState:
        """The shared state that the next turn begins with: of the last message that brings one."""
        brought = [each.shared_state for each in self.queue if each.shared_state is not None]
        return brought[-1] if brought else self.shared_state

    @property
    def chosen(self) -> tuple[str, str]:
        """The agent whose rules hold in the next turn, and the agent that begins it."""
        chosen = [message.agent for message in self.queue if message.agent is not None]
        return (chosen[-1], chosen[-1]) if chosen else (self.named, self.agent)

    @property
    def _left(self) -> Budget | None:
        """The rest of the budget, of which nothing may be spent."""
        return None if self.ledger.budget is None else self.ledger.rest

    def snapshot(
        self, answered: tuple[object, ...], most_bytes: int = limits.PAYLOAD_BYTES
    ) -> SessionSnapshot:
        """Return what the next run takes over. No turn may be running.

        Sentences are in the place of the oldest images and files of the messages where the whole
        would have more than `most_bytes`.
        """
        snapshot = self._snapshot(answered)
        excess = len(snapshot.model_dump_json()) - most_bytes
        if excess <= 0:
            return snapshot
        room = sum(len(canonical(message)) for message in snapshot.messages) - excess
        return snapshot.model_copy(update={"messages": without_oldest(snapshot.messages, room)})

    def _snapshot(self, answered: tuple[object, ...]) -> SessionSnapshot:
        assert self.request is not None
        assert self.running is None
        return SessionSnapshot.model_validate(
            {
                "session": self.request,
                "count": self.count,
                "turns": self.turns,
                "agent": self.agent,
                "named": self.named,
                "queue": self.queue,
                "is_parked": self.is_parked,
                "messages": self.messages,
                "starts": self.starts,
                "dropped": self.dropped,
                "ledger": self.ledger,
                "answered": answered,
                "forked_from": self.forked_from,
                "effects": self.effects,
                "effect_scope": self.effect_scope,
                "reminders": self.reminders,
                "shared_state": self.shared_state,
            }
        )


def fold(facts: Iterable[SessionFact], state: SessionState | None = None) -> SessionState:
    """Return the state after all of `facts`, starting from `state` or from an empty state."""
    return reduce(apply, facts, state or SessionState())


def apply(state: SessionState, fact: SessionFact) -> SessionState:
    """Return the state after another fact."""
    match fact:
        case SessionStarted(request):
            ledger = Ledger(request.budget)
            named = request.agent
            return replace(state, request=request, agent=named, named=named, ledger=ledger)
        case SessionContinued(snapshot):
            return _continued(snapshot)
        case MessageSent() | MessageSteered() | SteeringFailed() | MessageUnqueued():
            return _of_message(state, fact)
        case ReminderSet() | ReminderForgotten() | ReminderDue():
            return _of_reminder(state, fact)
        case TurnBegan() | TurnOver() | TurnRecorded():
            return _of_turn(state, fact)
        case SessionBudgetAdded(more):
            with suppress(errors.InvalidRequestError):  # its sender gets an error
                return replace(state, ledger=state.ledger.add(more))
            return state
        case TurnInterrupted():
            return replace(state, is_interrupted=True, goes_on=False)
        case SessionResumed():
            return replace(state, is_parked=False, goes_on=_goes_on(state, also=True))
        case SessionClosed(reason):
            return replace(state, closed=reason if state.closed is None else state.closed)


def _continued(snapshot: SessionSnapshot) -> SessionState:
    return SessionState(
        request=snapshot.session,
        count=snapshot.count,
        turns=snapshot.turns,
        agent=snapshot.agent or snapshot.session.agent,
        named=snapshot.named or snapshot.session.agent,
        queue=snapshot.queue,
        messages=snapshot.messages,
        starts=snapshot.starts,
        dropped=snapshot.dropped,
        ledger=snapshot.ledger,
        is_parked=snapshot.is_parked,
        forked_from=snapshot.forked_from,
        effects=snapshot.effects,
        effect_scope=snapshot.effect_scope,
        reminders=snapshot.reminders,
        shared_state=snapshot.shared_state,
    )


def _of_reminder(
    state: SessionState, fact: ReminderSet | ReminderForgotten | ReminderDue
) -> SessionState:
    if isinstance(fact, ReminderSet):
        known = any(reminder.id == fact.reminder.id for reminder in state.reminders)
        return state if known else replace(state, reminders=(*state.reminders, fact.reminder))
    due = next((reminder for reminder in state.reminders if reminder.id == fact.id), None)
    others = tuple(reminder for reminder in state.reminders if reminder is not due)
    state = replace(state, reminders=others)
    if due is None or isinstance(fact, ReminderForgotten):
        return state
    return _of_message(state, MessageSent(f"reminder-{due.id}", due.message))


def _of_message(
    state: SessionState, fact: MessageSent | MessageSteered | SteeringFailed | MessageUnqueued
) -> SessionState:
    match fact:
        case MessageSent(message_id, text, if_busy, by, agent, parts, tools, shared):
            queued = Queued(
                id=message_id,
                text=text,
                by=by,
                agent=agent,
                parts=parts,
                client_tools=tools,
                shared_state=shared,
            )
            is_next = if_busy == "interrupt" or state.is_interrupted or state.is_over
            return replace(
                state,
                queue=(*state.queue, queued),
                is_parked=False,
                goes_on=_goes_on(state, also=is_next),
            )
        case MessageSteered(message_id):
            moved = _with_id(state.queue, message_id)
            return replace(
                state,
                queue=_without(state.queue, message_id),
                given=(*state.given, *moved),
                steered=(*state.steered, message_id),
            )
        case SteeringFailed(message_id):
            return _came_back(state, message_id)
        case MessageUnqueued(message_id):
            return replace(state, queue=_without(state.queue, message_id))


def _came_back(state: SessionState, message_id: str) -> SessionState:
    """Return the state after a message came too late for the running turn: the next one reads it.

    It goes before what waits, and keeps its place among others that came back, whichever the
    session hears of first.
    """
    moved = _with_id(state.given, message_id)
    earlier = state.steered[: state.steered.index(message_id)] if moved else ()
    before = sum(message.id in earlier for message in state.queue)
    return replace(
        state,
        given=_without(state.given, message_id),
        queue=(*state.queue[:before], *moved, *state.queue[before:]),
    )


def _goes_on(state: SessionState, *, also: bool) -> bool:
    """Return whether a turn reads the queue even if the running turn ends as cancelled.

    Without a running turn, that is no question: the workflow may know a message before it knows
    that the turn is recorded, and a reader after that.
    """
    return state.running is not None and (state.goes_on or also)


def _of_turn(state: SessionState, fact: TurnBegan | TurnOver | TurnRecorded) -> SessionState:
    match fact:
        case TurnBegan(number, turn_id):
            return _begun(state, number, turn_id)
        case TurnOver(_, began):
            return replace(state, is_over=True) if began else _not_begun(state)
        case TurnRecorded(_, None):
            return _recorded(state, _unknown_end(state))
        case TurnRecorded(_, part):
            assert part is not None
            state = replace(state, parts=(*state.parts, *part.messages))
            return state if part.end is None else _recorded(state, part.end)


def _begun(state: SessionState, number: int, turn_id: str) -> SessionState:
    ids = tuple(message.id for message in state.queue)
    lease = {name: state.ledger.remaining(name) or 0 for name in DIMENSIONS}
    named, agent = state.chosen
    return replace(
        state,
        count=number,
        named=named,
        agent=agent,
        running=SessionTurn(number=number, turn_id=turn_id, messages=ids),
        is_over=False,
        is_interrupted=False,
        goes_on=False,
        given=state.queue,
        queue=(),
        shared_state=state.shared_for_next,
        ledger=state.ledger.hold(turn_id, Spending.model_validate(lease)),
    )


def _not_begun(state: SessionState) -> SessionState:
    """Return the state after a turn that could not be started: another turn reads its messages."""
    assert state.running is not None
    return replace(
        state,
        count=state.count - 1,
        running=None,
        goes_on=False,
        queue=(*state.given, *state.queue),
        given=(),
        steered=(),
        ledger=state.ledger.release(state.running.turn_id),
    )


def _unknown_end(state: SessionState) -> TurnEnd:
    """Return the end of a turn whose history is gone: it may have spent all that it was given."""
    assert state.running is not None
    lease = state.ledger.held.get(state.running.turn_id, NOTHING)
    return TurnEnd(outcome=Outcome.TERMINATED, spent=lease)


def _recorded(state: SessionState, end: TurnEnd) -> SessionState:
    """Return the state after the end of the running turn. What it has not read is queued again."""
    running = state.running
    assert running is not None
    unread = tuple(one for one in state.given if end.is_unread or one.id in end.unread)
    turn = running.model_copy(
        update={
            "messages": tuple(message.id for message in state.given),
            "unread": tuple(message.id for message in unread),
            "outcome": end.outcome,
            "spent": end.spent,
            "cost": end.spent.usd if end.is_priced else None,
        }
    )
    messages, starts = state.messages, state.starts
    if state.parts:
        starts = (*starts, len(messages))
        messages = (*messages, *state.parts)
    messages, starts, dropped = bounded(messages, starts)
    return replace(
        state,
        turns=(*state.turns, turn)[-limits.SESSION_TURNS :],
        agent=end.agent or state.agent,
        running=None,
        is_over=False,
        goes_on=False,
        given=(),
        steered=(),
        queue=(*unread, *state.queue),
        messages=messages,
        starts=starts,
        dropped=state.dropped + dropped,
        ledger=state.ledger.settle(running.turn_id, end.spent),
        is_parked=(end.outcome is Outcome.CANCELLED or end.is_unread) and not state.goes_on,
        parts=(),
        effects=latest((*state.effects, *end.effects)),
        shared_state=state.shared_state if end.shared_state is None else end.shared_state,
    )


def _size(text: str) -> int:
    return len(to_json(text))


def _with_id(messages: tuple[Queued, ...], message_id: str) -> tuple[Queued, ...]:
    return tuple(message for message in messages if message.id == message_id)


def _without(messages: tuple[Queued, ...], message_id: str) -> tuple[Queued, ...]:
    return tuple(message for message in messages if message.id != message_id)
