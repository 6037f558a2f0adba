"""Whether a model goes round in circles: the same call again and again, or step after step in which every tool failed. Pure."""

from __future__ import annotations

from perdure import approvals, errors, limits
from perdure.definitions import AgentDefinition
from perdure.messages import ToolResult
from perdure.reports import Step
from perdure.state import TurnState

WARNING = "\n[You have done this {times} times in a row. Doing it again will not help: try something else, or answer.]"


def check(state: TurnState, agent: AgentDefinition) -> None:
    """Stop a turn whose model loops.

    Raises:
        LoopDetectedError: It does, and the agent does not only warn or ignore it.
    """
    found = found_in(state.steps) if agent.on_loop == "fail" else None
    if found:
        raise errors.LoopDetectedError(
            f"{agent.name} {found}; change its instructions or tools, or let it go on with on_loop='warn' or 'ignore'",
            context={"times": limits.SAME_CALLS},
        )


def warned(state: TurnState, agent: AgentDefinition) -> bool:
    """Whether the model was warned in this turn."""
    return agent.on_loop == "warn" and any(found_in(state.steps[:number]) for number in range(1, len(state.steps) + 1))


def found_in(steps: tuple[Step, ...]) -> str | None:
    """What repeats itself at the end of these steps; None where nothing does."""
    calls = [(call.name, call.arguments) for step in steps[-limits.SAME_CALLS :] for call in step.message.calls if step.results]
    last = calls[-limits.SAME_CALLS :]
    if len(last) == limits.SAME_CALLS and len(set(last)) == 1:
        return f"called {last[0][0]} with the same arguments {limits.SAME_CALLS} times in a row"
    lately = steps[-limits.SAME_CALLS :]
    if len(lately) == limits.SAME_CALLS and all(step.results and all(map(_failed, step.results)) for step in lately):
        return f"made {limits.SAME_CALLS} steps in a row in which every tool failed"
    return None


def _failed(result: ToolResult) -> bool:
    """Whether a tool failed. What nobody let run did not."""
    return result.is_error and not result.content.startswith(approvals.NOT_RUN)
