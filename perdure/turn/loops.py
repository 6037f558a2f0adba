"""Whether a model goes round in circles.

The same step again and again, or step after step in which every tool failed. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure import errors, limits
from perdure.agents.definitions import AgentDefinition
from perdure.turn import approvals
from perdure.turn.state import TurnState
from perdure.values.messages import ToolResult
from perdure.values.reports import Step

WARNING = (
    "\n[You have done this {times} times in a row. Doing it again will not help: try something"
    " else, or answer.]"
)


def check(state: TurnState, agent: AgentDefinition) -> None:
    """Stop a turn whose model loops.

    Raises:
        LoopDetectedError: It does, and the agent does not only warn or ignore it.
    """
    found = found_in(state.steps, agent) if agent.on_loop == "fail" else None
    if found:
        raise errors.LoopDetectedError(
            f"{agent.name} {found}; change its instructions or tools, or let it go on with"
            " on_loop='warn' or 'ignore'",
            context={"times": limits.SAME_CALLS},
        )


def warned(state: TurnState, agent: AgentDefinition) -> bool:
    """Whether the model was warned in this turn."""
    return agent.on_loop == "warn" and any(
        found_in(state.steps[:number], agent) for number in range(1, len(state.steps) + 1)
    )


def found_in(steps: tuple[Step, ...], agent: AgentDefinition) -> str | None:
    """What repeats itself at the end of these steps; None where nothing does."""
    lately = steps[-limits.SAME_CALLS :]
    repeated = _repeated_steps(lately) if agent.rules >= 1 else _repeated_calls(lately)
    if (
        repeated is None
        and len(lately) == limits.SAME_CALLS
        and all(step.results and all(map(_failed, step.results)) for step in lately)
    ):
        return f"made {limits.SAME_CALLS} steps in a row in which every tool failed"
    return repeated


def _repeated_steps(lately: tuple[Step, ...]) -> str | None:
    """Equal calls with equal results, step after step.

    Calls that were denied do not count: they are not the model's doing.
    """
    ran = [tuple(_ran(step)) for step in lately]
    if len(ran) < limits.SAME_CALLS or not ran[0] or len(set(ran)) > 1:
        return None
    names = ", ".join(name for name, _, _ in ran[0])
    return (
        f"called {names} with the same arguments and the same results {limits.SAME_CALLS} times in"
        " a row"
    )


def _ran(step: Step) -> Iterator[tuple[str, str, str]]:
    """The calls of a step that were not denied, with their results as the tools gave them."""
    warning = WARNING.format(times=limits.SAME_CALLS)
    for call, result in zip(step.message.calls, step.results, strict=False):
        if not _was_denied(result):
            yield call.name, call.arguments, result.content.removesuffix(warning)


def _repeated_calls(lately: tuple[Step, ...]) -> str | None:
    """Equal calls, whatever their results, also of one answer."""
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
    """Whether a tool failed. What nobody let run did not."""
    return result.is_error and not _was_denied(result)


def _was_denied(result: ToolResult) -> bool:
    return result.is_error and result.content.startswith(approvals.NOT_RUN)
