"""Forks: turns that go on from a step of another turn, and the resumption of turns that ended."""

from __future__ import annotations

import asyncio
import getpass
import json
import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest

from perdure import (
    Agent,
    Budget,
    ForkedFrom,
    Message,
    ModelRetryPolicy,
    Outcome,
    errors,
    limits,
    tool,
)
from perdure.__main__ import run
from perdure.clients import Effect, Turn
from perdure.temporal import start_request
from perdure.temporal.names import TURN
from perdure.temporal.payloads import pack
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.turn.facts import Scheduled, TurnStarted, WaitBegan
from perdure.turn.reservations import LAST_WORDS
from perdure.turn.wire import Origin, TurnRequest
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime
from ...support.spending import ended, look, until

SENT: list[str] = []


@tool
def send(to: str = "all") -> str:
    """Send a letter."""
    SENT.append(to)
    return f"sent to {to}"


def steps(count: int, *then: Any) -> ScriptedModel:
    """This number of steps with a call, and then these replies."""
    asked = [calls(call("look", number=number)) for number in range(1, count + 1)]
    return ScriptedModel(*asked, *then)


def reader(**fields: Any) -> Agent:
    """An agent that looks and sends."""
    return Agent(
        **{
            "name": "reader",
            "model": "scripted:reader",
            "tools": [look, send],
            "max_iterations": 10,
            **fields,
        }
    )


def prefix(messages: Sequence[Message], step: int) -> tuple[Message, ...]:
    """The messages up to a step: the task, and an answer with its results for each step."""
    return tuple(messages[: 1 + 2 * step])


@pytest.mark.accepts("E6", "E30")
async def test_fork_at_every_step_sends_exactly_the_prefix(runtime: Runtime) -> None:
    """The request that follows has the messages up to the step, and what is said after them."""
    model = steps(3, says("done"), *[says(f"again {number}") for number in range(4)])
    async with runtime(reader(), model=model) as client:
        turn = await client.start("reader", "go", id="forks-1", context={"who": "me"})
        whole = await turn.result()
        before = await client.history(turn)
        reports = []
        for step in range(4):
            fork = await turn.fork(step, say="and now?" if step % 2 else None)
            reports.append(await fork.result())
        after = await client.history(turn)

    asked = [request.messages for request in model.requests[4:]]
    for step, (messages, report) in enumerate(zip(asked, reports, strict=True)):
        expected = prefix(whole.messages, step)
        assert messages[: len(expected)] == expected
        said = [message.text for message in messages[len(expected) :]]  # type: ignore[union-attr]
        assert said == (["and now?"] if step % 2 else [])
        assert report.messages[:-1] == messages
        assert [one.number for one in report.steps] == [1]
        assert report.output == f"again {step}"
        assert report.forked_from == ForkedFrom(turn_id="forks-1", step=step)
        assert (report.turn_id, report.model_calls) == (f"forks-1~{step + 1}", 1)
    assert list(before.events) == list(after.events)
    assert whole.forked_from is None


@pytest.mark.accepts("E30", "E38")
async def test_last_step_is_the_default_and_a_fork_can_be_forked(runtime: Runtime) -> None:
    """Its own steps count from 1, and its prefix is what it took over."""
    model = steps(1, says("done"), calls(call("look", number=9)), says("more"), says("third"))
    async with runtime(reader(), model=model) as client:
        turn = await client.start("reader", "go")
        await turn.result()
        fork = await client.turn(turn.id).fork(say="go on", labels={"team": "north"})
        second = await fork.result()
        third = await (await fork.fork(1)).result()
        status = await fork.status()
        [started] = [one async for one in fork.events() if isinstance(one.fact, TurnStarted)]
        memo = await (await client.temporal.get_workflow_handle(fork.id).describe()).memo_value(
            "perdure"
        )

    assert third.forked_from == ForkedFrom(turn_id=fork.id, step=1)
    assert third.messages[:-1] == second.messages[:-1] == model.requests[-1].messages
    assert third.turn_id == f"{turn.id}~1~1"
    assert [step.number for step in second.steps] == [1, 2]
    assert memo["forked_from"] == {"turn_id": turn.id, "step": 2}
    assert status.forked_from == second.forked_from
    assert status.labels == {"team": "north"}
    assert started.public()["forked_from"] == {"turn_id": turn.id, "step": 2}


