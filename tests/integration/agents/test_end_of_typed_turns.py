"""The end of a typed turn: a last answer that is paid from the reserve, and guardrails on typed
answers.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from perdure import Agent, AgentReport, Budget, Middleware, Outcome, OutputGuardrail, errors, tool
from perdure.testing import ScriptedModel, call, calls
from perdure.turn.withheld import MARK
from perdure.values.messages import AssistantMessage, ToolMessage

from ...conftest import Runtime

looked: list[int] = []


class Sum(BaseModel):
    """What came out."""

    total: int


@tool(read_only=True)
def look(number: int) -> str:
    """Look."""
    looked.append(number)
    return f"seen {number}"


def agent(**fields: Any) -> Agent[Sum]:
    """An agent with a type and a tool."""
    return Agent(
        **{"name": "adder", "model": "scripted:adder", "tools": [look], "output": Sum, **fields}
    )


FINISHES = agent(on_exhausted="finish", budget=Budget(model_calls=2))


@pytest.mark.slow
async def test_last_answer_that_calls_instead_of_answering_is_no_answer(runtime: Runtime) -> None:
    """Its call does not run, there is no further request, and another turn can continue from
    there.
    """
    looked.clear()
    model = ScriptedModel(
        calls(call("look", number=1)), calls(call("look", call_id="late", number=2)), '{"total": 3}'
    )
    async with runtime(FINISHES, model=model) as client:
        with pytest.raises(errors.OutputInvalidError) as caught:
            await client.run(FINISHES, "go")
        assert caught.value.report is not None
        report = await client.run(FINISHES, "go on", history=caught.value.report.messages)

    assert (looked, caught.value.report.outcome, report.output) == (
        [1],
        Outcome.FAILED,
        Sum(total=3),
    )
    assert model.requests[1].tools == ()
    *_, said, closed, _asked = model.requests[2].messages
    assert isinstance(said, AssistantMessage)
    assert isinstance(closed, ToolMessage)
    assert (
        [(result.call_id, result.is_error) for result in closed.results]
        == [(said.calls[0].id, True)]
        == [("late", True)]
    )


@pytest.mark.slow
async def test_last_answer_with_a_call_beside_it_is_an_answer(runtime: Runtime) -> None:
    """The call does not run."""
    looked.clear()
    model = ScriptedModel(
        calls(call("look", number=1)), calls(call("look", number=2), text='{"total": 3}')
    )
    async with runtime(FINISHES, model=model) as client:
        report = await client.run(FINISHES, "go")

    assert (looked, report.outcome, report.output, report.tool_calls) == (
        [1],
        Outcome.BUDGET_EXHAUSTED,
        Sum(total=3),
        1,
    )


@pytest.mark.slow
async def test_guardrail_sees_the_instance(runtime: Runtime) -> None:
    """Like the caller; a refused answer is only in the messages of the report."""
    seen: list[object] = []

    class Noting(Middleware):
        async def after(self, report: AgentReport) -> None:
            seen.append(report.output)

    checked = agent(
        middleware=[
            OutputGuardrail(lambda report: report.output.total < 10 or "too much"),
            Noting(),
        ]
    )
    async with runtime(
        checked, model=ScriptedModel('{"total": 3}', '```json\n{"total": 30}\n```')
    ) as client:
        report = await client.run(checked, "go")
        with pytest.raises(errors.GuardrailError, match="too much") as caught:
            await client.run(checked, "go")

    assert (report.output, seen) == (Sum(total=3), [Sum(total=3), Sum(total=30)])
    assert caught.value.report is not None
    assert (caught.value.report.output, caught.value.report.last_text) == (None, "")
    assert caught.value.report.steps[-1].message.text.startswith(MARK)
