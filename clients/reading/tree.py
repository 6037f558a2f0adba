"""One turn of a tree, with the times of its current activity and of its waits for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from perdure.clients.reading.current_activity import doing, is_stopped
from perdure.clients.reading.events import Event
from perdure.turn.continuation import Continuation
from perdure.turn.facts import ChildTold, Recorded, TurnContinued
from perdure.turn.fold import fold
from perdure.turn.state import TurnState
from perdure.values.budgets import Spending


@dataclass
class Node:
    """One turn of a tree, from its events so far.

    Attributes:
        turn_id: The turn's id.
        agent: The name of its agent.
        state: The fold of its events.
        began: The time it was started; None before its first event.
        ended: The time it ended; None before the end.
        since: The start of its current activity.
        children: The turns that it delegated to, in order.
        told_at: The time of the last signal from each turn below it, by turn id: that it waits or
            continues.
        run_id: Temporal's id of the run; empty if it is not needed.
    """

    turn_id: str
    agent: str = ""
    state: TurnState = field(default_factory=TurnState)
    began: datetime | None = None
    ended: datetime | None = None
    since: datetime | None = None
    children: list[Node] = field(default_factory=list)
    told_at: dict[str, datetime] = field(default_factory=dict)
    run_id: str = ""
    _doing: str = ""
    _stands_since: datetime | None = None
    _stood: timedelta = timedelta()

    def see(self, event: Event) -> None:
        """Apply another event of the turn."""
        self._begin_runs(event.before)
        self.began = self.began or event.at
        self.state = event.onto(self.state)
        self.agent = self.state.request.agent if self.state.request else self.agent
        self.ended = event.at if self.state.ended else None
        if isinstance(event.fact, ChildTold) and (child := self.state.child(event.fact.key)):
            self.told_at[child.turn_id] = event.at
        self._count(event.at)

    def take_over(self, facts: Sequence[Recorded], at: datetime) -> None:
        """Apply the facts after the last event, with which a later run begins."""
        if not facts:
            return
        self._begin_runs(facts)
        self.state = fold(facts, self.state)
        self.agent = self.state.request.agent if self.state.request else self.agent
        self._count(at)

    def elapsed(self, now: datetime) -> timedelta:
        """Return the time that counts, without waits for people."""
        return (self._stands_since or self.ended or now) - (self.began or now) - self._stood

    @property
    def spent(self) -> Spending:
        """The spending of the turn and those below it so far, without reservations."""
        if self.state.ended is not None:
            return self.state.charged
        running = (
            child
            for child in self.children
            if not any(
                child_state.ended
                for child_state in self.state.children
                if child_state.turn_id == child.turn_id
            )
        )
        return sum((child.spent for child in running), self.state.accounts.ledger.spent)

    @property
    def deadline(self) -> datetime | None:
        """The time at which the turn ends at the latest; None without a deadline."""
        request = self.state.request
        return request.ends_at(self.began) if request and self.began else None

    def all(self) -> Iterator[Node]:
        """Yield the turn and all turns below it."""
        yield self
        for child in self.children:
            yield from child.all()

    def _begin_runs(self, facts: Sequence[Recorded]) -> None:
        for fact in facts:
            if isinstance(fact, TurnContinued):
                self._go_on(fact.continuation)

    def _go_on(self, continuation: Continuation) -> None:
        """Begin a later run of the turn: its time is the whole turn's."""
        self.began = continuation.began
        self._stood, self._stands_since = continuation.waited, continuation.waits_since

    def _count(self, at: datetime) -> None:
        """Update the start of the current activity and the time spent in waits for people."""
        if (now := doing(self.state)) != self._doing:
            self._doing, self.since = now, at
        if is_stopped(self.state):
            self._stands_since = self._stands_since or at
        elif self._stands_since:
            self._stood, self._stands_since = self._stood + at - self._stands_since, None
