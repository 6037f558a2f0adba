"""A model that repeats itself: its turn is stopped, warned or continued, as the agent declares."""

import asyncio
import itertools
from collections.abc import Mapping

import pytest

from perdure import AgentReport, Allow, Deny, Outcome, ProposedCall, errors, tool
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.turn.guards import LOOP_WARNING as WARNING
from perdure.values.messages import ToolMessage

from ...conftest import Runtime
from ...support.spending import app, ended, look

TOLD = WARNING.format(times=3)


@tool
def stumble(number: int = 1) -> str:
    """Never works."""
    raise ValueError(f"no {number}")


polled = itertools.count()


@tool(read_only=True)
def poll() -> str:
    """Each time something else."""
    return f"{next(polled)} % done"


@tool
def pay() -> str:
    """Never runs."""
    raise AssertionError


def policy(proposed: ProposedCall) -> Allow | Deny:
    """No money is paid."""
    return Deny(reason="no") if proposed.tool == "pay" else Allow()


def steps(*batches: str) -> list[Reply]:
    """A reply for each batch: letters are calls, `s` and `t` of tools that fail, `x` of an unknown
    tool.

    Each call of `p` has a different result, and each of `d` is denied.
    """
    known = {
        **{letter: call("look", number=number) for number, letter in enumerate("abc")},
        **{letter: call("stumble", number=number) for number, letter in enumerate("stu")},
        "x": call("nothing"),
        "p": call("poll"),
        "d": call("pay"),
    }
    return [calls(*(known[letter] for letter in batch)) for batch in batches]


CIRCLES = {
    "same call": steps("a", "a", "a"),
    "same call after another": steps("b", "a", "a", "a"),
    "same calls": steps("aab", "aab", "aab"),
}
"""Each is a loop with its last step, and not before."""

FAILING = {
    "failing tools": steps("s", "t", "su"),
    "tools that are not there": steps("s", "x", "t"),
}
"""After each, the model is warned: its tools fail, and it does not repeat itself."""

NONE = {
    "other arguments": steps("a", "b", "c"),
    "in turns": steps("a", "b", "a", "b", "a", "b"),
    "twice": steps("a", "a", "b", "b", "a", "a"),
    "same call in one answer": steps("aaa", "aaaa"),
    "same call beside others": steps("a", "ab", "a", "ac", "a"),
    "results that differ": steps("p", "p", "p", "p"),
    "half of each step": steps("ap", "ap", "ap", "ap"),
    "denied": steps("d", "d", "d", "d"),
    "same call once between the denials of another": steps("d", "ad", "d", "d"),
    "something works": steps("s", "t", "sa", "t", "u"),
}


async def play(
    runtime: Runtime, scripts: Mapping[str, ScriptedModel], on_loop: str
) -> dict[str, AgentReport | errors.PerdureError]:
    """The end of each script's turn."""
    async with runtime(
        app(tools=[look, stumble, poll, pay], policy=policy, on_loop=on_loop), model=ByTask(scripts)
    ) as client:
        turns = [await client.start("spender", name) for name in scripts]
        return dict(zip(scripts, await asyncio.gather(*map(ended, turns)), strict=True))


@pytest.mark.slow
@pytest.mark.accepts("L17")
async def test_model_that_repeats_itself_is_stopped(runtime: Runtime) -> None:
    """After the step that completes the loop; the tool results are in the report."""
    models = {name: ScriptedModel(*replies, says("never")) for name, replies in CIRCLES.items()}

    ends = await play(runtime, models, "fail")

    lengths = {name: len(replies) for name, replies in CIRCLES.items()}
    assert {name: type(end) for name, end in ends.items()} == dict.fromkeys(
        CIRCLES, errors.LoopDetectedError
    )
    assert {name: model.call_count for name, model in models.items()} == lengths
    reports = {
        name: end.report
        for name, end in ends.items()
        if isinstance(end, errors.LoopDetectedError) and end.report
    }
    assert {
        name: len([step for step in report.steps if step.results])
        for name, report in reports.items()
    } == lengths
    assert {report.outcome for report in reports.values()} == {Outcome.LOOP}


@pytest.mark.accepts("L17")
@pytest.mark.slow
async def test_model_that_gets_somewhere_is_left_alone(runtime: Runtime) -> None:
    """For any number of steps."""
    ends = await play(
        runtime,
        {name: ScriptedModel(*replies, says("done")) for name, replies in NONE.items()},
        "fail",
    )

    reports = {name: end for name, end in ends.items() if isinstance(end, AgentReport)}
    assert {
        name: (report.output, report.risk) for name, report in reports.items()
    } == dict.fromkeys(NONE, ("done", None))


@pytest.mark.accepts("L17", "U23")
async def test_turn_outlives_tools_that_all_fail(runtime: Runtime) -> None:
    """Its model is warned after three such steps, and goes on; the answer is no risk."""
    models = {name: ScriptedModel(*replies, says("done")) for name, replies in FAILING.items()}

    ends = await play(runtime, models, "fail")

    reports = {name: end for name, end in ends.items() if isinstance(end, AgentReport)}
    assert {
        name: (report.output, report.risk) for name, report in reports.items()
    } == dict.fromkeys(FAILING, ("done", None))
    for report in reports.values():
        warned = ["3 times in a row" in step.results[-1].content for step in report.steps[:-1]]
        assert warned == [False, False, True]


@pytest.mark.slow
@pytest.mark.accepts("L17")
async def test_model_can_be_warned_instead(runtime: Runtime) -> None:
    """At the end of the last result of the step that completes the loop; the turn continues, and
    its report has the risk.
    """
    models = {
        name: ScriptedModel(*replies, *steps("b"), says("done"))
        for name, replies in CIRCLES.items()
    }

    ends = await play(runtime, models, "warn")

    for name, replies in CIRCLES.items():
        report, heard = ends[name], models[name].requests[len(replies)].messages[-1]
        assert isinstance(report, AgentReport)
        assert (report.outcome, report.output, report.risk) == (Outcome.COMPLETED, "done", "loop")
        told = [
            [result.content.endswith(TOLD) for result in step.results] for step in report.steps[:-1]
        ]
        quiet = [[False] * len(step.results) for step in report.steps[:-1]]
        assert told == [*quiet[: len(replies) - 1], [*quiet[len(replies) - 1][1:], True], [False]]
        assert isinstance(heard, ToolMessage)
        assert heard.results[-1].content.endswith(TOLD)


@pytest.mark.slow
@pytest.mark.accepts("L17")
async def test_model_that_does_not_listen_is_told_again(runtime: Runtime) -> None:
    """Until its iterations are used up."""
    async with runtime(
        app(on_loop="warn", max_iterations=5), model=ScriptedModel(*steps(*"aaaaa"))
    ) as client:
        error = await ended(await client.start("spender", "go"))

    assert isinstance(error, errors.MaxIterationsError)
    assert error.report is not None
    assert [step.results[0].content.endswith(TOLD) for step in error.report.steps] == [
        False,
        False,
        True,
        True,
        True,
    ]


@pytest.mark.slow
@pytest.mark.accepts("L17")
async def test_loop_can_be_ignored(runtime: Runtime) -> None:
    """For tools that poll: no warning is given, and the report has no risk."""
    model = ScriptedModel(*steps("a", "a", "a", "a", "s", "s", "s"), says("done"))
    async with runtime(app(tools=[look, stumble], on_loop="ignore"), model=model) as client:
        report = await client.run("spender", "go")

    assert (report.outcome, report.risk, len(report.steps)) == (Outcome.COMPLETED, None, 8)
    assert not any("in a row" in result.content for step in report.steps for result in step.results)
