"""The loop of a turn: model calls, tool calls, and its end."""

import asyncio
from datetime import timedelta
from decimal import Decimal

import pytest

from perdure import (
    Agent,
    AssistantMessage,
    Context,
    Outcome,
    Step,
    Text,
    ToolMessage,
    Usage,
    UserMessage,
    errors,
    tool,
)
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.values.reports import StopReason

from ...conftest import Run, Runtime, eventually


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.accepts("L1")
async def test_answer_without_calls_is_one_step(run: Run) -> None:
    """One model call, its text as output, one step without results."""
    model = ScriptedModel(says("five", usage=Usage(input_tokens=10, output_tokens=5)))

    report = await run(model)

    message = AssistantMessage(parts=(Text(text="five"),))
    assert (report.outcome, report.output, report.model_calls, report.tool_calls) == (
        Outcome.COMPLETED,
        "five",
        1,
        0,
    )
    assert report.steps == (
        Step(
            number=1,
            model="scripted",
            message=message,
            usage=Usage(input_tokens=10, output_tokens=5),
            cost=Decimal(0),
        ),
    )
    assert report.messages == (UserMessage.of("2 + 3?"), message)
    assert model.requests[0].system == "Add."


@pytest.mark.accepts("L2")
async def test_tool_result_is_fed_back_under_its_call_id(run: Run) -> None:
    """The second request has the call and its result, paired."""
    model = ScriptedModel(calls(call("add", call_id="c1", a=2, b=3)), says("five"))

    report = await run(model, tools=[add])

    assert report.output == "five"
    asked = model.requests[1].messages[-2]
    assert isinstance(asked, AssistantMessage)
    assert asked.calls[0].id == "c1"
    assert model.requests[1].messages[-1] == ToolMessage.of(asked.calls[0], "5")


@pytest.mark.accepts("L3")
async def test_two_calls_run_one_after_the_other_and_land_in_one_message(run: Run) -> None:
    """Sequential by default, results in call order."""
    seen: list[str] = []

    @tool
    def note(word: str) -> str:
        seen.append(f"begin {word}")
        seen.append(f"end {word}")
        return word

    model = ScriptedModel(calls(call("note", word="a"), call("note", word="b")), says("done"))

    await run(model, tools=[note])

    assert seen == ["begin a", "end a", "begin b", "end b"]
    results = model.requests[1].messages[-1]
    assert isinstance(results, ToolMessage)
    assert [result.content for result in results.results] == ["a", "b"]


@pytest.mark.accepts("L4")
async def test_model_that_never_answers_is_stopped_after_ten_calls(run: Run) -> None:
    """Without a limit set: exactly ten model calls, then MaxIterationsError."""
    model = ScriptedModel(*[calls(call("add", a=1, b=n)) for n in range(11)])

    with pytest.raises(errors.MaxIterationsError) as caught:
        await run(model, tools=[add])

    assert model.call_count == 10
    assert caught.value.report is not None
    assert len(caught.value.report.steps) == 10


@pytest.mark.accepts("L5")
async def test_answer_in_the_last_allowed_call_succeeds(run: Run) -> None:
    """Limit 2: a call, then an answer."""
    model = ScriptedModel(calls(call("add", a=1, b=2)), says("three"))

    report = await run(model, tools=[add], max_iterations=2)

    assert report.output == "three"


@pytest.mark.slow
@pytest.mark.accepts("L5")
async def test_limit_of_two_makes_exactly_two_calls(run: Run) -> None:
    """There is no third one."""
    model = ScriptedModel(*[calls(call("add", a=1, b=n)) for n in range(3)])

    with pytest.raises(errors.MaxIterationsError):
        await run(model, tools=[add], max_iterations=2)

    assert model.call_count == 2


@pytest.mark.accepts("L6")
async def test_stop_by_stop_sequence_is_a_completion(run: Run) -> None:
    """Its text is the output, without a risk; its calls are not run."""
    model = ScriptedModel(says("half a sent", stop=StopReason.STOP_SEQUENCE))

    report = await run(model)

    assert (report.outcome, report.output, report.risk) == (Outcome.COMPLETED, "half a sent", None)