@pytest.mark.slow
@pytest.mark.accepts("E31")
async def test_fork_has_the_limits_that_the_turn_was_given_afresh(runtime: Runtime) -> None:
    """A limit that it is given overrides them one by one."""
    budget = Budget(tool_calls=2, model_calls=5)
    model = steps(2, says("done"), *[calls(call("look", number=n)) for n in (7, 8)], says("end"))
    async with runtime(reader(), model=model) as client:
        turn = await client.start("reader", "go", budget=budget, max_iterations=4)
        await turn.result()
        fork = await turn.fork(2)
        report = await fork.result()
        given = await fork.status()
        other = await turn.fork(
            2, budget=Budget(tool_calls=9), max_iterations=1, id=f"{turn.id}-other"
        )
        end = await ended(other)
        limited = await other.status()

    assert (report.spent.tool_calls, report.spent.model_calls) == (2, 3)
    assert (given.budget, given.max_iterations) == (budget, 4)
    assert limited.budget == Budget(tool_calls=9, model_calls=5)
    assert limited.max_iterations == 1
    assert isinstance(end, errors.ConfigurationError)  # the script is over


@pytest.mark.slow
@pytest.mark.accepts("E30")
async def test_fork_of_a_running_turn_leaves_it_alone(runtime: Runtime) -> None:
    """It begins after the last complete step, while the next one runs."""
    let_go = asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        await let_go.wait()
        return "held"

    model = ScriptedModel(calls(call("look")), calls(call("hold")), says("forked"), says("done"))
    async with runtime(reader(tools=[look, hold]), model=model) as client:
        turn = await client.start("reader", "go")
        await until(turn, Scheduled, 4)
        fork = await turn.fork()
        effects = await turn.effects_after()
        report = await fork.result()
        let_go.set()
        whole = await turn.result()

    assert (report.output, report.forked_from) == ("forked", ForkedFrom(turn_id=turn.id, step=1))
    assert [(one.step, one.tool) for one in effects] == [(2, "hold")]
    assert (whole.output, len(whole.steps)) == ("done", 3)
    assert model.requests[2].messages == prefix(whole.messages, 1)


@pytest.mark.accepts("E32")
async def test_fork_asks_another_agent_and_another_model(runtime: Runtime) -> None:
    """The agent is resolved anew, so it has its own tools and its own type of answer."""
    other = Agent(name="other", model="scripted:other", instructions="Be brief.", output=int)
    models = {"reader": steps(1, says("done")), "other": ScriptedModel(says("42"), says("43"))}
    async with runtime(AgentWorker([reader(), other]), model=models) as client:
        turn = await client.start("reader", "go")
        first = await turn.result()
        fork = await turn.fork(1, agent=other)
        report = await fork.result()
        by_name = await turn.fork(1, agent="other", say="once more")
        named = await by_name.result()

    assert (report.output, report.agent) == (42, "other")
    assert named.output == 43
    [asked, _] = models["other"].requests
    assert asked.messages == prefix(first.messages, 1)
    assert asked.tools == ()


