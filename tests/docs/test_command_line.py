"""Run the code blocks of `docs/command-line.md`: its screens on a real terminal, its commands
unchanged.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from perdure import Agent, Budget, Price, Usage, tool
from perdure.clients import AgentClient
from perdure.clients.cli import exits
from perdure.providers import ModelAnswer, ModelRequest
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.messages import UserMessage
from perdure.worker import AgentWorker

from ..support.docs.commands import agrees
from ..support.docs.pages import Block
from ..support.docs.stories import Story
from ..support.docs.until import begins_to_wait, until
from ..support.e2e.terminal import Terminal, terminal
from .conftest import Tell

USED = Usage(input_tokens=1_800, output_tokens=60)
REFUNDS = calls(
    call("refund", ticket="2", euros=300), call("refund", ticket="3", euros=80), usage=USED
)
may_read: set[str] = set()


@tool(read_only=True)
async def read_ticket(number: str) -> str:
    """Read a ticket, when it may be read."""
    while number not in may_read:  # noqa: ASYNC110 - tools run on another loop than the test
        await asyncio.sleep(0.02)
    return "How long is the notice period?"


@tool(requires_approval=True)
def refund(ticket: str, euros: int) -> str:
    """Give money back."""
    return f"{euros} euros for {ticket}"


class Model:
    """Reads a ticket, or gives money back; then it answers."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        assert isinstance(request.messages[0], UserMessage)
        task = request.messages[0].text
        if any(message.role == "assistant" for message in request.messages):
            return await ScriptedModel(says("The notice period is 30 days.", usage=USED)).complete(
                request
            )
        asks = (
            REFUNDS
            if task.startswith("Pay")
            else calls(call("read_ticket", number=task.split()[-1].strip(".")), usage=USED)
        )
        return await ScriptedModel(asks).complete(request)

    async def close(self) -> None:
        """Nothing to close."""


SUPPORT = Agent(name="support", model="main", tools=[read_ticket, refund], on_exhausted="pause")


@asynccontextmanager
async def screen(story: Story, command: str) -> AsyncIterator[Terminal]:
    """A command on a terminal of 80 columns, with its final screen."""
    words = [sys.executable, "-m", *shlex.split(command)]
    with terminal(words, story.terminal.folder, story.terminal.environment) as made:
        yield made


async def shows(watched: Terminal, pattern: str, block: Block) -> None:
    """Wait for this text on the screen, and compare it with the page."""
    await asyncio.to_thread(watched.wait_for, pattern)
    shown = "".join(
        line for line in block.text.splitlines(keepends=True) if not line.startswith("$ ")
    )

    assert agrees(
        re.sub(r", \d+ s\b", ", 0 s", shown), re.sub(r", \d+ s\b", ", 0 s", watched.text)
    ), f"{block}: the screen shows\n{watched.text}"


def typed(block: Block) -> str:
    """The command on the first line."""
    return block.text.splitlines()[0].removeprefix("$ ")


@pytest.mark.slow
async def test_screens_and_commands_are_as_the_page_shows(tell: Tell) -> None:
    """Screens while a turn runs and at its end; without a worker, waiting, paused and after Ctrl-C;
    the list and the JSON lines.
    """
    async with tell("command-line") as story:
        client = await story.works(
            AgentWorker(SUPPORT, prices={"openai:*": Price(input=3, output=15)}), Model()
        )
        await a_turn_is_watched(story)
        await nobody_serves_a_turn(story, client)
        await turns_wait_for_people(story, client)
        await a_turn_is_left_and_cancelled(story)
        await until(lambda: is_listed_as_ended(client, "ticket-4714"), "the list has it")


async def a_turn_is_watched(story: Story) -> None:
    """While its tool runs, and after its end."""
    heading = "How do I start a turn and watch it?"
    block = await story.up_to(heading, "text")
    async with screen(story, typed(block)) as watched:
        await shows(watched, r"runs read_ticket, \d+ s", block)
        may_read.add("4711")
        await asyncio.to_thread(watched.end)
        await shows(watched, "cost", await story.up_to(heading, "text"))


async def nobody_serves_a_turn(story: Story, client: AgentClient) -> None:
    """The message comes within seconds."""
    block = await story.up_to("What if nothing happens?", "text")
    async with screen(
        story, "perdure run support 'Answer ticket 4710.' --id ticket-4710 --task-queue nobody"
    ) as watched:
        await asyncio.to_thread(watched.wait_for, r"module:n\s*ame")
        said = "".join(watched.text.split())
    await client.temporal.get_workflow_handle("ticket-4710").terminate()

    assert "".join(block.text.split()) in said


async def turns_wait_for_people(story: Story, client: AgentClient) -> None:
    """For an approval, and for a budget."""
    heading = "What can I do about a turn that waits?"
    block = await story.up_to(heading, "text")
    async with screen(story, typed(block)) as watched:
        await shows(watched, r"waits for approval, \d+ s", block)
        await story.run(await story.up_to(heading, "console"))
        assert await asyncio.to_thread(watched.end) == 0
    may_read.add("4713")
    paused = await client.start(
        "support", "Answer ticket 4713.", id="ticket-4713", budget=Budget(model_calls=1)
    )
    await begins_to_wait(paused)
    await story.run(await story.up_to(heading, "console"))
    await paused.result()


async def a_turn_is_left_and_cancelled(story: Story) -> None:
    """By Ctrl-C, and by a command."""
    heading = "What happens at Ctrl-C?"
    block = await story.up_to(heading, "text")
    async with screen(
        story, "perdure run support 'Answer ticket 4714.' --id ticket-4714"
    ) as watched:
        await asyncio.to_thread(watched.wait_for, "runs read_ticket")
        watched.type("\x03")
        assert await asyncio.to_thread(watched.end) == exits.INTERRUPTED
        assert agrees(f"…\n{block.text}", watched.text), (
            f"{block}: the screen shows\n{watched.text}"
        )
    await story.run(await story.up_to(heading, "console"))


async def is_listed_as_ended(client: AgentClient, turn_id: str) -> bool:
    """Temporal's list may lag by a second."""
    return any(
        entry.id == turn_id and entry.ended_at
        for entry in [entry async for entry in client.turns()]
    )