@pytest.mark.accepts("L9", "L12", "L19")
async def test_report_messages_continue_in_another_turn(runtime: Runtime) -> None:
    """The first request of turn 2 has the messages of turn 1 and the new input; the system prompt
    is separate, and there once.
    """
    agent = Agent(name="adder", model="scripted:adder", instructions="Add.", tools=[add])
    model = ScriptedModel(calls(call("add", a=2, b=3)), says("five"), says("six"))
    context = Context(blocks={"memory": "numbers are small"})

    async with runtime(agent, model=model) as client:
        first = await client.run(agent, "2 + 3?", context=context)
        second = await client.run(agent, "and one more?", history=first.messages)

    assert second.output == "six"
    assert model.requests[2].messages == (*first.messages, UserMessage.of("and one more?"))
    assert model.requests[2].system == "Add."
    opening = model.requests[0].messages[0]
    assert isinstance(opening, UserMessage)
    assert opening.text == "<memory>\nnumbers are small\n</memory>\n\n2 + 3?"
    assert context == Context(blocks={"memory": "numbers are small"})


@pytest.mark.accepts("L10")
async def test_model_error_keeps_what_was_done(run: Run) -> None:
    """The error has the transcript, the steps and the usage so far."""
    used = Usage(input_tokens=10, output_tokens=5)
    model = ScriptedModel(
        calls(call("add", a=2, b=3), usage=used), fails(errors.LLMInvalidRequestError("no"))
    )

    with pytest.raises(errors.LLMInvalidRequestError) as caught:
        await run(model, tools=[add])

    report = caught.value.report
    assert report is not None
    assert (report.outcome, len(report.steps), len(report.messages), report.usage) == (
        Outcome.FAILED,
        1,
        3,
        used,
    )
    assert report.cost == 0


@pytest.mark.accepts("L13")
async def test_usage_of_three_steps_is_added_up(run: Run) -> None:
    """10/5 three times is 30/15."""
    used = Usage(input_tokens=10, output_tokens=5)
    model = ScriptedModel(
        calls(call("add", a=1, b=1), usage=used),
        calls(call("add", a=1, b=1), usage=used),
        says("2", usage=used),
    )

    report = await run(model, tools=[add])

    assert report.usage == Usage(input_tokens=30, output_tokens=15)


async def test_transient_error_is_tried_once_more(run: Run) -> None:
    """After the pause that the provider asked for, as a new attempt."""
    slow_down = errors.LLMRateLimitError("slow down", context={"retry_after_s": 0.05})
    model = ScriptedModel(fails(slow_down), says("five"))

    report = await run(model)

    assert (report.output, report.model_calls, model.call_count) == ("five", 2, 2)


@pytest.mark.slow
async def test_transient_error_ends_the_turn_when_its_policy_says_so(run: Run) -> None:
    """One retry if there is no time for more; the class is the provider's error."""
    model = ScriptedModel(
        fails(errors.LLMUnavailableError("down")),
        fails(errors.LLMUnavailableError("still down")),
        says("never"),
    )

    with pytest.raises(errors.LLMUnavailableError, match="still down; it was tried 2 times in"):
        await run(model)

    assert model.call_count == 2


@pytest.mark.slow
async def test_cut_off_answer_is_reported_with_its_risk_and_runs_no_tool(run: Run) -> None:
    """A stop by max tokens is reported as a risk, not as an error."""
    model = ScriptedModel(calls(call("add", a=1, b=2), text="I will", stop=StopReason.MAX_TOKENS))

    report = await run(model, tools=[add])

    assert (report.outcome, report.risk, report.output, report.tool_calls) == (
        Outcome.TRUNCATED,
        "truncated",
        "I will",
        0,
    )


@pytest.mark.accepts("L10", "L11", "L19")
async def test_cancel_between_two_tools_keeps_the_first_result(runtime: Runtime) -> None:
    """Tool 2 never starts, the report has the result of tool 1, and its messages can be
    continued.
    """
    started: list[str] = []

    @tool(timeout=timedelta(seconds=30))
    async def work(word: str) -> str:
        started.append(word)
        await asyncio.sleep(0 if word == "first" else 30)
        return word

    agent = Agent(name="worker", model="scripted:worker", tools=[work])
    model = ScriptedModel(
        calls(call("work", word="first"), call("work", word="second"), call("work", word="third")),
        says("continued"),
    )

    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, "go")
        await eventually(lambda: len(started) == 2, "tool 2 starts")
        await turn.cancel("changed my mind")
        with pytest.raises(errors.TurnCancelledError, match="changed my mind") as caught:
            await turn.result()
        report = caught.value.report
        assert report is not None
        continued = await client.run(agent, "go on", history=report.messages)

    assert started == ["first", "second"]
    results = report.messages[-1]
    assert isinstance(results, ToolMessage)
    assert (results.results[0].content, results.results[0].is_error) == ("first", False)
    assert report.unstopped == ()
    assert continued.output == "continued"
    closed = model.requests[1].messages[2]
    assert isinstance(closed, ToolMessage)
    assert [result.is_error for result in closed.results] == [False, True, True]
