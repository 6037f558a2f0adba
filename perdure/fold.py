"""The fold: from facts to the state of a turn. Pure, and the only way into a transcript.

The workflow applies it as facts arrive. The client, the reports, the events and the model activity apply the same function to the history they
read, so they see what the workflow saw. Whatever the workflow decides without asking anyone (a tool that does not exist, a call whose outcome
is unknown) is decided here, because it stands in no history. Its words are part of the digest: to change one after a release breaks the turns
that run while workers of both releases share a queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

from perdure import errors, limits
from perdure.agents import AgentDefinition
from perdure.facts import (
    AgentResolved,
    CallFailed,
    CancelRequested,
    Fact,
    Key,
    Loss,
    ModelAnswered,
    Scheduled,
    ToolLost,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from perdure.messages import (
    NO_DIGEST,
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    ToolResult,
    canonical,
    chain,
    closed,
    with_unique_ids,
)
from perdure.reports import Step, StopReason, Usage
from perdure.tasks import opening
from perdure.text import clip, head
from perdure.wire import ModelAnswer, TurnRequest


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why nothing happens: the model is asked again after a pause."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class TurnState:
    """Everything that follows from the facts so far.

    `messages` are complete: every call in them has its results, but for the calls of the last answer, whose results gather in `results`.
    """

    request: TurnRequest | None = None
    agent: AgentDefinition | None = None
    messages: tuple[Message, ...] = ()
    digest: str = NO_DIGEST
    size_bytes: int = 0
    call_ids: frozenset[str] = frozenset()
    steps: tuple[Step, ...] = ()
    answer: ModelAnswer | None = None
    results: tuple[ToolResult | None, ...] = ()
    failures: tuple[CallFailed, ...] = ()
    usage: Usage = Usage()
    model_calls: int = 0
    tool_calls: int = 0
    in_flight: tuple[Key, ...] = ()
    waiting: Waiting | None = None
    cancel_reason: str | None = None
    ended: TurnEnded | None = None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of the last answer that are to be run."""
        return self.answer.message.calls if self.answer and self.results else ()

    @property
    def next_call(self) -> int | None:
        """The first call without a result, counted from 1; None where there is none."""
        return next((index for index, result in enumerate(self.results, 1) if result is None), None)

    @property
    def partial(self) -> tuple[Message, ...]:
        """The messages, with the results that the last answer's calls have so far."""
        given = tuple(result for result in self.results if result is not None)
        return (*self.messages, ToolMessage(results=given)) if given else self.messages

    def attempts(self, key: Key) -> int:
        """How many attempts of this activity are over."""
        return sum(1 for failure in self.failures if (failure.key.step, failure.key.call) == (key.step, key.call))


def fold(facts: Iterable[Fact], state: TurnState | None = None) -> TurnState:
    """The state after all of `facts`, from the beginning or from `state` on."""
    return reduce(apply, facts, state or TurnState())


def apply(state: TurnState, fact: Fact) -> TurnState:
    """The state after one more fact."""
    match fact:
        case TurnStarted(request):
            return _begin(state, request)
        case Scheduled(key):
            is_model_call = key.step > 0 and key.call == 0
            return replace(state, in_flight=(*state.in_flight, key), model_calls=state.model_calls + is_model_call, waiting=None)
        case AgentResolved(key, agent):
            return replace(_landed(state, key), agent=agent, failures=())
        case ModelAnswered(key, answer):
            return _answered(_landed(state, key), key, answer)
        case CallFailed(key, error, lost):
            failures = (*state.failures, CallFailed(key, error, lost))
            return replace(_landed(state, key), failures=failures, waiting=Waiting("retry", error.message))
        case ToolReturned(key) | ToolLost(key):
            return _tool_ended(_landed(state, key), fact) if _is_open(state, key) else _landed(state, key)
        case CancelRequested(reason):
            return replace(state, cancel_reason=reason)
        case TurnEnded():
            return replace(state, ended=fact, waiting=None)


def _begin(state: TurnState, request: TurnRequest) -> TurnState:
    state = replace(state, request=request)
    for message in (*closed(request.history), opening(request.task, request.context)):
        state = _append(state, message)
    return state


def _append(state: TurnState, message: Message) -> TurnState:
    data = canonical(message)
    ids = state.call_ids
    if isinstance(message, AssistantMessage) and message.calls:
        ids = ids | {call.id for call in message.calls}
    return replace(
        state,
        messages=(*state.messages, message),
        digest=chain(state.digest, data),
        size_bytes=state.size_bytes + len(data),
        call_ids=ids,
    )


