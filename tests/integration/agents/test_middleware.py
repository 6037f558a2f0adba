"""Middleware around a turn, and observers of a turn."""

import asyncio
import logging
import re
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Agent,
    InputGuardrail,
    Logger,
    Middleware,
    Outcome,
    OutputGuardrail,
    Recovery,
    Registry,
    Timeout,
    errors,
    tool,
)
from perdure.agents.observers import Observer
from perdure.clients.gateway.mcp.turn_view import view
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.turn.facts import AgentResolved
from perdure.turn.withheld import MARK
from perdure.values.reports import AgentReport, Step
from perdure.values.tasks import Task, TurnInfo

from ...conftest import Runtime
from ...support.hooks import Noting, Watching
from ...support.spending import ended, until


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


def agent(**fields: object) -> Agent:
    """An agent that can look."""
    return Agent(**{"name": "looker", "model": "scripted:looker", "tools": [look], **fields})  # type: ignore[arg-type]


async def test_first_in_the_list_is_the_outermost(runtime: Runtime) -> None:
    """`before` in order, `after` in reverse order, each once, whatever is replayed."""
    notes: list[str] = []
    stages = [Noting("a", notes), Recovery(), Timeout(timedelta(minutes=1)), Noting("b", notes)]
    async with runtime(
        agent(middleware=stages), model=ScriptedModel(calls(call("look")), says("done"))
    ) as client:
        report = await client.run("looker", "go")

    assert report.outcome is Outcome.COMPLETED
    assert notes == ["a before go", "b before go", "b after done, 2 steps", "a after done, 2 steps"]


@pytest.mark.slow
async def test_after_is_not_called_on_a_failed_turn(runtime: Runtime) -> None:
    """There is no answer to check."""
    notes: list[str] = []
    async with runtime(
        agent(middleware=[Noting("a", notes)]),
        model=ScriptedModel(fails(errors.LLMAuthError("no"))),
    ) as client:
        with pytest.raises(errors.LLMAuthError):
            await client.run("looker", "go")

    assert notes == ["a before go"]


async def test_guardrails_refuse_task_and_answer(runtime: Runtime) -> None:
    """A refused task costs nothing; a refused answer is withheld in the report."""
    model = ScriptedModel(says("rude"))
    stages = [
        InputGuardrail(lambda task: "bad" not in task.text),
        OutputGuardrail(lambda report: "too rude" if report.output == "rude" else True),
    ]
    async with runtime(agent(middleware=stages), model=model) as client:
        with pytest.raises(errors.GuardrailError, match="refused the task"):
            await client.run("looker", "bad")
        assert model.call_count == 0
        with pytest.raises(errors.GuardrailError, match="refused the answer: too rude") as caught:
            await client.run("looker", "good")

    assert caught.value.report is not None
    assert (caught.value.report.outcome, caught.value.report.last_text) == (Outcome.FAILED, "")
    assert (
        caught.value.report.steps[-1].message.text == f"{MARK} The turn ended: failed (GUARDRAIL).]"
    )


async def forgets(_: object) -> Any:
    """Check something without returning a verdict."""


def matches(task: Task) -> Any:
    """Return a match instead of a bool."""
    return re.match("g", task.text)


FORGETS = f"forgets (test_middleware.py:{forgets.__code__.co_firstlineno})"


@pytest.mark.table(1)
@pytest.mark.accepts("E25")
@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (
            InputGuardrail(forgets),
            (
                f"the guardrail {FORGETS} returned None; return True to accept the task, or False"
                " or a reason to refuse it"
            ),
        ),
        (
            OutputGuardrail(forgets),
            (
                f"the guardrail {FORGETS} returned None; return True to accept the answer, or False"
                " or a reason to refuse it"
            ),
        ),
        (InputGuardrail(matches), "returned an instance of Match; return True"),
    ],
    ids=["task", "answer", "match"],
)
async def test_guardrail_that_returns_no_verdict_lets_nothing_pass(
    runtime: Runtime, stage: Middleware, said: str
) -> None:
    """The error has the check, its file and line, and what to return; the answer stays in the
    transcript.
    """
    async with runtime(agent(middleware=[stage]), model=ScriptedModel(says("rude"))) as client:
        with pytest.raises(errors.ConfigurationError, match=re.escape(said)) as caught:
            await client.run("looker", "go")

    assert caught.value.report is not None
    assert (caught.value.report.output, caught.value.report.last_text) == (None, "")


