"""The next move of a turn. Pure: the same state gives the same move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from perdure import errors, limits
from perdure.agents.definitions import AgentDefinition
from perdure.base import replace
from perdure.errors import PerdureError
from perdure.text import counted
from perdure.turn import delegation_plan, guards, handoffs, leases, outages, reservations, undo
from perdure.turn.approvals import Asked
from perdure.turn.calls import asks_again, reads_on, ready_for, runs_tools
from perdure.turn.delegation_plan import Errand
from perdure.turn.fallback import Choice, Fallback
from perdure.turn.keys import HandoffKey, ModelKey, PolicyKey, ToolKey, VerifyKey
from perdure.turn.ledger import Ledger
from perdure.turn.open_step import OpenCall
from perdure.turn.outages import NO_OUTAGE
from perdure.turn.reservations import Reservation
from perdure.turn.retries import retry_delay
from perdure.turn.situation import Situation
from perdure.turn.state import TurnState
from perdure.turn.transcript import MessagesAbsentError
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import ONE_TOOL_CALL, Spending
from perdure.values.messages import ToolCall
from perdure.values.reports import Outcome, StopReason


@dataclass(frozen=True, slots=True)
class Ask:
    """Call a model, after a pause if an attempt failed.

    The key shows whether this is the call for the last answer. `choice` names the model, and
    `reservation` is the amount reserved for the call.
    """

    key: ModelKey
    choice: Choice
    reservation: Reservation


@dataclass(frozen=True, slots=True)
class Act:
    """Run one tool call."""

    key: ToolKey
    call: ToolCall


@dataclass(frozen=True, slots=True)
class Verify:
    """Find out what became of a call, after the time that its tool needs to settle."""

    key: VerifyKey
    call: ToolCall
    settle: timedelta


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a time or for an event, or go on with a wait."""

    key: ToolKey
    call: ToolCall


@dataclass(frozen=True, slots=True)
class StartDelegates:
    """Start the turns of delegates for a call."""

    key: ToolKey
    call: ToolCall
    errands: tuple[Errand, ...]


@dataclass(frozen=True, slots=True)
class HandOver:
    """Hand the turn over to another agent, after a pause if an attempt failed."""

    key: HandoffKey
    call: ToolCall
    to: str
    delay: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class Consult:
    """Ask the agent's policy about a call, after a pause if an attempt failed."""

    key: PolicyKey
    call: ToolCall
    delay: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """Wait until people have decided about these calls."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class AwaitResume:
    """Wait until a person resumes the turn: the agent's limit for retrying the model is reached."""

    reason: str


@dataclass(frozen=True, slots=True)
class AwaitIterations:
    """Wait until a person allows more iterations."""

    reason: str


