"""How an answer may end: truncated, empty, refused, for an unknown reason, or between two tools."""

import asyncio
from datetime import timedelta
from decimal import Decimal

import pytest

from perdure import Budget, Outcome, ToolMessage, errors, tool
from perdure.clients import Turn
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.values.answers import ModelAnswer
from perdure.values.messages import UNKNOWN_NOTE, AssistantMessage, Thinking
from perdure.values.reports import StopReason

from ...conftest import Runtime
from ...support.losses import timeless
from ...support.spending import app, ended, report_of, usage


@pytest.mark.slow
@pytest.mark.accepts("L7")
async def test_answer_that_was_cut_off_is_reported_with_its_risk(runtime: Runtime) -> None:
    """It is not an error, even if empty; its calls do not run; its messages can be continued."""
    ran: list[int] = []

    @tool
    def act(number: int) -> None:
        """Do something."""
        ran.append(number)

    cut = calls(call("act", number=1), text="I will", stop=StopReason.MAX_TOKENS)
    model = ScriptedModel(cut, says("", stop=StopReason.MAX_TOKENS), says("continued"))
    async with runtime(app(tools=[act]), model=model) as client:
        spoken, silent = await client.run("spender", "go"), await client.run("spender", "go")
        continued = await client.run("spender", "go on", history=spoken.messages)

    assert [(report.outcome, report.output, report.risk) for report in (spoken, silent)] == [
        (Outcome.TRUNCATED, "I will", "truncated"),
        (Outcome.TRUNCATED, "", "truncated"),
    ]
    assert ([step.stop for step in spoken.steps], spoken.tool_calls, ran) == (
        [StopReason.MAX_TOKENS],
        0,
        [],
    )
    assert continued.output == "continued"
    closed = model.requests[2].messages[2]
    assert isinstance(closed, ToolMessage)
    assert [result.is_error for result in closed.results] == [True]


def thinks() -> Reply:
    """An answer with reasoning only."""
    message = AssistantMessage(parts=(Thinking(text="hm"),))
    return Reply(
        answer=ModelAnswer(message=message, stop=StopReason.END, usage=usage(100), model="scripted")
    )


EMPTY = {
    "nothing": says("", usage=usage(100)),
    "blanks": says(" \n\t ", usage=usage(100)),
    "a thought": thinks(),
    "a stop sequence": says("", stop=StopReason.STOP_SEQUENCE, usage=usage(100)),
    "no known reason": says("", stop=StopReason.OTHER, usage=usage(100)),
}


@pytest.mark.slow
@pytest.mark.accepts("L15", "L16")
async def test_empty_answer_is_an_error_of_the_model(runtime: Runtime) -> None:
    """Retried once, charged both times, and never an empty success."""
    models = {kind: ScriptedModel(reply, reply) for kind, reply in EMPTY.items()}
    async with runtime(app(), model=ByTask(models)) as client:
        turns = [await client.start("spender", kind) for kind in models]
        ends = dict(zip(models, await asyncio.gather(*map(ended, turns)), strict=True))

    assert {kind: type(end) for kind, end in ends.items()} == dict.fromkeys(
        EMPTY, errors.LLMUnavailableError
    )
    reports = [
        end.report for end in ends.values() if isinstance(end, errors.PerdureError) and end.report
    ]
    assert [(report.model_calls, len(report.steps), report.cost) for report in reports] == [
        (2, 0, Decimal("0.2"))
    ] * len(EMPTY)


@pytest.mark.slow
@pytest.mark.accepts("L15")
async def test_second_attempt_may_have_something_to_say(runtime: Runtime) -> None:
    """The empty answer is not part of the transcript."""
    model = ScriptedModel(EMPTY["nothing"], says("done", usage=usage(100)))
    async with runtime(app(), model=model) as client:
        report = await client.run("spender", "go", budget=Budget(usd="50"))

    assert (report.output, report.cost, len(report.messages)) == ("done", Decimal("0.2"), 2)
    assert model.requests[1].messages == model.requests[0].messages


