"""Run the code blocks of `docs/sessions.md`: its screen on a real terminal."""

from __future__ import annotations

import asyncio
import shlex
import sys
import threading

import pytest

from perdure import Agent, Price, Usage, UserMessage, tool
from perdure.clients import Session
from perdure.providers import ModelRequest
from perdure.testing import FunctionModel, Reply, call, calls, says
from perdure.worker import AgentWorker

from ..support.docs.commands import agrees
from ..support.docs.stories import Story
from ..support.docs.until import until
from ..support.e2e.terminal import terminal
from .conftest import Tell

USED = Usage(input_tokens=1_800, output_tokens=60)
begun = threading.Event()
PRICES = {"openai:*": Price(input=3, output=15)}


@tool
async def read_ticket(number: str) -> str:
    """Read a ticket that nobody brings."""
    begun.set()
    await asyncio.Event().wait()
    return number


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Give money back."""
    return f"{euros} euros"


SUPPORT = Agent(name="support", model="main", tools=[read_ticket, refund])


def answer(request: ModelRequest) -> Reply:
    """The reply to the last message of the user, or to a result."""
    asked = [one.text for one in request.messages if isinstance(one, UserMessage)]
    if request.messages[-1].role == "tool":
        return says("I have paid it.", usage=USED)
    if asked[-1].startswith("Pay"):
        return calls(call("refund", euros=30), usage=USED)
    if asked[-1].startswith("Read"):
        return calls(call("read_ticket", number="4712"), usage=USED)
    return says(f"You said: {' '.join(asked)}", usage=USED)


async def are_over(session: Session, count: int) -> bool:
    """Whether the session has recorded this number of turns."""
    return len([one for one in await session.turns() if one.outcome]) == count


async def the_screen_is_shown(story: Story) -> None:
    """On a terminal of 80 columns; the refund is approved from elsewhere."""
    block = await story.up_to("In a terminal", "text")
    command, _, shown = block.text.partition("\n")
    words = [sys.executable, "-m", *shlex.split(command.removeprefix("$ "))]
    with terminal(words, story.terminal.folder, story.terminal.environment) as chat:
        await asyncio.to_thread(chat.wait_for, r"(?m)^>$")
        chat.type("Pay 30 euros.\n")
        await asyncio.to_thread(chat.wait_for, "perdure approvals")
        await story["client"].turn("ticket-4712/1").approve("call_1_1", by="anna")
        await asyncio.to_thread(chat.wait_for, r"(?s)I have paid it.*\n>$")

        assert agrees(shown, chat.text), f"{block}: the screen shows\n{chat.text}"


@pytest.mark.slow  # three commands, each a process
@pytest.mark.accepts("E7", "P32")
async def test_session_is_begun_read_interrupted_closed_and_forked(tell: Tell) -> None:
    """And continued in a terminal and from a pipe, as the page shows."""
    async with tell("sessions") as story:
        client = await story.works(AgentWorker(SUPPORT, prices=PRICES), FunctionModel(answer))
        story.given(client=client)
        await story.through("Begin a session and say something")
        await until(lambda: are_over(story["session"], 3), "all turns are recorded")
        first = await story.up_to("What happens to a message while a turn runs?")
        await story.run(first)
        assert await asyncio.to_thread(begun.wait, 60)
        queued = await story.up_to("What happens to a message while a turn runs?")
        await story.run(queued)
        interrupt = await story.up_to("Interrupt a turn")
        await story.run(interrupt)
        await until(lambda: are_over(story["session"], 4), "the turn is over")
        await story.through("Interrupt a turn")
        await until(lambda: are_over(story["session"], 5), "the turn after it is recorded")
        await story.through("Which agent answers, and whose rules hold")
        await story.through("Close a session or fork it")
        await the_screen_is_shown(story)

    assert story.printed.splitlines() == [
        "You said: How long is the notice period?",
        "True",
        "queued True True",
        "True",
        "support",
        "idle 6 0",
        *(f"ticket-4711/{n} completed 0.0063" for n in (1, 2, 3)),
        "ticket-4711/4 cancelled 0.0063",
        *(f"ticket-4711/{n} completed 0.0063" for n in (5, 6)),
        *("user", "assistant") * 4,
        *("tool", "user", "assistant", "user", "assistant"),
        *("SessionStarted", "MessageSent", "TurnBegan"),
        "You said: How long is the notice period? And for a flat? One more question.",
    ]
