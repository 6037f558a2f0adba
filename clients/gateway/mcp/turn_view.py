"""The status of a turn for MCP clients, in few fields."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from perdure.base import Value
from perdure.clients.turns.status import TurnStatus
from perdure.turn.waiting import PEOPLE
from perdure.values import states
from perdure.values.questions import Question
from perdure.values.reports import Outcome


class PendingCall(Value):
    """A tool call that waits for a person.

    An approval is bound to `digest`, which names the run, the call and its arguments. `call` is
    `call_id`, by its earlier name. `arguments` is JSON text, whole. `reason` is set where a person
    is asked because a deploy has changed the tool since the call was let run, and says what
    changed. With `is_unknown`, the call was made, and a person has to say what became of it;
    `reason` tells what is known. With `is_question`, the model of the turn asks a person, and
    `question` has the text, the `options` or the JSON schema of a `form`, and the `default`.
    """

    call_id: str
    call: str
    tool: str
    arguments: str
    digest: str
    expires_at: datetime
    reason: str = ""
    is_unknown: bool = False
    is_question: bool = False
    question: Question | None = None


class TurnView(Value):
    """How far a turn is.

    Attributes:
        turn: Its id.
        agent: The agent's name.
        task: What was asked, in one line.
        state: `running`; `waiting` for a person or a provider; `paused` until a person adds to
            its budget or its iterations, or resumes it; `ended`.
        doing: What happens in it, in words.
        steps: Completed steps.
        cost_usd: What it was charged so far; none if a price is unknown.
        waiting_calls: The calls that wait for a person.
        waiting_delegates: The ids of turns below it that wait for a person.
        outcome: How it ended; none before.
        output: Its answer; none before, and without one.
        last_text: The last text of the model in a turn that ended without an answer, unless a
            guardrail refused it; none otherwise.
        error: Why it failed: code and message; empty otherwise.
    """

    turn: str
    agent: str
    task: str
    state: states.OfTurn
    doing: str
    steps: int
    cost_usd: Decimal | None = None
    waiting_calls: tuple[PendingCall, ...] = ()
    waiting_delegates: tuple[str, ...] = ()
    outcome: Outcome | None = None
    output: str | None = None
    last_text: str | None = None
    error: str = ""


def view(status: TurnStatus) -> TurnView:
    """Return the view of a turn's status for MCP clients."""
    calls = [wait.call for wait in status.waits if wait.call and wait.turn_id == status.id]
    below = (
        wait.turn_id for wait in status.waits if wait.turn_id != status.id and wait.kind in PEOPLE
    )
    return TurnView(
        turn=status.id,
        agent=status.agent,
        task=status.task,
        state=status.state,
        doing=status.doing,
        steps=status.steps,
        cost_usd=status.spent.usd,
        waiting_calls=tuple(
            PendingCall(
                call_id=wait.call_id,
                call=wait.call_id,
                tool=wait.tool,
                arguments=wait.arguments,
                digest=wait.token,
                expires_at=wait.expires_at,
                reason=wait.reason,
                is_unknown=wait.is_unknown,
                is_question=wait.is_question,
                question=wait.question,
            )
            for wait in calls
        ),
        waiting_delegates=tuple(dict.fromkeys(below)),
        outcome=status.outcome,
        output=status.last_text if status.outcome and status.error is None else None,
        last_text=status.last_text if status.error else None,
        error=f"{status.error.code}: {status.error.message}" if status.error else "",
    )