@pytest.mark.slow
@pytest.mark.accepts("O14")
@pytest.mark.parametrize("tool_name", ["delegate_to_agent", "spawn_agents"])
async def test_refused_answer_of_a_delegate_is_in_its_history_alone(
    runtime: Runtime, tool_name: str
) -> None:
    """The parent's model, memo, result, reports, events and observers of both turns have nothing of
    it.
    """
    seen: list[object] = []

    class Watches(Observer):
        async def on_end(self, turn: TurnInfo, report: AgentReport) -> None:
            seen.append((report.output or report.last_text, report.steps[-1].message.text))

    kid = agent(
        name="kid",
        observers=[Watches()],
        middleware=[OutputGuardrail(lambda report: "hunter2" not in report.output)],
    )
    boss = agent(name="boss", delegates=["kid"])
    given = {"agent": "kid", "task": "x"}
    asked = call(tool_name, **(given if tool_name == "delegate_to_agent" else {"tasks": [given]}))
    models = {"boss": ScriptedModel(calls(asked), "fin"), "kid": ScriptedModel("it is hunter2")}
    async with runtime(Registry([kid, boss]), model=models) as client:
        turn = await client.start("boss", "t")
        report = await turn.result()
        below = client.turn(report.children[0].turn_id)
        with pytest.raises(errors.GuardrailError) as caught:
            await below.result()
        memo = await (await client.temporal.get_workflow_handle(below.id).describe()).memo()
        viewed = view(await below.status())
        parent = (await client.history(turn)).events
        child = [
            event
            for event in (await client.history(below)).events
            if not event.HasField("activity_task_completed_event_attributes")
        ]

    assert "refused the answer" in str(models["boss"].requests[1].messages[-1])
    assert (viewed.output, viewed.last_text, seen) == (None, "", [("", f"{MARK}]")])
    assert caught.value.report is not None
    assert (caught.value.report.output, caught.value.report.last_text) == (None, "")
    told = [
        models["boss"].requests[1],
        memo,
        viewed,
        parent,
        child,
        caught.value,
        caught.value.report,
        report,
    ]
    assert [one for one in map(str, told) if "hunter2" in one] == []


@pytest.mark.accepts("O14")
@pytest.mark.parametrize("ends", ["cancel", "timeout"])
@pytest.mark.table(1)
async def test_answer_that_no_guardrail_has_let_pass_is_not_told(
    runtime: Runtime, ends: str
) -> None:
    """A turn that ends during the check does not publish the answer."""
    asked, free = asyncio.Event(), asyncio.Event()

    async def check(report: AgentReport) -> bool:
        asked.set()
        await free.wait()
        return True

    limit = timedelta(seconds=2 if ends == "timeout" else 60)
    stages = [Timeout(limit), OutputGuardrail(check), OutputGuardrail(lambda report: True)]
    async with runtime(agent(middleware=stages), model=ScriptedModel("rude")) as client:
        turn = await client.start("looker", "go")
        await asyncio.wait_for(asked.wait(), 60)
        if ends == "cancel":
            await turn.cancel("no more")
        with pytest.raises(errors.PerdureError) as caught:
            await turn.result()
        free.set()

    assert caught.value.report is not None
    assert (caught.value.report.output, caught.value.report.last_text) == (None, "")
    assert caught.value.report.steps[-1].message.text.startswith(MARK)


class Returns(Middleware):
    """Returns from one of its methods what would be dropped."""

    def __init__(self, moment: str) -> None:
        self._moment = moment

    async def before(self, task: Task) -> Any:
        return False if self._moment == "before" else None

    async def after(self, report: AgentReport) -> Any:
        return report.model_copy(update={"output": "polite"})


