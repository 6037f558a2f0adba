"""The limit of iterations: a turn may have its own, and with the policy `pause` it waits there for
more.
"""

import asyncio
import contextlib
import importlib
import secrets
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from perdure import Agent, Budget, Outcome, errors
from perdure.__main__ import run as command
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient, Turn
from perdure.clients.cli.drawing.hints import CommandHints
from perdure.clients.reading.current_activity import is_stopped
from perdure.temporal.connect import connect
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.turn.facts import BudgetAdded, WaitBegan
from perdure.turn.state import TurnState
from perdure.turn.waiting import Waiting
from perdure.turn.wire import TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Text
from perdure.values.states import State
from perdure.worker import AgentWorker, PerdurePlugin

from ...conftest import Run, Runtime
from ...support.delegating import FREE, delegate
from ...support.listing import entry_of
from ...support.resets import reset, task_ends
from ...support.spending import SOON_S, app, ended, look, queue, report_of, spender, until
from ...support.waiting import memo_of
from ...support.web_ui import card_of

PAUSES = app(on_exhausted="pause", max_iterations=2, on_loop="ignore")
REASON = (
    "spender made 2 model calls without an answer, which is its max_iterations; raise it, or"
    " go on after the end with turn.resume(max_iterations=…)"
)


def steps(count: int) -> ScriptedModel:
    """This number of steps with a tool call, and then an answer."""
    return ScriptedModel(
        *[calls(call("look", number=number)) for number in range(count)], says("done")
    )


class ByItsRequests(ScriptedModel):
    """Two steps with a tool call, and an answer; it counts the earlier steps in the request, which
    also works after a reset.
    """

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        step = len(request.messages) // 2
        parts: Any = (call("look", number=step),) if step < 2 else (Text(text="done"),)
        return ModelAnswer(message=AssistantMessage(parts=parts))


# --- the limit of one turn


@pytest.mark.table(1)
@pytest.mark.accepts("E21")
@pytest.mark.parametrize(
    ("own", "agents"), [(2, 10), (2, 1), (2, "unlimited")], ids=["below", "above", "unlimited"]
)
async def test_limit_of_a_turn_overrides_that_of_its_agent(run: Run, own: int, agents: Any) -> None:
    """Like a budget of the turn; an answer in the last allowed call is accepted."""
    start = {"max_iterations": own}
    report = await run(steps(1), tools=[look], max_iterations=agents, start=start)
    with pytest.raises(errors.MaxIterationsError) as caught:
        await run(steps(2), tools=[look], max_iterations=agents, start=start)

    assert (report.output, len(report.steps)) == ("done", 2)
    assert caught.value.context == {"max_iterations": 2}
    assert caught.value.report is not None
    assert (caught.value.report.outcome, len(caught.value.report.steps)) == (
        Outcome.MAX_ITERATIONS,
        2,
    )


@pytest.mark.slow
@pytest.mark.accepts("E21")
async def test_delegates_keep_the_limits_of_their_agents(runtime: Runtime) -> None:
    """A limit of iterations is for one turn, not for a tree."""
    script = {"go": ScriptedModel(delegate("writer", "write"), says("done")), "write": steps(2)}
    agents = [
        Agent(name="lead", model="scripted:lead", delegates=["writer"]),
        Agent(name="writer", model="scripted:writer", tools=[look]),
    ]
    async with runtime(AgentWorker(agents, prices=FREE), model=ByTask(script)) as client:
        report = await client.run("lead", "go", max_iterations=2)

    assert (report.output, report.children[0].steps) == ("done", 3)


