"""`skip_time`: time passes for a turn without waiting."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from perdure import Agent, Budget, ModelRetryPolicy, errors, tool
from perdure.clients import AgentClient, Turn
from perdure.errors import LLMUnavailableError
from perdure.testing import (
    ByTask,
    ScriptedModel,
    call,
    calls,
    fails,
    local_runtime,
    says,
    skip_time,
)
from perdure.worker.dev.server import DevServer

from ...conftest import Runtime
from ...support.long_turns import begin, filling, reader, until_run
from ...support.spending import SOON_S, look


@tool(requires_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


CLERK = Agent(name="clerk", model="openai:gpt-5-mini", tools=[pay])
ASKS = calls(call("pay", euros=5))


async def waiting(client: AgentClient, task: str) -> Turn:
    """A turn that waits for its approval."""
    turn = await client.start("clerk", task)
    assert (await turn.wait(timeout=60)).state == "waiting"
    return turn


@pytest.mark.slow
@pytest.mark.accepts("P24")
async def test_approval_expires_in_the_time_that_is_skipped_and_in_no_other_turn(
    runtime: Runtime,
) -> None:
    """After 23 of its 24 hours it still waits, and two hours later the model gets the refusal; the
    other turn can still be approved.
    """
    model = ByTask(
        {
            "Pay.": ScriptedModel(ASKS, says("nobody came")),
            "Pay too.": ScriptedModel(ASKS, says("done")),
        }
    )
    async with runtime(CLERK, model=model) as client:
        turn, other = await waiting(client, "Pay."), await waiting(client, "Pay too.")
        await skip_time(client, turn, timedelta(hours=23))
        still = await turn.status()
        await skip_time(client, turn, timedelta(hours=2))
        report = await turn.result()
        await skip_time(client, turn, timedelta(hours=2))
        (wait,) = (await other.status()).waits
        assert wait.call is not None
        await other.approve(wait.call)
        approved = await other.result()

    assert still.state == "waiting"
    assert "nobody approved it within 1 day" in report.steps[0].results[0].content
    assert timedelta(hours=24) < report.duration < timedelta(hours=26)
    assert (approved.steps[0].results[0].content, approved.duration < timedelta(hours=1)) == (
        "paid 5",
        True,
    )


@pytest.mark.accepts("P24")
async def test_pause_before_a_model_is_asked_again_is_skipped(runtime: Runtime) -> None:
    """A provider that asks for a pause of four minutes does not delay a test."""
    away = fails(LLMUnavailableError("away", context={"retry_after_s": 240}))
    async with runtime(CLERK, model=ScriptedModel(away, says("back again"))) as client:
        turn = await client.start("clerk", "Are you there?")
        await skip_time(client, turn, timedelta(minutes=5))
        report = await turn.result()

    assert (report.output, report.model_calls) == ("back again", 2)
    assert report.duration > timedelta(minutes=4)


@pytest.mark.slow
@pytest.mark.accepts("P24")
async def test_budget_of_time_is_over_in_the_time_that_is_skipped(runtime: Runtime) -> None:
    """The second pause of the provider is longer than the rest of the turn's time."""
    away = fails(LLMUnavailableError("away", context={"retry_after_s": 100}))
    patient = replace(CLERK, model_retry=ModelRetryPolicy())
    async with runtime(patient, model=ScriptedModel(away, away, says("too late"))) as client:
        turn = await client.start(
            "clerk", "Are you there?", budget=Budget(time=timedelta(minutes=3))
        )
        await skip_time(client, turn, timedelta(minutes=2))
        with pytest.raises(errors.TurnBudgetExceededError) as raised:
            await turn.result()

    assert raised.value.report is not None
    assert raised.value.report.duration >= timedelta(seconds=100)


@pytest.mark.slow
async def test_server_that_does_not_skip_time_is_refused_with_the_option_that_it_needs() -> None:
    """For example a server that is already running."""
    async with (
        DevServer(folder=None, port=0, ui=False) as server,
        local_runtime(CLERK, model=ScriptedModel(ASKS), address=server.address.address) as client,
    ):
        turn = await client.start("clerk", "Pay.")
        with pytest.raises(
            errors.ConfigurationError, match=r"frontend\.WorkflowTimeSkippingEnabled=true"
        ):
            await skip_time(client, turn, timedelta(hours=1))


@pytest.mark.slow
@pytest.mark.accepts("P24")
async def test_time_of_a_turn_is_skipped_in_its_second_run(runtime: Runtime) -> None:
    """With a handle of its id, that has asked nothing yet."""
    agent = reader(tools=[look, pay], parallel_tools=True)
    model = ScriptedModel(*filling(), ASKS, says("nobody came"))
    async with runtime(agent, model=model) as client:
        turn = await begin(client)
        await until_run(client, turn, 2)
        assert (await turn.wait(timeout=SOON_S)).state == "waiting"
        await skip_time(client, client.turn(turn.id), timedelta(hours=25))
        report = await turn.result()

    assert "nobody approved it within 1 day" in report.steps[-2].results[0].content


@pytest.mark.accepts("P24")
async def test_turn_whose_time_is_skipped_has_to_exist(runtime: Runtime) -> None:
    """Otherwise a test with a wrong id would pass."""
    async with runtime(CLERK, model=ScriptedModel()) as client:
        with pytest.raises(errors.TurnNotFoundError):
            await skip_time(client, client.turn("no-such-turn"), timedelta(hours=1))