@dataclass(frozen=True, slots=True)
class AwaitBudget:
    """Wait until the budget is increased."""

    reason: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Take over the messages of the session before the turn, because the next move needs them."""


CallMove = Act | Verify | StartDelegates | Wait
"""The moves of a call, several of which may be made at once."""

Move = (
    Ask
    | CallMove
    | HandOver
    | Consult
    | AwaitApproval
    | AwaitResume
    | AwaitIterations
    | AwaitBudget
    | TakeOver
)


@dataclass(frozen=True, slots=True)
class Done:
    """End with an output."""

    outcome: Outcome
    output: str
    risk: str | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """End with an error."""

    error: PerdureError


def next_move(situation: Situation) -> Move | Done | Stop:
    """The next move of a turn.

    Returns:
        The move. `Stop` holds the error that ends the turn:

        - `ToolResolverError`: The agent's resolver failed when its tool was called.
        - `AutonomyBoundaryError`: The model called a tool that this turn does not allow.
        - `MaxIterationsError`: The limit of model calls is reached, and the turn does not wait for
          a higher one.
        - `LoopDetectedError`: The model repeats itself.
        - `TurnBudgetExceededError`: The next call may cost more than is left.
        - `OutputInvalidError`: The answer is still invalid after every retry.
        - `UnknownPriceError`: The price of a model is not known, and money is limited.
        - `LLMError`: The last attempt failed and is not repeated, or the answer is a refusal.
    """
    try:
        return _next(situation)
    except errors.TurnBudgetExceededError as error:
        pauses = _pauses(situation.state.accounts.ledger, situation.agent, error)
        return AwaitBudget(error.message) if pauses else Stop(error)
    except PerdureError as error:
        return Stop(error)
    except MessagesAbsentError:
        return TakeOver()


def _next(situation: Situation) -> Move | Done | Stop:
    state, agent = situation.state, situation.agent
    if state.open_step.broken is not None:
        return Stop(errors.from_info(state.open_step.broken))
    not_undone = undo.failure(state)
    if not_undone is not None:
        return Stop(not_undone)
    answer = state.open_step.answer
    if answer is not None and _ends_step(state, answer):
        return _read_on(situation, answer) if reads_on(state) else _end(state, answer, agent)
    try:
        return _call(situation)
    except errors.LLMError as error:
        if not _pauses_for_provider(agent, error):
            raise
        return AwaitResume(error.message)
    except errors.MaxIterationsError as error:
        if not _pauses_for_iterations(agent) or state.accounts.ledger.overrun:
            raise
        return AwaitIterations(error.message)
    except errors.TurnBudgetExceededError:
        if not _may_finish(situation):
            raise
        return _ask_last(situation)


def _ends_step(state: TurnState, answer: ModelAnswer) -> bool:
    """Return whether an answer is the last of the turn, unless a message of the user is unread."""
    is_final = state.finishing or not runs_tools(answer)
    return is_final and not state.open_step.calls and not asks_again(state)


def _read_on(situation: Situation, answer: ModelAnswer) -> Move | Done | Stop:
    """Return the call that reads a message of the user, which came before the end of the turn.

    If the limits of the turn do not allow it, the turn ends with its answer.
    """
    try:
        return _call(situation)
    except (errors.TurnBudgetExceededError, errors.MaxIterationsError):
        return _end(situation.state, answer, situation.agent)


def _ask(situation: Situation, key: ModelKey) -> Ask:
    state, agent = ready_for(situation.state, key), situation.agent
    choice = Fallback(replace(situation, state=state)).choose()
    return Ask(key, choice, reservations.reserve(state, agent, choice.target, choice.cut))


def _ask_last(situation: Situation) -> Ask:
    """Return the call for the last answer, from a model that has not just failed if possible."""
    state = situation.state
    key = ModelKey(state.step_count + (2 if state.open_step.calls else 1), is_last=True)
    failed = (failure.model for failure in state.attempts.failures)
    benched = {*situation.benched, *failed}
    return _ask(replace(situation, benched=benched, outage=NO_OUTAGE), key)


def time_kept(state: TurnState, agent: AgentDefinition) -> timedelta:
    """Return the time reserved for the last answer of an agent with `on_exhausted="finish"`."""
    limit = state.time_limit
    if limit is None or agent.on_exhausted != "finish" or state.finishing:
        return timedelta()
    return min(limits.LAST_CALL, limit / 10)


def _pauses(ledger: Ledger, agent: AgentDefinition, error: errors.TurnBudgetExceededError) -> bool:
    """Return whether a turn waits for budget instead of ending with this error."""
    if ledger.overrun or ledger.budget is None:
        return False
    if agent.on_exhausted == "fail" and _pauses_for_provider(agent, error):
        return True
    return agent.on_exhausted == "pause"


def _pauses_for_provider(agent: AgentDefinition, error: PerdureError) -> bool:
    """Return whether the turn waits for a person after it gave up its attempts."""
    policy = agent.model_retry
    return policy is not None and policy.pauses and outages.ATTEMPTS in error.context


def _pauses_for_iterations(agent: AgentDefinition) -> bool:
    """Return whether the turn waits at its limit of iterations.

    Before rules 2, only an exhausted budget paused it.
    """
    return agent.on_exhausted == "pause" and agent.rules >= 2


def _call(situation: Situation) -> Move:
    """Return the next call, if the budget covers it."""
    state, agent = situation.state, situation.agent
    time_left = _time_for_calls(situation)
    waiting = state.open_step.unfinished
    if waiting:
        guards.check_allowed(agent, [open_call.call for open_call in state.open_step.calls])
        return _gate(state) or _hand_over(state) or _acts(state, agent, waiting[:1])[0]
    if not state.finishing:
        _check_iterations(state, agent)
        guards.check_loop(state, agent)
    key = ModelKey(state.step_count + 1, _attempt(state), is_last=state.finishing)
    outage = replace(situation.outage, time_left=time_left)
    try:
        return _ask(replace(situation, outage=outage), key)
    except errors.LLMBudgetExceededError as error:
        raise errors.TurnBudgetExceededError(error.message, context=error.context) from error


def _time_for_calls(situation: Situation) -> timedelta | None:
    """Return the time left without the time for the last answer; None without a limit.

    Raises:
        TurnBudgetExceededError: There is none.
    """
    state, time_left = situation.state, situation.time_left
    if time_left is None:
        return None
    time_for_calls = time_left - time_kept(state, situation.agent)
    if time_for_calls <= timedelta():
        raise errors.TurnBudgetExceededError(
            f"the time of the turn is up, which is {state.time_limit}; raise the budget, or"
            " go on after the end with turn.resume(Budget(…))",
            context={"dimension": "time", "limit": str(state.time_limit)},
        )
    return time_for_calls


def _gate(state: TurnState) -> Consult | AwaitApproval | None:
    """Return the move that is required before any call of this step runs: policy, then people."""
    for position, open_call in state.open_step.unfinished:
        if open_call.gate.status == "policy":
            key = PolicyKey(state.step_count + 1, position, _attempt(state, position))
            return Consult(key, open_call.call, retry_delay(state.attempts.unpardoned))
    asked = state.asked
    questions = sum(open_call.gate.asks for _, open_call in state.open_step.unfinished)
    if questions:  # each counts as a tool call once it is answered
        state.accounts.ledger.reserve("questions", Spending(tool_calls=questions))
    return AwaitApproval(asked) if asked.calls else None


def _hand_over(state: TurnState) -> HandOver | None:
    """Return the move that hands the turn over, if an open call asks for it.

    Raises:
        MessagesAbsentError: The other agent may be sent a part of the messages only.
    """
    handoff = handoffs.open_call(state)
    if handoff is None:
        return None
    if state.transcript.absent:
        raise MessagesAbsentError
    position, call = handoff
    key = HandoffKey(state.step_count + 1, position, _attempt(state, position))
    return HandOver(key, call, handoffs.asked(call)[0], retry_delay(state.attempts.unpardoned))


def _verify(
    state: TurnState, agent: AgentDefinition, position: int, open_call: OpenCall
) -> Verify | None:
    """Return the move that finds out what became of a call; None for one without a doubt."""
    if open_call.doubt is None:
        return None
    tool = agent.tool(open_call.call.name)
    settle_s = tool.effect.settle_s if tool and tool.effect else 0
    key = VerifyKey(state.step_count + 1, position, _attempt(state, position))
    return Verify(key, open_call.edited, timedelta(seconds=settle_s))


def _acts(
    state: TurnState, agent: AgentDefinition, calls: Sequence[tuple[int, OpenCall]]
) -> tuple[CallMove, ...]:
    """Return the moves that make these calls of the step, each with its place, at once."""
    charged = [_charged_before(state, agent, *item) for item in calls]
    if not all(charged):
        state.accounts.ledger.reserve("call", ONE_TOOL_CALL)
    acts = tuple(
        move or _act(state, agent, *item) for move, item in zip(charged, calls, strict=True)
    )
    delegations = [act.call for act in acts if delegation_plan.is_delegation(act.call)]
    if not delegations:
        return acts
    tool_calls = sum(isinstance(act, Act) for act in acts) - len(delegations)
    errands = iter(leases.leases(state, agent, delegations, others=tool_calls))
    return tuple(
        StartDelegates(act.key, act.call, next(errands))
        if isinstance(act, Act) and delegation_plan.is_delegation(act.call)
        else act
        for act in acts
    )


def _charged_before(
    state: TurnState, agent: AgentDefinition, position: int, open_call: OpenCall
) -> Verify | Wait | None:
    """Return the move of a call that is charged already; None for any other call."""
    if open_call.is_begun and open_call.doubt is None:
        return Wait(ToolKey(state.step_count + 1, position), open_call.edited)
    return _verify(state, agent, position, open_call)


def _act(
    state: TurnState, agent: AgentDefinition, position: int, open_call: OpenCall
) -> Act | Wait:
    """Return the move that makes a call for the first time, or again."""
    key = ToolKey(state.step_count + 1, position, _attempt(state, position))
    tool = agent.tool(open_call.call.name)
    return (Wait if tool and tool.wait else Act)(key, open_call.edited)


def moves_at_once(state: TurnState, agent: AgentDefinition) -> tuple[CallMove, ...]:
    """Return the moves of the open calls of the step.

    Their number is at most the number of tool calls left in the budget, and at least one, besides
    the calls that wait already. Calls of a tool with effect keys are made one after the other: the
    second may have the effect of the first.
    """
    waits = [item for item in state.open_step.unfinished if item[1].is_begun]
    others = [item for item in state.open_step.unfinished if not item[1].is_begun]
    others, calls_left = _apart(agent, others, waits), state.accounts.ledger.remaining("tool_calls")
    if calls_left is not None:
        others = others[: max(int(calls_left), 0 if waits else 1)]
    return _acts(state, agent, [*waits, *others])


def _apart(
    agent: AgentDefinition,
    calls: Sequence[tuple[int, OpenCall]],
    waits: Sequence[tuple[int, OpenCall]],
) -> list[tuple[int, OpenCall]]:
    """Return the calls that may be made at once: of those with effect keys, one of each tool.

    None is made while a job of its tool runs, whose call is one of `waits`.
    """
    apart: list[tuple[int, OpenCall]] = []
    named = {open_call.call.name for _, open_call in waits}
    for position, open_call in calls:
        tool = agent.tool(open_call.call.name)
        if tool is not None and tool.effect is not None and tool.effect.has_key:
            if tool.name in named:
                continue
            named.add(tool.name)
        apart.append((position, open_call))
    return apart


def _may_finish(situation: Situation) -> bool:
    """Return whether the agent finishes with a last answer, which time and budget cover."""
    state, agent, time_left = situation.state, situation.agent, situation.time_left
    if agent.on_exhausted != "finish" or state.finishing:
        return False
    has_time = time_left is None or time_left > timedelta()
    return has_time and reservations.can_finish(state, agent)


def _check_iterations(state: TurnState, agent: AgentDefinition) -> None:
    limit = state.max_iterations
    if limit is not None and state.step_count >= limit and not state.inbox.grants:
        raise errors.MaxIterationsError(
            f"{_started(state, agent)} made {counted(state.step_count, 'model call')} without an"
            " answer, which is its max_iterations; raise it, or go on after the end with"
            " turn.resume(max_iterations=…)",
            context={"max_iterations": limit},
        )


def _started(state: TurnState, agent: AgentDefinition) -> str:
    """Return the name of the agent that the turn was started with, whose limits hold."""
    return state.request.agent if state.request and state.handoffs.by else agent.name


def _refused(answer: ModelAnswer, *, is_quoted: bool) -> errors.LLMRefusedError:
    """Return the error of a model that declines. It goes where no unchecked answer may go."""
    text = answer.message.text
    reason = f": {text}" if is_quoted and text else ""
    message = f"{answer.model} declined to answer{reason}"
    return errors.LLMRefusedError(message, context={"model": answer.model})


def _end(state: TurnState, answer: ModelAnswer, agent: AgentDefinition) -> Done | Stop:
    text = answer.message.text
    if answer.stop is StopReason.REFUSED:
        return Stop(_refused(answer, is_quoted=not agent.answer_checks))
    if answer.objection:
        reason, answers = answer.objection.splitlines()[0], state.open_step.objections
        return Stop(
            errors.OutputInvalidError(
                f"{answer.model}: {reason}", context={"model": answer.model, "answers": answers}
            )
        )
    if state.finishing:
        return Done(Outcome.BUDGET_EXHAUSTED, text, risk="budget_exhausted")
    if answer.stop is StopReason.MAX_TOKENS:
        return Done(Outcome.TRUNCATED, text, risk="truncated")
    if answer.stop is StopReason.OTHER:
        return Done(Outcome.COMPLETED, text, risk="unknown_stop_reason")
    return Done(
        Outcome.COMPLETED, text, risk="loop" if guards.warned_of_loop(state, agent) else None
    )


def _attempt(state: TurnState, call: int = 0) -> int:
    """Return the number of the next attempt of a call of the open step, or of its model call."""
    return state.attempts.count(state.step_count + 1, call) + 1
