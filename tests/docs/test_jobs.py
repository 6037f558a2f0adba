"""Run the code blocks of `docs/jobs.md`."""

from perdure import Agent, ToolOutcome
from perdure.testing import ScriptedModel, call, calls, says

from ..support.jobs import Service, until_waiting
from .conftest import Tell


async def test_results_are_sent_and_polled(tell: Tell) -> None:
    """A success, a failure, and an image that a poll finds."""
    service = Service()
    async with tell("jobs") as story:
        done = await story.defining("on_build_done")
        failed = await story.defining("on_build_failed")
        image = await story.defining("build_image")
        images = await story.defining("IMAGES")
        agent = Agent(name="builder", model="main", tools=[service.tool("build"), image])
        build = calls(call("build", target="main"))
        model = ScriptedModel(build, build, calls(call("build_image", branch="main")), says("ok"))
        client = await story.works(agent, model)
        turn = await client.start("builder", "Build.")
        await done(client, await service.token(), "shop:4.2")
        await failed(client, await service.token(2), "no space left")
        await until_waiting(turn)
        images["b-main"] = "shop:4.3"
        report = await turn.result()

    results = [result for step in report.steps for result in step.results]
    assert [(result.content, result.outcome) for result in results] == [
        ('{"image":"shop:4.2"}', ToolOutcome.DONE),
        ("no space left", ToolOutcome.FAILED),
        ("shop:4.3", ToolOutcome.DONE),
    ]
