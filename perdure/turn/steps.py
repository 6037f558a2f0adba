"""How a step comes together.

What is said is appended, each call gets its one result, and with the last of them the step is
closed. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from perdure import errors, limits
from perdure.agents.definitions import AgentDefinition
from perdure.text import clip, head
from perdure.turn import loops
from perdure.turn.facts import CallFailed, Key, Loss
from perdure.turn.state import TurnState
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Message,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    canonical,
    chain,
)
from perdure.values.prices import bound
from perdure.values.reports import Step

NOT_RUN = "This call has no result: the budget was spent before it was run, or while it ran."
EDITED = "\n[A person changed the arguments of this call before it ran, to {arguments}]"
EDITED_BYTES = 2_000
_LOSS = {
    Loss.WORKER_LOST: (
        "contact with the process that ran it was lost; whether it took effect is unknown"
    ),
    Loss.TIMED_OUT: (
        "stopped because it took longer than {limit}; whether it took effect is unknown"
    ),
    Loss.CANCELLED: (
        "stopped because the turn was cancelled or its time was up; whether it took effect is"
        " unknown"
    ),
    Loss.FAILED: "it could not be run",
    Loss.BY_OPERATOR: "an operator ended this call in Temporal; whether it took effect is unknown",
}


def append(state: TurnState, message: Message) -> TurnState:
    """One more message in the transcript."""
    data = canonical(message)
    ids, thinkers = state.call_ids, state.thinkers
    if isinstance(message, AssistantMessage):
        ids = ids | {call.id for call in message.calls} if message.calls else ids
        thinkers = thinkers | {
            part.by for part in message.parts if isinstance(part, Thinking) and part.by is not None
        }
    return replace(
        state,
        messages=(*state.messages, message),
        digest=chain(state.digest, data),
        size_bytes=state.size_bytes + len(data),
        bound=state.bound + (bound(message) if isinstance(message, UserMessage) else len(data)),
        call_ids=ids,
        thinkers=thinkers,
        estimate=state.estimate.plus(message),
        media=(
            (*state.media, *(part for part in message.parts if isinstance(part, Media)))
            if isinstance(message, UserMessage)
            else state.media
        ),
    )


def known_result(agent: AgentDefinition | None, call: ToolCall) -> ToolResult | None:
    """The result of a call that need not be run; None for one that is to be."""
    if agent is None or agent.tool(call.name) is not None:
        return None
    offered = ", ".join(item.name for item in agent.tools) or "none"
    content = clip(
        f"There is no tool named {head(call.name, 100)!r}. The tools are: {offered}.",
        limits.TOOL_RESULT_BYTES,
    )
    return ToolResult(call_id=call.id, name=call.name, content=content, is_error=True)


def is_open(state: TurnState, key: Key) -> bool:
    """Whether this call waits for its result.

    A reader that begins from a wrong answer meets others; its digest will say so.
    """
    return (
        key.step == len(state.steps) + 1
        and key.call <= len(state.results)
        and state.results[key.call - 1] is None
    )


def give(state: TurnState, key: Key, content: str, is_error: bool) -> TurnState:
    """Give a call its result.

    Where a person changed its arguments, the model is told: it knows its own.
    """
    call = state.calls[key.call - 1]
    edited = state.gates[key.call - 1].arguments if key.call <= len(state.gates) else None
    told = "" if edited is None else EDITED.format(arguments=clip(edited, EDITED_BYTES))
    result = ToolResult(call_id=call.id, name=call.name, content=content + told, is_error=is_error)
    results = (*state.results[: key.call - 1], result, *state.results[key.call :])
    others = tuple(failure for failure in state.failures if failure.key.call != key.call)
    return settle(
        replace(state, results=results, failures=others, pardoned=min(state.pardoned, len(others))),
        key.step,
    )


def lose(state: TurnState, key: Key, loss: Loss, message: str) -> TurnState:
    """A call has no result of its own: it is run again, or the model is told."""
    call = state.calls[key.call - 1]
    tool = state.agent.tool(call.name) if state.agent else None
    may_repeat = loss is Loss.WORKER_LOST and tool is not None and tool.is_idempotent
    if may_repeat and key.attempt < limits.LOST_ATTEMPTS:
        error = errors.PerdureError(f"{call.name}: {_LOSS[Loss.WORKER_LOST]}").info()
        return replace(state, failures=(*state.failures, CallFailed(key, error, lost=True)))
    limit = f"{tool.timeout_s:g} s" if tool else ""
    text = f"{call.name}: {_LOSS[loss].format(limit=limit)}" + (f": {message}" if message else "")
    return give(state, key, text, is_error=True)


def settle(state: TurnState, step: int) -> TurnState:
    """Close the step once every call has its result."""
    if not all(state.results):
        return state
    results = _with_warning(state, tuple(filter(None, state.results)), step)
    return close(append(state, ToolMessage(results=results)), step, results)


def _with_warning(
    state: TurnState, results: tuple[ToolResult, ...], number: int
) -> tuple[ToolResult, ...]:
    """Tell a model that repeats itself, where its agent wants that."""
    if state.agent is None or state.agent.on_loop != "warn" or not results:
        return results
    step = close(state, number, results).steps[-1]
    if not loops.found_in((*state.steps, step), state.agent):
        return results
    warning = loops.WARNING.format(times=limits.SAME_CALLS)
    return (
        *results[:-1],
        results[-1].model_copy(update={"content": results[-1].content + warning}),
    )


def close(state: TurnState, number: int, results: tuple[ToolResult, ...] = ()) -> TurnState:
    """The step is over."""
    assert state.answer is not None
    step = Step(
        number=number,
        model=state.answer.model,
        message=state.answer.message,
        results=results,
        stop=state.answer.stop,
        usage=state.answer.usage,
        cost=state.bill.cost if state.bill else None,
        overrun=state.bill.overrun if state.bill else False,
        tried=state.tried,
        left_out=state.left_out,
        decisions=state.decisions,
    )
    return replace(
        state,
        steps=(*state.steps, step),
        calls=(),
        results=(),
        gates=(),
        decisions=(),
        closed_calls=state.closed_calls + len(results),
    )