@pytest.mark.accepts("E33")
async def test_id_of_a_fork_is_idempotent_and_numbers_are_free_ones(runtime: Runtime) -> None:
    """The same id with the same point and message is the same turn; with others it conflicts."""
    model = steps(1, says("done"), says("a"), says("b"), says("c"))
    name = secrets.token_hex(limits.TURN_ID_CHARACTERS // 2)
    mine = f"mine-{name[:8]}"
    async with runtime(reader(), model=model) as client:
        turn = await client.start("reader", "go", id=name)
        await turn.result()
        one = await turn.fork(1, say="a", id=mine)
        same = await turn.fork(1, say="a", id=mine)
        with pytest.raises(errors.TurnConflictError):
            await turn.fork(1, say="b", id=mine)
        with pytest.raises(errors.TurnConflictError):
            await turn.fork(0, say="a", id=mine)
        numbered = [await turn.fork(1) for _ in range(2)]
        for fork in (one, same, *numbered):
            await fork.result()

    assert (await one.first_run()) == await same.first_run()
    assert [fork.id for fork in numbered] == [f"{name[:-2]}~1", f"{name[:-2]}~2"]
    assert model.call_count == 5


async def start_short(
    client: RecordingClient, turn_id: str, request: TurnRequest | None = None
) -> Turn:
    """Start a turn that goes on in a new run about every 24 steps."""
    request = request or start_request.turn_request("reader", "go", max_iterations=100)
    await client.temporal.start_workflow(
        TURN,
        pack(request),
        id=turn_id,
        task_queue=client.task_queue,
        task_timeout=timedelta(seconds=1),
    )
    return client.turn(turn_id)


@pytest.mark.slow
@pytest.mark.accepts("E34", "E41")
async def test_fork_from_each_run_of_a_long_turn_and_after_the_first_is_gone(
    runtime: Runtime,
) -> None:
    """The prefix is read in the run that has the step; a step of a run that is gone is refused."""
    model = steps(60, says("done"), *[says(f"again {number}") for number in range(9)])
    async with runtime(reader(), model=model) as client:
        turn = await start_short(client, "long-forks")
        whole = await turn.result()
        runs = (await turn._feed()).runs
        assert len(runs) > 2
        numbers = [5, 24, 30, 48, 60]
        for step in numbers:
            await (await turn.fork(step)).result()
        with pytest.raises(errors.InvalidRequestError, match="has no complete step 62"):
            await turn.fork(62, say="more")
        await delete(client, turn.id, runs[0])
        with pytest.raises(errors.TurnNotFoundError, match="is gone"):
            await turn.fork(5)
        with pytest.raises(errors.TurnNotFoundError, match="is gone"):
            await turn.effects_after(5)
        late = await (await turn.fork(60)).result()
        client.recorded.discard((turn.id, await turn.first_run()))

    for step, request in zip(numbers, model.requests[61:], strict=False):
        assert request.messages == prefix(whole.messages, step)
    assert late.messages[:-1] == prefix(whole.messages, 60)


async def delete(client: RecordingClient, turn_id: str, run_id: str) -> None:
    """Delete a run, as the end of its retention does."""
    await client.temporal.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace=client.temporal.namespace,
            workflow_execution=WorkflowExecution(workflow_id=turn_id, run_id=run_id),
        )
    )
    while True:
        try:
            await client.temporal.get_workflow_handle(turn_id, run_id=run_id).fetch_history()
        except Exception:  # noqa: BLE001 - it is gone
            return
        await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.accepts("E35")
async def test_turn_that_used_its_iterations_is_resumed(runtime: Runtime) -> None:
    """It goes on as a new turn, with the limit that it is given, from its last step."""
    model = steps(3, says("done"))
    async with runtime(reader(), model=model) as client:
        turn = await client.start("reader", "go", max_iterations=2)
        end = await ended(turn)
        assert isinstance(end, errors.MaxIterationsError)
        assert end.report is not None
        assert await turn.resume_step() == 2
        with pytest.raises(errors.InvalidRequestError, match="goes on only as a new turn"):
            await turn.resume(max_iterations=5, start=False)
        resumed = await turn.resume(max_iterations=5)
        report = await resumed.result()

    assert (resumed.id, report.output) == (f"{turn.id}~1", "done")
    assert report.forked_from == ForkedFrom(turn_id=turn.id, step=2)
    assert report.messages[:5] == end.report.messages
    assert len(report.steps) == 2


@pytest.mark.accepts("E35", "E31")
@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.table(1)
async def test_last_answer_of_a_spent_budget_is_left_out(runtime: Runtime, parallel: bool) -> None:
    """The model does not see that the budget of the other turn was spent."""
    both = calls(call("look", number=1), call("look", number=2))
    model = ScriptedModel(calls(call("look")), both, says("in short"), says("at length"))
    agent = reader(on_exhausted="finish", parallel_tools=parallel)
    async with runtime(agent, model=model) as client:
        turn = await client.start("reader", "go", budget=Budget(tool_calls=2, model_calls=9))
        short = await turn.result()
        resumed = await turn.resume(Budget(tool_calls=9))
        report = await resumed.result()

    assert (short.outcome, short.output) == (Outcome.BUDGET_EXHAUSTED, "in short")
    assert LAST_WORDS in short.messages
    assert report.output == "at length"
    assert LAST_WORDS not in model.requests[-1].messages
    assert model.requests[-1].messages == short.messages[: short.messages.index(LAST_WORDS)]
    assert report.forked_from == ForkedFrom(turn_id=turn.id, step=2)


