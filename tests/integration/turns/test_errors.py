"""A failed turn ends with a typed error and its report, which can be read later without a
worker.
"""

import ast
import asyncio
import json
import threading
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import pytest

from perdure import AgentReport, Budget, Outcome, errors, limits, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient
from perdure.errors import PerdureError
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.turn.facts import WaitBegan
from perdure.values.messages import AssistantMessage, UserMessage
from perdure.values.states import State

from ...conftest import Runtime, eventually
from ...support.ends import CASES, ELSEWHERE, FROM_OUTSIDE, End, play
from ...support.spending import (
    Held,
    Improvised,
    app,
    ended,
    money_left,
    queue,
    spender,
    until,
    usage,
)


@pytest.fixture(scope="module")
async def ends(perdure_server: str) -> dict[str, End]:
    """The ends of all cases."""
    return await play(perdure_server, list(CASES))


def caught(ends: dict[str, End]) -> dict[str, PerdureError]:
    """The errors among the ends."""
    return {name: end.told for name, end in ends.items() if isinstance(end.told, PerdureError)}


@pytest.mark.slow
@pytest.mark.accepts("U5", "U6", "U7", "U9", "U11")
async def test_every_class_of_error_ends_a_turn_as_itself(ends: dict[str, End]) -> None:
    """Class, code and severity match the cause; a class that is in none of the tables fails this
    test.
    """
    raised = caught(ends)
    classes = {cls for cls in errors.tree() if cls.__module__ == errors.__name__}

    assert {name: type(error) for name, error in raised.items()} == {
        name: case.error for name, case in CASES.items() if case.error
    }
    assert {type(error) for error in raised.values()} | ELSEWHERE.keys() == classes
    assert all(
        (error.to_dict()["code"], error.severity)
        == (type(error).code, type(error).default_severity)
        for error in raised.values()
    )


@pytest.mark.slow
async def test_class_that_no_turn_ends_with_is_raised_by_another_test() -> None:
    """By the test that the table names."""
    tests = Path(__file__).parents[2]
    tellers = {
        where: named(tests / where.partition("::")[0], where.partition("::")[2])
        for _, where in ELSEWHERE.values()
    }

    assert [
        cls.__name__ for cls, (_, where) in ELSEWHERE.items() if cls.__name__ not in tellers[where]
    ] == []


def named(file: Path, test: str) -> set[str]:
    """The attributes that a test reads, such as `errors.TurnNotFoundError`."""
    body = next(
        node
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if getattr(node, "name", "") == test
    )
    return {node.attr for node in ast.walk(body) if isinstance(node, ast.Attribute)}


@pytest.mark.slow
@pytest.mark.accepts("U12")
async def test_every_outcome_is_reached(ends: dict[str, End]) -> None:
    """In the report, and where Temporal shows the workflow."""
    expected = {name: (case.outcome, case.status) for name, case in CASES.items()}

    assert {name: (end.report.outcome, end.status) for name, end in ends.items()} == expected
    assert {case.outcome for case in CASES.values()} == set(Outcome)


@pytest.mark.accepts("U12", "O5", "O11")
async def test_list_says_how_every_turn_ended(ends: dict[str, End]) -> None:
    """Agent, outcome, steps and cost are those of the report; a turn that was ended from outside
    has an outcome but no cost.
    """
    expected = {
        name: (
            *(State.ENDED, end.report.agent, end.report.outcome),
            *((None, None) if name in FROM_OUTSIDE else (len(end.report.steps), end.report.cost)),
        )
        for name, end in ends.items()
    }

    assert {
        name: (
            *(end.entry.state, end.entry.agent, end.entry.outcome),
            end.entry.steps,
            end.entry.spent,
        )
        for name, end in ends.items()
    } == expected


@pytest.mark.slow
@pytest.mark.accepts("U12")
async def test_memo_says_how_every_turn_ended(ends: dict[str, End]) -> None:
    """Outcome, error code and the beginning of the answer; none for a turn that was ended from
    outside.
    """
    told = {
        name: [end.memo.get(key, "")[:100] for key in ("outcome", "error", "output")]
        for name, end in ends.items()
    }
    codes = {name: error.code for name, error in caught(ends).items()}
    expected = {
        name: [
            end.report.outcome.value,
            codes.get(name, ""),
            (end.report.output or end.report.last_text)[:100],
        ]
        for name, end in ends.items()
    }

    assert told == {**expected, **{name: ["", "", ""] for name in FROM_OUTSIDE}}
    assert max(len(json.dumps(end.memo)) for end in ends.values()) <= limits.MEMO_BYTES