def _landed(state: TurnState, key: Key) -> TurnState:
    return replace(state, in_flight=tuple(other for other in state.in_flight if other != key))


def _answered(state: TurnState, key: Key, answer: ModelAnswer) -> TurnState:
    message = with_unique_ids(answer.message, state.call_ids, f"call_{key.step}")
    answer = answer.model_copy(update={"message": message})
    state = _append(replace(state, answer=answer, results=(), failures=(), usage=state.usage + answer.usage), message)
    if not runs_tools(answer):
        return _close_step(state, key.step)
    return _settle(replace(state, results=tuple(_known_result(state.agent, call) for call in message.calls)), key.step)


def runs_tools(answer: ModelAnswer) -> bool:
    """Whether the calls of an answer are run: not after a stop sequence, and not where the answer was cut off or declined."""
    return bool(answer.message.calls) and answer.stop in (StopReason.TOOL_CALLS, StopReason.END, StopReason.OTHER)


def _known_result(agent: AgentDefinition | None, call: ToolCall) -> ToolResult | None:
    if agent is None or agent.tool(call.name) is not None:
        return None
    offered = ", ".join(item.name for item in agent.tools) or "none"
    content = clip(f"There is no tool named {head(call.name, 100)!r}. The tools are: {offered}.", limits.TOOL_RESULT_BYTES)
    return ToolResult(call_id=call.id, name=call.name, content=content, is_error=True)


def _tool_ended(state: TurnState, fact: ToolReturned | ToolLost) -> TurnState:
    if isinstance(fact, ToolReturned):
        return _result(state, fact.key, fact.output.content, fact.output.is_error)
    return _lost(state, fact.key, fact.loss, fact.message)


def _is_open(state: TurnState, key: Key) -> bool:
    """Whether this call waits for its result. A reader that begins from a wrong answer meets others; its digest will say so."""
    return key.step == len(state.steps) + 1 and key.call <= len(state.results) and state.results[key.call - 1] is None


def _result(state: TurnState, key: Key, content: str, is_error: bool) -> TurnState:
    call = state.calls[key.call - 1]
    result = ToolResult(call_id=call.id, name=call.name, content=content, is_error=is_error)
    results = tuple(result if index == key.call else other for index, other in enumerate(state.results, 1))
    return _settle(replace(state, results=results, failures=()), key.step)


def _lost(state: TurnState, key: Key, loss: Loss, message: str) -> TurnState:
    call = state.calls[key.call - 1]
    tool = state.agent.tool(call.name) if state.agent else None
    may_repeat = loss is Loss.WORKER_LOST and tool is not None and tool.is_idempotent
    if may_repeat and key.attempt < limits.LOST_ATTEMPTS:
        error = errors.PerdureError(f"{call.name}: {_LOSS[Loss.WORKER_LOST]}").info()
        return replace(state, failures=(*state.failures, CallFailed(key, error, lost=True)))
    limit = f"{tool.timeout_s:g} s" if tool else ""
    text = f"{call.name}: {_LOSS[loss].format(limit=limit)}" + (f": {message}" if message else "")
    return _result(state, key, text, is_error=True)


_LOSS = {
    Loss.WORKER_LOST: "contact with the process that ran it was lost; whether it took effect is unknown",
    Loss.TIMED_OUT: "stopped because it took longer than {limit}; whether it took effect is unknown",
    Loss.CANCELLED: "stopped because the turn was cancelled; whether it took effect is unknown",
    Loss.FAILED: "it could not be run",
}


def _settle(state: TurnState, step: int) -> TurnState:
    """Close the step once every call has its result."""
    results = tuple(result for result in state.results if result is not None)
    if len(results) < len(state.results):
        return state
    return _close_step(_append(state, ToolMessage(results=results)), step, results)


def _close_step(state: TurnState, number: int, results: tuple[ToolResult, ...] = ()) -> TurnState:
    assert state.answer is not None
    step = Step(
        number=number,
        model=state.answer.model,
        message=state.answer.message,
        results=results,
        stop=state.answer.stop,
        usage=state.answer.usage,
    )
    return replace(state, steps=(*state.steps, step), results=(), tool_calls=state.tool_calls + len(results))
