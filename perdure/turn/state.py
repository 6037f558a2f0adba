"""The state of a turn: everything that follows from its facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal

from perdure import validation
from perdure.agents.definitions import AgentDefinition
from perdure.agents.delegates import Lineage
from perdure.errors import ErrorInfo, InvalidRequestError
from perdure.schemas.strict_schema import Schema
from perdure.turn.approvals import Asked, Gate
from perdure.turn.charges import Bill
from perdure.turn.context_window import NO_CUT, Cut, sent
from perdure.turn.facts import BudgetAdded, CallFailed, Key, TurnEnded
from perdure.turn.ledger import Ledger
from perdure.turn.token_estimate import Estimate
from perdure.turn.wire import Summary, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import Decision, PendingApproval
from perdure.values.budgets import Spending
from perdure.values.messages import NO_DIGEST, Media, Message, ToolCall, ToolMessage, ToolResult
from perdure.values.options import NO_OPTIONS, RequestOptions
from perdure.values.prices import bound
from perdure.values.reports import AgentReport, ChildReport, LeftOut, Outcome, Step, Tried, Usage
from perdure.values.tasks import headline

PEOPLE = ("approval", "budget", "iterations", "resume")
"""What a turn waits for that only a person can give."""

PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why nothing happens.

    `retry`: the model is asked again after a short pause. `provider`: after a longer one, `until`
    that moment, as attempt number `attempt`; the first failed at `since`. It stays until a model
    answers. `budget` and `iterations`: a person has to add to that limit. `approval`: somebody has
    to decide about the calls that are `pending`. `resume`: the model was asked as long as the agent
    lets it.
    """

    kind: str
    reason: str
    pending: tuple[PendingApproval, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    attempt: int = 0

    @property
    def is_told(self) -> bool:
        """Whether the list, the card and the memo show it."""
        return self.kind != "retry"


@dataclass(frozen=True, slots=True)
class Child:
    """The turn of a delegate.

    `waits_for` is set while it waits for somebody; `summary` is None until it is over, and where
    none came back.

    Then `read` is what its history says, None where that could not be read.
    `began` is False for one that could not be started, which costs nothing.
    """

    key: Key
    turn_id: str
    request: TurnRequest
    lease: Spending
    waits_for: str = ""
    reason: str = ""
    ended: bool = False
    began: bool = True
    summary: Summary | None = None
    read: Summary | None = None

    @property
    def turns(self) -> int:
        """How many turns of the tree are its: itself, and those below, all it was given if unknown."""
        if not self.began:
            return 0
        given = self.request.lineage.descendants_left if self.request.lineage else None
        return 1 + (self.summary.descendants if self.summary else given or 0)

    @property
    def charged(self) -> Spending:
        """What it is charged with: what it or its history says it spent, or all it was given."""
        return self.known.spent if self.known else self.lease

    @property
    def known(self) -> Summary | None:
        """What it says of itself, or its history; None while it runs, and where neither is known."""
        return self.summary or self.read

    @property
    def cost(self) -> Decimal | None:
        """That in US dollars.

        None where its model has no known price, or where nothing is known and no lease of money
        bounds it.
        """
        known = self.known
        if known is None:
            return self.lease.usd if self.lease.usd or not self.began else None
        return known.spent.usd if known.is_priced or not known.spent.model_calls else None

    @property
    def report(self) -> ChildReport:
        """How it went."""
        summary, known = self.summary, self.known
        return ChildReport(
            turn_id=self.turn_id,
            agent=self.request.agent,
            task=headline(self.request.task),
            outcome=summary.outcome if summary else Outcome.TERMINATED if self.ended else None,
            steps=known.steps if known else 0,
            spent=self.charged,
            cost=self.cost,
            duration=known.duration if known else timedelta(),
            children=known.children if known else (),
        )


@dataclass(frozen=True, slots=True)
class TurnState:
    """Everything that follows from the facts so far.

    `messages` are complete: every call in them has its results, but for the calls of the last
    answer, whose results gather in `results`. `calls` are those, until each has one; `decisions`
    are what people decided about them; `in_flight` are activities and children, in their order.
    `bound` is the most tokens that they can be, `asked_bound` that of what the turn was given;
    `known_tokens` is what the model `known_by` reported for the messages up to `known_at` without
    `known_cut`. `estimate` is about how many tokens they are. `cuts` is what is not sent to which
    model, because its window is too small, `left_out` what `last_cut` left out of the last call.
    `opening` is the place of the message with the task, `media` all images and files. `thinkers`
    are the models whose thoughts are among the messages. `calling` says which model a call in
    flight asks, `passed` which were passed over for it and why; `tried` is who did not answer
    before the last answer; `unpriced`, that one was asked whose price nobody knows. `finishing`
    says that the last answer is asked for. `added` is what came for the limits before they were
    known; `more_iterations` is what was added to the limit of iterations. The first `pardoned` of
    the `failures` of a call were before somebody added to the budget. `rounds` says how often the
    chain has begun again since, the last time after `round_at` failures. `unpassed` is the number
    of middlewares that have yet to let the last answer pass. `broken` is an error of a tool call
    that ends the turn.
    """

    request: TurnRequest | None = None
    agent: AgentDefinition | None = None
    messages: tuple[Message, ...] = ()
    digest: str = NO_DIGEST
    size_bytes: int = 0
    bound: int = 0
    asked_bound: int = 0
    known_tokens: int = 0
    known_at: int = 0
    known_by: str = ""
    known_cut: Cut = NO_CUT
    base_tokens: int = 0
    estimate: Estimate = Estimate()
    cuts: tuple[tuple[str, Cut], ...] = ()
    last_cut: Cut = NO_CUT
    left_out: LeftOut | None = None
    opening: int = 0
    media: tuple[Media, ...] = ()
    call_ids: frozenset[str] = frozenset()
    thinkers: frozenset[str] = frozenset()
    steps: tuple[Step, ...] = ()
    answer: ModelAnswer | None = None
    calls: tuple[ToolCall, ...] = ()
    objections: int = 0
    tried: tuple[Tried, ...] = ()
    bill: Bill | None = None
    results: tuple[ToolResult | None, ...] = ()
    gates: tuple[Gate, ...] = ()
    decisions: tuple[Decision, ...] = ()
    failures: tuple[CallFailed, ...] = ()
    pardoned: int = 0
    rounds: int = 0
    round_at: int = 0
    usage: Usage = Usage()
    model_calls: int = 0
    closed_calls: int = 0
    ledger: Ledger = Ledger()
    added: tuple[BudgetAdded, ...] = ()
    more_iterations: int = 0
    finishing: bool = False
    unpassed: int = 0
    broken: ErrorInfo | None = None
    in_flight: Mapping[Key, None] = field(default_factory=dict)
    calling: tuple[tuple[Key, str], ...] = ()
    passed: tuple[str, ...] = ()
    unpriced: bool = False
    children: tuple[Child, ...] = ()
    waiting: Waiting | None = None
    cancel_reason: str | None = None
    ended: TurnEnded | None = None

    def input_bound(self, model: str, cut: Cut = NO_CUT) -> int:
        """The most input tokens of the next call of this model.

        What it reported counts, and what was counted of other messages does not.
        """
        if (model, cut) == (self.known_by, self.known_cut):
            return self.known_tokens + self.bound - self.known_at
        return self.base_tokens + (
            self.bound if cut == NO_CUT else sum(map(bound, sent(self.messages, cut)))
        )

    def cut(self, model: str) -> Cut:
        """What is not sent of the transcript to this model."""
        return next((cut for name, cut in self.cuts if name == model), NO_CUT)

    def options(self, agent: AgentDefinition) -> RequestOptions:
        """The options of the turn over those of the agent."""
        given = self.request.options if self.request else None
        return (given or NO_OPTIONS).over(agent.options)

    def output_schema(self, agent: AgentDefinition) -> Schema | None:
        """The schema of the answer: what the turn was started with, or that of the agent.

        None for text.
        """
        given = self.request.output_schema if self.request else None
        return agent.output_schema if given is None else given

    @property
    def time_limit(self) -> timedelta | None:
        """How long the turn may take, waits for people excluded; None where that has no limit."""
        return self.ledger.budget.time if self.ledger.budget else None

    @property
    def max_iterations(self) -> int | None:
        """The number of steps that the turn may make.

        None without a limit, and before its agent is known if the limit is the agent's.
        """
        given = self.request.max_iterations if self.request else None
        limit = self.agent.max_iterations if given is None and self.agent else given
        return None if limit is None else limit + self.more_iterations

    @property
    def iterations_left(self) -> int | None:
        """The number of steps that it may still make, including the current one.

        None without a limit.
        """
        limit = self.max_iterations
        return None if limit is None else max(limit - len(self.steps), 0)

    def with_added(self, added: BudgetAdded) -> TurnState:
        """The state with higher limits. The agent has to be known.

        Raises:
            InvalidRequestError: What is added has no limit, or the sum is beyond what a limit can
                be. Then nothing is added.
        """
        ledger = self.ledger.add(added.more) if added.more else self.ledger
        if added.iterations is None:
            return replace(self, ledger=ledger)
        if self.max_iterations is None:
            raise InvalidRequestError(
                "the turn has no limit of iterations, so nothing can be added to it"
            )
        if self.max_iterations + added.iterations > validation.MOST:
            raise InvalidRequestError(
                f"a limit of iterations is at most {validation.MOST}; add less"
            )
        return replace(self, ledger=ledger, more_iterations=self.more_iterations + added.iterations)

    @property
    def is_priced(self) -> bool:
        """Whether anybody knows what the model costs."""
        return self.is_priced_itself and all(child.cost is not None for child in self.children)

    @property
    def is_priced_so_far(self) -> bool:
        """The same while the turn runs: what its running delegates spend is known when they end."""
        lost = (child for child in self.children if child.ended and child.cost is None)
        return self.is_priced if self.ended else self.is_priced_itself and not any(lost)

    @property
    def is_priced_itself(self) -> bool:
        """The same, its delegates left out."""
        if (
            self.agent is None
            or self.unpriced
            or any(self.agent.target(model).price is None for _, model in self.calling)
        ):
            return False
        return self.agent.price is not None or self.model_calls > 0

    @property
    def depth_left(self) -> int:
        """How deep the tree below this turn may be.

        What its agent wants, within what the turns above let it.
        """
        own = self.agent.max_depth if self.agent else 0
        return own if self.lineage is None else min(own, self.lineage.depth_left)

    @property
    def descendants(self) -> int:
        """How many turns are below this one, or may be as far as anybody knows."""
        return sum(child.turns for child in self.children)

    @property
    def descendants_left(self) -> int | None:
        """How many more there may be: what its agent wants, within its part of the tree.

        None where neither is known, as in an earlier release.
        """
        own = self.agent.max_descendants if self.agent else None
        given = self.lineage.descendants_left if self.lineage else None
        most = min((limit for limit in (own, given) if limit is not None), default=None)
        return None if most is None else max(most - self.descendants, 0)

    @property
    def lineage(self) -> Lineage | None:
        """Where it comes from; None for the root of a tree."""
        return self.request.lineage if self.request else None

    @property
    def tool_calls(self) -> int:
        """How many calls have a result: those of closed steps, and of the one that is open."""
        return self.closed_calls + sum(result is not None for result in self.results)

    def child(self, key: Key) -> Child | None:
        """The turn of a delegate."""
        return next((child for child in self.children if child.key == key), None)

    def children_of(self, step: int, call: int) -> tuple[Child, ...]:
        """The turns that a call started."""
        return tuple(
            child for child in self.children if (child.key.step, child.key.call) == (step, call)
        )

    @property
    def charged(self) -> Spending:
        """What is spent, and what is reserved for calls that nobody knows the end of."""
        return self.ledger.spent + self.ledger.reserved

    @property
    def last_words(self) -> str:
        """What the model said last."""
        if self.answer is not None:
            return self.answer.message.text
        return self.steps[-1].message.text if self.steps else ""

    @property
    def output(self) -> str:
        """The last words outside the transcript.

        Empty while a middleware has yet to let them pass, and where one refused them.
        """
        return "" if self.unpassed else self.last_words

    @property
    def asked(self) -> Asked:
        """The open calls that wait for a person, with the arguments that they would run with."""
        rows = zip(self.calls, self.results, self.gates, strict=True)
        return Asked(
            tuple(
                (gate.edited(call), gate)
                for call, result, gate in rows
                if result is None and gate.status == "asked"
            )
        )

    @property
    def next_call(self) -> int | None:
        """The first call without a result, counted from 1; None where there is none."""
        return next((index for index, result in enumerate(self.results, 1) if result is None), None)

    @property
    def partial(self) -> tuple[Message, ...]:
        """The messages, with the results that the last answer's calls have so far."""
        given = tuple(result for result in self.results if result is not None)
        return (*self.messages, ToolMessage(results=given)) if given else self.messages

    def report(
        self,
        turn_id: str,
        outcome: Outcome,
        *,
        risk: str | None = None,
        duration: timedelta = timedelta(),
    ) -> AgentReport:
        """How the turn went, as far as the facts go."""
        return AgentReport(
            turn_id=turn_id,
            agent=self.request.agent if self.request else "",
            outcome=outcome,
            output=self.output,
            risk=risk,
            steps=self.steps,
            messages=self.partial,
            usage=self.usage,
            model_calls=self.model_calls,
            tool_calls=self.tool_calls,
            cost=self.charged.usd if self.is_priced else None,
            spent=self.charged,
            duration=duration,
            children=tuple(child.report for child in self.children),
            unstopped=tuple(str(key) for key in self.in_flight),
        )

    def with_begun(self, key: Key) -> Mapping[Key, None]:
        """What is in flight, and this."""
        return {**self.in_flight, key: None}

    def without(self, key: Key) -> Mapping[Key, None]:
        """What is in flight but for this."""
        if key not in self.in_flight:
            return self.in_flight
        left = dict(self.in_flight)
        del left[key]
        return left

    @property
    def unpardoned(self) -> tuple[CallFailed, ...]:
        """The failures that count."""
        return self.failures[self.pardoned :]

    @property
    def of_round(self) -> tuple[CallFailed, ...]:
        """Those of the round that is under way."""
        return self.failures[max(self.pardoned, self.round_at) :]

    def attempts(self, key: Key) -> int:
        """How many attempts of this activity are over."""
        return sum(
            1
            for failure in self.failures
            if (failure.key.step, failure.key.call) == (key.step, key.call)
        )
