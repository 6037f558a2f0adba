"""Turns that are started now and begin later."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import Agent, Budget, Outcome, errors
from perdure.__main__ import run as command
from perdure.activities.provider import ModelRequest
from perdure.clients.reading.current_activity import is_stopped
from perdure.testing import ScriptedModel, call, calls, says, skip_time
from perdure.turn.facts import AgentResolved, WaitBegan, WaitEnded
from perdure.values.states import State
from perdure.worker import AgentWorker

from ...conftest import Runtime, fold_history
from ...support.listing import entry_of
from ...support.spending import app, ended, look, queue, report_of, spender, until
from ...support.waiting import memo_of
from ...support.web_ui import card_of

HOUR = timedelta(hours=1)


@pytest.mark.accepts("E90", "E91")
async def test_delayed_turn_exists_waits_and_begins_then(
    runtime: Runtime, capsys: pytest.CaptureFixture[str], perdure_server: str
) -> None:
    """Its id is taken, and status, list, memo, card and terminal show until when it waits; the
    delay is not in its time.
    """
    model = ScriptedModel(calls(call("look")), says("done"))
    async with runtime(app(), model=model) as client:
        start: dict[str, Any] = {"id": "delayed-1", "budget": Budget(time=HOUR)}
        turn = await client.start("spender", "go", delay=3 * HOUR, **start)
        began = await until(turn, WaitBegan)
        again = await client.start("spender", "go", id="delayed-1", delay=timedelta(days=9))
        with pytest.raises(errors.TurnConflictError):
            await client.start("spender", "something else", id="delayed-1")
        await entry_of(client, turn.id, agent="spender", state=State.WAITING)
        status, memo = await turn.status(), await memo_of(client, turn)
        card = await card_of(client.temporal, turn.id)
        before = model.call_count
        await skip_time(client, turn, 3 * HOUR)
        report = await turn.result()
        later = await turn.status()
        await asyncio.to_thread(command, ["show", turn.id, "--address", perdure_server])
        facts = [type(event.fact) async for event in turn.events()]

    fact = began.fact
    assert isinstance(fact, WaitBegan)
    assert fact.until is not None
    assert timedelta() <= fact.until - began.at - 3 * HOUR + timedelta(seconds=5)
    assert (again.id, await again.first_run()) == (turn.id, await turn.first_run())
    [wait] = status.waits
    assert (status.state, wait.kind, wait.until, status.spent.model_calls) == (
        "waiting",
        "delay",
        fact.until,
        0,
    )
    moment = f"{fact.until:%Y-%m-%d %H:%M:%S} UTC"
    assert status.doing == f"begins at {moment}: the turn was started with a delay"
    assert f"**Begins at {moment}**" in card
    assert memo["perdure_waits_for"]["kind"] == "delay"
    assert f"begins at {moment}" in capsys.readouterr().out
    assert (before, report.output, model.call_count) == (0, "done", 2)
    assert report.duration >= 3 * HOUR
    assert later.spent.time < HOUR
    assert facts.index(WaitBegan) < facts.index(WaitEnded) < facts.index(AgentResolved)


@pytest.mark.accepts("E91")
async def test_time_of_a_delayed_turn_begins_after_its_delay(runtime: Runtime) -> None:
    """Also as the model is told it."""
    left: list[timedelta | None] = []

    class Notes(ScriptedModel):
        async def complete(self, request: ModelRequest) -> Any:
            left.append(request.budget.time if request.budget else None)
            return await super().complete(request)

    async with runtime(app(), model=Notes("done")) as client:
        turn = await client.start(
            "spender", "go", delay=datetime.now(UTC) + 5 * HOUR, budget=Budget(time=HOUR)
        )
        await until(turn, WaitBegan)
        await skip_time(client, turn, 5 * HOUR)
        report = await turn.result()

    assert report.outcome == Outcome.COMPLETED
    [time] = left
    assert time is not None
    assert HOUR / 2 < time <= HOUR


@pytest.mark.slow
@pytest.mark.accepts("E91")
async def test_updates_and_a_cancel_during_a_delay_are_answered_at_once(runtime: Runtime) -> None:
    """What is added to a known limit counts when the turn begins. A limit of the agent is not known
    yet: nothing is added to it. A cancel ends the turn, which has not called a model.
    """
    model = ScriptedModel(calls(call("look")), says("done"))
    agent = spender(budget=Budget(tokens=9), max_iterations=1)
    async with runtime(app(agent), model=model) as client:
        given: dict[str, Any] = {"budget": Budget(model_calls=1, tokens=10**6), "max_iterations": 1}
        turn = await client.start("spender", "go", delay=HOUR, **given)
        other = await client.start("spender", "go", delay=HOUR)
        await until(turn, WaitBegan)
        async with asyncio.timeout(60):
            first = await turn.add_budget(Budget(model_calls=1))
            left = await turn.add_budget(Budget(model_calls=1), iterations=1, by="Ada")
            with pytest.raises(errors.InvalidRequestError) as refused:
                await turn.add_budget(Budget(usd="1"))
            with pytest.raises(errors.InvalidRequestError, match="before a turn begins"):
                await other.add_budget(Budget(tokens=1))
            with pytest.raises(errors.InvalidRequestError, match="it waits for delay"):
                await turn.resume()
            await other.cancel("not needed")
            error = await ended(other)
        await skip_time(client, turn, HOUR)
        report = await report_of(turn)
        entry = [one async for one in client.turns(agent="spender") if one.id == other.id]

    assert (first.model_calls, left.model_calls, left.iterations) == (2, 3, 2)
    assert refused.value.message == (
        "there is no limit of usd, so nothing can be added to it: before a turn begins, only the"
        " limits that it was started with can be raised"
    )
    assert isinstance(error, errors.TurnCancelledError)
    assert error.report is not None
    assert (error.report.model_calls, error.report.outcome) == (0, Outcome.CANCELLED)
    assert (report.output, len(report.steps)) == ("done", 2)
    assert [(one.waits_for, one.outcome) for one in entry] == [("", "cancelled")]


@pytest.mark.slow
@pytest.mark.accepts("E91")
async def test_message_that_is_sent_during_a_delay_is_read_with_the_first_call(
    runtime: Runtime,
) -> None:
    """After the task; it does not let the turn begin."""
    model = ScriptedModel("done")
    async with runtime(app(), model=model) as client:
        turn = await client.start("spender", "go", delay=HOUR)
        await until(turn, WaitBegan)
        await turn.steer("slowly", now=True)
        waiting = (await turn.status()).state
        await skip_time(client, turn, HOUR)
        report = await turn.result()

    [request] = model.requests
    assert (waiting, report.output, report.unread) == ("waiting", "done", ())
    assert [getattr(one, "text", "") for one in request.messages] == ["go", "slowly"]


@pytest.mark.accepts("E92")
async def test_delay_goes_on_without_a_worker_and_the_next_deploy_counts(
    perdure_server: str,
) -> None:
    """The first worker is gone before the turn begins; the definition is that of the second."""
    asked: list[str] = []

    class Notes(ScriptedModel):
        async def complete(self, request: ModelRequest) -> Any:
            asked.append(request.system)
            return await super().complete(request)

    model = Notes("done")
    async with queue(perdure_server) as work:
        async with work.worker(app(spender(instructions="old")), model):
            turn = await work.client.start("spender", "go", delay=HOUR)
            await until(turn, WaitBegan)
        async with work.worker(app(spender(instructions="new")), model):
            await skip_time(work.client, turn, HOUR)
            report = await turn.result()
        facts = [type(event.fact) async for event in turn.events()]

    assert (report.output, asked) == ("done", ["new"])
    assert (facts.count(WaitBegan), facts.count(WaitEnded)) == (1, 1)


@pytest.mark.accepts("E90")
async def test_delay_until_a_moment_that_has_passed_is_none(runtime: Runtime) -> None:
    """A job that is retried late begins at once."""
    async with runtime(app(), model=ScriptedModel("done")) as client:
        turn = await client.start("spender", "go", delay=datetime(2026, 1, 1, tzinfo=UTC))
        report = await turn.result()
        state = await fold_history(client.temporal, await client.history(turn))
        facts = [type(event.fact) async for event in turn.events()]

    assert report.output == "done"
    assert WaitBegan not in facts
    assert not is_stopped(state)


@pytest.mark.slow
@pytest.mark.accepts("E96")
async def test_commands_delay_a_turn_and_set_its_deadline(
    runtime: Runtime, perdure_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A time or a date, and a fairness key; a mistake is refused before anything is started."""
    name = "commanded"
    agent = Agent(name=name, model="scripted:m", tools=[look])
    async with runtime(AgentWorker(agent), model=ScriptedModel("done")) as client:
        where = ["--address", perdure_server, "--task-queue", client.task_queue]
        words = ["run", name, "go", *where]
        wrong = [
            await asyncio.to_thread(command, [*words, *given])
            for given in (
                ["--delay", "tomorrow"],
                ["--deadline", "2026-01-01T00:00:00Z"],
                ["--delay", "2h", "--deadline", "2h"],
                ["--weight", "2"],
            )
        ]
        said = capsys.readouterr().err
        until_then = (datetime.now(UTC) + 2 * HOUR).isoformat()
        options = ["--delay", "1s", "--deadline", until_then, "--fairness", "t-7", "--weight", "2"]
        options += ["--priority", "2"]
        code = await asyncio.to_thread(command, [*words, "--id", "commanded-1", *options])
        turn = client.turn("commanded-1")
        status = await turn.status()
        described = await client.temporal.get_workflow_handle(turn.id).describe()

    assert wrong == [2, 2, 2, 2]
    assert "'tomorrow' is not a moment; write it like 90s, 2h or 2030-12-01" in said
    assert "the deadline, 2026-01-01 00:00:00 UTC, has passed" in said
    assert re.search(r"the deadline, .* UTC, is not after the end of the delay", said)
    assert "name the key as fairness" in said
    assert (code, status.deadline) == (0, datetime.fromisoformat(until_then))
    priority = described.raw_description.workflow_execution_info.priority
    assert (priority.priority_key, priority.fairness_key, priority.fairness_weight) == (2, "t-7", 2)
