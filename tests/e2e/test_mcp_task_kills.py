"""`kill -9` of a worker while a task of an MCP server runs: another worker goes on with it."""

import pytest

from perdure import ToolOutcome

from ..conftest import eventually
from ..support.e2e.stories import Story, Tell, asks, kill, says

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ..support.approving import questions
from ..support.mcp.task_server import TaskServer, asking, done, needs, task_server

APP = "tests.support.e2e.mcp_tasks_app:make"
BUILD = asks({"name": "works__build", "arguments": {"what": "a house"}})


async def asked_again(story: Story, works: TaskServer) -> None:
    """Wait until the server is asked for the task once more."""
    before = len(works.times("tasks/get"))
    await eventually(lambda: len(works.times("tasks/get")) > before, "it is asked")


@pytest.mark.slow
@pytest.mark.accepts("T71")
async def test_task_outlives_workers_that_are_killed(tell: Tell) -> None:
    """Its id is in history: the task is begun once, and its result is that of the call."""
    story = await tell(BUILD, says("ok"))
    async with task_server() as works:
        environment = {"E2E_WORKS": f"http://127.0.0.1:{works.port}/mcp"}
        await story.worker(APP, **environment)
        turn = await story.start()
        task = await works.first()
        for _ in range(3):
            await asked_again(story, works)
            await kill(story.workers[-1])
            await story.worker(APP, **environment)
        await asked_again(story, works)
        task.update(done("a house of stone"))
        report = await story.report(turn)

    [result] = report.steps[0].results
    assert (result.outcome, result.content) == (ToolOutcome.DONE, "a house of stone")
    assert works.built == [{"what": "a house"}]
    assert len(works.tasks) == 1


@pytest.mark.slow
@pytest.mark.accepts("T79")
@pytest.mark.parametrize("held", ["tasks/get", "tasks/update"])
async def test_answer_outlives_a_worker_that_is_killed_before_or_after_it_is_sent(
    tell: Tell, held: str
) -> None:
    """The server has it once: the next worker sends it, unless the task has it already."""
    story = await tell(BUILD, says("ok"))
    async with task_server() as works:
        environment = {"E2E_WORKS": f"http://127.0.0.1:{works.port}/mcp"}
        works.new = needs(go=asking("Shall I begin?"))
        await story.worker(APP, **environment)
        turn = await story.start()
        [asked] = await questions(turn)
        works.holds = held
        await turn.answer(asked, "accept", by="anna")
        await works.is_held.wait()
        await kill(story.workers[-1])
        await story.worker(APP, **environment)
        report = await story.report(turn)

    [result] = report.steps[0].results
    assert (result.outcome, result.content) == (ToolOutcome.DONE, "a house")
    assert works.answers == [{"go": {"action": "accept", "content": {}}}]
    assert len(works.tasks) == 1
