"""A turn as others are told of it who cannot hold a `Turn`: plain values, as far as its history goes."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from perdure import ends
from perdure.activities import search
from perdure.activities.search import State
from perdure.approvals import PendingApproval
from perdure.clients.doing import PEOPLE, doing
from perdure.reports import Outcome
from perdure.state import TurnState
from perdure.tasks import headline
from perdure.text import clip
from perdure.values import Value

OUTPUT_BYTES = 100_000
"""More of an answer is not told: assistants have a window, too."""


class WaitingCall(Value):
    """A tool call that waits for a person.

    An approval is bound to `digest`, which names the run, the call and its arguments. `arguments`
    is JSON text, whole.
    """

    call: str
    tool: str
    arguments: str
    digest: str
    expires_at: datetime


class TurnView(Value):
    """How far a turn is.

    Attributes:
        turn: Its id.
        agent: The agent's name.
        task: What was asked, in one line.
        state: `running`; `waiting` for a person; `paused` until somebody adds to its budget; `ended`.
        doing: What happens in it, in words.
        steps: Completed steps.
        cost_usd: What it was charged with so far; none where nobody knows the price.
        waiting_calls: The calls that wait for a person.
        waiting_delegates: The ids of turns below it that wait for somebody.
        outcome: How it ended; none before.
        output: Its answer, or the last words of a turn that failed, unless a guardrail refused them; none before.
        error: Why it failed: code and message; empty otherwise.
    """

    turn: str
    agent: str
    task: str
    state: State
    doing: str
    steps: int
    cost_usd: Decimal | None = None
    waiting_calls: tuple[WaitingCall, ...] = ()
    waiting_delegates: tuple[str, ...] = ()
    outcome: Outcome | None = None
    output: str | None = None
    error: str = ""


def view(turn_id: str, state: TurnState, pending: tuple[PendingApproval, ...] = ()) -> TurnView:
    """What `state` says of a turn; `pending` are the calls that wait in it, with their arguments whole."""
    error = ends.error_of(state.ended, state.cancel_reason) if state.ended else None
    return TurnView(
        turn=turn_id,
        agent=state.request.agent if state.request else "",
        task=headline(state.request.task) if state.request else "",
        state=where(state),
        doing=now(state),
        steps=len(state.steps),
        cost_usd=state.charged.usd if state.is_priced_so_far else None,
        waiting_calls=tuple(
            WaitingCall(call=one.call_id, tool=one.tool, arguments=one.arguments, digest=one.token, expires_at=one.expires_at) for one in pending
        ),
        waiting_delegates=tuple(child.turn_id for child in state.children if child.waits_for and not child.ended),
        outcome=state.ended.outcome if state.ended else None,
        output=clip(state.output, OUTPUT_BYTES) if state.ended else None,
        error=f"{error.code}: {error.message}" if error else "",
    )


def where(state: TurnState) -> State:
    """Where a turn is."""
    if state.ended is not None:
        return State.ENDED
    if state.waiting is not None and state.waiting.kind in PEOPLE:
        return search.state_of(state.waiting.kind)
    return State.RUNNING


def needs_somebody(state: TurnState) -> bool:
    """Whether a person has to do something, here or in a turn below it."""
    return where(state) in (State.WAITING, State.PAUSED) or any(child.waits_for and not child.ended for child in state.children)


def now(state: TurnState) -> str:
    """What happens in a turn, in words."""
    if state.ended is not None:
        return f"ended: {state.ended.outcome.value}"
    if state.waiting is not None and state.waiting.kind in PEOPLE:
        return f"{doing(state)}: {state.waiting.reason}"
    waiting = [f"{child.turn_id} waits for {child.waits_for}" for child in state.children if child.waits_for and not child.ended]
    return ", ".join([doing(state, gap=": "), *waiting])