@pytest.mark.table(1)
@pytest.mark.accepts("G25")
@pytest.mark.parametrize(
    ("moment", "method", "said"),
    [
        ("before", Returns.before, "an instance of bool"),
        ("after", Returns.after, "an instance of AgentReport"),
    ],
)
async def test_middleware_that_returns_something_ends_the_turn(
    runtime: Runtime, moment: str, method: Any, said: str
) -> None:
    """It was meant to have an effect, and has none: the error says what to do instead."""
    where = f"Returns.{moment} (test_middleware.py:{method.__code__.co_firstlineno}) returned"
    async with runtime(
        agent(middleware=[Returns(moment)]), model=ScriptedModel(says("rude"))
    ) as client:
        with pytest.raises(errors.ConfigurationError) as caught:
            await client.run("looker", "go")

    assert f"the middleware Returns of agent looker: {where} {said}" in caught.value.message
    assert "raise GuardrailError" in caught.value.message


async def test_middleware_that_fails_is_typed(runtime: Runtime) -> None:
    """Any exception becomes one of our errors."""

    def check(task: Task) -> bool:
        raise OSError("no database")

    async with runtime(agent(middleware=[InputGuardrail(check)]), model=ScriptedModel()) as client:
        with pytest.raises(
            errors.PerdureError, match="InputGuardrail of agent looker failed: OSError: no database"
        ):
            await client.run("looker", "go")


@pytest.mark.slow
async def test_timeout_ends_the_turn_with_what_was_done(runtime: Runtime) -> None:
    """The call in flight is cancelled, and earlier steps are kept."""
    model = ScriptedModel(calls(call("look")), says("late", delay=timedelta(seconds=30)))
    async with runtime(agent(middleware=[Timeout(timedelta(seconds=1))]), model=model) as client:
        with pytest.raises(errors.TurnTimeoutError) as caught:
            await client.run("looker", "go")

    assert caught.value.report is not None
    assert (caught.value.report.outcome, len(caught.value.report.steps)) == (Outcome.TIMED_OUT, 1)


@pytest.mark.slow
async def test_cancel_passes_into_a_timeout(runtime: Runtime) -> None:
    """The call in flight is cancelled and stops before the turn ends."""
    began = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await asyncio.sleep(60)
        return "waited"

    async with runtime(
        agent(tools=[wait], middleware=[Timeout(timedelta(minutes=1))]),
        model=ScriptedModel(calls(call("wait"))),
    ) as client:
        turn = await client.start("looker", "go")
        await asyncio.wait_for(began.wait(), 60)
        await turn.cancel("enough")
        error = await ended(turn)

    assert isinstance(error, errors.TurnCancelledError)
    assert error.report is not None
    assert (error.report.outcome, error.report.unstopped) == (Outcome.CANCELLED, ())


