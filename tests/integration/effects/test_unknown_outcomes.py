"""Calls that may have taken effect although they have no result: what the model reads, and what
the report says.
"""

import asyncio
import socket
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from perdure import Agent, Deny, OutcomeUnknown, ToolOutcome, UnsettledCall, errors, tool
from perdure.agents.tools import Tool
from perdure.events import Loss
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.messages import UNKNOWN_NOTE
from perdure.values.reports import AgentReport, Outcome

from ...conftest import Run, Runtime

WITHOUT_ANSWER = (
    httpx.ReadTimeout("no answer in 5 s"),
    httpx.RemoteProtocolError("peer closed the connection"),
    ConnectionResetError("reset by peer"),
    TimeoutError("timed out"),
    asyncio.IncompleteReadError(b"", 10),
)
NEVER_SENT = (
    httpx.ConnectError("refused"),
    httpx.PoolTimeout("no connection is free"),
    ConnectionRefusedError("refused"),
    socket.gaierror("no such host"),
)


def pays(error: BaseException, *, read_only: bool = False) -> Tool:
    """A tool that ends with an exception."""

    @tool(read_only=read_only)
    def pay(amount: int) -> str:
        raise error

    return pay


async def paid(run: Run, *tools: Tool) -> AgentReport:
    """The report of a turn that pays."""
    model = ScriptedModel(calls(call("pay", amount=30)), says("done"))
    report: AgentReport = await run(model, tools=list(tools))
    assert report.outcome is Outcome.COMPLETED
    return report


def of(report: AgentReport) -> tuple[ToolOutcome, bool]:
    [result] = report.steps[0].results
    return result.outcome, result.is_error


@pytest.mark.accepts("T44")
@pytest.mark.parametrize("error", WITHOUT_ANSWER, ids=lambda error: type(error).__name__)
@pytest.mark.table(1)
async def test_lost_answer_is_no_failure(run: Run, error: BaseException) -> None:
    """The model reads that the call may have taken effect, and the report lists it."""
    report = await paid(run, pays(error))

    [result] = report.steps[0].results
    assert of(report) == (ToolOutcome.UNKNOWN, True)
    assert result.content.startswith(f"pay: {type(error).__name__}")
    assert result.loss is not None
    assert result.loss.kind is Loss.NO_ANSWER
    assert f"{result.loss.after}; whether it took effect is unknown\n" in result.content
    assert result.content.endswith(UNKNOWN_NOTE)
    assert "failed: " not in result.content
    assert report.unsettled == (
        UnsettledCall(
            step=1,
            call_id=result.call_id,
            tool="pay",
            arguments='{"amount": 30}',
            reason=result.content,
            loss=result.loss,
        ),
    )


@pytest.mark.accepts("T44")
@pytest.mark.parametrize("error", NEVER_SENT, ids=lambda error: type(error).__name__)
@pytest.mark.table(1)
async def test_request_that_was_never_sent_has_failed(run: Run, error: BaseException) -> None:
    """A refused connection and an unknown host have no effect."""
    report = await paid(run, pays(error))

    assert of(report) == (ToolOutcome.FAILED, True)
    assert report.steps[0].results[0].content.startswith("pay failed: ")
    assert report.unsettled == ()


@pytest.mark.slow
@pytest.mark.accepts("T44")
async def test_exception_that_caused_another_decides(run: Run) -> None:
    """As in a tool that wraps the errors of its client."""

    @tool
    def pay(amount: int) -> str:
        try:
            raise httpx.ReadTimeout("no answer")
        except httpx.ReadTimeout as error:
            raise RuntimeError("the bank") from error

    assert of(await paid(run, pay)) == (ToolOutcome.UNKNOWN, True)


@pytest.mark.slow
@pytest.mark.accepts("T44")
async def test_tool_that_is_read_only_fails(run: Run) -> None:
    """It has no effect, so nothing of it is unknown."""
    report = await paid(run, pays(httpx.ReadTimeout("no answer"), read_only=True))

    assert of(report) == (ToolOutcome.FAILED, True)
    assert report.unsettled == ()


@pytest.mark.accepts("T44")
async def test_tool_says_that_its_outcome_is_unknown(run: Run) -> None:
    """With `OutcomeUnknown`, such as after an answer that makes no sense."""
    report = await paid(run, pays(OutcomeUnknown("the bank answered 502")))

    [result] = report.steps[0].results
    assert of(report) == (ToolOutcome.UNKNOWN, True)
    assert "the bank answered 502" in result.content
    assert [unsettled.tool for unsettled in report.unsettled] == ["pay"]


@pytest.mark.accepts("T45")
async def test_call_that_takes_too_long_is_unknown(run: Run) -> None:
    """Its thread or its service may go on."""

    @tool(timeout=timedelta(seconds=0.5))
    async def pay(amount: int) -> str:
        await asyncio.Event().wait()
        return "paid"

    began = datetime.now(UTC).replace(microsecond=0)
    report = await paid(run, pay)

    [result] = report.steps[0].results
    assert of(report) == (ToolOutcome.UNKNOWN, True)
    assert result.content.endswith(UNKNOWN_NOTE)
    assert len(report.unsettled) == 1
    assert result.loss is not None
    assert result.loss.kind is Loss.TIMED_OUT
    assert result.loss.sent_at is not None
    assert f"longer than 0.5 s{result.loss.after}; whether" in result.content
    assert began <= result.loss.sent_at <= datetime.now(UTC)


@pytest.mark.slow
@pytest.mark.accepts("T45")
async def test_call_of_a_turn_that_is_cancelled_is_unknown(runtime: Runtime) -> None:
    """The report of the error lists it."""
    began = asyncio.Event()

    @tool
    async def pay(amount: int) -> str:
        began.set()
        await asyncio.Event().wait()
        return "paid"

    payer = Agent(name="payer", model="scripted:any", tools=[pay])
    model = ScriptedModel(calls(call("pay", amount=30)))
    async with runtime(payer, model=model) as client:
        turn = await client.start(payer, "pay")
        await asyncio.wait_for(began.wait(), 60)
        await turn.cancel("no money")
        with pytest.raises(errors.TurnCancelledError) as caught:
            await turn.result()

    assert caught.value.report is not None
    assert [unsettled.tool for unsettled in caught.value.report.unsettled] == ["pay"]


@pytest.mark.accepts("T45")
async def test_denied_calls_and_unknown_tools_have_outcomes_of_their_own(run: Run) -> None:
    """Nothing of them ran."""

    @tool
    def pay(amount: int) -> str:
        raise AssertionError("denied")

    model = ScriptedModel(calls(call("pay", amount=30), call("fly")), says("done"))

    report = await run(model, tools=[pay], policy=lambda _: Deny(reason="no"))

    outcomes = [result.outcome for result in report.steps[0].results]
    assert outcomes == [ToolOutcome.DENIED, ToolOutcome.NOT_RUN]
    assert report.unsettled == ()
