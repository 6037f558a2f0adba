"""Run the code blocks of `docs/waiting.md`."""

from datetime import timedelta
from pathlib import Path

import pytest

from perdure.events import WaitBegan
from perdure.testing import ScriptedModel, call, calls, says, skip_time

from ..support.docs.pages import page
from ..support.docs.stories import Story
from ..support.spending import until

DAY = timedelta(days=1)


@pytest.mark.slow
async def test_job_runs_for_a_week(perdure_server: str, tmp_path: Path) -> None:
    """It waits for the event of the page, and then looks once a day."""
    look = calls(call("error_rate", service="shop"))
    sleep = calls(call("wait", seconds=24 * 3600, note="the next look"))
    deployed = calls(call("wait_for", event="deployed", note="the deploy"))
    built_4711 = calls(call("wait_for", event="build_finished", key="4711", note="the build"))
    remind = calls(call("remind", at="P1D", text="Look at release 42."))
    model = ScriptedModel(
        deployed,
        *[look, sleep] * 7,
        says("The release is fine."),
        deployed,
        says("It is deployed."),
        built_4711,
        says("It is built."),
        remind,
        says("I will."),
    )

    # on the server that skips time
    async with Story(page("waiting"), tmp_path, perdure_server) as story:
        releaser = await story.defining("releaser")
        send = await story.defining("deployed")
        client = await story.works(releaser, model)
        turn = await client.start("releaser", "Watch release 41.")
        await until(turn, WaitBegan)
        await send(client, turn.id)
        await until(turn, WaitBegan, 2)
        await skip_time(client, turn, 7 * DAY + timedelta(hours=1))
        report = await turn.result()
        # for the command of the page, which runs before the block after it
        other = await client.start("releaser", "Watch.", id="release-42")
        await until(other, WaitBegan)
        build_finished = await story.defining("build_finished")
        await other.result()
        builder = await client.start("releaser", "Watch the build.", id="build-4711")
        await until(builder, WaitBegan)
        await build_finished(client, 4711)
        built = await builder.result()
        forget_all = await story.defining("forget_all")
        session = client.session("chat-42", "releaser")
        await (await session.say("Remind me.")).result()
        printed = await story.prints(forget_all(session))
        left = (await session.status()).reminders

    results = [result.content for step in report.steps for result in step.results]
    assert report.output == "The release is fine."
    assert results[0].endswith('{"version":"4.2"}')
    assert results[2].startswith("Waited 1 d, until ")
    assert built.steps[0].results[0].content.endswith('{"ok":true}')
    assert report.duration > 7 * DAY
    assert printed.endswith("Look at release 42.\n")
    assert left == ()
