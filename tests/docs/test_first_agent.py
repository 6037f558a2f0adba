"""Run the tutorial `docs/first-agent.md`: a server, a worker, a terminal, and a kill."""

from __future__ import annotations

import signal

import pytest

from ..support.docs.commands import Command, Terminal, commands
from ..support.docs.pages import Block
from ..support.docs.stories import Story
from .conftest import Tell

pytestmark = pytest.mark.slow


def only(block: Block) -> Command:
    """The only command of a block."""
    (command,) = commands(block)
    return command


async def kill_in_the_middle(terminal: Terminal, dev: Command, run: Command) -> None:
    """A server, a worker and a turn that waits while a client follows it, then `kill -9`."""
    async with terminal.stays(dev) as (process, printed):
        terminal.goes_to(printed)
        async with terminal.stays(run) as (watching, _):
            watching.send_signal(signal.SIGINT)
            await watching.wait()
        process.kill()
        await process.wait()


@pytest.mark.accepts("P9")
async def test_first_agent_survives_a_kill_and_waits_for_a_yes(tell: Tell) -> None:
    """Every command of the page prints what the page shows; after the kill the server finds its
    database file, and the turn continues where it was.
    """
    async with tell("first-agent") as story:
        dev, run = (
            only(await story.up_to("Run it", "console")),
            only(await story.up_to("Run it", "console")),
        )
        await kill_in_the_middle(story.terminal, dev, run)
        await story.through("Kill everything")
        async with story.terminal.stays(dev) as (_, printed):
            story.terminal.goes_to(printed)
            await story.through("Say yes")
        await runs_its_test(story)


async def runs_its_test(story: Story) -> None:
    """With the settings on the page."""
    settings = await story.up_to("Test it", "toml")
    (story.terminal.folder / "pyproject.toml").write_text(settings.text, encoding="utf-8")
    await story.through("Test it")
