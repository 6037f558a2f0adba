"""Questions of MCP servers in turns that go on in a new run, that expire, and after approvals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, RequireApproval, ToolOutcome
from perdure.agents.policy import ProposedCall
from perdure.clients import Turn
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.facts import Polled, WaitBegan

from ...conftest import Runtime, eventually
from ...support.approving import pending, questions
from ...support.long_turns import begin, filling, reader, runs_of, until_run
from ...support.spending import app, queue, until

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ...support.mcp.task_server import TaskServer, asking, done, needs, task_server

BUILD = calls(call("works__build", what="a house"))
PAINT = calls(call("works__paint", what="the door"))


@pytest.fixture
async def works() -> AsyncIterator[TaskServer]:
    """The server."""
    async with task_server() as server:
        yield server


async def fill(turn: Turn[Any]) -> None:
    """Add to the limit of iterations until a run is full."""
    while True:
        await asyncio.gather(
            *(turn.add_budget(iterations=1) for _ in range(4)), return_exceptions=True
        )


@pytest.mark.slow
@pytest.mark.accepts("J22")
async def test_question_of_a_server_is_carried_to_a_later_run(
    perdure_server: str, works: TaskServer
) -> None:
    """With its time and its token, and with the answer to an earlier question of the task."""
    works.new = needs(a=asking("Shall I begin?"), b=asking("Shall I end?"))
    agent = reader(
        toolboxes=[works.box()], parallel_tools=True, max_iterations=9, on_exhausted="pause"
    )
    model = ScriptedModel(*filling(1), BUILD, says("done"))
    async with queue(perdure_server) as work, work.worker(app(agent), model):
        turn = await begin(work.client)
        await until(turn, WaitBegan)
        [first] = await questions(turn)
        await turn.answer(first, "accept", by="anna")
        [before] = await questions(turn)
        filling_up = asyncio.create_task(fill(turn))
        await until_run(work.client, turn, 2)
        filling_up.cancel()
        [after] = await turn.pending_approvals()
        await turn.answer(after, "accept", by="ben")
        report = await turn.result()
        runs = await runs_of(work.client, turn)

    assert len(runs) > 1
    assert before == after
    accepted = {"action": "accept", "content": {}}
    assert works.answers == [{"a": accepted, "b": accepted}]
    assert [each.by for each in report.steps[1].decisions] == ["anna", "ben"]


@pytest.mark.accepts("J22")
async def test_question_in_an_ordinary_call_that_nobody_answers_is_cancelled(
    runtime: Runtime, works: TaskServer
) -> None:
    """The server learns it, and says what becomes of the call. A policy sets the time."""
    works.asks = [{"go": asking("Really?")}]

    def quickly(proposed: ProposedCall) -> RequireApproval:
        return RequireApproval(expires=timedelta(seconds=2))

    agent = Agent(name="builder", model="scripted:x", toolboxes=[works.box()], policy=quickly)
    async with runtime(agent, model=ScriptedModel(PAINT, says("ok"))) as client:
        turn = await client.start("builder", "go")
        [approval] = await pending(turn)
        await turn.approve(approval, by="anna")
        await eventually(lambda: len(works.rounds) == 2, "the server is told")
        report = await turn.result()

    [result] = report.steps[0].results
    assert (result.outcome, result.content) == (ToolOutcome.DONE, "the door is painted")
    assert works.rounds == [(None, None), ({"go": {"action": "cancel"}}, "round 1")]


@pytest.mark.accepts("J22")
async def test_late_decision_about_the_approval_is_no_answer_to_the_server(
    runtime: Runtime, works: TaskServer
) -> None:
    """Whoever denies the call after it was approved does not decline what the server asks."""
    works.new = needs(go=asking("Shall I begin?"))
    box = works.box(requires_approval=True)
    agent = Agent(name="builder", model="scripted:x", toolboxes=[box])
    async with runtime(agent, model=ScriptedModel(BUILD, says("ok"))) as client:
        turn = await client.start("builder", "go")
        [approval] = await pending(turn)
        await turn.approve(approval, by="anna")
        await eventually(lambda: bool(works.times("tasks/get")), "it is polled")
        [question] = await questions(turn)
        with pytest.raises(Exception, match="already approved by anna"):
            await turn.deny(approval, by="ben")
        await turn.answer(question, "accept", by="carl")
        await turn.result()

    assert works.answers == [{"go": {"action": "accept", "content": {}}}]


@pytest.mark.accepts("J22")
async def test_history_grows_with_the_questions_alone(runtime: Runtime, works: TaskServer) -> None:
    """The polls before, between and after them leave one event each."""
    works.new = {"status": "working", "pollIntervalMs": 500}
    agent = Agent(name="builder", model="scripted:x", toolboxes=[works.box()])
    async with runtime(agent, model=ScriptedModel(BUILD, says("ok"))) as client:
        turn = await client.start("builder", "go")
        task = await works.first()
        await eventually(lambda: len(works.times("tasks/get")) > 3, "it is polled")
        works.then = {"status": "working", "pollIntervalMs": 500}
        task.update(needs(go=asking("Shall I begin?")))
        [asked] = await questions(turn)
        await turn.answer(asked, "accept")
        await eventually(lambda: bool(works.answers), "the task has the answer")
        polled = len(works.times("tasks/get"))
        await eventually(lambda: len(works.times("tasks/get")) > polled + 2, "it is polled")
        works.tasks["build-1"] = done("a house")
        await turn.result()
        facts = [event.fact async for event in turn.events()]

    assert len([fact for fact in facts if isinstance(fact, Polled)]) == 2