@pytest.mark.accepts("O1", "O2", "O5", "U12")
async def test_every_turn_that_could_say_its_end_has_one_record_of_it(ends: dict[str, End]) -> None:
    """One start, one end with outcome, calls and cost, and before it the class of the error, if
    any; a record for each call.
    """
    raised = {name: [type(error).__name__] for name, error in caught(ends).items()}
    by_event = {
        name: {event: [r for r in end.records if r["event"] == event] for event in EVENTS}
        for name, end in ends.items()
    }
    told = {name: found for name, found in by_event.items() if name not in FROM_OUTSIDE}

    assert {name: len(found["turn_started"]) for name, found in by_event.items()} == dict.fromkeys(
        ends, 1
    )
    assert {
        name: [r["error_class"] for r in found["turn_failed"]] for name, found in told.items()
    } == {name: raised.get(name, []) for name in told}
    assert {
        name: [tuple(r[key] for key in ENDS) for r in found["turn_completed"]]
        for name, found in told.items()
    } == {
        name: [(end.outcome.value, end.model_calls, end.tool_calls, end.cost)]
        for name, end in reports(ends).items()
        if name in told
    }
    results = {
        name: [r for r in found["tool_call"] if r["outcome"] != "not_run"]
        for name, found in told.items()
    }
    assert {name: (len(found["llm_call"]), len(results[name])) for name, found in told.items()} == {
        name: (end.model_calls, end.tool_calls)
        for name, end in reports(ends).items()
        if name in told
    }
    assert [
        found[event]
        for name, found in by_event.items()
        if name in FROM_OUTSIDE
        for event in ("turn_failed", "turn_completed")
    ] == [[]] * 4


EVENTS = (
    "turn_started",
    "llm_call",
    "tool_call",
    "turn_failed",
    "turn_completed",
    "autonomy_boundary",
)
ENDS = ("outcome", "llm_calls", "tool_calls", "cost_usd")


def reports(ends: dict[str, End]) -> dict[str, AgentReport]:
    """The report of each turn."""
    return {name: end.report for name, end in ends.items()}


@pytest.mark.accepts("L10", "U12")
async def test_report_of_every_end_holds_what_was_done(ends: dict[str, End]) -> None:
    """The task, the steps, and every answer; only a turn that could not start has none."""
    begun = {name: end.report for name, end in ends.items() if name != "no_request"}
    known = {name: case.steps for name, case in CASES.items() if case.steps is not None}

    assert {name: len(ends[name].report.steps) for name in known} == known
    assert {report.messages[0] for report in begun.values()} == {UserMessage.of("go")}
    for report in begun.values():
        answers = [message for message in report.messages if isinstance(message, AssistantMessage)]
        assert answers[: len(report.steps)] == [step.message for step in report.steps]
        assert (report.turn_id.endswith(report.agent), report.model_calls >= len(report.steps)) == (
            True,
            True,
        )
    assert ends["no_request"].report.messages == ()


@pytest.mark.accepts("U12")
async def test_end_is_read_without_a_worker(ends: dict[str, End]) -> None:
    """By another client, after every worker has stopped: the same report, the same error."""
    for end in ends.values():
        if isinstance(end.told, PerdureError):
            assert isinstance(end.read, PerdureError)
            assert (end.read.to_dict(), end.read.report) == (end.told.to_dict(), end.told.report)
        else:
            assert end.read == end.told


async def test_what_a_workflow_returns_is_bounded(ends: dict[str, End]) -> None:
    """A megabyte of output is in the report, and the last event has a summary of it."""
    assert len(ends["completed"].report.output) == 1_000_000
    assert max(end.closing_bytes for end in ends.values()) <= limits.SUMMARY_BYTES
    assert ends["completed"].closing_bytes > limits.SUMMARY_BYTES // 4


@pytest.mark.accepts("L10", "U9")
async def test_turn_that_loses_every_worker_gives_up(perdure_server: str) -> None:
    """It fails after `LOST_ATTEMPTS` attempts of one call; its earlier steps can be read without a
    worker.
    """
    first = ScriptedModel(calls(call("look")), says("lost", delay=timedelta(seconds=60)))
    others = [Held("lost") for _ in range(limits.LOST_ATTEMPTS - 1)]
    async with queue(perdure_server) as work:
        turn = await work.client.start("spender", "go")
        for asked, model in ((2, first), *((1, other) for other in others)):
            async with work.worker(app(), model):
                await eventually(
                    lambda asked=asked, model=model: model.call_count == asked,  # type: ignore[misc]
                    "the model is asked",
                )
        async with work.worker(app(), ScriptedModel("never")):
            await ended(turn)
        error = await ended((await AgentClient.connect(perdure_server)).turn(turn.id))

    assert type(error) is PerdureError
    assert f"lost {limits.LOST_ATTEMPTS} times" in error.message
    assert error.report is not None
    assert (error.report.outcome, len(error.report.steps), error.report.model_calls) == (
        Outcome.FAILED,
        1,
        1 + limits.LOST_ATTEMPTS,
    )


# --- the budget of the provider


SPENT = errors.LLMBudgetExceededError("the credit of this key is used up", context={"status": 402})


