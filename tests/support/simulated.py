"""A turn without Temporal: the product's rules make the moves, and a random generator chooses their
outcomes.

For each move it does what `workflows/turn/moves.py` does, and writes a history in the order in
which a server would. The orders of the workflow and of the server may differ: an addition to the
budget is known to the workflow at once, but comes in history after everything that arrived before
it. Each request is built as a worker builds it, from the decoded history.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st

from perdure import errors, limits, protocols
from perdure.activities import answer_checks, call_model, output_validation
from perdure.agents.definitions import AgentDefinition
from perdure.agents.policy import Allow, Deny, RequireApproval
from perdure.errors import PerdureError
from perdure.protocols import Prompt
from perdure.temporal import outcomes
from perdure.temporal.payloads import pack, unpack
from perdure.turn import approvals, reservations
from perdure.turn.approvals import Ruling
from perdure.turn.calls import ready_for, runs_tools
from perdure.turn.decide import (
    Act,
    Ask,
    AwaitApproval,
    AwaitBudget,
    AwaitIterations,
    Consult,
    Done,
    Stop,
    moves_at_once,
    next_move,
    time_kept,
)
from perdure.turn.facts import (
    AgentResolved,
    ApprovalNeeded,
    BudgetAdded,
    CallFailed,
    CancelRequested,
    Decided,
    Fact,
    ModelAnswered,
    PolicyAnswered,
    Said,
    Scheduled,
    ToolLost,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    WaitBegan,
    WaitEnded,
)
from perdure.turn.fold import apply
from perdure.turn.keys import AgentKey, ModelKey
from perdure.turn.situation import Situation
from perdure.turn.state import TurnState
from perdure.turn.wire import ModelCall, ToolOutput, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import Decision
from perdure.values.budgets import Budget, BudgetUpdate
from perdure.values.losses import Loss
from perdure.values.messages import Media, Text, ToolCall
from perdure.values.reports import Outcome, StopReason

from . import drawn

LOSSES = [loss for loss in Loss if loss not in (Loss.NO_ANSWER, Loss.NOT_AWAITED)]
"""Those of which Temporal tells, and not a tool or the turn itself."""
SENT_AT = datetime(2026, 11, 27, 12, 3, 4, tzinfo=UTC)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
_MOST_FACTS = 120


class Stopped(Exception):  # noqa: N818 - nothing is wrong
    """The turn was cancelled."""


@dataclass(frozen=True)
class Asked:
    """A model call: the state of the workflow, the state that its worker read, and the prompt
    before and after the protocol rendered it.
    """

    state: TurnState
    read: TurnState
    call: ModelCall
    prompt: Prompt
    sent: Prompt


@dataclass(repr=False)
class Played:
    """A simulated turn: its facts as the workflow has them, its states, its requests, and the
    outcomes of its calls, by their ids.
    """

    seed: int
    luck: random.Random
    agent: AgentDefinition
    request: TurnRequest
    facts: list[Fact] = field(default_factory=list)
    states: list[TurnState] = field(default_factory=lambda: [TurnState()])
    read: TurnState = field(default_factory=TurnState)
    asked: list[Asked] = field(default_factory=list)
    ran: list[ToolCall] = field(default_factory=list)
    may_run_again: Counter[str] = field(default_factory=Counter)
    returned: dict[str, ToolOutput] = field(default_factory=dict)
    allowed_by: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    ran_refused: set[str] = field(default_factory=set)
    edited: dict[str, str] = field(default_factory=dict)
    end: Done | PerdureError | Stopped | None = None
    _unwritten: list[Fact] = field(default_factory=list)
    _elapsed: timedelta = timedelta()
    _left_behind: list[Ask | Act | Consult] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"turn({self.seed})"

    @property
    def state(self) -> TurnState:
        """The current state of the workflow."""
        return self.states[-1]

    def play(self) -> Played:
        """Run to the end, or until the maximum number of moves."""
        try:
            self._resolve()
            while self.end is None and len(self.states) < _MOST_FACTS:
                self.end = self._move()
            self._note(
                TurnEnded(self.end.outcome if isinstance(self.end, Done) else Outcome.FAILED)
            )
        except Stopped as stopped:
            self.end = stopped
            self._note(CancelRequested("enough"))
            self._note(TurnEnded(Outcome.CANCELLED))
        return self

    def _resolve(self) -> None:
        self._note(TurnStarted(self.request))
        self._note(Scheduled(AgentKey()))
        if self._chance(10):
            self._add_budget()
        self._note(AgentResolved(AgentKey(), self.agent))

    def _move(self) -> Done | PerdureError | None:
        match next_move(Situation(self.state, self.agent, self._time_left)):
            case Done() as done:
                return done
            case Stop(error):
                return error
            case AwaitBudget(reason):
                self._wait_for_budget(reason)
            case AwaitIterations(reason):
                self._wait_for_iterations(reason)
            case AwaitApproval(asked):
                self._wait_for_approval(asked)
            case Ask() as move:
                self._ask(move)
            case Consult() as move if self._slept(move.delay):
                self._perform([move])
            case Act() if self.agent.parallel_tools:
                self._act(
                    one for one in moves_at_once(self.state, self.agent) if isinstance(one, Act)
                )
            case Act() as move:
                self._act([move])
        return None

    def _ask(self, move: Ask) -> None:
        if not self._slept(move.choice.delay):
            return
        state, reservation = ready_for(self.state, move.key), move.reservation
        if move.choice.delay:
            reservation = reservations.for_call(
                state, self.agent, move.choice.target, move.choice.cut
            )
        call = ModelCall.of(
            state.transcript.digest,
            cut=move.choice.cut,
            max_output_tokens=reservation.max_output_tokens,
            most_input=reservation.most_input,
        )
        self._write()
        read = ready_for(self.read, move.key)
        prompt = call_model._prompt(call, read, move.choice.target.model)
        self.asked.append(
            Asked(state, read, call, prompt, protocols.named(self.agent.protocol).ask(prompt))
        )
        self._perform([move])

    def _act(self, moves: Iterable[Act]) -> None:
        moves = list(moves)
        self.ran += [move.call for move in moves]
        self.ran_refused |= {move.call.id for move in moves} & self.refused
        self._perform(moves)

    def _perform(self, moves: list[Ask] | list[Act] | list[Consult]) -> None:
        """Schedule activities, and draw which of them end, how, and when; at a deadline the others
        are given up, unless time is added.
        """
        for move in moves:
            self._note(Scheduled(move.key))
        running: list[Ask | Act | Consult] = self.luck.sample(moves, k=len(moves))
        is_cancelled, is_late = self._chance(70), self._time_left is not None and self._chance(4)
        may_stay = is_cancelled or (is_late and self.agent.on_exhausted != "pause")
        while running and not (may_stay and self._chance(2)):
            self._meanwhile()
            self._note(self._end(running.pop()))
        if is_cancelled:
            raise Stopped
        if is_late:
            self._elapsed = max(
                self._elapsed,
                (self.state.time_limit or timedelta()) - time_kept(self.state, self.agent),
            )
            self._meanwhile()
        if self._time_left is not None and self._time_left <= time_kept(self.state, self.agent):
            self._left_behind, running = [*self._left_behind, *running], []
        for move in running:
            self._note(self._end(move))

    def _meanwhile(self) -> None:
        """Events that can happen at any moment."""
        self._elapsed += self.luck.choice([0, 0.01, 0.1, 1]) * SECOND
        while self._left_behind and not self._chance(3):
            self._note(self._end(self._left_behind.pop(0), fails_in=2))
        if self._chance(15):
            self._add_budget()
        if self._chance(15):
            self._say(may_interrupt=True)

    def _say(self, *, may_interrupt: bool = False) -> None:
        """Send a message; the update's validator refuses one that does not fit."""
        text = self.luck.choice(["go on", "stop that", "use the new list"])
        image = Media(media_type="image/png", data=self.luck.choice(["YWJj", "ZGVm"]))
        said = Said(
            f"m-{len(self.facts)}",
            text,
            now=may_interrupt and self._chance(2),
            deny_pending=self._chance(2),
            parts=(Text(text=text), image) if self._chance(3) else (),
        )
        if not self.state.inbox.unread or self._chance(3):
            if said.deny_pending and self.state.waiting is not None:
                self.refused |= {call.id for call, _ in self.state.asked.calls}
            self._know(said)
            self._unwritten.append(said)

    def _add_budget(self) -> None:
        """Add budget; the update's validator refuses a dimension without a limit, once the limits
        are known.
        """
        added = BudgetAdded(
            self.luck.choice(drawn.MORE), iterations=self.luck.choice([None, None, None, 1])
        )
        if self.state.agent is not None:
            try:
                self.state.with_added(added)
            except errors.InvalidRequestError:
                return
        self._know(added)
        self._unwritten.append(added)

    def _wait_for_budget(self, reason: str) -> None:
        self._note(WaitBegan("budget", reason))
        if self._chance(8):
            raise Stopped
        budget = self.state.accounts.ledger.budget
        assert budget is not None
        names = [name for name, value in budget if value is not None]
        self._note(
            BudgetAdded(
                Budget.model_validate(
                    {name: 60 * SECOND if name == "time" else 5000 for name in names}
                )
            )
        )
        self._note(WaitEnded())

    def _wait_for_iterations(self, reason: str) -> None:
        self._note(WaitBegan("iterations", reason))
        if self._chance(8):
            raise Stopped
        self._note(BudgetAdded(None, iterations=3))
        self._note(WaitEnded())

    def _wait_for_approval(self, asked: approvals.Asked) -> None:
        pending = asked.pending(NOW, limits.APPROVAL_EXPIRY)
        self._note(WaitBegan("approval", "somebody", pending))
        for one in self.luck.sample(pending, k=len(pending)):
            if self._chance(30):
                raise Stopped
            if self._chance(8):
                self._say()
            if one.call_id not in {call.id for call, _ in self.state.asked.calls}:
                continue  # a message denied it
            said = self.luck.choice(["approve", "approve", "approve", "edit", "deny", "nothing"])
            if said == "nothing":
                self.refused.add(one.call_id)
                continue
            decision = Decision(
                call_id=one.call_id,
                digest=one.digest,
                approve=said != "deny",
                arguments="{}" if said == "edit" else None,
            )
            self._decide(decision)
            with pytest.raises(errors.ApprovalConflictError):
                self._decide(decision)
        self._note(WaitEnded(tuple(call.id for call, _ in self.state.asked.calls)))

    def _decide(self, decision: Decision) -> None:
        waiting = self.state.waiting
        open_ids = {call.id for call, _ in self.state.asked.calls}
        approvals.check(
            tuple(one for one in (waiting.pending if waiting else ()) if one.call_id in open_ids),
            decision,
            NOW,
        )
        if not decision.approve:
            self.refused.add(decision.call_id)
        else:
            self.allowed_by[decision.call_id] = "a person"
        if decision.arguments is not None:
            self.edited[decision.call_id] = decision.arguments
        self._note(Decided(decision))

    def _end(self, move: Ask | Act | Consult, *, fails_in: int = 15) -> Fact:
        """The outcome of an activity; some fail."""
        if isinstance(move, Act):
            return self._tool_ended(move)
        if isinstance(move, Ask) and self.state.inbox.interrupts and self._chance(2):
            return CallFailed(move.key, errors.TurnCancelledError().info())
        if self._chance(fails_in):
            is_lost = self._chance(2)
            return CallFailed(move.key, self.luck.choice(drawn.ERRORS), lost=is_lost)
        return self._answered(move.key) if isinstance(move, Ask) else self._ruled(move)

    def _tool_ended(self, move: Act) -> Fact:
        if self._chance(6):
            loss = self.luck.choice(LOSSES)
            tool = self.agent.tool(move.call.name)
            assert tool is not None
            self.may_run_again[move.call.id] += loss is Loss.WORKER_LOST and tool.is_idempotent
            return ToolLost(move.key, loss, sent_at=SENT_AT if self._chance(2) else None)
        if self._chance(12):
            self.ran.remove(move.call)
            return ApprovalNeeded(move.key, f"it has changed since {move.key}", "new")
        output = ToolOutput(
            content=f"{move.key} of {move.call.id}",
            is_error=self._chance(4),
            media=(drawn.PICTURE,) if self._chance(8) else (),
        )
        if not self.state.finishing:
            self.returned[move.call.id] = output
        return ToolReturned(move.key, output)

    def _ruled(self, move: Consult) -> Fact:
        verdict = self.luck.choice(
            [Allow(), Allow(), Deny(reason="no"), RequireApproval(expires=SECOND)]
        )
        if isinstance(verdict, Deny):
            self.refused.add(move.call.id)
        if isinstance(verdict, Allow):
            self.allowed_by.setdefault(move.call.id, "the policy")
        return PolicyAnswered(move.key, Ruling(verdict=verdict))

    def _answered(self, key: ModelKey) -> Fact:
        """A model's answer, as the model activity parses it."""
        asked, held = self.asked[-1], self.state.accounts.ledger.held[str(key)]
        said = drawn.answer(
            self.luck, self.agent, held.tokens, asked.call.max_output_tokens or limits.OUTPUT_TOKENS
        )
        answer = protocols.named(self.agent.protocol).read(
            said, asked.prompt, corrects=self.agent.unmarked == "correct"
        )
        try:
            call_model._refuse_nothing("any", answer)
        except errors.LLMUnavailableError as error:
            return CallFailed(key, error.info())
        return ModelAnswered(key, self._checked(answer, asked.read))

    def _checked(self, answer: ModelAnswer, state: TurnState) -> ModelAnswer:
        """Like `answers.checked`, which needs an event loop."""
        schema = self.agent.output_schema
        is_last = state.finishing or not runs_tools(answer)
        if schema is None or answer.objection or answer.stop is StopReason.REFUSED or not is_last:
            return answer
        objection = answer_checks._objection(
            answer.message.text, schema, output_validation.validator(schema), is_quoted=True
        )
        return answer.model_copy(update={"objection": objection})

    @property
    def _time_left(self) -> timedelta | None:
        limit = self.state.time_limit
        return None if limit is None else limit - self._elapsed

    def _slept(self, delay: timedelta) -> bool:
        left = self._time_left
        for_calls = (
            None if left is None else max(left - time_kept(self.state, self.agent), timedelta())
        )
        self._elapsed += delay if for_calls is None else min(delay, for_calls)
        return for_calls is None or not delay or for_calls > delay

    def _note(self, fact: Fact) -> None:
        """Apply the fact to the workflow; history has it before facts that are not written yet,
        unless one of those caused it.
        """
        if isinstance(fact, Scheduled | WaitBegan | WaitEnded | TurnEnded):
            self._write()
        self._know(fact)
        self.read = apply(self.read, through_history(fact))

    def _know(self, fact: Fact) -> None:
        self.facts.append(fact)
        self.states.append(apply(self.state, fact))

    def _write(self) -> None:
        for fact in self._unwritten:
            self.read = apply(self.read, through_history(fact))
        self._unwritten.clear()

    def _chance(self, one_in: int) -> bool:
        return self.luck.randrange(one_in) == 0


def through_history(fact: Fact) -> Fact:
    """The fact as a reader decodes it."""
    match fact:
        case TurnStarted(request):
            return TurnStarted(unpack(pack(request), TurnRequest))
        case AgentResolved(key, agent):
            return AgentResolved(key, unpack(pack(agent), AgentDefinition))
        case ModelAnswered(key, answer):
            return ModelAnswered(key, unpack(pack(answer), ModelAnswer))
        case ToolReturned(key, output):
            return ToolReturned(key, unpack(pack(output), ToolOutput))
        case PolicyAnswered(key, ruling):
            return PolicyAnswered(key, unpack(pack(ruling), Ruling))
        case Decided(decision):
            return Decided(unpack(pack(decision), Decision))
        case BudgetAdded(more, by, iterations):
            return outcomes.added(
                pack(BudgetUpdate(**dict(more or ()), iterations=iterations, by=by))
            )
        case _:
            return fact


def turn(seed: int) -> Played:
    """A simulated turn of a random agent with random outcomes."""
    luck = random.Random(seed)
    return Played(seed, luck, drawn.agent(luck), drawn.request(luck)).play()


any_turn = st.integers(0, 2**32 - 1).map(turn)
"""Turns for tests by example."""
