"""Activities that an operator ends with Temporal's own command line: the turn ends with a typed
error that says so.
"""

import asyncio

import pytest

from perdure import Agent, Budget, Outcome, tool
from perdure.activities.provider import ModelRequest
from perdure.errors import PerdureError
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.answers import ModelAnswer

from ...conftest import Runtime, eventually
from ...support.losses import timeless
from ...support.operating import on_activity
from ...support.spending import SOON_S, app, ended, report_of

begun: list[str] = []
WORDS = [("fail", "--reason", "no use"), ("complete", "--result", '"no use"')]


@tool
async def pay(to: str) -> str:
    """Pay."""
    begun.append(to)
    await asyncio.sleep(SOON_S)
    return f"paid {to}"


class Silent(ScriptedModel):
    """A model that never answers."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        begun.append("ask")
        await asyncio.sleep(SOON_S)
        raise AssertionError("the call was not stopped")


@pytest.mark.accepts("Y20")
@pytest.mark.parametrize("words", WORDS, ids=["fail", "complete"])
@pytest.mark.table(1)
async def test_model_is_told_that_an_operator_ended_its_call_and_that_the_outcome_is_unknown(
    runtime: Runtime, words: tuple[str, ...]
) -> None:
    """The tool had started, so the result does not say that it could not be run."""
    begun.clear()
    agent = Agent(name="payer", model="scripted:payer", tools=[pay])
    async with runtime(
        agent, model=ScriptedModel(calls(call("pay", to="Ann")), says("done"))
    ) as client:
        turn = await client.start("payer", "go")
        await eventually(lambda: bool(begun), "the tool begins")
        await on_activity(
            client.temporal.service_client.config.target_host,
            words[0],
            turn.id,
            "step-1.call-1",
            *words[1:],
        )
        report = await report_of(turn)

    [result] = report.steps[0].results
    assert (report.outcome, result.is_error) == (Outcome.COMPLETED, True)
    assert timeless(result.content).startswith(
        "pay: an operator ended this call in Temporal; whether it took effect is unknown: "
    )
    assert "could not be run" not in result.content


@pytest.mark.accepts("Y20")
@pytest.mark.parametrize("words", WORDS, ids=["fail", "complete"])
@pytest.mark.slow
async def test_turn_whose_model_call_an_operator_ends_fails_with_words_that_say_so(
    runtime: Runtime, words: tuple[str, ...]
) -> None:
    """The amount that the provider may bill for it is booked."""
    begun.clear()
    async with runtime(app(budget=Budget(usd="100")), model=Silent()) as client:
        turn = await client.start("spender", "go")
        await eventually(lambda: bool(begun), "the model is asked")
        await on_activity(
            client.temporal.service_client.config.target_host,
            words[0],
            turn.id,
            "step-1",
            *words[1:],
        )
        end = await ended(turn)

    assert isinstance(end, PerdureError)
    assert "an operator" in end.message
    assert "in Temporal" in end.message
    assert end.report is not None
    assert end.report.spent.usd > 1