@pytest.mark.table(1)
@pytest.mark.accepts("U8")
@pytest.mark.parametrize("policy", ["fail", "finish", "pause"])
async def test_spent_credit_of_a_provider_is_a_spent_budget(runtime: Runtime, policy: str) -> None:
    """The turn has no budget that could be increased, so even a turn with the policy `pause` ends;
    with `finish` it is refused once more.
    """
    model = ScriptedModel(calls(call("look")), fails(SPENT), fails(SPENT))
    async with runtime(app(on_exhausted=policy), model=model) as client:
        error = await ended(await client.start("spender", "go"))

    assert isinstance(error, errors.TurnBudgetExceededError)
    assert isinstance(error.__cause__, errors.LLMBudgetExceededError)
    assert (error.message, error.__cause__.message, error.context) == (
        SPENT.message,
        SPENT.message,
        SPENT.context,
    )
    assert error.report is not None
    assert (error.report.outcome, len(error.report.steps)) == (Outcome.BUDGET_EXHAUSTED, 1)
    assert model.call_count == (3 if policy == "finish" else 2)


@pytest.mark.slow
@pytest.mark.accepts("U8", "B9")
async def test_turn_that_finishes_may_still_get_its_last_answer(runtime: Runtime) -> None:
    """A shorter request can be within the rest of a credit."""
    model = ScriptedModel(calls(call("look")), fails(SPENT), says("what I have"))
    async with runtime(app(on_exhausted="finish"), model=model) as client:
        report = await client.run("spender", "go")

    assert (report.outcome, report.output) == (Outcome.BUDGET_EXHAUSTED, "what I have")


@pytest.mark.accepts("U8", "B10")
async def test_turn_that_pauses_asks_again_when_its_budget_was_raised(runtime: Runtime) -> None:
    """The credit is assumed to be increased with the budget; the refused attempt costs nothing."""
    model = ScriptedModel(fails(SPENT), says("done", usage=usage(100)))
    async with runtime(app(on_exhausted="pause"), model=model) as client:
        turn = await client.start("spender", "go", budget=Budget(usd="5"))
        wait = await until(turn, WaitBegan)
        await turn.add_budget(Budget(usd="1"))
        report = await ended(turn)

    assert isinstance(wait.fact, WaitBegan)
    assert wait.fact.reason == SPENT.message
    assert isinstance(report, AgentReport)
    assert (report.output, report.cost, money_left(model.requests[1])) == (
        "done",
        Decimal("0.1"),
        Decimal(6),
    )


# --- exceptions of all kinds


class SpeechlessError(Exception):
    """Its `__str__` raises."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def kinds() -> dict[str, BaseException]:
    """Exceptions of every kind."""
    plain = [
        KeyError("k"),
        RecursionError(),
        MemoryError(),
        TimeoutError(),
        StopIteration(),
        StopAsyncIteration(),
    ]
    odd = [
        SpeechlessError(),
        ExceptionGroup("several", [ValueError("one"), OSError("two")]),
        errors.LLMAuthError("\ud800"),
        asyncio.CancelledError(),
    ]
    return {type(error).__name__: error for error in (*plain, *odd)}


@pytest.mark.slow
@pytest.mark.accepts("U6", "U9")
async def test_any_exception_of_a_provider_ends_the_turn_typed(runtime: Runtime) -> None:
    """A user's provider with bugs."""

    def raising(error: BaseException) -> Any:
        def reply(_: ModelRequest) -> NoReturn:
            raise error

        return reply

    models = {name: Improvised(*[raising(error)] * 2) for name, error in kinds().items()}
    async with runtime(app(), model=ByTask(models)) as client:
        ends = {name: await ended(await client.start("spender", name)) for name in models}

    assert all(
        isinstance(end, PerdureError) and end.report and end.report.outcome is Outcome.FAILED
        for end in ends.values()
    )
    assert {name: model.call_count for name, model in models.items()} == {
        name: 2 if name == "TimeoutError" else 1 for name in models
    }


@pytest.mark.slow
@pytest.mark.accepts("U9", "T1")
async def test_any_exception_of_a_tool_is_an_error_result(runtime: Runtime) -> None:
    """From sync and async tools, including those that end processes; the turn continues and the
    worker lives.
    """
    ends_processes: list[BaseException] = [SystemExit(3), KeyboardInterrupt(), GeneratorExit()]
    raised = {**kinds(), **{type(error).__name__: error for error in ends_processes}}
    threads: list[str] = []

    @tool
    def explode(kind: str) -> None:
        """Raise in a thread."""
        threads.append(threading.current_thread().name)
        raise raised[kind]

    @tool
    async def explode_later(kind: str) -> None:
        """Raise on the loop of the tools."""
        threads.append(threading.current_thread().name)
        raise raised[kind]

    asked = [call(name, kind=kind) for kind in raised for name in ("explode", "explode_later")]
    model = ScriptedModel(calls(*asked), says("none of them worked"))
    async with runtime(app(spender(tools=[explode, explode_later])), model=model) as client:
        report = await client.run("spender", "go")

    assert (report.output, len(threads)) == ("none of them worked", len(asked))
    [step, _] = report.steps
    assert [result.is_error for result in step.results] == [True] * len(asked)