@pytest.mark.slow
@pytest.mark.accepts("E21")
async def test_workflow_of_theirs_limits_a_turn(
    perdure_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `run_turn`, and the error says so."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "tests/support/workflows"))
    theirs = importlib.import_module("their_workflows")
    client, name = await connect(perdure_server), f"test-{secrets.token_hex(6)}"
    plugin = PerdurePlugin(
        AgentWorker(
            theirs.CLERK, providers={"scripted": ScriptedModel(calls(call("look")))}, prices=FREE
        )
    )
    async with Worker(client, task_queue=name, workflows=[theirs.Limited], plugins=[plugin]):
        found = await client.execute_workflow(
            "Limited", "How long?", id=f"limited-{name}", task_queue=name
        )

    assert found == ["MaxIterationsError", "max_iterations", 1]


@pytest.mark.accepts("E21")
async def test_limit_is_not_part_of_what_is_asked(runtime: Runtime) -> None:
    """The same id with another limit is the same turn, and its digest equals that of earlier
    releases.
    """
    async with runtime(app(), model=ScriptedModel("done")) as client:
        await client.run("spender", "go", id="same-limit", max_iterations=3)
        again = await client.start("spender", "go", id="same-limit", max_iterations=4)
        status = await again.status()

    request = TurnRequest.model_validate({"agent": "spender", "task": "go"})
    assert request.digest() == request.model_copy(update={"max_iterations": 3}).digest()
    assert (status.outcome, status.max_iterations) == (Outcome.COMPLETED, 3)


BAD: list[Any] = [0, -1, True, 10**10, "5", 2.5, "unlimited"]


@pytest.mark.slow
@pytest.mark.accepts("E21")
@pytest.mark.parametrize("given", BAD, ids=repr)
async def test_invalid_iterations_are_refused_at_once(runtime: Runtime, given: Any) -> None:
    """The client refuses them before it sends anything, and a turn refuses them in an update."""
    async with runtime(PAUSES, model=steps(2)) as client:
        with pytest.raises(
            errors.InvalidRequestError, match="the turn cannot be started: max_iterations "
        ):
            await client.start("spender", "go", max_iterations=given)
        assert client.recorded == set()
        turn = await client.start("spender", "go")
        await until(turn, WaitBegan)
        handle = client.temporal.get_workflow_handle(turn.id)
        with pytest.raises(
            errors.InvalidRequestError,
            match="what is added: iterations must be a whole number from 1 to 1000000000",
        ):
            await turn.add_budget(iterations=given)
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await handle.execute_update("add_budget", {"iterations": given})
        with pytest.raises(errors.InvalidRequestError, match="nothing is added"):
            await turn.add_budget()
        await turn.add_budget(iterations=1)
        report = await turn.result()

    assert isinstance(caught.value.cause, ApplicationError)
    assert (caught.value.cause.type, caught.value.cause.message[:37]) == (
        "INVALID_REQUEST",
        "not a valid BudgetUpdate: iterations:",
    )
    assert (report.output, len(report.steps)) == ("done", 3)


# --- pause


@pytest.mark.accepts("E22")
async def test_turn_at_its_limit_waits_and_goes_on_with_more(runtime: Runtime) -> None:
    """Completed work is not repeated; the list, the memo, the status, the card and the events say
    what it waits for.
    """
    model = steps(3)
    async with runtime(PAUSES, model=model) as client:
        turn = await client.start("spender", "go", budget=Budget(tool_calls=9))
        wait = await until(turn, WaitBegan)
        await entry_of(client, turn.id, state=State.PAUSED)
        memo, card, paused = (
            await memo_of(client, turn),
            await card_of(client.temporal, turn.id),
            await turn.wait(),
        )
        left = await client.turn(turn.id).add_budget(iterations=2, by="anna@example.com")
        report = await turn.result()
        events = [event async for event in turn.events()]
        after = await turn.status()

    assert isinstance(wait.fact, WaitBegan)
    assert (wait.fact.kind, wait.fact.reason) == ("iterations", REASON)
    assert memo["perdure_waits_for"] == {"kind": "iterations", "reason": REASON}
    assert "**spender** — waits for iterations\n" in card
    assert "Steps done: 2 of at most 2\n" in card
    assert "**Waits for iterations:** spender made 2 model calls" in card
    assert (paused.state, paused.doing, paused.max_iterations) == (
        State.PAUSED,
        f"waits for iterations: {REASON}",
        2,
    )
    assert [(one.kind, one.turn_id) for one in paused.waits] == [("iterations", turn.id)]
    assert (left.iterations, left.tool_calls) == (2, 7)
    assert (report.output, report.tool_calls, model.call_count, after.max_iterations) == (
        "done",
        3,
        4,
        4,
    )
    [added] = [event for event in events if isinstance(event.fact, BudgetAdded)]
    assert added.fact == BudgetAdded(None, "anna@example.com", 2)
    assert added.to_json()["fact"] == {"more": None, "by": "anna@example.com", "iterations": 2}
    public: Any = added.public()
    assert (public["more"], public["iterations"]) == (None, 2)


@pytest.mark.slow
@pytest.mark.accepts("E22")
async def test_budget_and_iterations_are_added_together_or_not_at_all(runtime: Runtime) -> None:
    """A limit that the turn does not have refuses both; budget alone does not end the wait."""
    async with runtime(PAUSES, model=steps(2)) as client:
        turn = await client.start("spender", "go", budget=Budget(tool_calls=2))
        await until(turn, WaitBegan)
        with pytest.raises(errors.InvalidRequestError, match="no limit of tokens"):
            await turn.add_budget(Budget(tokens=5), iterations=5)
        with pytest.raises(
            errors.InvalidRequestError,
            match="a limit of iterations is at most 1000000000; add less",
        ):
            await turn.add_budget(Budget(tool_calls=5), iterations=10**9)
        first = await turn.add_budget(Budget(tool_calls=1))
        still = await turn.status()
        second = await turn.add_budget(Budget(tool_calls=1), iterations=1)
        report = await turn.result()

    assert (first.tool_calls, first.iterations, still.state) == (1, 0, State.PAUSED)
    assert (second.tool_calls, second.iterations) == (2, 1)
    assert (report.output, len(report.steps)) == ("done", 3)


@pytest.mark.slow
@pytest.mark.accepts("E22")
async def test_turn_without_a_limit_of_iterations_cannot_be_given_more(runtime: Runtime) -> None:
    """As with a budget, the whole request is refused."""
    async with runtime(
        app(on_exhausted="pause", max_iterations="unlimited"), model=steps(1)
    ) as client:
        turn = await client.start("spender", "go", budget=Budget(model_calls=1))
        await until(turn, WaitBegan)
        with pytest.raises(errors.InvalidRequestError, match="the turn has no limit of iterations"):
            await turn.add_budget(Budget(model_calls=1), iterations=1)
        left = await turn.add_budget(Budget(model_calls=1))
        await turn.result()

    assert (left.model_calls, left.iterations) == (1, None)


@pytest.mark.slow
@pytest.mark.accepts("E22")
async def test_turn_that_waits_for_iterations_can_be_let_end(runtime: Runtime) -> None:
    """By a cancel: the report has the work so far, and nothing waits any more."""
    async with runtime(PAUSES, model=steps(2)) as client:
        turn = await client.start("spender", "go")
        await until(turn, WaitBegan)
        await turn.cancel("enough")
        error = await ended(turn)
        memo = await memo_of(client, turn)

    assert isinstance(error, errors.TurnCancelledError)
    assert error.report is not None
    assert (error.report.outcome, error.report.tool_calls) == (Outcome.CANCELLED, 2)
    assert "perdure_waits_for" not in memo


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fail", "finish"])
async def test_other_policies_end_the_turn_at_the_limit(runtime: Runtime, policy: Any) -> None:
    """As before."""
    async with runtime(app(on_exhausted=policy, max_iterations=2), model=steps(2)) as client:
        error = await ended(await client.start("spender", "go"))

    assert isinstance(error, errors.MaxIterationsError)


@pytest.mark.slow
@pytest.mark.accepts("E22")
async def test_delegate_at_its_limit_waits_and_the_turn_above_says_so(runtime: Runtime) -> None:
    """Only the delegate gets more: the limit is not shared."""
    script = {"go": ScriptedModel(delegate("writer", "write"), says("done")), "write": steps(1)}
    writer = Agent(
        name="writer", model="scripted:writer", tools=[look], on_exhausted="pause", max_iterations=1
    )
    lead = Agent(name="lead", model="scripted:lead", delegates=["writer"])
    async with runtime(AgentWorker([lead, writer], prices=FREE), model=ByTask(script)) as client:
        turn = await client.start("lead", "go", id="lead-waits")
        needs = await turn.wait()
        left = await client.turn("lead-waits/writer-1").add_budget(iterations=1)
        report = await turn.result()

    assert [(one.kind, one.turn_id) for one in needs.waits] == [
        ("iterations", "lead-waits/writer-1")
    ]
    assert (left.iterations, report.output, report.children[0].steps) == (1, "done", 2)


@pytest.mark.slow
@pytest.mark.accepts("E21", "E22")
async def test_commands_limit_a_turn_and_add_to_it(
    runtime: Runtime, perdure_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`perdure run` says what it waits for and which command to run; with `perdure add-budget` it
    continues.
    """
    async with runtime(PAUSES, model=steps(1)) as client:
        where = ["--address", perdure_server, "--task-queue", client._task_queue]
        words = [
            "run",
            "spender",
            "go",
            "--id",
            f"run-{client._task_queue}",
            "--max-iterations",
            "1",
            *where,
        ]
        running = asyncio.create_task(asyncio.to_thread(command, words))
        turn = await found(client, words[4])
        await until(turn, WaitBegan)
        added = await asyncio.to_thread(
            command, ["add-budget", turn.id, "--iterations", "1", "--by", "anna", "--json", *where]
        )
        code = await running
    said = capsys.readouterr()

    assert (code, added) == (0, 0)
    assert '"iterations":1' in said.out.replace(" ", "")
    assert "waits for iterations: spender made 1 model call without an answer" in said.err
    assert "iterations added by anna: 1 iteration\n" in said.err


async def found(client: AgentClient, turn_id: str) -> Turn[Any]:
    """The turn with this id, as soon as it exists."""
    async with asyncio.timeout(SOON_S):
        while True:
            with contextlib.suppress(errors.TurnNotFoundError):
                await client.turn(turn_id).first_run()
                return client.turn(turn_id)
            await asyncio.sleep(0.1)


def test_help_names_the_command_that_allows_more() -> None:
    """As it has to be typed."""
    paused = TurnState(waiting=Waiting("iterations", REASON))

    assert is_stopped(paused)
    assert CommandHints().that_help("t", paused) == "perdure add-budget t --iterations N"


# --- stopped workers and resets


@pytest.mark.accepts("E23")
async def test_turn_that_waits_for_iterations_needs_no_worker(perdure_server: str) -> None:
    """Its worker is stopped; iterations are added without one, and another worker continues."""
    model = steps(2)
    async with queue(perdure_server) as work:
        async with work.worker(PAUSES, model):
            turn = await work.client.start("spender", "go")
            await until(turn, WaitBegan)
        adding = asyncio.create_task(turn.add_budget(iterations=1))
        await asyncio.sleep(0.2)
        async with work.worker(PAUSES, model):
            left = await adding
            report = await report_of(turn)

    assert (left.iterations, report.output, model.call_count) == (1, "done", 3)


@pytest.mark.slow
async def test_iterations_can_be_added_before_a_worker_has_the_turn(perdure_server: str) -> None:
    """The update is answered when the limit is known, whether it is the turn's own or the
    agent's.
    """
    model = ByTask({"own": steps(2), "agent": steps(2)})
    async with queue(perdure_server) as work:
        own, agents = (
            await work.client.start("spender", "own", max_iterations=2),
            await work.client.start("spender", "agent"),
        )
        adding = [asyncio.create_task(turn.add_budget(iterations=1)) for turn in (own, agents)]
        await asyncio.sleep(0.3)
        async with work.worker(app(spender(max_iterations=2, on_loop="ignore")), model):
            left = await asyncio.gather(*adding)
            reports = [await report_of(turn) for turn in (own, agents)]

    assert {one.iterations for one in left} <= {2, 3}
    assert [report.output for report in reports] == ["done", "done"]


@pytest.mark.slow
@pytest.mark.accepts("E23")
async def test_turn_that_is_reset_keeps_its_limit_and_what_was_added(runtime: Runtime) -> None:
    """After a reset to the middle, it waits again and the addition is delivered again; after a
    reset to the end, it is kept.
    """
    async with runtime(PAUSES, model=ByItsRequests()) as client:
        turn = await client.start("spender", "go", max_iterations=1)
        await until(turn, WaitBegan)
        await turn.add_budget(iterations=2)
        await turn.result()
        ends = task_ends(await client.history(turn))
        reports = []
        for event_id in (ends[1], ends[-1]):
            again = await reset(client, turn, event_id)
            reports.append(await report_of(again))
            assert (await again.status()).max_iterations == 3

    assert [(report.output, len(report.steps)) for report in reports] == [("done", 3)] * 2
