"""What a run takes over from another run, as it is recorded in history.

A release adds fields with a default, or increases `VERSION`.
"""

from __future__ import annotations

from perdure.agents.definitions import AgentDefinition
from perdure.base import Wire
from perdure.errors import ErrorInfo
from perdure.turn.approvals import Gate
from perdure.turn.child import Child
from perdure.turn.effect_values import Doubt
from perdure.turn.inbox import Inbox
from perdure.turn.inquiry_values import CallInquiry
from perdure.turn.job_values import CallJob
from perdure.turn.ledger import Bill, Ledger
from perdure.turn.wait_values import CallWait, LastEvent, TurnEvent
from perdure.turn.waiting import Waiting
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import Decision
from perdure.values.effects import EffectRecord
from perdure.values.losses import CallLoss
from perdure.values.messages import Message
from perdure.values.reports import LeftOut, Step, Tried, Usage
from perdure.values.shared_state import SharedState

VERSION = 1
"""The version of `Snapshot` and `CarriedPart`. A worker does not read a later one."""


class LastStep(Wire):
    """A closed step whose message and results are among the messages.

    `step` has neither; `ran` tells whether the results that follow the message belong to it.
    """

    step: Step
    ran: bool


class TokenRecord(Wire):
    """The tokens of the next model call that do not follow from the messages.

    `grown` is the bound of the messages since the call of `known_by` that reported `known` tokens.
    `told` and `told_of` belong to the estimate.
    """

    base: int
    asked_bound: int
    known: int = 0
    grown: int = 0
    known_by: str = ""
    told: int = 0
    told_of: int = 0


class OpenRecord(Wire):
    """The open step. Its message, calls and results are among the messages.

    `answer` has no message. `gates` has a gate for each open call, in order; it is empty once the
    step is closed. `doubts` has the same for calls whose outcome is unknown, and `losses` for calls
    whose last answer was lost, if there are any; `waits` has those that wait, `jobs` those whose
    result comes later, and `inquiries` those in which a server has asked people something.
    """

    answer: ModelAnswer | None = None
    gates: tuple[Gate, ...] = ()
    doubts: tuple[Doubt | None, ...] = ()
    losses: tuple[CallLoss | None, ...] = ()
    waits: tuple[CallWait | None, ...] = ()
    jobs: tuple[CallJob | None, ...] = ()
    inquiries: tuple[CallInquiry | None, ...] = ()
    decisions: tuple[Decision, ...] = ()
    objections: int = 0
    tried: tuple[Tried, ...] = ()
    bill: Bill | None = None
    unpassed: int = 0
    broken: ErrorInfo | None = None


class FailureRecord(Wire):
    """A failed attempt since the last answer. `key` is the text of its key."""

    key: str
    error: ErrorInfo
    lost: bool = False
    model: str = ""


class AttemptsRecord(Wire):
    """The failed attempts since the last answer, as in `perdure.turn.open_step.Attempts`."""

    failures: tuple[FailureRecord, ...] = ()
    pardoned: int = 0
    rounds: int = 0
    round_at: int = 0
    passed: tuple[str, ...] = ()
    stopped: int = 0


class Snapshot(Wire):
    """The state of a turn besides its request, agent, messages and delegates.

    Attributes:
        steps: The number of closed steps.
        last: The last closed steps, for the detection of loops.
        warned_of_loop: Whether the model was warned of a loop.
        opening: The place of the message with the task.
        left_out: The part of the transcript that is not among the messages; None if nothing is
            left out.
        tokens: The tokens of the next model call.
        open: The open step.
        attempts: The failed attempts since the last answer.
        ledger: The budget, the amount spent, and the amount reserved.
        usage: The tokens of all answers.
        model_calls: The number of model calls that were made.
        closed_calls: The number of tool calls of closed steps.
        more_iterations: The iterations added to the limit.
        unpriced: Whether a model with an unknown price was asked.
        waiting: The current wait; None without a wait.
        inbox: The messages of the user that the model has not read yet.
        finishing: Whether the last answer is requested, because the budget is spent.
        handed_by: The agents that handed the turn over, in order.
        worked: Whether the current agent has made a step that was more than a handoff.
        handed_at: The place of the first message after the last handoff.
        effects: What is known of the effects of its own calls.
        unsettled: The places of its own calls whose outcome is unknown, the last
            `limits.KNOWN_EFFECTS`.
        events: The events that no call has waited for yet.
        last_events: The last events by key that calls have got.
        shared: The shared state.
    """

    steps: int
    last: tuple[LastStep, ...] = ()
    warned_of_loop: bool = False
    opening: int = 0
    left_out: LeftOut | None = None
    tokens: TokenRecord
    open: OpenRecord
    attempts: AttemptsRecord
    ledger: Ledger
    usage: Usage
    model_calls: int
    closed_calls: int
    more_iterations: int = 0
    unpriced: bool = False
    waiting: Waiting | None = None
    inbox: Inbox = Inbox()
    finishing: bool = False
    handed_by: tuple[str, ...] = ()
    worked: bool = False
    handed_at: int = 0
    effects: tuple[EffectRecord, ...] = ()
    unsettled: tuple[str, ...] = ()
    events: tuple[TurnEvent, ...] = ()
    last_events: tuple[LastEvent, ...] = ()
    shared: SharedState = {}


class CarriedPart(Wire):
    """A part of what is carried over: the result of a `perdure.carry` activity.

    The lists of all parts are joined; results of a message may be split over several tool messages
    in a row. A fork has messages only, with the place of the message with the task.

    Attributes:
        version: The version of this shape. A value that is a default is not written, so that the
            default remains the first version.
        number: The number of the part, from 1.
        count: The number of parts.
        messages: Messages, in order.
        children: Turns of delegates, in order.
        agent: The definition that the turn is pinned to.
        snapshot: The rest of the state.
        opening: The place of the message with the task, for a fork.
    """

    version: int = 1
    number: int
    count: int
    messages: tuple[Message, ...] = ()
    children: tuple[Child, ...] = ()
    agent: AgentDefinition | None = None
    snapshot: Snapshot | None = None
    opening: int = 0
