"""The agents of the walk over a release and a rollback: one that sends with an approval, one that
delegates to it, one that talks, and one for the tasks of a batch.

A worker is a separate process: `python -m perdure worker tests.support.e2e.deploy_app:make`. Its
build is in `PERDURE_BUILD_ID`, and its code differs by it: other instructions, and answers that
name the build. Every effect is a line in the journal.
"""

import asyncio
import os
from pathlib import Path

from perdure import Agent, Delegate, ToolContext, tool
from perdure.activities.provider import Heard, ModelRequest
from perdure.testing import FunctionModel, Reply, call, calls, says
from perdure.values.answers import ModelAnswer
from perdure.values.messages import ToolMessage, UserMessage
from perdure.worker import AgentWorker

from .app import find_in_journal, note

HELD_FROM = 20
BUILD = os.environ.get("PERDURE_BUILD_ID", "none")


@tool(effect=["what"], verify=find_in_journal, requires_approval=True)
async def send(ctx: ToolContext[None], what: str) -> str:
    """Have an effect that a person allows, and that takes a moment."""
    note(ctx, what)
    await asyncio.sleep(0.3)
    return f"sent {what}"


@tool(effect=["what"], verify=find_in_journal)
async def book(ctx: ToolContext[None], what: str) -> str:
    """Have an effect that takes a moment."""
    note(ctx, what)
    await asyncio.sleep(0.2)
    return f"booked {what}"


class Played:
    """A model that decides by the agent and by what was said."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer, once nothing holds the request."""
        while _is_held(request):  # noqa: ASYNC110 - a file of another process
            await asyncio.sleep(0.1)
        return await FunctionModel(_reply).complete(request)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Answer."""
        return await self.complete(request)

    async def close(self) -> None:
        """Do nothing."""


def _is_held(request: ModelRequest) -> bool:
    """Return whether the task of a batch waits for the file `open`: those from 20 on do."""
    (task, *_) = (each.text for each in request.messages if isinstance(each, UserMessage))
    number = task.removeprefix("task ")
    is_late = number.isdecimal() and int(number) >= HELD_FROM
    return is_late and not Path(os.environ["E2E_JOURNAL"]).with_name("open").exists()


def _reply(request: ModelRequest) -> Reply:
    texts = [each.text for each in request.messages if isinstance(each, UserMessage)]
    is_done = any(isinstance(message, ToolMessage) for message in request.messages)
    match request.model.rpartition(":")[2]:
        case "talker":
            return says(f"{BUILD} heard {' '.join(texts)}")
        case _ if is_done:
            return says(f"{texts[-1]} is done")
        case "lead":
            return calls(call("delegate_to_agent", agent="sender", task=texts[-1]))
        case "sender":
            return calls(call("send", what=texts[-1]))
        case _:
            return calls(call("book", what=texts[-1]))


def make() -> AgentWorker:
    """The worker of this build."""
    says_build = f"You are of build {BUILD}."
    sender = Agent(name="sender", model="played:sender", tools=[send], instructions=says_build)
    lead = Agent(name="lead", model="played:lead", delegates=[Delegate("sender")])
    talker = Agent(name="talker", model="played:talker", instructions=says_build)
    booker = Agent(name="booker", model="played:booker", tools=[book], instructions=says_build)
    return AgentWorker([sender, lead, talker, booker], providers={"played": Played()})
