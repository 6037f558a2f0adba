"""Helpers for tests of tools."""

from typing import Any

from perdure import (
    AgentReport,
    Outcome,
    ToolCall,
    ToolMessage,
    tool,
)
from perdure.testing import ScriptedModel, calls, says

from ..conftest import Run


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def results_of(run: Run, *asked: ToolCall, tools: list[Any]) -> list[tuple[str, bool]]:
    """Content and `is_error` of each call's result, in a turn that completes."""
    model = ScriptedModel(calls(*asked), says("done"))

    report: AgentReport = await run(model, tools=tools)

    assert (report.outcome, report.output) == (Outcome.COMPLETED, "done")
    assert model.requests[1].messages[-1] == ToolMessage(results=report.steps[0].results)
    return [(result.content, result.is_error) for result in report.steps[0].results]
