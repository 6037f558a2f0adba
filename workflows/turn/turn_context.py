"""The context of a turn: the fold of its facts, its clock, and how both are displayed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import workflow

from perdure.errors import PerdureError
from perdure.turn import ending
from perdure.turn.decide import time_kept
from perdure.turn.facts import CallFailed, ChildScheduled, Recorded, Scheduled
from perdure.turn.fold import apply, fold
from perdure.turn.keys import ChildKey, ModelKey, PolicyKey, ReadKey, ToolKey, VerifyKey
from perdure.turn.state import TurnState
from perdure.turn.wire import Summary
from perdure.values.budgets import DIMENSIONS, Remaining
from perdure.values.reports import Outcome
from perdure.workflows.turn.clock import Clock
from perdure.workflows.turn.ui_details import card


class Board:
    """The state of a turn, which only facts can change.

    Attributes:
        state: The state.
        clock: The time of the turn.
        failing_since: The time of the first of the model's failures that count; None without such
            failures.
        is_full: Whether the turn has to continue in a new run, also out of a wait.
    """

    def __init__(self) -> None:
        self.state = TurnState()
        self.clock = Clock()
        self.failing_since: datetime | None = None
        self.is_full = False
        self._now = ""
        self._is_over = False
        self._before = self.state
        self._news: list[Recorded] = []
        self._length = -1
        self._began: dict[tuple[int, int], datetime] = {}

    def note(self, fact: Recorded) -> None:
        """Add a fact."""
        if (
            isinstance(fact, CallFailed)
            and isinstance(fact.key, ModelKey)
            and not self.state.attempts.unpardoned
        ):
            self.failing_since = workflow.now()
        length = workflow.info().get_current_history_length()
        if length != self._length:
            self._length, self._before, self._news = length, self.state, []
        self._news.append(fact)
        if isinstance(fact, Scheduled | ChildScheduled) and isinstance(
            fact.key, ModelKey | ToolKey | ChildKey | ReadKey
        ):
            self._began[fact.key.step, fact.key.call] = workflow.now()
        self.state = apply(self.state, fact)

    def took_ms(self, key: ModelKey | ToolKey | PolicyKey | VerifyKey) -> int:
        """Return how long the last attempt of a call has run; zero if it was not started."""
        began = self._began.get((key.step, key.call))
        return 0 if began is None else int((workflow.now() - began).total_seconds() * 1000)

    def is_new(self, fact: Recorded) -> bool:
        """Return whether a fact was noted in this workflow task, and is not in history yet."""
        return self._length == workflow.info().get_current_history_length() and any(
            noted is fact for noted in self._news
        )

    def withdraw(self, fact: Scheduled) -> None:
        """Remove a new fact about a call that never left the workflow."""
        self._news = [noted for noted in self._news if noted is not fact]
        self.state = fold(self._news, self._before)

    @property
    def time_left(self) -> timedelta | None:
        """The turn's remaining time; None without a limit."""
        return self.clock.left(self.state.time_limit)

    @property
    def time_for_calls(self) -> timedelta | None:
        """The time until the next deadline; None without a deadline.

        It is the turn's, or the deadline of an agent that reserves time for its last answer.
        """
        time_left = self.time_left
        reserved = time_kept(self.state, self.state.agent) if self.state.agent else timedelta()
        return None if time_left is None else max(time_left - reserved, timedelta())

    @property
    def deadline(self) -> datetime | None:
        """The moment at which the turn ends at the latest; None without a deadline."""
        request = self.state.request
        return request.ends_at(self.clock.began) if request else None

    @property
    def is_too_late(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and workflow.now() >= self.deadline

    @property
    def remaining(self) -> Remaining:
        """The remaining budget."""
        return self.remaining_of(self.state)

    def remaining_of(self, state: TurnState) -> Remaining:
        """Return the remaining budget of this state."""
        ledger = state.accounts.ledger
        remaining = {dimension: ledger.remaining(dimension) for dimension in DIMENSIONS}
        return Remaining.model_validate({"time": self.clock.left(state.time_limit), **remaining})

    @property
    def failing_for(self) -> timedelta:
        """The time since the first of the model's failures that count; zero without failures."""
        if self.failing_since is None or not self.state.attempts.unpardoned:
            return timedelta()
        return workflow.now() - self.failing_since

    def show(self, now: str) -> None:
        """Show `now` as the current action in the web UI."""
        self._now = now

    def show_end(self, outcome: Outcome) -> None:
        """Show the end of the turn in the web UI, without waits and deadline."""
        self._now, self._is_over = f"ended: {outcome.value}", True

    @property
    def details(self) -> str:
        """The details in the web UI."""
        at, time_left = workflow.now(), self.time_left
        if self._is_over:
            return card(replace(self.state, waiting=None), self._now, at, None)
        if self.state.carried.origin is not None and self.state.awaits_parts:
            return ""  # there is nothing to show until the state of the run before is there
        time_up = None if time_left is None or self.state.is_untimed else at + time_left
        return card(self.state, self._now, at, time_up, self.deadline)

    def summary(
        self,
        outcome: Outcome,
        output: str = "",
        risk: str | None = None,
        error: PerdureError | None = None,
    ) -> Summary:
        """Return the summary of the turn."""
        took = workflow.now() - self.clock.began
        return ending.summary(self.state, outcome, took, output=output, risk=risk, error=error)
