"""What a turn is doing, in words, and what a person can do about it. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from perdure.clients.cli.amounts import time_in_words
from perdure.text import exact, word
from perdure.turn.keys import AgentKey, ChildKey, HookKey, Key, ModelKey, PolicyKey, ReadKey
from perdure.turn.ledger import in_words
from perdure.turn.state import PROVIDER, TurnState, Waiting
from perdure.values.budgets import DIMENSIONS, Spending


def doing(state: TurnState, gap: str = "  ") -> str:
    """What happens right now, without how long it has been so.

    `gap` stands between an activity's id and what it does.
    """
    if state.waiting is not None and not (state.waiting.kind == PROVIDER and state.in_flight):
        return _waits(state.waiting)
    calls = [key for key in state.in_flight if not isinstance(key, ChildKey | ReadKey)]
    children = [child for child in state.children if not child.ended]
    words = [f"{calls[0]}{gap}{', '.join(_activity(state, key) for key in calls)}"] if calls else []
    words += [f"{len(children)} delegate{'s' * (len(children) > 1)} at work"] if children else []
    return ", ".join(words) or "waits for a worker"


def _waits(waiting: Waiting) -> str:
    if waiting.kind == PROVIDER and waiting.until is not None:
        return f"waits for provider, attempt {waiting.attempt} at {waiting.until:%H:%M:%S} UTC"
    return f"waits for {word(waiting.kind)}" if waiting.is_told else "asks again in a moment"


def is_stopped(state: TurnState) -> bool:
    """Whether nothing at all goes on until a person does something.

    The time of the turn does not count then.
    """
    if state.waits_for_people:
        return True
    waiting = [child for child in state.children if child.waits_for and not child.ended]
    return bool(waiting) and len(waiting) == len(state.in_flight)


def spent(state: TurnState, spending: Spending, elapsed: timedelta) -> str:
    """What is spent of each limit of the budget; empty where there is no budget."""
    budget = state.accounts.ledger.budget
    if budget is None:
        return ""
    limits = {name: getattr(budget, name) for name in DIMENSIONS}
    words = [
        _part(name, getattr(spending, name), limit)
        for name, limit in limits.items()
        if limit is not None
    ]
    words += (
        [f"{time_in_words(min(elapsed, budget.time))} of {time_in_words(budget.time)}"]
        if budget.time
        else []
    )
    return f"spent {', '.join(words)}"


@dataclass(frozen=True)
class Commands:
    """Commands about turns that a shell takes as they stand, for the server that this command was told."""

    address: str | None = None

    def of(self, name: str, turn_id: str, *more: str, **options: str) -> str:
        """`perdure NAME TURN`, with options that are quoted as a shell needs it, and more words as they are."""
        named = {"address": self.address, **options} if self.address else options
        given = [part for option, value in named.items() for part in (f"--{option}", value)]
        return " ".join([exact(shlex.join(["perdure", name, turn_id, *given])), *more])

    def that_help(self, turn_id: str, state: TurnState) -> str:
        """What lets a turn go on that waits for a person."""
        assert state.waiting is not None
        if state.waiting.kind == "approval":
            return self.of("approvals", turn_id)
        if state.waiting.kind == "resume":
            return self.of("resume", turn_id)
        if state.waiting.kind == "iterations":
            return self.of("add-budget", turn_id, "--iterations N")
        limits = [
            (f"--{name.replace('_', '-')}", sign)
            for name, sign in _SIGNS.items()
            if getattr(state.accounts.ledger.budget, name, None) is not None
        ]
        return self.of("add-budget", turn_id, *(f"{option} {sign}" for option, sign in limits))


_SIGNS = {"usd": "AMOUNT", "time": "TIME", "tokens": "N", "model_calls": "N", "tool_calls": "N"}


def _activity(state: TurnState, key: Key) -> str:
    match key:
        case HookKey("observe"):
            return "observers"
        case HookKey():
            return "middleware"
        case AgentKey():
            return "looks the agent up"
        case ModelKey():
            model = state.in_flight.get(key) or (state.agent.model if state.agent else "")
            return f"asks {word(model) if model else 'the model'}"
    found = state.open_step.find(key.call)
    name = word(found.call.name) if found else "a tool"
    return f"asks the policy about {name}" if isinstance(key, PolicyKey) else f"runs {name}"


def _part(name: str, amount: Decimal | int, limit: Decimal | int) -> str:
    """`$0.02 of $0.50`, `2 of 10 model calls`."""
    return f"{in_words(name, amount).split()[0]} of {in_words(name, limit)}"
