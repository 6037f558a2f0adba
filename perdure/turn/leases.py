"""Leases: the share of its parent's budget that a delegate's turn may spend. Pure.

It is reserved from the remaining budget before the turn starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_DOWN, Decimal
from typing import Any

from perdure.agents.definitions import AgentDefinition
from perdure.base import replace
from perdure.errors import TurnBudgetExceededError
from perdure.turn import reservations
from perdure.turn.delegation_plan import Errand, asked, delegate_of, planned_beside
from perdure.turn.ledger import Ledger, in_words
from perdure.turn.state import TurnState
from perdure.values.budgets import Budget, Spending
from perdure.values.messages import ToolCall

COUNTS = ("tokens", "model_calls", "tool_calls")
_MICRO, _NANO = Decimal("0.000001"), Decimal("0.000000001")


def leases(
    state: TurnState, agent: AgentDefinition, calls: Sequence[ToolCall], others: int = 0
) -> tuple[tuple[Errand, ...], ...]:
    """Return the errands of calls that are made at once, each with its lease.

    A lease is the delegate's own budget, up to what is left, or else an equal share, with a share
    for the turn itself. Each lease is deducted before the next is computed. `others` is the number
    of tool calls made at the same time.

    Raises:
        TurnBudgetExceededError: There is not enough left to share.
    """
    planned = [asked(call) for call in calls]
    waiting = sum(len(errands) for errands in planned)
    ledger = state.accounts.ledger.hold("kept", reservations.kept(state, agent)).hold(
        "calls", Spending(tool_calls=len(calls) + others)
    )
    below = _below_each(state, calls, waiting)
    shared: list[tuple[Errand, ...]] = []
    for errands in planned:
        ready: list[Errand] = []
        for errand in errands:
            delegate = delegate_of(agent, errand.agent)
            lease = _lease(ledger, delegate.budget if delegate else None, waiting)
            ledger = ledger.hold(f"child-{waiting}", lease)
            waiting -= 1
            budget = _budget(ledger, lease, delegate.budget if delegate else None)
            ready.append(replace(errand, lease=lease, budget=budget, descendants=below))
        shared.append(tuple(ready))
    return tuple(shared)


def _below_each(state: TurnState, calls: Sequence[ToolCall], starting: int) -> int | None:
    """Return the number of turns that each turn started now may have below it.

    This is an equal share of what is left of the tree, with a share for the turn itself. The turns
    planned by further calls of the step are kept for them. None if the tree has no limit.
    """
    turns_left = state.descendants_left
    if turns_left is None or state.depth_left <= 1:
        return None if turns_left is None else 0
    return max(turns_left - starting - planned_beside(state, calls), 0) // (starting + 1)


def _lease(ledger: Ledger, named: Budget | None, waiting: int) -> Spending:
    """Return a share of what is left for `waiting` agents and the turn itself."""
    lease: dict[str, Any] = {}
    for name in ("usd", *COUNTS):
        remaining = ledger.remaining(name)
        if remaining is None:
            continue
        limit = getattr(named, name, None)
        if limit is not None:
            part: Any = min(limit, remaining)
        elif name == "usd":
            share = Decimal(remaining) / (waiting + 1)
            part = share.quantize(_MICRO, rounding=ROUND_DOWN) or share.quantize(
                _NANO, rounding=ROUND_DOWN
            )
        else:
            part = max(int(remaining) // (waiting + 1), 1) if remaining >= waiting else 0
        if part <= 0:
            raise TurnBudgetExceededError(
                f"{in_words(name, remaining)} are left, which is not enough to delegate with; raise"
                " the budget, or go on after the end with turn.resume(Budget(…))",
                context={"dimension": name, "limit": str(getattr(ledger.budget, name))},
            )
        lease[name] = part
    return Spending(**lease)


def _budget(ledger: Ledger, lease: Spending, named: Budget | None) -> Budget | None:
    """Return the budget that the child starts with.

    This is its lease where its parent has a limit, and its own budget in other dimensions.
    """
    limits_of_delegate = {
        name: value for name, value in named or () if value is not None and name != "time"
    }
    leased = {
        name: getattr(lease, name)
        for name in ("usd", *COUNTS)
        if getattr(ledger.budget, name, None) is not None
    }
    limited = {**limits_of_delegate, **leased}
    return Budget(**limited) if limited else None