@pytest.mark.accepts("L16")
async def test_unknown_stop_reason_is_a_risk(runtime: Runtime) -> None:
    """With text it completes, with the risk; its calls are run as usual."""
    models = {
        "text": ScriptedModel(says("done", stop=StopReason.OTHER)),
        "calls": ScriptedModel(calls(call("look"), stop=StopReason.OTHER), says("done")),
    }
    async with runtime(app(), model=ByTask(models)) as client:
        reports = [await report_of(await client.start("spender", task)) for task in models]

    assert [
        (report.outcome, report.output, report.risk, report.tool_calls) for report in reports
    ] == [
        (Outcome.COMPLETED, "done", "unknown_stop_reason", 0),
        (Outcome.COMPLETED, "done", None, 1),
    ]


@pytest.mark.slow
async def test_refusal_is_an_error_with_the_words_of_the_model(runtime: Runtime) -> None:
    """Even without a text."""
    model = ScriptedModel(
        says("I would rather not", stop=StopReason.REFUSED), says("", stop=StopReason.REFUSED)
    )
    async with runtime(app(), model=model) as client:
        spoken, silent = [await ended(await client.start("spender", "go")) for _ in range(2)]

    assert isinstance(spoken, errors.LLMRefusedError)
    assert isinstance(silent, errors.LLMRefusedError)
    assert "I would rather not" in spoken.message
    assert [error.report.last_text for error in (spoken, silent) if error.report] == [
        "I would rather not",
        "",
    ]


@pytest.mark.slow
@pytest.mark.accepts("L11", "L10")
async def test_cancel_between_two_tools_starts_no_other(runtime: Runtime) -> None:
    """It arrives at the last moment of tool 1, whose result is in the report, and tool 2 never
    starts.
    """
    turn: Turn
    loop = asyncio.get_running_loop()
    began: list[int] = []

    @tool
    def work(number: int) -> str:
        """Have the turn cancelled, and return all the same."""
        began.append(number)
        asyncio.run_coroutine_threadsafe(turn.cancel("enough"), loop).result(
            timeout=timedelta(seconds=30).total_seconds()
        )
        return f"worked {number}"

    async with runtime(
        app(tools=[work]),
        model=ScriptedModel(calls(call("work", number=1), call("work", number=2))),
    ) as client:
        turn = await client.start("spender", "go")
        error = await ended(turn)

    assert isinstance(error, errors.TurnCancelledError)
    assert error.report is not None
    assert (began, error.report.unstopped) == ([1], ())
    results = error.report.messages[-1]
    assert isinstance(results, ToolMessage)
    assert [(result.content, result.is_error) for result in results.results] == [
        ("worked 1", False)
    ]


STOPPED = (
    "work: stopped because the turn was cancelled or its time was up; whether it took effect is"
    f" unknown{UNKNOWN_NOTE}"
)


@pytest.mark.slow
async def test_cancel_reaches_each_of_parallel_calls(runtime: Runtime) -> None:
    """All of them are told to stop at once, and none keeps running: the turn ends long before any
    would have ended by itself.
    """
    both = asyncio.Barrier(2)

    @tool
    async def work(number: int) -> str:
        """Work for half a minute, beside the other."""
        if await asyncio.wait_for(both.wait(), 60) == 0:
            await turn.cancel("enough")
        await asyncio.sleep(30)
        return f"worked {number}"

    model = ScriptedModel(calls(call("work", number=1), call("work", number=2)))
    async with runtime(app(tools=[work], parallel_tools=True), model=model) as client:
        turn = await client.start("spender", "go")
        error = await ended(turn)

    assert isinstance(error, errors.TurnCancelledError)
    assert error.report is not None
    assert error.report.unstopped == ()
    results = error.report.messages[-1]
    assert isinstance(results, ToolMessage)
    assert [(timeless(result.content), result.is_error) for result in results.results] == [
        (STOPPED, True)
    ] * 2