async def test_logger_writes_a_line_at_its_place(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """One when the turn enters, one when it leaves."""
    caplog.set_level(logging.DEBUG, "perdure")
    async with runtime(
        agent(middleware=[Logger(logging.DEBUG)]), model=ScriptedModel(says("done"))
    ) as client:
        await client.run("looker", "go")

    lines = [
        record.getMessage().split()[0]
        for record in caplog.records
        if record.name == "perdure.turns"
    ]
    assert lines == ["turn_started", "turn_in", "llm_call", "turn_out", "turn_completed"]


@pytest.mark.accepts("O17", "U24")
@pytest.mark.parametrize(
    ("ends", "error"),
    [
        ("timeout", "TURN_TIMEOUT"),
        ("deadline", "TURN_TIMEOUT"),
        ("cancel", "TURN_CANCELLED"),
        ("fail", "LLM_AUTH"),
    ],
)
@pytest.mark.table(1)
async def test_logger_writes_error_and_duration_however_the_turn_goes_out(
    runtime: Runtime, caplog: pytest.LogCaptureFixture, ends: str, error: str
) -> None:
    """Even if a timeout outside of it, the deadline or a cancel stops the inner part: with the code
    of the turn's error.
    """
    caplog.set_level(logging.INFO, "perdure")
    stages = [Timeout(timedelta(seconds=1 if ends == "timeout" else 60)), Logger()]
    reply = (
        fails(errors.LLMAuthError("no"))
        if ends == "fail"
        else says("late", delay=timedelta(seconds=30))
    )
    async with runtime(agent(middleware=stages), model=ScriptedModel(reply)) as client:
        deadline = timedelta(seconds=1) if ends == "deadline" else None
        turn = await client.start("looker", "go", deadline=deadline)
        if ends == "cancel":
            await until(turn, AgentResolved)
            await turn.cancel()
        await ended(turn)

    [out] = [
        record.perdure  # type: ignore[attr-defined]
        for record in caplog.records
        if getattr(record, "perdure", {}).get("event") == "turn_out"
    ]
    assert (out["error"], out["duration_ms"] >= 0, out["steps"]) == (error, True, 0)


@pytest.mark.slow
@pytest.mark.accepts("O6")
async def test_observer_that_raises_no_exception_takes_nothing_from_those_behind_it(
    runtime: Runtime,
) -> None:
    """The exception is logged, whatever its base class is."""

    class Odd(BaseException):
        pass

    class Bad(Observer):
        async def on_step(self, turn: TurnInfo, step: Step) -> None:
            raise Odd("no")

    good = Watching()
    async with runtime(agent(observers=[Bad(), good]), model=ScriptedModel("done")) as client:
        await client.run("looker", "go", id="behind")

    assert good.notes == ["step 1: []", "behind completed after 1 steps"]


@pytest.mark.slow
async def test_logger_writes_a_line_when_a_failed_turn_goes_out(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """The middleware ends before the failure is reported."""
    caplog.set_level(logging.DEBUG, "perdure")
    async with runtime(
        agent(middleware=[Logger(logging.DEBUG)]),
        model=ScriptedModel(fails(errors.LLMAuthError("no"))),
    ) as client:
        with pytest.raises(errors.LLMAuthError):
            await client.run("looker", "go")

    lines = [
        record.getMessage().split()[0]
        for record in caplog.records
        if record.name == "perdure.turns"
    ]
    assert lines == [
        "turn_started",
        "turn_in",
        "llm_call",
        "turn_out",
        "turn_failed",
        "turn_completed",
    ]


@pytest.mark.slow
@pytest.mark.accepts("E140")
async def test_observers_hear_of_a_failed_end(runtime: Runtime) -> None:
    """With the work before it."""
    watching, ends = Watching(), list[tuple[str | None, str]]()

    class Ends(Observer):
        """Notes the texts of the end."""

        async def on_end(self, turn: TurnInfo, report: AgentReport[Any]) -> None:
            """Note them."""
            ends.append((report.output, report.last_text))

    model = ScriptedModel(calls(call("look"), text="a look"), fails(errors.LLMAuthError("no")))
    async with runtime(agent(observers=[watching, Ends()]), model=model) as client:
        with pytest.raises(errors.LLMAuthError):
            await client.run("looker", "go", id="fails")

    assert watching.notes == ["step 1: ['seen']", "fails failed after 1 steps"]
    assert ends == [(None, "a look")]


@pytest.mark.accepts("O6")
async def test_observers_see_every_step_and_the_end(runtime: Runtime) -> None:
    """In order, with the results, including the last step; an observer that raises changes nothing,
    and replays call none.
    """
    broken, good = Watching(fails=True), Watching()
    seen: list[int] = []
    async with runtime(
        agent(observers=[broken, good]), model=ScriptedModel(calls(call("look")), says("done"))
    ) as client:
        report = await client.run(
            "looker", "go", id="watched", on_step=lambda step: seen.append(step.number)
        )

    assert report.output == "done"
    assert seen == [1, 2]
    assert (
        good.notes
        == broken.notes
        == ["step 1: ['seen']", "step 2: []", "watched completed after 2 steps"]
    )


@pytest.mark.accepts("O6", "O12")
async def test_observers_see_waits_and_a_cancel(runtime: Runtime) -> None:
    """The start of a wait, and an end from outside."""
    watching = Watching()
    async with runtime(
        agent(observers=[watching], approval="all"), model=ScriptedModel(calls(call("look")))
    ) as client:
        turn = await client.start("looker", "go", id="waits")
        async for event in turn.events():
            if type(event.fact).__name__ == "WaitBegan":
                break
        await turn.cancel("enough")
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()

    assert watching.notes == ["waits for approval: look", "waits cancelled after 0 steps"]
