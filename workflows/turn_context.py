"""What a turn knows: the fold of its facts, its clock, and what it shows of both."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from temporalio import workflow

from perdure.errors import PerdureError
from perdure.turn import ending
from perdure.turn.decide import time_kept
from perdure.turn.facts import CallFailed, ChildScheduled, Fact, Scheduled
from perdure.turn.fold import apply, fold
from perdure.turn.keys import ChildKey, ModelKey, PolicyKey, ReadKey, ToolKey
from perdure.turn.state import TurnState
from perdure.turn.wire import Summary
from perdure.values.budgets import DIMENSIONS, Remaining
from perdure.values.reports import Outcome
from perdure.workflows.clock import Clock
from perdure.workflows.ui_details import card


class Board:
    """The state of a turn, and the only way to change it: a fact."""

    def __init__(self) -> None:
        self.state = TurnState()
        self.clock = Clock()
        self.failing_since = datetime.min.replace(tzinfo=UTC)
        self._now = ""
        self._before = self.state
        self._news: list[Fact] = []
        self._length = -1
        self._began: dict[tuple[int, int], datetime] = {}

    def note(self, fact: Fact) -> None:
        """Something happened."""
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

    def took_ms(self, key: ModelKey | ToolKey | PolicyKey) -> int:
        """How long the last attempt of a call has run; zero for one that was not started."""
        began = self._began.get((key.step, key.call))
        return 0 if began is None else int((workflow.now() - began).total_seconds() * 1000)

    def is_new(self, fact: Fact) -> bool:
        """Whether a fact was noted in this very workflow task, so that history has no word of it yet."""
        return self._length == workflow.info().get_current_history_length() and any(
            one is fact for one in self._news
        )

    def withdraw(self, fact: Scheduled) -> None:
        """A call never left the workflow: things are as if it had not been noted.

        It has to be new.
        """
        self._news = [one for one in self._news if one is not fact]
        self.state = fold(self._news, self._before)

    @property
    def time_left(self) -> timedelta | None:
        """Of the turn; None where it has no limit."""
        return self.clock.left(self.state.time_limit)

    @property
    def time_for_calls(self) -> timedelta | None:
        """Until the next deadline.

        The turn's, or that of an agent that keeps time for its last answer.
        """
        left = self.time_left
        kept = time_kept(self.state, self.state.agent) if self.state.agent else timedelta()
        return None if left is None else max(left - kept, timedelta())

    @property
    def remaining(self) -> Remaining:
        """What is left of the budget."""
        left = {
            dimension: self.state.accounts.ledger.remaining(dimension) for dimension in DIMENSIONS
        }
        return Remaining.model_validate({"time": self.time_left, **left})

    @property
    def failing_for(self) -> timedelta:
        """The time since the first of the model's failures that count; zero where there is none."""
        return (
            workflow.now() - self.failing_since if self.state.attempts.unpardoned else timedelta()
        )

    def show(self, now: str = "") -> None:
        """Say in the web UI what the turn does now; without it, what it did last is still true."""
        self._now = now or self._now
        left = self.time_left
        at = workflow.now()
        workflow.set_current_details(
            card(
                self.state,
                self._now,
                at,
                None if left is None or self.state.waits_for_people else at + left,
            )
        )

    def show_end(self, outcome: Outcome) -> None:
        """Say in the web UI how the turn ended.

        It waits for nothing any more, and its time does not run out.
        """
        over = replace(self.state, waiting=None)
        workflow.set_current_details(card(over, f"ended: {outcome.value}", workflow.now(), None))

    def summary(
        self,
        outcome: Outcome,
        output: str = "",
        risk: str | None = None,
        error: PerdureError | None = None,
    ) -> Summary:
        """How the turn went."""
        took = workflow.now() - workflow.info().workflow_start_time
        return ending.summary(self.state, outcome, took, output=output, risk=risk, error=error)