@pytest.mark.slow
@pytest.mark.accepts("E35")
async def test_invalid_answers_and_answers_that_were_cut_off_are_resumed(runtime: Runtime) -> None:
    """The model is asked again where it was last asked."""
    stop = StopReason.MAX_TOKENS
    cut = calls(call("look"), stop=stop)
    model = ScriptedModel(
        *[says("no")] * 3, says("4"), says("half", stop=stop), says("5"), cut, "6"
    )
    async with runtime(reader(output=int, tools=[look]), model=model) as client:
        invalid = await client.start("reader", "one")
        assert isinstance(await ended(invalid), errors.OutputInvalidError)
        first = await (await invalid.resume()).result()
        half = await client.start("reader", "two")
        await ended(half)
        second = await (await half.resume()).result()
        called = await client.start("reader", "three")
        await ended(called)
        third = await (await called.resume()).result()

    assert (first.output, second.output, third.output) == (4, 5, 6)
    assert model.requests[3].messages == model.requests[2].messages
    assert [len(request.messages) for request in model.requests[4:]] == [1, 1, 1, 3]


@pytest.mark.accepts("E35")
@pytest.mark.parametrize("how", ["cancel", "terminate", "fail"])
@pytest.mark.table(1)
async def test_turn_that_was_stopped_is_resumed(runtime: Runtime, how: str) -> None:
    """It goes on after its last complete step; an open one is made again."""
    let_go = asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        await let_go.wait()
        return "held"

    model = ScriptedModel(
        calls(call("look")),
        fails(errors.LLMAuthError("no key")) if how == "fail" else calls(call("hold")),
        says("done"),
    )
    async with runtime(reader(tools=[look, hold]), model=model) as client:
        turn = await client.start("reader", "go")
        if how != "fail":
            await until(turn, Scheduled, 4)
            handle = client.temporal.get_workflow_handle(turn.id)
            await (turn.cancel("stop") if how == "cancel" else handle.terminate("stop"))
        end = await ended(turn)
        assert isinstance(end, errors.PerdureError)
        report = await (await turn.resume(id=f"again-{how}")).result()
        let_go.set()

    assert end.report is not None
    assert (report.turn_id, report.output) == (f"again-{how}", "done")
    known = 5 if how == "cancel" else 3  # a cancelled call has a result that says so
    assert model.requests[-1].messages == end.report.messages[:known]


@pytest.mark.accepts("E36")
async def test_turns_that_cannot_be_resumed_say_so_and_start_nothing(runtime: Runtime) -> None:
    """One that completed, one that runs, and arguments for one that waits for a provider."""
    later = fails(errors.LLMRateLimitError("slow", context={"status": 429, "retry_after_s": 900}))
    model = ScriptedModel(says("done"), later, says("late"), calls(call("pay")), "paid")

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = reader(tools=[pay], model_retry=ModelRetryPolicy())
    async with runtime(agent, model=model) as client:
        done = await client.start("reader", "go")
        await done.result()
        with pytest.raises(errors.InvalidRequestError, match=r"completed.*turn\.fork\(say=…\)"):
            await done.resume()
        with pytest.raises(errors.InvalidRequestError, match="needs a message"):
            await done.fork()
        waiting = await client.start("reader", "wait")
        await until(waiting, WaitBegan)
        for given in ({"budget": Budget(usd=1)}, {"max_iterations": 3}, {"id": "other"}):
            with pytest.raises(errors.InvalidRequestError, match="goes on as itself"):
                await waiting.resume(**given)
        assert await waiting.resume_step() is None
        same = await waiting.resume()
        assert same is waiting
        await waiting.result()
        asks = await client.start("reader", "ask")
        await until(asks, WaitBegan)
        with pytest.raises(errors.InvalidRequestError, match=r"not over.*waits for approval"):
            await client.turn(asks.id).resume()
        await asks.cancel()
        await ended(asks)
        turns = [entry.id async for entry in client.turns()]

    assert not [one for one in turns if one.startswith((done.id, waiting.id)) and "~" in one]


