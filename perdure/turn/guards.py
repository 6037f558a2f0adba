"""Guards that stop a turn: disallowed calls, and a model that repeats itself. Pure.

There are two layers of autonomy: a tool that is not allowed is not offered, and a call of it
nevertheless ends the turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure import errors, limits
from perdure.agents.definitions import AgentDefinition
from perdure.text import head
from perdure.turn import approvals
from perdure.turn.state import TurnState
from perdure.values.messages import Media, ToolCall, ToolResult
from perdure.values.reports import Step

LOOP_WARNING = (
    "\n[You have done this {times} times in a row. Doing it again will not help: try something"
    " else, or answer.]"
)


def violation(agent: AgentDefinition, calls: Sequence[ToolCall]) -> ToolCall | None:
    """Return the first call of a tool that is not allowed; None if every call is allowed."""
    if agent.allowed is None:
        return None
    return next((call for call in calls if call.name not in agent.allowed), None)


def check_allowed(agent: AgentDefinition, calls: Sequence[ToolCall]) -> None:
    """Check all calls of an answer before any of them runs.

    Raises:
        AutonomyBoundaryError: A call is not allowed.
    """
    call = violation(agent, calls)
    if call is not None:
        name = head(call.name, 100)
        allowed = ", ".join(agent.allowed or ()) or "none"
        raise errors.AutonomyBoundaryError(
            f"the model of {agent.name} called {name!r}, which this turn does not allow (allowed:"
            f" {allowed}); none of its calls was run",
            context={"violation": "tool_not_allowed", "tool": name, "agent": agent.name},
        )


def check_loop(state: TurnState, agent: AgentDefinition) -> None:
    """Check that the model does not repeat itself.

    Since rules 4, steps in which every tool failed are no loop, unless they are equal.

    Raises:
        LoopDetectedError: It does, and the agent's `on_loop` is `fail`.
    """
    if agent.on_loop != "fail":
        return
    repetition = (
        repeated_in(state.steps, agent) if agent.rules >= 4 else loop_in(state.steps, agent)
    )
    if repetition:
        raise errors.LoopDetectedError(
            f"{agent.name} {repetition}; change its instructions or tools, or let it go on with"
            " on_loop='warn' or 'ignore'",
            context={"times": limits.SAME_CALLS},
        )


def warned_of_loop(state: TurnState, agent: AgentDefinition) -> bool:
    """Return whether the model was warned in this turn."""
    return agent.on_loop == "warn" and (
        state.carried.warned_of_loop
        or any(loop_in(state.steps[:number], agent) for number in range(1, len(state.steps) + 1))
    )


def warns(steps: tuple[Step, ...], agent: AgentDefinition) -> bool:
    """Return whether the model is warned after the last of these steps."""
    if agent.on_loop == "ignore" or (agent.on_loop == "fail" and agent.rules < 4):
        return False
    if loop_in(steps, agent) is None:
        return False
    is_fatal = agent.on_loop == "fail" and repeated_in(steps, agent) is not None
    return not is_fatal


def loop_in(steps: tuple[Step, ...], agent: AgentDefinition) -> str | None:
    """Describe the repetition at the end of these steps; None if there is none."""
    lately, repeated = steps[-limits.SAME_CALLS :], repeated_in(steps, agent)
    if (
        repeated is None
        and len(lately) == limits.SAME_CALLS
        and all(step.results and all(map(_failed, step.results)) for step in lately)
    ):
        return f"made {limits.SAME_CALLS} steps in a row in which every tool failed"
    return repeated


def repeated_in(steps: tuple[Step, ...], agent: AgentDefinition) -> str | None:
    """Describe equal calls at the end of these steps; None if there are none."""
    lately = steps[-limits.SAME_CALLS :]
    repetition = _repeated_steps(lately) if agent.rules >= 1 else _repeated_calls(lately)
    if repetition is None or any(_has_waited(step, agent) for step in lately):
        return None
    return repetition


def _has_waited(step: Step, agent: AgentDefinition) -> bool:
    """Return whether a call of a step has waited: to do the same again may help after a while."""
    waits = {tool.name for tool in agent.tools if tool.wait is not None}
    return any(result.name in waits and not result.is_error for result in step.results)


def _repeated_steps(lately: tuple[Step, ...]) -> str | None:
    """Describe equal calls with equal results in consecutive steps.

    Denied calls are not counted, because their results do not depend on the model.
    """
    if len(lately) < limits.SAME_CALLS:
        return None
    last = tuple(_ran(lately[-1]))
    if not last or any(tuple(_ran(step)) != last for step in reversed(lately[:-1])):
        return None
    names = ", ".join(name for name, *_ in last)
    return (
        f"called {names} with the same arguments and the same results {limits.SAME_CALLS} times in"
        " a row"
    )


def _ran(step: Step) -> Iterator[tuple[str, str, str, tuple[Media, ...]]]:
    """Yield the calls of a step that were not denied: name, arguments and original result."""
    warning = LOOP_WARNING.format(times=limits.SAME_CALLS)
    for call, result in zip(step.message.calls, step.results, strict=False):
        if not _was_denied(result):
            content = result.content.removesuffix(warning)
            yield call.name, call.arguments, content, result.media


def _repeated_calls(lately: tuple[Step, ...]) -> str | None:
    """Describe equal calls, with any results, also within one answer."""
    last = [
        (call.name, call.arguments)
        for step in lately
        for call in step.message.calls
        if step.results
    ][-limits.SAME_CALLS :]
    if len(last) < limits.SAME_CALLS or len(set(last)) > 1:
        return None
    return f"called {last[0][0]} with the same arguments {limits.SAME_CALLS} times in a row"


def _failed(result: ToolResult) -> bool:
    """Return whether a tool failed; a denied call is not a failure."""
    return result.is_error and not _was_denied(result)


def _was_denied(result: ToolResult) -> bool:
    beginnings = (approvals.NOT_RUN, approvals.NOT_ANSWERED)
    return result.is_error and result.content.startswith(beginnings)
