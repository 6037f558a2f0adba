"""The parts of a step: its messages, the results of its calls, and its end. Pure.

Messages are appended, each call gets exactly one result, and the last result closes the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from perdure import errors, limits
from perdure.agents import questions
from perdure.agents.definitions import AgentDefinition
from perdure.agents.handoffs import HAND_OVER
from perdure.agents.questions import PinnedQuestion
from perdure.base import replace
from perdure.text import clip, head
from perdure.turn import guards
from perdure.turn.facts import CallFailed, ToolLost
from perdure.turn.keys import ChildKey, PolicyKey, PollKey, StopKey, ToolKey, VerifyKey
from perdure.turn.state import Handoffs, TurnState
from perdure.turn.wire import ToolOutput
from perdure.values.losses import CallLoss, Loss
from perdure.values.messages import (
    UNKNOWN_NOTE,
    Media,
    Message,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    ToolResult,
    canonical,
)
from perdure.values.moments import period_in_words
from perdure.values.reports import Step

NOT_RUN = "This call has no result: the budget was spent before it was run, or while it ran."
BESIDE_HANDOFF = (
    "This call was not run: the same answer calls hand_over, and beside that nothing is run."
)
AFTER_LOST = (
    "\n[An attempt of this call before this one was lost, and may have taken effect. So this error"
    " does not say that nothing was done.]"
)
EDITED = "\n[A person changed the arguments of this call before it ran, to {arguments}]"
EDITED_BYTES = 2_000
_LOSS = {
    Loss.WORKER_LOST: (
        "contact with the process that ran it was lost{after}; whether it took effect is unknown"
    ),
    Loss.TIMED_OUT: (
        "stopped because it took longer than {limit}{after}; whether it took effect is unknown"
    ),
    Loss.CANCELLED: (
        "stopped because the turn was cancelled or its time was up{after}; whether it took effect"
        " is unknown"
    ),
    Loss.FAILED: "it could not be run",
    Loss.BY_OPERATOR: (
        "an operator ended this call in Temporal{after}; whether it took effect is unknown"
    ),
}

_JOB_LOST = (
    "its job {handle!r} has no result after {limit}{stopped}; whether it took effect is unknown"
)
_CLIENT_LOST = (
    "the client, which runs it, has sent no result within {limit}; whether it took effect is"
    " unknown"
)


def append(state: TurnState, message: Message) -> TurnState:
    """Append a message to the transcript."""
    data = canonical(message)
    return replace(
        state,
        transcript=state.transcript.plus(message, data),
        tokens=state.tokens.plus(message, len(data)),
    )


def known_result(agent: AgentDefinition | None, call: ToolCall) -> ToolResult | None:
    """Return the result of a call that need not be run; None for a call to run."""
    tool = agent.tool(call.name) if agent else None
    if tool is not None and tool.asks is not None:
        return _refused_question(tool.asks, call)
    if agent is None or tool is not None:
        return None
    offered = ", ".join(item.name for item in agent.tools) or "none"
    content = clip(
        f"There is no tool named {head(call.name, 100)!r}. The tools are: {offered}.",
        limits.TOOL_RESULT_BYTES,
    )
    return _result(call, content, ToolOutcome.NOT_RUN)


def _refused_question(asks: PinnedQuestion, call: ToolCall) -> ToolResult | None:
    """Return the result of a question that cannot be asked; None for one that can."""
    try:
        questions.read(asks, call.arguments)
    except ValueError as error:
        content = clip(f"{call.name}: nobody was asked: {error}.", limits.TOOL_RESULT_BYTES)
        return _result(call, content, ToolOutcome.NOT_RUN)
    return None


def not_awaited(state: TurnState, position: int) -> ToolResult:
    """Return the result of a call for which the last answer does not wait."""
    open_call = state.open_step.at(position)
    if not may_take_effect(state, position):
        return _result(open_call.call, NOT_RUN, ToolOutcome.NOT_RUN)
    loss = open_call.loss or CallLoss(kind=Loss.NOT_AWAITED)
    return _result(open_call.call, NOT_RUN, ToolOutcome.UNKNOWN, loss=loss)


def may_take_effect(state: TurnState, position: int) -> bool:
    """Return whether the call at this place of the open step runs, and may change something."""
    step, call = state.step_count + 1, state.open_step.at(position).call
    doubt = state.open_step.at(position).doubt
    job = state.open_step.at(position).job
    is_begun = job is not None and job.begun is not None and not job.is_known
    runs = (
        is_begun
        or (doubt is not None and not doubt.is_earlier)
        or any(
            isinstance(key, ToolKey | ChildKey) and (key.step, key.call) == (step, position)
            for key in state.in_flight
        )
    )
    return runs and _changes(state, call)


def _result(
    call: ToolCall,
    content: str,
    outcome: ToolOutcome,
    media: tuple[Media, ...] = (),
    loss: CallLoss | None = None,
) -> ToolResult:
    return ToolResult(
        call_id=call.id,
        name=call.name,
        content=content,
        is_error=outcome not in (ToolOutcome.DONE, ToolOutcome.VERIFIED),
        outcome=outcome,
        media=media,
        loss=None if outcome is ToolOutcome.DONE else loss,
    )


def _changes(state: TurnState, call: ToolCall) -> bool:
    """Return whether a call may change anything."""
    tool = state.agent.tool(call.name) if state.agent else None
    return tool is None or not tool.is_read_only


def is_open(state: TurnState, key: ToolKey | PolicyKey | VerifyKey | PollKey | StopKey) -> bool:
    """Return whether this call waits for its result.

    It may not in a reader that began at a wrong answer; the digest will then differ.
    """
    open_call = state.open_step.find(key.call)
    return key.step == state.step_count + 1 and open_call is not None and open_call.result is None


def give(
    state: TurnState,
    key: ToolKey | PolicyKey,
    content: str,
    outcome: ToolOutcome,
    media: tuple[Media, ...] = (),
) -> TurnState:
    """Give a call its result.

    If a person changed its arguments, the result says so, because the model knows only its own.
    """
    open_call = state.open_step.at(key.call)
    call, edited = open_call.call, open_call.gate.arguments
    note = "" if edited is None else EDITED.format(arguments=clip(edited, EDITED_BYTES))
    result = _result(call, content + note, outcome, media, open_call.loss)
    step = state.open_step.with_call(key.call, replace(open_call, result=result))
    return settle(
        replace(state, open_step=step, attempts=state.attempts.without(key.call)), key.step
    )


def told(state: TurnState, key: ToolKey, output: ToolOutput) -> tuple[ToolOutcome, str]:
    """Return the outcome of a call whose tool returned, and what the model reads.

    An error after an attempt that was lost is no failure: the service may have refused the second
    attempt because of the first.
    """
    if not output.is_error:
        return ToolOutcome.DONE, output.content
    follows_lost = state.attempts.has_lost(key)
    is_unknown = output.is_unknown or (
        follows_lost and _changes(state, state.open_step.at(key.call).call)
    )
    outcome = ToolOutcome.UNKNOWN if is_unknown else ToolOutcome.FAILED
    note = AFTER_LOST if follows_lost and is_unknown and _says_unknown(state) else ""
    return outcome, output.content + note


def _says_unknown(state: TurnState) -> bool:
    """Return whether results say what an unknown outcome means, which they do since rules 5."""
    return state.agent is not None and state.agent.rules >= 5


def with_loss(state: TurnState, key: ToolKey, loss: CallLoss) -> TurnState:
    """Note how the answer of an attempt was lost."""
    open_call = replace(state.open_step.at(key.call), loss=loss)
    return replace(state, open_step=state.open_step.with_call(key.call, open_call))


def lose(state: TurnState, fact: ToolLost) -> TurnState:
    """Handle a call without a result of its own: run it again, or give it an error result."""
    key, call = fact.key, state.open_step.at(fact.key.call).call
    if is_repeated(state, key, fact.loss):
        reason = _LOSS[Loss.WORKER_LOST].format(after=fact.how.after)
        error = errors.PerdureError(f"{call.name}: {reason}").info()
        return replace(state, attempts=state.attempts.plus(CallFailed(key, error, lost=True)))
    is_failure = fact.loss is Loss.FAILED or not _changes(state, call)
    outcome = ToolOutcome.FAILED if is_failure else ToolOutcome.UNKNOWN
    return give(state, key, loss_told(state, fact), outcome)


def is_repeated(state: TurnState, key: ToolKey, loss: Loss) -> bool:
    """Return whether a call without a result is run again."""
    call = state.open_step.at(key.call).call
    tool = state.agent.tool(call.name) if state.agent else None
    may_repeat = loss is Loss.WORKER_LOST and tool is not None and tool.is_idempotent
    return may_repeat and key.attempt < limits.LOST_ATTEMPTS


def loss_told(state: TurnState, fact: ToolLost) -> str:
    """Return what the model reads of a call without a result of its own."""
    open_call = state.open_step.at(fact.key.call)
    call, job = open_call.call, open_call.job
    tool = state.agent.tool(call.name) if state.agent else None
    limit = f"{tool.timeout_s:g} s" if tool else ""
    if job is not None and job.begun is not None and tool is not None and tool.job is not None:
        longest = period_in_words(timedelta(seconds=tool.job.longest_s))
        stopped = f", so {job.stopped}" if job.stopped else ""
        lost = _CLIENT_LOST if tool.job.by_client else _JOB_LOST
        reason = lost.format(handle=head(job.handle, 200), limit=longest, stopped=stopped)
    else:
        reason = _LOSS[fact.loss].format(limit=limit, after=fact.how.after)
    text = f"{call.name}: {reason}" + (f": {fact.message}" if fact.message else "")
    is_failure = fact.loss is Loss.FAILED or not _changes(state, call)
    return text + (UNKNOWN_NOTE if not is_failure and _says_unknown(state) else "")


def settle(state: TurnState, step: int) -> TurnState:
    """Close the step once every call has its result."""
    if not state.open_step.is_finished:
        return state
    results = _with_warning(state, state.open_step.results, step)
    return close(append(state, ToolMessage(results=results)), step, results)


def _with_warning(
    state: TurnState, results: tuple[ToolResult, ...], number: int
) -> tuple[ToolResult, ...]:
    """Add a warning for a model that repeats itself, or whose tools all failed lately."""
    if state.agent is None or not results:
        return results
    step = _closed_step(state, number, results)
    if not guards.warns((*state.steps, step), state.agent):
        return results
    warning = guards.LOOP_WARNING.format(times=limits.SAME_CALLS)
    return (
        *results[:-1],
        results[-1].model_copy(update={"content": results[-1].content + warning}),
    )


def close(state: TurnState, number: int, results: tuple[ToolResult, ...] = ()) -> TurnState:
    """Close the step."""
    accounts = replace(state.accounts, closed_calls=state.accounts.closed_calls + len(results))
    return replace(
        state,
        steps=(*state.steps, _closed_step(state, number, results)),
        open_step=state.open_step.closed(),
        accounts=accounts,
        handoffs=_worked(state.handoffs, results),
    )


def _closed_step(state: TurnState, number: int, results: tuple[ToolResult, ...]) -> Step:
    """Return what a report says of the open step, with these results."""
    last, bill = state.open_step, state.open_step.bill
    assert last.answer is not None
    return Step(
        number=number,
        model=last.answer.model,
        message=last.answer.message,
        results=results,
        stop=last.answer.stop,
        usage=last.answer.usage,
        cost=bill.cost if bill else None,
        overrun=bill.overrun if bill else False,
        tried=last.tried,
        left_out=state.transcript.left_out,
        decisions=last.decisions,
        agent=state.other_agent,
    )


def _worked(handoffs: Handoffs, results: Sequence[ToolResult]) -> Handoffs:
    """Note a step without calls, or with a call that is neither a handoff nor beside a handoff."""
    if handoffs.worked or not handoffs.by:
        return handoffs
    is_handoff = (
        result.name == HAND_OVER or result.content == BESIDE_HANDOFF for result in results
    )
    return replace(handoffs, worked=not results or not all(is_handoff))