@pytest.mark.accepts("E37")
async def test_calls_that_may_happen_again_are_named(runtime: Runtime) -> None:
    """Those that were run, except those of read-only tools, and not those that were denied."""

    @tool(requires_approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel(
        calls(call("look"), call("send", call_id="a")),
        calls(call("pay", euros=1, call_id="b")),
        calls(call("send", to="you", call_id="c"), call("nothing")),
        says("done"),
    )
    async with runtime(reader(tools=[look, send, pay]), model=model) as client:
        turn = await client.start("reader", "go")
        await until(turn, WaitBegan)
        [pending] = await turn.pending_approvals()
        await turn.deny(pending, "no")
        await turn.result()
        found = {step: await turn.effects_after(step) for step in range(5)}
        last = await turn.effects_after()
        with pytest.raises(errors.InvalidRequestError, match="has no complete step 5"):
            await turn.effects_after(5)

    first = Effect(step=1, tool="send", call_id="a")
    third = Effect(step=3, tool="send", call_id="c")
    assert found == {0: (first, third), 1: (third,), 2: (third,), 3: (), 4: ()}
    assert last == ()


@pytest.mark.slow
@pytest.mark.accepts("E41")
async def test_bad_arguments_are_refused_and_nothing_is_started(runtime: Runtime) -> None:
    """Each is typed, at once."""
    bad: list[tuple[dict[str, Any], type[errors.PerdureError], str]] = [
        ({"at_step": -1}, errors.InvalidRequestError, "at_step"),
        ({"at_step": 7}, errors.InvalidRequestError, "no complete step 7: the last one is 2"),
        ({"at_step": "1"}, errors.InvalidRequestError, "at_step must be a whole number"),
        ({"at_step": True}, errors.InvalidRequestError, "at_step must be a whole number"),
        ({"at_step": 1, "say": ""}, errors.InvalidRequestError, "say must be a message"),
        ({"at_step": 1, "say": "  "}, errors.InvalidRequestError, "say must be a message"),
        ({"at_step": 1, "say": 5}, errors.InvalidRequestError, "say must be a message"),
        ({"at_step": 1, "say": "x" * limits.TASK_BYTES + "x"}, errors.TooLargeError, "message"),
        ({"at_step": 1, "agent": 5}, errors.InvalidRequestError, "agent must be an agent"),
        ({"at_step": 1, "agent": ""}, errors.InvalidRequestError, "agent"),
        ({"at_step": 1, "model": 5}, errors.InvalidRequestError, "model must be a string"),
        ({"at_step": 1, "budget": 5}, errors.InvalidRequestError, "budget must be a Budget"),
        ({"at_step": 1, "max_iterations": 0}, errors.InvalidRequestError, "max_iterations"),
        ({"at_step": 1, "labels": ["a"]}, errors.InvalidRequestError, "labels must be a mapping"),
        ({"at_step": 1, "id": ""}, errors.InvalidRequestError, "1 to 100 characters"),
        ({"at_step": 1, "id": 5}, errors.InvalidRequestError, "id must be a string"),
        ({}, errors.InvalidRequestError, "needs a message"),
    ]
    async with runtime(reader(), model=steps(1, says("done"))) as client:
        turn = await client.start("reader", "go")
        await turn.result()
        for given, error, words in bad:
            with pytest.raises(error, match=words):
                await turn.fork(**given)
        for given, words in (
            ({"budget": 5}, "budget must be a Budget"),
            ({"max_iterations": "3"}, "max_iterations"),
            ({"id": ""}, "1 to 100 characters"),
        ):
            with pytest.raises(errors.InvalidRequestError, match=words):
                await turn.resume(**given)
        for step in (-1, "1"):
            with pytest.raises(errors.InvalidRequestError, match="step must be a whole number"):
                await turn.effects_after(step)  # type: ignore[arg-type]
        misspelt: Any = {"buget": Budget(usd=1)}
        with pytest.raises(TypeError, match="a fork has no option 'buget'; did you mean 'budget'"):
            await turn.fork(1, **misspelt)
        with pytest.raises(errors.TurnNotFoundError):
            await client.turn("no-such-turn").fork()
        with pytest.raises(errors.TurnNotFoundError):
            await client.turn("no-such-turn").resume()
        with pytest.raises(errors.TurnNotFoundError):
            await client.turn(f"{turn.id}~1").status()


@pytest.mark.slow
@pytest.mark.accepts("E42")
async def test_fork_whose_origin_is_deleted_before_it_begins_ends_typed(runtime: Runtime) -> None:
    """The worker finds no history to take over; the turn ends at once."""
    async with runtime(reader(), model=steps(1, says("done"))) as client:
        turn = await client.start("reader", "go")
        await turn.result()
        point = await client._forks.point(turn.id, await turn.first_run(), 1)
        await delete(client, turn.id, await turn.first_run())
        client.recorded.clear()
        fork = await client._forks.start(point, "", None)
        end = await ended(fork)

    assert isinstance(end, errors.TurnNotFoundError)
    assert "is gone" in end.message
    assert end.report is not None
    assert end.report.forked_from == ForkedFrom(turn_id=turn.id, step=1)
    assert (end.report.messages, end.report.steps) == ((), ())


Command = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def command(perdure_server: str, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command of `perdure`, without a terminal: its exit code and what it printed."""

    async def do(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = await asyncio.to_thread(run, [*words, "--address", perdure_server])
        out, err = capsys.readouterr()
        return code, out, err

    return do


@pytest.mark.slow
@pytest.mark.accepts("E39", "E38")
async def test_fork_command_says_what_would_happen_again(
    runtime: Runtime, command: Command
) -> None:
    """Without a terminal it needs `--yes`; then it follows the new turn."""
    asked = [calls(call("send", to=str(n)), call("look", number=n)) for n in range(3)]
    model = ScriptedModel(*asked, says("done"), says("briefly"), says("from the start"), "twice")
    async with runtime(reader(), model=model) as client:
        turn = await client.start("reader", "go", id="cli-fork")
        await turn.result()
        refused = await command("fork", turn.id, "--at-step", "1")
        wrong = await command("fork", turn.id, "--at-step", "9")
        silent = await command("fork", turn.id)
        told = await command("fork", turn.id, "--say", "In brief.", "--id", "brief")
        again = await command("fork", turn.id, "--at-step", "0", "--yes", "--json")
        only = await command(
            "fork", turn.id, "--at-step", "1", "--yes", "--no-follow", "--json", "--label", "a=b"
        )
        new = client.turn(f"{turn.id}~2")
        await new.result()
        shown = await command("show", "brief")
        labels = (await new.status()).labels

    said = "after step 1 of turn cli-fork, steps 2-3 called: send (not read-only)"
    assert refused[0] == 2
    assert f"perdure: {said}; they may happen again, so nothing was started: add" in flat(
        refused[2]
    )
    assert (wrong[0], "no complete step 9: the last one is 4" in flat(wrong[2])) == (2, True)
    assert (silent[0], "needs a message" in flat(silent[2])) == (2, True)
    assert (told[0], told[1], "not read-only" in told[2]) == (0, "briefly\n", False)
    lines = [json.loads(line) for line in again[1].splitlines()]
    assert again[0] == 0
    unknown = {"is_known": False, "can_undo": False}
    assert lines[0] == {
        "turn": turn.id,
        "kind": "effects",
        "step": 0,
        "effects": [
            {"step": step, "tool": "send", "call_id": f"call_{step}_1", **unknown}
            for step in (1, 2, 3)
        ],
    }
    assert lines[1]["kind"] == "turn_started"
    assert lines[-1]["report"]["forked_from"] == {
        "turn_id": turn.id,
        "step": 0,
        "by": getpass.getuser(),
    }
    assert json.loads(only[1].splitlines()[-1]) == {"turn": new.id, "started": True}
    assert labels == {"a": "b"}
    assert "reader, from step 4 of cli-fork: go" in shown[1]


def flat(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(text.split())


@pytest.mark.accepts("E39", "E40")
async def test_resume_command_goes_on_from_the_hint(runtime: Runtime, command: Command) -> None:
    """`perdure show` of a turn that ended prints the command, which needs only an amount."""
    model = steps(3, says("done"), says("other"))
    async with runtime(reader(), model=model) as client:
        turn = await client.start(
            "reader", "go", id="cli-resume", budget=Budget(model_calls=2, tool_calls=9)
        )
        await ended(turn)
        shown = await command("show", turn.id)
        spent = await command("resume", turn.id, "--model-calls", "1")
        done = await command("resume", turn.id, "--model-calls", "9")
        over = await command("resume", "cli-resume~2")

    hint = "to go on: perdure resume cli-resume"
    assert hint in shown[2]
    assert (
        "--tool-calls N --model-calls N" in shown[2] or "--model-calls N --tool-calls N" in shown[2]
    )
    assert "or go on after the end with turn.resume(Budget(…))" in flat(shown[2])
    assert (shown[0], spent[0]) == (4, 4)
    assert "to go on: perdure resume 'cli-resume~1'" in spent[2]
    assert (done[0], done[1]) == (0, "done\n")
    assert (over[0], "completed, so there is nothing to resume" in flat(over[2])) == (2, True)


@pytest.mark.slow
@pytest.mark.accepts("E34", "E38")
async def test_fork_that_goes_on_in_new_runs_stays_one(runtime: Runtime) -> None:
    """Its messages, memo and steps are whole, and it can be forked in any of its runs."""
    more = [calls(call("look", number=number)) for number in range(40)]
    model = steps(2, says("done"), *more, says("end"), says("in run 1"), says("in run 2"))
    async with runtime(reader(max_iterations="unlimited"), model=model) as client:
        turn = await client.start("reader", "go")
        await turn.result()
        point = await client._forks.point(turn.id, await turn.first_run(), 2)
        origin = Origin(
            turn_id=turn.id,
            run_id=point.run_id,
            steps=2,
            digest=point.carried.digest,
            say="and on",
        )
        assert point.state.request is not None
        request = start_request.fork_of(point.state.request, origin)
        fork = await start_short(client, "long-fork", request)
        report = await fork.result()
        runs = len((await fork._feed()).runs)
        memo = await (await client.temporal.get_workflow_handle(fork.id).describe()).memo_value(
            "perdure"
        )
        status = await fork.status()
        again = [await (await fork.fork(step)).result() for step in (3, 39)]

    assert runs > 1
    assert (report.messages_from, len(report.steps), len(report.messages)) == (1, 41, 87)
    assert memo["forked_from"] == {"turn_id": turn.id, "step": 2}
    assert report.forked_from == status.forked_from == ForkedFrom(turn_id=turn.id, step=2)
    assert [one.messages[:-1] for one in again] == [report.messages[:12], report.messages[:84]]


@pytest.mark.accepts("E41", "E42")
async def test_turn_that_is_started_by_json_with_a_wrong_origin_ends_typed(
    runtime: Runtime,
) -> None:
    """No model is asked, and it ends at once."""
    model = steps(1, says("done"))
    wrong: list[tuple[dict[str, Any], type[errors.PerdureError]]] = [
        ({"run_id": "no-run"}, errors.InvalidRequestError),
        ({"turn_id": "another"}, errors.TurnNotFoundError),
        ({"steps": 9}, errors.InvalidRequestError),
        ({}, errors.TranscriptMismatchError),
    ]
    ends = []
    async with runtime(reader(), model=model) as client:
        turn = await client.start("reader", "go")
        await turn.result()
        right = {
            "turn_id": turn.id,
            "run_id": await turn.first_run(),
            "steps": 1,
            "digest": "0" * 64,
        }
        for number, (given, _) in enumerate(wrong):
            handle = await client.temporal.start_workflow(
                TURN,
                {"agent": "reader", "task": "go", "origin": {**right, **given}},
                id=f"{turn.id}-json-{number}",
                task_queue=client.task_queue,
            )
            ends.append(await ended(client.turn(handle.id)))

    assert [type(end) for end in ends] == [error for _, error in wrong]
    assert model.call_count == 2
