"""The spending of a turn, and commands with which a person can let it continue."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from perdure import errors
from perdure.text import exact, money
from perdure.turn import questions
from perdure.turn.facts import TurnEnded
from perdure.turn.ledger import in_words
from perdure.turn.state import TurnState
from perdure.values.budgets import DIMENSIONS, Spending
from perdure.values.moments import period_in_words
from perdure.values.questions import Question
from perdure.values.reports import Outcome, UnsettledCall

_SIGNS = {"usd": "AMOUNT", "time": "TIME", "tokens": "N", "model_calls": "N", "tool_calls": "N"}


def spent(state: TurnState, spending: Spending, elapsed: timedelta) -> str:
    """Format the spending for each limit of the budget; empty without a budget."""
    budget = state.accounts.ledger.budget
    if budget is None:
        return ""
    limits = {name: getattr(budget, name) for name in DIMENSIONS}
    parts = [
        _part(name, getattr(spending, name), limit)
        for name, limit in limits.items()
        if limit is not None
    ]
    parts += (
        [f"{period_in_words(min(elapsed, budget.time))} of {period_in_words(budget.time)}"]
        if budget.time
        else []
    )
    return f"spent {', '.join(parts)}"


@dataclass(frozen=True)
class CommandHints:
    """Commands about turns, ready to paste into a shell, for the same server as this command."""

    address: str | None = None

    def of(self, name: str, turn_id: str, *more: str, **options: str) -> str:
        """`perdure NAME TURN` with shell-quoted options and the arguments in `more` as they are."""
        named = {"address": self.address, **options} if self.address else options
        arguments = [part for option, value in named.items() for part in (f"--{option}", value)]
        return " ".join([exact(shlex.join(["perdure", name, turn_id, *arguments])), *more])

    def that_help(self, turn_id: str, state: TurnState) -> str:
        """Return the commands that let a turn that waits for a person continue."""
        assert state.waiting is not None
        if state.waiting.kind == "approval":
            calls = [call.call_id for call in state.waiting.pending]
            if calls and all(_is_login(questions.question_of(state, call)) for call in calls):
                return self.to_log_in(turn_id, calls)
            return self.of("approvals", turn_id)
        if state.waiting.kind == "resume":
            return self.of("resume", turn_id)
        if state.waiting.kind == "iterations":
            return self.of("add-budget", turn_id, "--iterations N")
        return self.of("add-budget", turn_id, *_limits(state))

    def to_log_in(self, turn_id: str, calls: Sequence[str]) -> str:
        """Return the command that logs in for the first of the calls of a turn that wait for it."""
        call = {"call": calls[0]} if len(calls) > 1 else {}
        return self.of("login", turn_id, **call)

    def to_settle(self, turn_id: str, call: UnsettledCall) -> str:
        """Return the command that says what became of a call of a turn that is over."""
        call_id = exact(shlex.quote(call.call_id))
        return self.of("settle", turn_id, call_id, "done|absent", "--result …")

    def to_resume(self, turn_id: str, state: TurnState) -> str:
        """Return the command after which a turn that is over continues; empty if there is none.

        An answer that was cut off would be cut off again. A turn whose agent no worker knew is
        started again, with the name of another agent and the same id.
        """
        outcome = state.ended.outcome if state.ended else Outcome.COMPLETED
        if outcome in (Outcome.COMPLETED, Outcome.TRUNCATED):
            return ""
        if outcome is Outcome.MAX_ITERATIONS:
            return self.of("resume", turn_id, "--max-iterations N")
        if state.agent is None and state.ended and _is_unknown(state.ended):
            return self.of("run", "AGENT", "TASK", id=turn_id)  # resumed, it would fail again
        is_spent = outcome is Outcome.BUDGET_EXHAUSTED
        return self.of("resume", turn_id, *(_limits(state) if is_spent else ()))


def _is_login(question: Question | None) -> bool:
    return question is not None and question.login is not None


def _is_unknown(ended: TurnEnded) -> bool:
    """Whether a turn failed because no worker knew its agent."""
    error = ended.summary.error if ended.summary else None
    return error is not None and error.code == errors.UnknownAgentError.code


def _limits(state: TurnState) -> list[str]:
    """Return the options for the limits that the budget of a turn has."""
    return [
        f"--{name.replace('_', '-')} {sign}"
        for name, sign in _SIGNS.items()
        if getattr(state.accounts.ledger.budget, name, None) is not None
    ]


def _part(name: str, amount: Decimal | int, limit: Decimal | int) -> str:
    """Format an amount and its limit: `$0.02 of $0.50`, `2 of 10 model calls`."""
    if name == "usd":
        return f"{money(Decimal(amount))} of {money(Decimal(limit))}"
    return f"{amount} of {in_words(name, limit)}"
