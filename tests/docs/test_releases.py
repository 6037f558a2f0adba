"""Run the code blocks of `docs/releases.md`."""

from contextlib import AsyncExitStack

import pytest

from perdure import Outcome
from perdure.clients import AgentClient
from perdure.testing.stub_provider import StubProvider

from ..support.approving import pending
from ..support.docs.commands import commands
from ..support.docs.pages import Block
from ..support.docs.stories import Story
from ..support.e2e.stories import asks, says
from ..support.versioned import builds_of
from .conftest import Tell


async def typed(story: Story, block: Block, workers: AsyncExitStack) -> None:
    """Type the commands of a block; the workers go on."""
    for command in commands(block):
        if command.lasts:
            await workers.enter_async_context(story.terminal.stays(command, patience_s=300))
        else:
            await story.terminal.run(command)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.accepts("V22")
async def test_release_and_rollback_go_as_the_page_says(tell: Tell) -> None:
    """With workers of two builds as processes, and a turn that waits all the time."""
    asks_first = asks({"name": "refund", "arguments": {"order": 7}})
    with StubProvider([asks_first, says("Done.")]) as stub:
        async with tell("releases") as story, AsyncExitStack() as workers:
            terminal = story.terminal
            terminal.environment |= {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": stub.base_url}
            client = await AgentClient.connect(terminal.environment["TEMPORAL_ADDRESS"])
            story.given(client=client)
            for _ in range(2):
                block = await story.up_to("Give the workers a build", "console")
                await typed(story, block, workers)
            turn = await story.defining("turn")
            await pending(turn)
            for heading in ("Release",) * 4 + ("Roll back",):
                await typed(story, await story.up_to(heading, "console"), workers)
            report = await story.defining("report")
            builds = await builds_of(client.temporal, turn.id)

    assert (report.outcome, report.output) == (Outcome.COMPLETED, "Done.")
    assert builds == ["v1", "v2", "v1"]
