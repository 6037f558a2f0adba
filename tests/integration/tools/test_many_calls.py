"""Answers with many calls, and their effect on other turns."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar, Literal

import pytest
from temporalio.client import WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    Replayer,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)
from temporalio.workflow import ContinueAsNewError

from perdure import Agent, AgentReport, Budget, Outcome, Price, Usage, errors, limits, tool
from perdure.temporal.data_converter import chosen
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.turn.keys import ToolKey
from perdure.values.messages import ToolCall
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn

from ...conftest import Run, Runtime

ran: list[str] = []


@tool(read_only=True)
async def look(where: str = "") -> str:
    """Look somewhere."""
    ran.append(where)
    return f"seen {where}"


@tool(requires_approval=True)
async def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


@tool(requires_approval=True)
async def send(letter: str) -> str:
    """Send a letter."""
    ran.append("send")
    return f"sent {len(letter)}"


class Ends(Interceptor):
    """Keeps what runs end with while they are replayed, if it is not an answer."""

    found: ClassVar[list[BaseException]] = []

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 - Temporal's name
    ) -> type[WorkflowInboundInterceptor]:
        """The interceptor around a workflow."""
        return _Watched


class _Watched(WorkflowInboundInterceptor):
    # Temporal names the parameter `input`
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        try:
            return await super().execute_workflow(input)
        except (ApplicationError, ContinueAsNewError) as error:
            Ends.found.append(error)
            raise


def many(count: int, name: str = "look", **arguments: str) -> Reply:
    """An answer with this number of calls."""
    return calls(
        *(call(name, **arguments) for _ in range(count)),
        usage=Usage(input_tokens=100, output_tokens=20),
    )


async def ended(turn: Any) -> AgentReport | errors.PerdureError:
    """The report of a turn, or its error; it must not hang."""
    async with asyncio.timeout(120):
        try:
            report: AgentReport = await turn.result()
        except errors.PerdureError as error:
            return error
    return report


@pytest.mark.accepts("L21", "L22")
@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.table(1)
async def test_answers_with_many_calls_end_typed_and_leave_other_turns_alone(
    runtime: Runtime, parallel: bool
) -> None:
    """64 calls run; more are an error without a retry; no answer of another turn is repeated."""
    counts = (limits.CALLS, limits.CALLS + 1, 1_000, 20_000)
    steps = 12
    honest = ScriptedModel(
        *(calls(call("look"), delay=timedelta(seconds=0.2)) for _ in range(steps)), says("done")
    )
    scripts = {f"many {count}": ScriptedModel(many(count), says("done")) for count in counts} | {
        "honest": honest
    }
    agent = Agent(
        name="asker",
        model="scripted:asker",
        tools=[look],
        parallel_tools=parallel,
        max_iterations=20,
        on_loop="ignore",
    )

    async with runtime(agent, model=ByTask(scripts)) as client:
        beside = await client.start("asker", "honest")
        found = [await ended(await client.start("asker", f"many {count}")) for count in counts]
        report = await ended(beside)

    works, *refused = found
    assert isinstance(works, AgentReport)
    assert [result.content for result in works.steps[0].results] == ["seen "] * limits.CALLS
    assert [type(error) for error in refused] == [errors.LLMInvalidRequestError] * 3
    assert [str(error).partition(",")[0] for error in refused] == [
        f"scripted:asker asked for {count} tool calls in one answer" for count in counts[1:]
    ]
    assert [script.call_count for script in scripts.values()] == [2, 1, 1, 1, steps + 1]
    assert isinstance(report, AgentReport)
    assert (report.outcome, report.model_calls) == (Outcome.COMPLETED, steps + 1)


@pytest.mark.accepts("L21")
@pytest.mark.parametrize("protocol", ["native", "react_text", "json"])
@pytest.mark.parametrize("live", [False, True])
@pytest.mark.table(1)
async def test_limit_holds_in_every_protocol_streamed_or_not(
    run: Run, protocol: Literal["native", "react_text", "json"], live: bool
) -> None:
    """No call runs, the answer is not in the transcript, and it is billed."""
    ran.clear()
    model = ScriptedModel(many(limits.CALLS + 1))

    with pytest.raises(
        errors.LLMInvalidRequestError, match="65 tool calls in one answer, more than the 64"
    ) as refused:
        await run(
            model,
            tools=[look],
            protocol=protocol,
            start={"live": live, "budget": Budget(tokens=100_000)},
        )

    assert (refused.value.context["calls"], refused.value.context["limit"]) == (65, 64)
    report = refused.value.report
    assert report is not None
    assert (
        len(report.messages),
        report.model_calls,
        report.tool_calls,
        report.spent.tokens,
        ran,
    ) == (1, 1, 0, 120, [])


@pytest.mark.slow
@pytest.mark.accepts("L21")
async def test_chain_goes_on_after_an_answer_with_too_many_calls(runtime: Runtime) -> None:
    """It is charged, and its model is not benched, because its health is not affected."""
    first, second = (
        ScriptedModel(many(65), says("one")),
        ScriptedModel(says("two", usage=Usage(input_tokens=10, output_tokens=10))),
    )
    price = Price(input="1000", output="1000")
    worker = AgentWorker(
        Agent(name="asker", model=["a:m", "b:m"], tools=[look]),
        providers={"a": first, "b": second},
        prices={"a:*": price, "b:*": price},
    )

    async with runtime(worker) as client:
        report = await client.run("asker", "go", budget=Budget(usd="100"))
        again = await client.run("asker", "again")

    assert (report.output, [one.model for one in report.steps[0].tried], report.cost) == (
        "two",
        ["a:m"],
        Decimal("0.14"),
    )
    assert again.output == "one"


@pytest.mark.slow
@pytest.mark.accepts("L24")
async def test_history_that_the_server_counts_goes_on_in_a_new_run(runtime: Runtime) -> None:
    """Before 16 calls at once in a history of 8 MB, so that they never meet the server's limit of
    50 MB. The test changes the size in a short history, because a real one takes long.
    """
    model = ScriptedModel(many(16), many(16), says("done"))
    agent = Agent(
        name="asker", model="scripted:m", tools=[look], parallel_tools=True, on_loop="ignore"
    )
    async with runtime(agent, model=model) as client:
        turn = await client.start("asker", "go")
        await turn.result()
        history = await client.history(turn)
    events = list(history.events)
    second = next(
        place
        for place, event in enumerate(events)
        if event.activity_task_scheduled_event_attributes.activity_id == str(ToolKey(2, 1))
    )
    last = max(
        place
        for place, event in enumerate(events[:second])
        if event.HasField("workflow_task_started_event_attributes")
    )
    goes_on = []
    for size in (limits.RUN_BYTES - 1, limits.RUN_BYTES):
        Ends.found.clear()
        events[last].workflow_task_started_event_attributes.history_size_bytes = size
        await Replayer(
            data_converter=chosen(), workflows=[AgentTurn], interceptors=[Ends()]
        ).replay_workflow(WorkflowHistory(turn.id, events[: last + 1]))
        goes_on.append([type(error) for error in Ends.found])

    assert goes_on[0] == []
    assert [issubclass(one, ContinueAsNewError) for one in goes_on[1]] == [True]


@pytest.mark.slow
@pytest.mark.accepts("L24")
async def test_calls_at_once_that_are_given_too_much_end_typed_with_a_report(
    runtime: Runtime,
) -> None:
    """Approved with more arguments than one message to the server may have: none of them runs."""
    ran.clear()
    model = ScriptedModel(calls(*(call("send", letter="short") for _ in range(3))))
    agent = Agent(name="asker", model="scripted:m", tools=[send], parallel_tools=True)

    async with runtime(agent, model=model) as client:
        turn = await client.start("asker", "go")
        async with asyncio.timeout(60):
            # history is polled
            while not (pending := await turn.pending_approvals()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        for one in pending:
            await turn.approve(one, arguments={"letter": "x" * 1_100_000})
        with pytest.raises(errors.TooLargeError, match="3 tool calls at once are given") as refused:
            await turn.result()

    report = refused.value.report
    assert report is not None
    assert (report.outcome, report.model_calls, report.tool_calls, ran) == (
        Outcome.FAILED,
        1,
        0,
        [],
    )


@pytest.mark.slow
@pytest.mark.accepts("L25")
async def test_ids_that_people_see_are_plain(runtime: Runtime) -> None:
    """An id that would move the cursor is in no event; the call is approved under another one."""
    evil = "\x1b[2J\x1b[Hrefund-1  refund 3 euros"
    asked = (
        ToolCall(id=evil, name="pay", arguments='{"euros": 3000}'),
        ToolCall(id="refund-1", name="pay", arguments='{"euros": 3}'),
    )
    model = ScriptedModel(calls(*asked), says("done"))

    async with runtime(Agent(name="payer", model="scripted:m", tools=[pay]), model=model) as client:
        turn = await client.start("payer", "go")
        async with asyncio.timeout(60):
            # history is polled
            while not (pending := await turn.pending_approvals()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        for one in pending:
            await turn.approve(one)
        report = await turn.result()
        events = (await client.history(turn)).events

    assert [one.call_id for one in pending] == ["call_1_1", "refund-1"]
    assert [(result.call_id, result.content) for result in report.steps[0].results] == [
        ("call_1_1", "paid 3000"),
        ("refund-1", "paid 3"),
    ]
    assert [one.id for one in model.requests[1].messages[1].calls] == ["call_1_1", "refund-1"]  # type: ignore[union-attr]
    assert not [
        event.event_id for event in events if b"refund 3 euros" in event.SerializeToString()
    ]
