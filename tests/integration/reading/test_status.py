"""The status of a turn: running, waiting, ended, failed or terminated, with its delegates, and
without a worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure import Agent, Budget, Outcome, ToolContext, errors, tool
from perdure.clients import AgentClient, ChildStatus, Turn, TurnStatus
from perdure.clients.gateway.mcp.turn_view import view
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn

from ...conftest import Runtime, eventually
from ...support.delegating import PRICED, delegate, editor, used, writer
from ...support.docs.until import until


class Desk:
    """An agent with a tool that waits for its gate, and one that a person approves."""

    def __init__(self) -> None:
        gate = self.gate = threading.Event()

        @tool
        async def read_ticket(ctx: ToolContext[Any], number: int) -> str:
            """Read a ticket."""
            ctx.heartbeat("page", number)
            await eventually(gate.is_set, "the gate opens")
            return "How long is the notice period?"

        @tool(requires_approval=True)
        def refund(euros: int) -> str:
            """Pay back."""
            return f"paid {euros}"

        self.agent = Agent(name="desk", model="scripted:desk", tools=[read_ticket, refund])
        self.app = AgentWorker(self.agent, prices=PRICED)


@pytest.fixture
def desk() -> Any:
    """A desk whose gate opens at the end of the test in any case."""
    made = Desk()
    yield made
    made.gate.set()


def script() -> ScriptedModel:
    return ScriptedModel(
        calls(call("read_ticket", number=7), text="I read it.", usage=used(100)),
        calls(call("refund", euros=30), usage=used(100)),
        says("30 days", usage=used(100)),
    )


async def status_when(turn: Turn, holds: Callable[[TurnStatus], bool]) -> TurnStatus:
    """The first status of a turn for which this is true."""

    async def found() -> TurnStatus | None:
        status = await turn.status()
        return status if holds(status) else None

    return await until(found, "the status is the one")


@pytest.mark.accepts("D58")
async def test_tool_calls_are_one_number_in_status_report_record_and_json(
    runtime: Runtime, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """A denied call has a result and was not started: only `spent` leaves it out."""
    caplog.set_level("INFO", "perdure")
    desk.gate.set()
    async with runtime(desk.app, model=script()) as client:
        turn = await client.start(desk.agent, "Answer ticket 7.")
        waits = await turn.wait(timeout=60)
        assert waits.waits[0].call is not None
        await turn.deny(waits.waits[0].call)
        report = await turn.result()
        status = await turn.status()

    [record] = [one.message for one in caplog.records if "turn_completed" in one.message]
    assert (report.tool_calls, report.spent.tool_calls) == (2, 1)
    assert (status.tool_calls, status.spent.tool_calls) == (2, 1)
    assert status.model_dump(mode="json")["tool_calls"] == 2
    assert " tool_calls=2 " in record


@pytest.mark.accepts("E13")
async def test_status_says_how_far_a_turn_is(runtime: Runtime, desk: Desk) -> None:
    """While a tool runs, while an approval is pending, and after the end; an MCP client gets the
    same.
    """
    budget = Budget(usd="5", tool_calls=4, time=timedelta(minutes=5))
    async with runtime(desk.app, model=script()) as client:
        turn = await client.start(
            desk.agent, "Answer ticket 7.", id="asked", labels={"customer": "Jo"}, budget=budget
        )
        runs = await status_when(turn, lambda found: found.doing.endswith("runs read_ticket"))
        desk.gate.set()
        waits = await turn.wait(timeout=60)
        [wait] = waits.waits
        assert wait.call is not None
        await turn.approve(wait.call)
        over = await client.turn("asked").wait(timeout=timedelta(seconds=20))
        viewed = view(waits)

    assert (runs.id, runs.run_id, runs.agent, runs.task) == (
        "asked",
        await turn.first_run(),
        "desk",
        "Answer ticket 7.",
    )
    assert (runs.state, runs.step, runs.steps, runs.doing) == (
        "running",
        1,
        0,
        "step-1.call-1: runs read_ticket",
    )
    assert (runs.labels, runs.last_text, runs.budget, runs.waits) == (
        {"customer": "Jo"},
        "I read it.",
        budget,
        (),
    )
    assert (runs.spent.usd, runs.spent.tokens, runs.spent.model_calls) == (Decimal("0.1"), 100, 1)
    assert runs.since is not None
    assert runs.started_at is not None
    assert runs.started_at < runs.since <= datetime.now(UTC)
    assert (runs.ended_at, runs.outcome, runs.error) == (None, None, None)

    assert (waits.state, waits.step, waits.steps, wait.kind, wait.turn_id, wait.since) == (
        "waiting",
        2,
        1,
        "approval",
        "asked",
        waits.since,
    )
    assert (wait.call.tool, wait.call.arguments, wait.until) == (
        "refund",
        '{"euros": 30}',
        wait.call.expires_at,
    )
    assert (viewed.state, viewed.waiting_calls[0].digest, viewed.cost_usd) == (
        "waiting",
        wait.call.token,
        Decimal("0.2"),
    )

    assert (over.state, over.outcome, over.step, over.steps, over.waits) == (
        "ended",
        Outcome.COMPLETED,
        3,
        3,
        (),
    )
    assert (over.doing, over.last_text, over.since) == (
        "ended: completed",
        "30 days",
        over.ended_at,
    )
    assert (over.spent.usd, over.spent.tool_calls) == (Decimal("0.3"), 2)
    assert (runs.tool_calls, waits.tool_calls, over.tool_calls, over.model_calls) == (0, 1, 2, 3)
    assert over == TurnStatus.model_validate_json(over.model_dump_json())


@pytest.mark.accepts("E13")
async def test_status_needs_no_worker(perdure_server: str) -> None:
    """For a turn that no worker has started, and for a terminated one; an unknown turn is
    refused.
    """
    client = await AgentClient.connect(perdure_server, task_queue="polled-by-nothing")
    turn = await client.start("desk", "Answer ticket 7.", budget=Budget(tokens=9))
    begun = await client.turn(turn.id).wait(timeout=0)
    await client.temporal.get_workflow_handle(turn.id).terminate("enough")
    over = await client.turn(turn.id).wait()

    assert (begun.state, begun.doing, begun.step, begun.budget) == (
        "running",
        "waits for a worker",
        0,
        Budget(tokens=9),
    )
    assert (over.state, over.outcome, over.error and over.error.code) == (
        "ended",
        Outcome.TERMINATED,
        "TURN_TERMINATED",
    )
    with pytest.raises(errors.TurnNotFoundError):
        await client.turn("never-started").status()
    for wrong in (-1, "1 s", True, float("nan"), timedelta(days=9_999)):
        with pytest.raises(
            errors.InvalidRequestError,
            match="the wait: timeout must be a timedelta or a number of seconds",
        ):
            await turn.wait(wrong)  # type: ignore[arg-type]


@pytest.mark.accepts("E13")
async def test_status_says_that_no_worker_has_taken_what_is_to_be_done(perdure_server: str) -> None:
    """With the history alone, the work would appear to be in progress."""
    client = await AgentClient.connect(perdure_server, task_queue="without-activities")
    async with Worker(
        client.temporal,
        task_queue="without-activities",
        workflows=[AgentTurn],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        turn = await client.start("desk", "Answer ticket 7.")
        untaken = await status_when(turn, lambda found: found.doing.endswith("takes it"))
        await client.temporal.get_workflow_handle(turn.id).terminate("enough")

    assert (untaken.state, untaken.doing) == (
        "running",
        "agent: looks the agent up, as soon as a worker takes it",
    )


@pytest.mark.slow
@pytest.mark.accepts("E13")
async def test_status_of_a_turn_that_failed_says_why(runtime: Runtime, desk: Desk) -> None:
    """With the code of the error."""
    async with runtime(
        desk.app, model=ScriptedModel(fails(errors.LLMAuthError("no key")))
    ) as client:
        turn = await client.start(desk.agent, "go")
        failed = await turn.wait(60)

    assert (failed.state, failed.outcome, failed.step, failed.steps) == (
        "ended",
        Outcome.FAILED,
        1,
        0,
    )
    assert (failed.error and (failed.error.code, failed.error.message)) == ("LLM_AUTH", "no key")


@pytest.mark.accepts("E13", "E14")
async def test_status_has_the_tree_and_what_is_waited_for_below(
    runtime: Runtime, desk: Desk
) -> None:
    """A wait of a delegate ends the wait for the root, names the turn that waits, and can be
    answered there.
    """
    models = ByTask(
        {
            "A page": ScriptedModel(
                delegate("desk", "Pay", usage=used(100)), delegate("writer", "Write"), says("done")
            ),
            "Pay": ScriptedModel(calls(call("refund", euros=5), usage=used(100)), says("paid")),
            "Write": ScriptedModel(says("text", usage=used(100))),
        }
    )
    desks = Agent(**{**desk_fields(desk), "description": "Pays."})
    worker = AgentWorker([editor(delegates=["desk", "writer"]), desks, writer()], prices=PRICED)
    async with runtime(worker, model=models) as client:
        turn = await client.start("editor", "A page", id="page")
        waits = await turn.wait(60)
        viewed = view(waits)
        [wait] = waits.waits
        assert wait.call is not None
        await client.turn(wait.turn_id).approve(wait.call.call_id)
        await turn.result()  # it may be told to wait until it has heard of that
        over = await turn.status()

    assert (waits.state, waits.doing) == (
        "running",
        "1 delegate at work, page/desk-1 waits for approval",
    )
    assert (wait.turn_id, wait.kind, wait.call.tool, wait.until) == (
        "page/desk-1",
        "approval",
        "refund",
        wait.call.expires_at,
    )
    assert [(one.id, one.agent, one.state, one.spent.tokens) for one in waits.children] == [
        ("page/desk-1", "desk", "waiting", 100)
    ]
    assert (waits.spent.tokens, waits.spent.usd) == (200, Decimal("0.2"))
    assert viewed.waiting_delegates == ("page/desk-1",)
    assert [told(one) for one in over.children] == [
        ("page/desk-1", "ended", Outcome.COMPLETED, 2, "Pay"),
        ("page/writer-2", "ended", Outcome.COMPLETED, 1, "Write"),
    ]


def desk_fields(desk: Desk) -> dict[str, Any]:
    return {"name": "desk", "model": "scripted:desk", "tools": desk.agent.tools}


def told(child: ChildStatus) -> tuple[Any, ...]:
    return child.id, child.state, child.outcome, child.steps, child.task
