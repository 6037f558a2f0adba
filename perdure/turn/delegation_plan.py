"""The turns that a call of a delegation tool starts, or the reason why it starts none. Pure.

A call that starts no turn (`list_agents`, or a call refused by a guard) is not recorded in history,
so the fold makes its result here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from perdure import limits
from perdure.agents.definitions import AgentDefinition
from perdure.agents.delegates import DELEGATE, LIST_AGENTS, NAMES, PinnedDelegate
from perdure.text import clip, head
from perdure.turn import steps
from perdure.turn.keys import ToolKey
from perdure.turn.state import TurnState
from perdure.values.budgets import NOTHING, Budget, Spending
from perdure.values.messages import ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class Errand:
    """A task for another agent.

    `lease` is the amount reserved for it, and `budget` the budget that its turn starts with, except
    for time. `descendants` is the number of turns that may be below its own.
    """

    agent: str
    task: str
    lease: Spending = NOTHING
    budget: Budget | None = None
    descendants: int | None = None


def is_delegation(call: ToolCall) -> bool:
    """Return whether the turn runs this call itself."""
    return call.name in NAMES


def asked(call: ToolCall) -> tuple[Errand, ...]:
    """Return the errands in a call.

    Raises:
        ValueError: Its arguments are invalid.
    """
    try:
        arguments = from_json(call.arguments or "{}")
    except ValueError:
        raise ValueError("its arguments are no JSON") from None
    if call.name == DELEGATE:
        return (_errand(arguments, ""),)
    items = arguments.get("tasks") if isinstance(arguments, dict) else None
    if not isinstance(items, list):
        raise ValueError("tasks is missing: give a list of objects with agent and task")
    return tuple(_errand(item, f"task {number}: ") for number, item in enumerate(items, 1))


def _errand(item: Any, where: str) -> Errand:
    for name in ("agent", "task"):
        value = item.get(name) if isinstance(item, dict) else None
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{where}{name} is missing, or no text")
    return Errand(item["agent"], item["task"])


def _is_pending(state: TurnState, agent: AgentDefinition, key: ToolKey, call: ToolCall) -> bool:
    """Return whether a call delegates, and has started no turn yet."""
    may_delegate = is_delegation(call) and agent.tool(call.name) is not None
    return may_delegate and not state.children_of(key.step, key.call)


def settle(state: TurnState) -> TurnState:
    """Give a result to every open call of the step that starts no turn.

    This happens once no call of the step waits for a policy or a person.
    """
    agent, waiting = state.agent, state.open_step.unfinished
    if agent is None or any(open_call.gate.status != "open" for _, open_call in waiting):
        return state
    planned = 0
    for position, open_call in waiting:
        key, call = ToolKey(state.step_count + 1, position), open_call.edited
        if not _is_pending(state, agent, key, call):
            continue
        content, is_error = _without_children(state, agent, call, planned)
        if content is None:
            planned += len(asked(call))
        else:
            outcome = ToolOutcome.NOT_RUN if is_error else ToolOutcome.DONE
            state = steps.give(state, key, clip(content, limits.TOOL_RESULT_BYTES), outcome)
    return state


def _without_children(
    state: TurnState, agent: AgentDefinition, call: ToolCall, planned: int
) -> tuple[str | None, bool]:
    """Return the result of a call that starts no turn, and whether it is an error.

    The result is None for a call that starts turns.
    """
    if call.name == LIST_AGENTS:
        return (
            to_json(
                [{"name": item.name, "description": item.description} for item in agent.delegates]
            ).decode(),
            False,
        )
    try:
        errands = asked(call)
        for errand in errands:
            _check(state, agent, errand)
    except ValueError as error:
        return f"{call.name}: nothing was started: {error}.", True
    if not errands:
        return "[]", False
    return _too_many(state, agent, call, planned, len(errands))


def _check(state: TurnState, agent: AgentDefinition, errand: Errand) -> None:
    name = head(errand.agent, 100)
    started = state.request.agent if state.request and not state.handoffs.by else ""
    if errand.agent in (agent.name, started):
        raise ValueError(f"an agent cannot delegate to itself, and {name!r} is you")
    if delegate_of(agent, errand.agent) is None:
        known = ", ".join(item.name for item in agent.delegates) or "none"
        raise ValueError(f"there is no agent named {name!r} to delegate to; there are: {known}")
    if state.depth_left < 1:
        raise ValueError(
            "this agent may not delegate: the tree of agents is as deep as it may be; do the work"
            " yourself"
        )


def _too_many(
    state: TurnState, agent: AgentDefinition, call: ToolCall, planned: int, count: int
) -> tuple[str | None, bool]:
    at_once = count + (planned if agent.parallel_tools else 0)
    if at_once > agent.children_at_once:
        return (
            (
                f"{call.name}: nothing was started: {at_once} agents at once are more than"
                f" {agent.children_at_once}; give fewer tasks."
            ),
            True,
        )
    if len(state.children) + planned + count > agent.max_children:
        turns_left = max(agent.max_children - len(state.children) - planned, 0)
        return (
            (
                f"{call.name}: nothing was started: a turn may start {agent.max_children} agents,"
                f" and {turns_left} of them are left."
            ),
            True,
        )
    room = state.descendants_left
    if room is not None and planned + count > room:
        turns_left = max(room - planned, 0)
        message = (
            f"{call.name}: nothing was started: the tree of agents is limited, and {turns_left}"
            " more of them are left here"
        )
        return f"{message}; give fewer tasks, or do the work yourself.", True
    return None, False


def planned_beside(state: TurnState, calls: Sequence[ToolCall]) -> int:
    """Return the number of turns to be started by open calls of the step other than `calls`."""
    ids = {call.id for call in calls}
    waiting = (
        (position, open_call.edited)
        for position, open_call in state.open_step.unfinished
        if is_delegation(open_call.call) and open_call.call.id not in ids
    )
    return sum(
        len(asked(call))
        for position, call in waiting
        if not state.children_of(state.step_count + 1, position)
    )


def delegate_of(agent: AgentDefinition, name: str) -> PinnedDelegate | None:
    """Return the delegate with this name; None if there is none."""
    return next((item for item in agent.delegates if item.name == name), None)
