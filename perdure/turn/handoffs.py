"""Handoffs: a call that hands the turn over to another agent, its result, and what follows. Pure.

The turn stays the same: its transcript, ledger, steps, deadline and limits continue. Instructions,
tools, skills, models and the rules about them are the other agent's from the next step on.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_core import from_json

from perdure import errors, limits
from perdure.agents.definitions import AgentDefinition
from perdure.agents.handoffs import HAND_OVER, PinnedHandoff
from perdure.base import replace
from perdure.text import clip, head
from perdure.turn import reservations, retries, steps
from perdure.turn.context_window import NO_CUT, Cut, cut_before
from perdure.turn.facts import CallFailed, HandedOver
from perdure.turn.keys import HandoffKey, ToolKey
from perdure.turn.open_step import OpenStep
from perdure.turn.state import Handoffs, TurnState
from perdure.turn.transcript import Transcript
from perdure.turn.waiting import Waiting
from perdure.values.messages import (
    AssistantMessage,
    Message,
    Thinking,
    ToolCall,
    ToolOutcome,
    ToolResult,
    UserMessage,
)

DONE = "Handed over to {agent}, which goes on from here."
MESSAGE = "[Handed over by {agent}]\n{message}"
"""The message for an agent that is sent neither the answer that handed over nor its call."""

_OF_THE_TURN = (
    "max_iterations",
    "budget",
    "on_exhausted",
    "on_loop",
    "on_failure",
    "output_schema",
    "allowed",
    "middleware",
    "observes",
    "indexed",
    "rules",
    "max_depth",
    "max_children",
    "max_descendants",
)
"""The fields of a definition that stay those of the agent that the turn was started with."""


def asked(call: ToolCall) -> tuple[str, str]:
    """Return the agent and the message in a call.

    Raises:
        ValueError: Its arguments are invalid.
    """
    try:
        arguments = from_json(call.arguments or "{}")
    except ValueError:
        raise ValueError("its arguments are no JSON") from None
    for name in ("agent", "message"):
        value = arguments.get(name) if isinstance(arguments, dict) else None
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name} is missing, or no text")
    return arguments["agent"], arguments["message"]


def refused_beside(
    agent: AgentDefinition | None, calls: Sequence[ToolCall]
) -> dict[int, ToolResult]:
    """Return the results of the calls of an answer that also hands over, by their place from 0.

    The first call of `hand_over` is considered, and nothing else.
    """
    first = next((position for position, call in enumerate(calls) if call.name == HAND_OVER), None)
    if first is None or not may_hand_over(agent):
        return {}
    return {
        position: ToolResult(
            call_id=call.id,
            name=call.name,
            content=steps.BESIDE_HANDOFF,
            is_error=True,
            outcome=ToolOutcome.NOT_RUN,
        )
        for position, call in enumerate(calls)
        if position != first
    }


def open_call(state: TurnState) -> tuple[int, ToolCall] | None:
    """Return the call that hands the turn over, with its place; None unless it may be made now."""
    for position, pending in state.open_step.unfinished:
        is_ready = pending.call.name == HAND_OVER and pending.gate.status == "open"
        if is_ready and may_hand_over(state.agent):
            return position, pending.edited
    return None


def may_hand_over(agent: AgentDefinition | None) -> bool:
    """Return whether an agent has the tool; in an earlier release, users could call theirs so."""
    tool = agent.tool(HAND_OVER) if agent else None
    return tool is not None and not tool.activity


def settle(state: TurnState) -> TurnState:
    """Give an error result to a call that cannot hand the turn over."""
    handoff = open_call(state)
    if handoff is None or state.agent is None:
        return state
    position, call = handoff
    try:
        check(state, state.agent, asked(call)[0])
    except ValueError as error:
        return _refused(state, ToolKey(state.step_count + 1, position), str(error))
    return state


def check(state: TurnState, agent: AgentDefinition, name: str) -> None:
    """Check that the turn may be handed over to an agent.

    Raises:
        ValueError: It may not; the message says why.
    """
    by = state.handoffs.by
    if handoff_to(agent, name) is None:
        known = ", ".join(item.name for item in agent.handoffs)
        raise ValueError(
            f"there is no agent named {head(name, 100)!r} to hand over to; there are: {known}"
        )
    if len(by) >= limits.HANDOFFS:
        raise ValueError(
            f"this conversation was handed over {len(by)} times, and may not be again; do the work"
            " yourself, or answer"
        )
    if by and by[-1] == name and not state.handoffs.worked:
        raise ValueError(
            f"{name} has just handed over to you, and nothing was done since; do the work yourself,"
            " or answer"
        )


def handoff_to(agent: AgentDefinition, name: str) -> PinnedHandoff | None:
    """Return the handoff to the agent with this name; None if there is none."""
    return next((item for item in agent.handoffs if item.name == name), None)


def apply(state: TurnState, fact: HandedOver) -> TurnState:
    """Return the state after the turn was handed over.

    The result of the call closes the step; the other agent makes the next step.
    """
    state = replace(state, in_flight=state.without(fact.key))
    if not _is_open(state, fact.key) or state.agent is None:
        return state
    before, call = state.agent, state.open_step.at(fact.key.call).edited
    _, message = asked(call)
    pinned = handoff_to(before, fact.agent.name)
    position = len(state.transcript.messages) - 1
    done = DONE.format(agent=fact.agent.name)
    state = steps.give(state, _tool_key(fact.key), done, ToolOutcome.DONE)
    state = replace(state, agent=taken_over(fact.agent, before), open_step=OpenStep())
    state = _shown(
        _counted(state), pinned.keep if pinned else "all", position, before.name, message
    )
    by = (*state.handoffs.by, before.name)
    return replace(state, handoffs=Handoffs(by, place=len(state.transcript.messages)))


def at_start(state: TurnState, agent: AgentDefinition) -> Handoffs:
    """Return the handoffs of a turn whose agent is resolved: one, if it begins with another agent.

    The work of that agent is in the messages before, so it may hand back at once.
    """
    request = state.request
    if request is None or request.handed_to in (None, request.agent):
        return Handoffs()
    is_other = agent.name == request.handed_to  # an earlier release resolves the first agent
    return Handoffs((request.agent,), worked=True) if is_other else Handoffs()


def without_earlier_thoughts(state: TurnState) -> Transcript:
    """Return the transcript without the thoughts from before the last handoff.

    A provider may check that nothing before a thought has changed, including the instructions and
    the tools. Every message stays in its place. The digest covers the whole transcript.
    """
    position, messages = state.handoffs.place, state.transcript.messages
    if not state.handoffs.by:
        return state.transcript
    return replace(
        state.transcript, messages=(*map(_thoughtless, messages[:position]), *messages[position:])
    )


def _thoughtless(message: Message) -> Message:
    """Return a message without its thoughts, unless it has nothing else."""
    if not isinstance(message, AssistantMessage):
        return message
    parts = tuple(part for part in message.parts if not isinstance(part, Thinking))
    return message.model_copy(update={"parts": parts}) if parts else message


def failed(state: TurnState, fact: CallFailed, key: HandoffKey) -> TurnState:
    """Return the state after the other agent could not be resolved.

    An attempt that was lost, or may succeed later, is repeated. Otherwise the current agent is told
    and continues.
    """
    state = replace(state, in_flight=state.without(key))
    if not _is_open(state, key):
        return state
    attempts = state.attempts.plus(fact)
    failures = attempts.unpardoned
    if retries.repeats_lost(failures) or retries.may_pass(failures):
        return replace(state, attempts=attempts, waiting=Waiting("retry", fact.error.message))
    error = errors.from_info(fact.error)
    return _refused(state, _tool_key(key), f"{error.code}: {error.message}")


def _refused(state: TurnState, key: ToolKey, reason: str) -> TurnState:
    content = clip(f"{HAND_OVER}: not handed over: {reason}.", limits.TOOL_RESULT_BYTES)
    return steps.give(state, key, content, ToolOutcome.FAILED)


def _tool_key(key: HandoffKey) -> ToolKey:
    return ToolKey(key.step, key.call)


def _is_open(state: TurnState, key: HandoffKey) -> bool:
    return steps.is_open(state, _tool_key(key))


def taken_over(agent: AgentDefinition, before: AgentDefinition) -> AgentDefinition:
    """Return the definition of an agent that continues with the limits of the turn.

    `before` is the definition of an agent with these limits.
    """
    version = before.version.model_copy(update={"name": agent.version.name})
    kept = {name: getattr(before, name) for name in _OF_THE_TURN}
    return agent.model_copy(update={**kept, "version": version})


def _counted(state: TurnState) -> TurnState:
    """Count the tokens that precede the messages anew."""
    assert state.agent is not None
    return replace(state, tokens=state.tokens.of_another(reservations.known_tokens(state)))


def _shown(state: TurnState, keep: str, position: int, by: str, message: str) -> TurnState:
    """Return the state in which the agent is sent what the handoff keeps.

    `position` is the place of the answer that handed over.
    """
    if keep == "task":
        position = len(state.transcript.messages)
        state = steps.append(state, UserMessage.of(MESSAGE.format(agent=by, message=message)))
    transcript = state.transcript
    floor: Cut = (
        NO_CUT if keep == "all" else cut_before(transcript.messages, position, transcript.opening)
    )
    return replace(state, transcript=transcript.handed_over(floor))
