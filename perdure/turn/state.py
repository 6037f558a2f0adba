"""The state of a turn: everything that follows from its facts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from perdure import validation
from perdure.agents.definitions import AgentDefinition
from perdure.agents.delegates import Lineage
from perdure.base import replace
from perdure.errors import InvalidRequestError
from perdure.schemas.strict_schema import Schema
from perdure.turn.approvals import Asked
from perdure.turn.child import Child
from perdure.turn.context_window import NO_CUT, Cut
from perdure.turn.facts import BudgetAdded, Folded, FromOutside, TurnEnded
from perdure.turn.inbox import Inbox
from perdure.turn.keys import ChildKey, Key
from perdure.turn.ledger import Ledger
from perdure.turn.open_step import Attempts, OpenStep
from perdure.turn.snapshot import CarriedPart
from perdure.turn.task_order import TaskSoFar
from perdure.turn.transcript import TokenCount, Transcript
from perdure.turn.wait_values import LastEvent, TurnEvent
from perdure.turn.waiting import DELAY, PEOPLE, PROVIDER, Waiting
from perdure.turn.wire import Origin, TurnRequest
from perdure.values.budgets import Spending
from perdure.values.effects import EffectRecord
from perdure.values.messages import AssistantMessage, Message, ToolMessage, UserMessage
from perdure.values.options import RequestOptions
from perdure.values.reports import Step, Usage
from perdure.values.shared_state import SharedState


@dataclass(frozen=True)
class Accounts:
    """The spending of a turn, and its limits.

    Attributes:
        ledger: The budget, the amount spent, and the amount reserved.
        usage: The tokens of all answers.
        model_calls: The number of model calls that were made.
        closed_calls: The number of tool calls of closed steps.
        added: The additions to the limits made before the agent, and so its limits, were known.
        more_iterations: The iterations added to the limit.
        unpriced: Whether a model with an unknown price was asked.
    """

    ledger: Ledger = Ledger()
    usage: Usage = Usage()
    model_calls: int = 0
    closed_calls: int = 0
    added: tuple[BudgetAdded, ...] = ()
    more_iterations: int = 0
    unpriced: bool = False


@dataclass(frozen=True, slots=True)
class Past:
    """The part of a turn that a reader has read in the histories of its earlier runs.

    Attributes:
        messages: The messages of the earlier runs, without those that each took over.
        steps: The closed steps of the earlier runs.
    """

    messages: tuple[Message, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class CarriedOver:
    """What this run has taken over from another run, or is taking over.

    Attributes:
        origin: The end of the run before, for a later run of a turn; None in its first run.
        parts: The parts so far, until all are there.
        is_ahead: Whether parts are missing that this reader does not need, because it has read the
            run before.
        waiting_facts: The updates of callers that came in before all parts were there.
        refused: Those of them that were refused then.
        first_run: Temporal's id of the first run of the turn; empty in that run.
        steps: The number of closed steps before the first of `TurnState.steps`.
        recorded: The number of closed steps of the earlier runs.
        messages: The number of messages that were taken over from an earlier run of the turn.
        warned_of_loop: Whether the model was warned of a loop in an earlier run.
        unsettled: The places of calls of the earlier runs whose outcome is unknown.
        past: The earlier runs, for a reader that has read them as well.
    """

    origin: Origin | None = None
    parts: tuple[CarriedPart, ...] = ()
    is_ahead: bool = False
    waiting_facts: tuple[FromOutside, ...] = ()
    refused: tuple[FromOutside, ...] = ()
    first_run: str = ""
    steps: int = 0
    recorded: int = 0
    messages: int = 0
    warned_of_loop: bool = False
    unsettled: tuple[str, ...] = ()
    past: Past | None = None


@dataclass(frozen=True)
class Handoffs:
    """The agents that handed the turn over.

    Attributes:
        by: Their names, in order.
        worked: Whether the current agent has made a step that was more than a handoff.
        place: The place of the first message after the last handoff.
    """

    by: tuple[str, ...] = ()
    worked: bool = False
    place: int = 0


@dataclass(frozen=True)
class TurnState:
    """Everything that follows from the facts so far.

    Attributes:
        request: The input of the turn.
        agent: The definition that it is pinned to; None until that is known. After a handoff it is
            the definition of the other agent, with the limits of the agent that the turn was
            started with.
        handoffs: The agents that handed the turn over.
        transcript: The messages.
        tokens: The number of their tokens.
        steps: The closed steps; in a later run of the turn, the steps of this run after the last
            few of the run before.
        open_step: The last answer, and its calls until each has a result.
        attempts: The failed attempts since the last answer.
        accounts: The spending, and its limits.
        inbox: The messages of the user that the model has not read yet.
        events: The events that no call has waited for yet, in the order in which they came.
        last_events: The last event by key that calls have got, by name and key: no call gets it, or
            an earlier one, again.
        in_flight: The running activities and children, in order, each with the model that it asks;
            an empty string for other activities.
        children: The turns of delegates.
        effects: What is known of the effects of its own calls, the last
            `limits.KNOWN_EFFECTS`.
        shared: Its shared state.
        waiting: The current wait; None without a wait.
        finishing: Whether the last answer is requested, because the budget is spent.
        cancel_reason: The reason of a requested cancellation; None without a request.
        ended: The end of the turn.
        carried: What this run has taken over from another run.
        task: What a reader of the history has of the last workflow task; the workflow itself has
            None.
    """

    request: TurnRequest | None = None
    agent: AgentDefinition | None = None
    handoffs: Handoffs = Handoffs()
    transcript: Transcript = Transcript()
    tokens: TokenCount = TokenCount()
    steps: tuple[Step, ...] = ()
    open_step: OpenStep = OpenStep()
    attempts: Attempts = Attempts()
    accounts: Accounts = Accounts()
    inbox: Inbox = Inbox()
    events: tuple[TurnEvent, ...] = ()
    last_events: tuple[LastEvent, ...] = ()
    in_flight: Mapping[Key, str] = field(default_factory=dict)
    children: tuple[Child, ...] = ()
    effects: tuple[EffectRecord, ...] = ()
    shared: SharedState = field(default_factory=dict)
    waiting: Waiting | None = None
    finishing: bool = False
    cancel_reason: str | None = None
    ended: TurnEnded | None = None
    carried: CarriedOver = CarriedOver()
    task: TaskSoFar[TurnState, Folded] | None = field(default=None, compare=False, repr=False)

    @property
    def origin(self) -> Origin | None:
        """The point from which this run continues; None for a run that began with a task."""
        return self.carried.origin or (self.request.origin if self.request else None)

    @property
    def last_agent(self) -> str:
        """The name of the agent that the turn was last handed over to, or was started with."""
        if self.handoffs.by and self.agent is not None:
            return self.agent.name
        return self.request.agent if self.request else ""

    @property
    def other_agent(self) -> str:
        """`last_agent`, if it is not the agent that the turn was started with; otherwise empty."""
        started = self.request.agent if self.request else ""
        return "" if self.last_agent == started else self.last_agent

    @property
    def awaits_parts(self) -> bool:
        """Whether parts of its origin's state are still missing."""
        return self.origin is not None and not self.transcript.messages

    @property
    def step_count(self) -> int:
        """The number of closed steps, including steps of earlier runs."""
        return self.carried.steps + len(self.steps)

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """The closed steps that are known, also steps of earlier runs."""
        past, own_steps = (
            self.carried.past,
            self.steps[self.carried.recorded - self.carried.steps :],
        )
        return self.steps if past is None else (*past.steps, *own_steps)

    @property
    def as_past(self) -> Past | None:
        """What a reader that continues with the next run keeps of this run and of earlier runs."""
        if self.request is None:
            return None
        past, own_messages = self.carried.past, self.transcript.messages[self.carried.messages :]
        before = past.messages if past else self.transcript.messages[: self.carried.messages]
        return Past((*before, *own_messages), self.all_steps)

    @property
    def all_messages(self) -> tuple[Message, ...]:
        """The messages that are known, also messages of earlier runs."""
        past, own_messages = self.carried.past, self.partial[self.carried.messages :]
        return self.partial if past is None else (*past.messages, *own_messages)

    @property
    def whole_from(self) -> int:
        """The number of the step from which `all_steps` and `all_messages` are complete."""
        known = self.all_steps
        return known[0].number if known else self.step_count + 1

    def input_bound(self, model: str, cut: Cut = NO_CUT) -> int:
        """Return the most input tokens of the next call of this model."""
        return self.tokens.most_input(model, cut, self.transcript.messages)

    def options(self, agent: AgentDefinition) -> RequestOptions:
        """Return the options of the turn, which override the agent's options."""
        options = self.request.options if self.request else None
        return agent.options if options is None else options.over(agent.options)

    def output_schema(self, agent: AgentDefinition) -> Schema | None:
        """Return the schema of the answer: the turn's own, or else the agent's. None for text."""
        schema = self.request.output_schema if self.request else None
        return agent.output_schema if schema is None else schema

    @property
    def time_limit(self) -> timedelta | None:
        """The time limit of the turn, excluding waits for people; None without a limit."""
        return self.accounts.ledger.budget.time if self.accounts.ledger.budget else None

    @property
    def max_iterations(self) -> int | None:
        """The number of steps that the turn may make.

        None without a limit, and before its agent is known if the limit is the agent's. A step
        that was granted to read a message of the user counts.
        """
        requested = self.request.max_iterations if self.request else None
        limit = self.agent.max_iterations if requested is None and self.agent else requested
        if limit is None:
            return None
        return limit + self.accounts.more_iterations + self.inbox.has_granted

    @property
    def iterations_left(self) -> int | None:
        """The number of steps that it may still make, including the current step.

        None without a limit.
        """
        limit = self.max_iterations
        return None if limit is None else max(limit - self.step_count, 0)

    def with_added(self, added: BudgetAdded) -> TurnState:
        """Return the state with higher limits. The agent has to be known.

        Raises:
            InvalidRequestError: There is no such limit, or the sum is larger than a limit can be.
                Nothing is added then.
        """
        ledger = self.accounts.ledger
        ledger = ledger.add(added.more) if added.more else ledger
        if added.iterations is None:
            return self.with_ledger(ledger)
        if self.max_iterations is None:
            raise InvalidRequestError(
                "the turn has no limit of iterations, so nothing can be added to it"
            )
        if self.max_iterations + added.iterations > validation.MOST:
            raise InvalidRequestError(
                f"a limit of iterations is at most {validation.MOST}; add less"
            )
        more = self.accounts.more_iterations + added.iterations
        return replace(self, accounts=replace(self.accounts, ledger=ledger, more_iterations=more))

    @property
    def foreseen(self) -> TurnState:
        """The state with the additions that came in before the agent was known.

        Before that, only the limits of the turn's own input are known.
        """
        state = self
        for added in self.accounts.added:
            with suppress(InvalidRequestError):
                state = state.with_added(added)
        return state

    @property
    def is_priced(self) -> bool:
        """Whether the cost of the turn and its delegates is known."""
        return self.is_priced_itself and all(child.cost is not None for child in self.children)

    @property
    def is_priced_so_far(self) -> bool:
        """Whether the cost so far is known; running delegates are not counted until they end."""
        lost = (child for child in self.children if child.ended and child.cost is None)
        return self.is_priced if self.ended else self.is_priced_itself and not any(lost)

    @property
    def is_priced_itself(self) -> bool:
        """Whether the cost of the turn without its delegates is known."""
        if (
            self.agent is None
            or self.accounts.unpriced
            or any(
                self.agent.target(model).price is None for model in self.in_flight.values() if model
            )
        ):
            return False
        return self.agent.price is not None or self.accounts.model_calls > 0

    @property
    def depth_left(self) -> int:
        """The most levels of the tree below this turn.

        This is the limit of its agent, within the limit set by the turns above.
        """
        depth = self.agent.max_depth if self.agent else 0
        return depth if self.lineage is None else min(depth, self.lineage.depth_left)

    @property
    def descendants(self) -> int:
        """The number of turns below this turn; the highest possible number if it is unknown."""
        return sum(child.turns for child in self.children)

    @property
    def descendants_left(self) -> int | None:
        """The number of further turns allowed below, by its agent and by its part of the tree.

        None if neither is known, as in an earlier release.
        """
        agent_limit = self.agent.max_descendants if self.agent else None
        lineage_limit = self.lineage.descendants_left if self.lineage else None
        max_descendants = min(
            (limit for limit in (agent_limit, lineage_limit) if limit is not None), default=None
        )
        return None if max_descendants is None else max(max_descendants - self.descendants, 0)

    @property
    def lineage(self) -> Lineage | None:
        """The position of the turn in its tree; None for the root."""
        return self.request.lineage if self.request else None

    @property
    def unread(self) -> tuple[UserMessage, ...]:
        """The messages of the user that no answer of the model follows, in order."""
        sent: list[UserMessage] = []
        for message in reversed(self.transcript.messages):
            if isinstance(message, AssistantMessage):
                break
            if isinstance(message, UserMessage) and message.id is not None:
                sent.append(message)
        return (*reversed(sent), *self.inbox.unread)

    @property
    def tool_calls(self) -> int:
        """The number of calls with a result, in closed steps and in the open step."""
        return self.accounts.closed_calls + len(self.open_step.results)

    def child(self, key: ChildKey) -> Child | None:
        """Return the turn of a delegate with this key; None if there is none."""
        return next((child for child in self.children if child.key == key), None)

    def children_of(self, step: int, call: int) -> tuple[Child, ...]:
        """Return the turns that a call started."""
        return tuple(
            child for child in self.children if (child.key.step, child.key.call) == (step, call)
        )

    @property
    def charged(self) -> Spending:
        """The amount spent, plus the amount reserved for calls with an unknown outcome."""
        return self.accounts.ledger.spent + self.accounts.ledger.reserved

    @property
    def last_words(self) -> str:
        """The last text of the model."""
        if self.open_step.answer is not None:
            return self.open_step.answer.message.text
        return self.steps[-1].message.text if self.steps else ""

    @property
    def output(self) -> str:
        """The last text of the model, as shown outside the transcript.

        Empty for an agent with checks after the turn, until they have let its answer pass.
        """
        return self.last_words if self.is_checked else ""

    @property
    def is_checked(self) -> bool:
        """Whether the checks after the turn, if its agent has any, have let its answer pass.

        They have not seen what a model says beside its calls.
        """
        if self.open_step.unpassed:
            return False
        if self.agent is None or not self.agent.answer_checks:
            return True
        return bool(self.steps) and not self.steps[-1].results and not self.open_step.calls

    @property
    def waits_for_people(self) -> bool:
        """Whether the turn itself waits for an action of a person."""
        return self.waiting is not None and self.waiting.kind in PEOPLE

    @property
    def needs_person(self) -> bool:
        """Whether the turn, or a turn below it, needs a person."""
        return (self.ended is None and self.waits_for_people) or any(
            child.waits_for in PEOPLE and not child.ended for child in self.children
        )

    @property
    def is_untimed(self) -> bool:
        """Whether the turn itself waits, and the wait does not count towards its time."""
        return self.waiting is not None and not self.waiting.is_timed

    @property
    def is_delayed(self) -> bool:
        """Whether the turn has not begun yet."""
        return self.waiting is not None and self.waiting.kind == DELAY

    @property
    def can_be_resumed(self) -> bool:
        """Whether the turn waits for a provider, or until a person resumes it."""
        return self.waiting is not None and self.waiting.kind in (PROVIDER, "resume")

    @property
    def asked(self) -> Asked:
        """The open calls that wait for a person, with the arguments that they would run with."""
        return Asked(
            tuple(
                (open_call.edited, open_call.question)
                for open_call in self.open_step.calls
                if open_call.is_asked
            )
        )

    @property
    def at_work(self) -> int:
        """The number of activities and children that run, and of calls that wait."""
        waits = sum(open_call.wait is not None for _, open_call in self.open_step.unfinished)
        return len(self.in_flight) + waits

    @property
    def partial(self) -> tuple[Message, ...]:
        """The messages, with the results so far of the last answer's calls."""
        results = self.open_step.results
        return (
            (*self.transcript.messages, ToolMessage(results=results))
            if results
            else self.transcript.messages
        )

    def with_begun(self, key: Key, model: str = "") -> Mapping[Key, str]:
        """Return the activities and children in flight, with this key added."""
        return {**self.in_flight, key: model}

    def without(self, key: Key) -> Mapping[Key, str]:
        """Return the activities and children in flight, without this key."""
        if key not in self.in_flight:
            return self.in_flight
        in_flight = dict(self.in_flight)
        del in_flight[key]
        return in_flight

    def with_ledger(self, ledger: Ledger) -> TurnState:
        """Return the state with this ledger."""
        return replace(self, accounts=replace(self.accounts, ledger=ledger))
