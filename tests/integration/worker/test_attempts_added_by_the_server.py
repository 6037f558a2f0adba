"""Attempts that the server adds although the turn asked for one: an operator paused, unpaused or
reset an activity.
"""

import asyncio
import time

import pytest
from temporalio.api.enums.v1 import PendingActivityState

from perdure import Agent, Budget, InputGuardrail, Outcome, Task, ToolContext, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import Turn
from perdure.temporal.histories.runs import describe
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.answers import ModelAnswer
from perdure.values.messages import UNKNOWN_NOTE

from ...conftest import RecordingClient, Runtime, eventually
from ...support.losses import timeless
from ...support.operating import on_activity
from ...support.spending import SOON_S, app, report_of

begun: list[str] = []
PAUSED = PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED
UNKNOWN = "contact with the process that ran it was lost; whether it took effect is unknown"


def is_first(what: str) -> bool:
    """Whether this is the first attempt; that one blocks until it is stopped."""
    begun.append(what)
    return len(begun) == 1


@tool
async def pay(to: str) -> str:
    """Pay; to do so twice costs twice."""
    if is_first("pay"):
        await asyncio.sleep(SOON_S)
    return f"paid {to}"


@tool
def transfer(to: str) -> str:
    """Pay, in a thread."""
    if is_first("transfer"):
        for _ in range(int(SOON_S * 20)):
            time.sleep(0.05)
    return f"paid {to}"


@tool(idempotent=True)
async def put(ctx: ToolContext[None], to: str) -> str:
    """Put something where it may be already."""
    if is_first(f"put, attempt {ctx.attempt}"):
        await asyncio.sleep(SOON_S)
    return f"put {to}"


class Slow(ScriptedModel):
    """A model whose first request blocks until it is stopped."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if is_first("ask"):
            await asyncio.sleep(SOON_S)
        return await super().complete(request)


async def check(task: Task) -> bool:
    """A check that costs something."""
    if is_first("check"):
        await asyncio.sleep(SOON_S)
    return True


async def run_again(client: RecordingClient, turn: Turn, key: str, word: str) -> None:
    """Pause a running activity, wait until it has stopped, and unpause it."""
    address = client.temporal.service_client.config.target_host
    await eventually(lambda: bool(begun), f"{key} begins")
    await on_activity(address, "pause", turn.id, key)
    async with asyncio.timeout(SOON_S):
        while [  # noqa: ASYNC110 - a status is polled
            one.state for one in (await describe(client.temporal, turn.id)).pending_activities
        ] != [PAUSED]:
            await asyncio.sleep(0.05)
    await on_activity(address, word, turn.id, key)


@pytest.mark.accepts("Y15")
@pytest.mark.parametrize("word", ["unpause", "reset"])
@pytest.mark.parametrize("name", ["pay", "transfer", "put"])
@pytest.mark.table(1)
async def test_tool_that_was_paused_is_not_run_a_second_time_unless_it_may_be(
    runtime: Runtime, name: str, word: str
) -> None:
    """The model is told that the outcome is unknown; an idempotent tool runs again, with the next
    attempt number.
    """
    begun.clear()
    agent = Agent(
        name="payer",
        model="scripted:payer",
        tools=[pay, transfer, put],
        budget=Budget(tool_calls=2),
    )
    async with runtime(
        agent, model=ScriptedModel(calls(call(name, to="Ann")), says("done"))
    ) as client:
        turn = await client.start("payer", "go")
        await run_again(client, turn, "step-1.call-1", word)
        report = await report_of(turn)

    [result] = report.steps[0].results
    if name == "put":
        assert (begun, result.content, report.spent.tool_calls) == (
            ["put, attempt 1", "put, attempt 2"],
            "put Ann",
            2,
        )
    else:
        assert (begun, report.spent.tool_calls) == ([name], 1)
        assert timeless(result.content) == f"{name}: {UNKNOWN}{UNKNOWN_NOTE}"


@pytest.mark.accepts("Y15")
@pytest.mark.parametrize("word", ["unpause", "reset"])
@pytest.mark.table(1)
@pytest.mark.slow
async def test_model_call_that_was_paused_is_charged_and_made_again_with_a_reservation_of_its_own(
    runtime: Runtime, word: str
) -> None:
    """The report has the real number of requests, and the bill is within the budget."""
    begun.clear()
    model = Slow(says("done"))
    async with runtime(app(budget=Budget(usd="100", model_calls=2)), model=model) as client:
        turn = await client.start("spender", "go")
        await run_again(client, turn, "step-1", word)
        report = await report_of(turn)

    assert (report.outcome, report.model_calls, report.spent.model_calls, begun) == (
        Outcome.COMPLETED,
        2,
        2,
        ["ask", "ask"],
    )
    assert report.spent.usd > 1


@pytest.mark.accepts("Y15")
@pytest.mark.slow
async def test_check_that_was_paused_is_made_again_as_a_lost_one_is(runtime: Runtime) -> None:
    """The workflow schedules it again, so the attempt has a key of its own in history."""
    begun.clear()
    agent = Agent(name="checked", model="scripted:checked", middleware=[InputGuardrail(check)])
    async with runtime(agent, model=ScriptedModel(says("done"))) as client:
        turn = await client.start("checked", "go")
        await run_again(client, turn, "before-1", "unpause")
        report = await report_of(turn)
        history = await client.history(turn)

    ids = [event.activity_task_scheduled_event_attributes.activity_id for event in history.events]
    assert (report.output, begun, [one for one in ids if one.startswith("before")]) == (
        "done",
        ["check", "check"],
        ["before-1", "before-1.try-2"],
    )


@pytest.mark.accepts("Y15")
@pytest.mark.parametrize("name", ["pay", "put"])
@pytest.mark.slow
async def test_running_tool_that_is_reset_counts_as_lost(runtime: Runtime, name: str) -> None:
    """`temporal activity reset` stops the attempt; a tool that may not be repeated is not."""
    begun.clear()
    agent = Agent(name="payer", model="scripted:payer", tools=[pay, put])
    async with runtime(
        agent, model=ScriptedModel(calls(call(name, to="Ann")), says("done"))
    ) as client:
        turn = await client.start("payer", "go")
        await eventually(lambda: bool(begun), "the tool begins")
        await on_activity(
            client.temporal.service_client.config.target_host, "reset", turn.id, "step-1.call-1"
        )
        report = await report_of(turn)

    [result] = report.steps[0].results
    assert (len(begun), timeless(result.content)) == (
        (2, "put Ann") if name == "put" else (1, f"pay: {UNKNOWN}{UNKNOWN_NOTE}")
    )
