"""Agents that need every kind of activity: `python -m perdure worker
tests.support.e2e.kinds_app:make`.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

from perdure import (
    Agent,
    Allow,
    InputGuardrail,
    MCPServer,
    OutcomeUnknown,
    Registry,
    ToolContext,
    TurnInfo,
    tool,
)
from perdure.activities.providers import OpenAIChat
from perdure.agents.observers import Observer
from perdure.toolboxes import waiting
from perdure.worker import AgentWorker

from .app import AGENT, fetch, find_in_journal, note
from .gate import CONVERTER

HIRED = "hired"
SERVER = Path(__file__).parents[2] / "support/mcp/raw_server.py"
INSTRUCTIONS = "Do as told."


@tool(idempotent=True)
async def bring(ctx: ToolContext[None], what: str) -> str:
    """A tool of a factory, so it is unknown when the worker starts."""
    note(ctx, what)
    return f"{what} brought"


@tool(idempotent=True)
def carry(ctx: ToolContext[None], what: str) -> str:
    """The same, in a thread."""
    note(ctx, what)
    return f"{what} carried"


@tool(effect=["what"], verify=find_in_journal)
async def order(ctx: ToolContext[None], what: str) -> str:
    """A tool whose answer is always lost."""
    note(ctx, what)
    raise OutcomeUnknown("no answer")


def look(handle: str) -> str:
    """Ask for the result of a job."""
    return f"{handle} is done"


def stop(handle: str) -> None:
    """Cancel a job."""


@tool(later=True, poll=look, poll_every=timedelta(seconds=1))
async def launch(ctx: ToolContext[None], what: str) -> str:
    """A tool whose job is done when it is asked for."""
    note(ctx, what)
    return what


@tool(later=True, cancel=stop)
async def linger(ctx: ToolContext[None], what: str) -> str:
    """A tool whose job is never done."""
    note(ctx, what)
    return what


def hired(info: TurnInfo) -> Agent:
    """An agent that is made for each turn."""
    return Agent(
        name=HIRED,
        model="stub:hired",
        instructions=INSTRUCTIONS,
        tools=[bring, carry, order, launch, linger],
        toolboxes=[waiting()],
        delegates=[AGENT],
    )


def make() -> AgentWorker:
    """The worker."""
    notes = os.environ["E2E_NOTES"]
    clerk = Agent(
        name=AGENT,
        model="stub:clerk",
        instructions=INSTRUCTIONS,
        tools=[fetch],
        toolboxes=[
            MCPServer.stdio("notes", [sys.executable, "-S", str(SERVER), notes], trusted=True)
        ],
        policy=lambda _: Allow(),
        middleware=[InputGuardrail(lambda _: True)],
        observers=[Observer()],
    )
    provider = OpenAIChat(base_url=os.environ["E2E_PROVIDER"], api_key_env=None, name="stub")
    return AgentWorker(
        Registry([clerk, hired]), providers={"stub": provider}, data_converter=CONVERTER
    )
