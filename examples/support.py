"""An agent with tools of its own, as the README defines it: `perdure dev examples.support:app`."""

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from perdure import Agent, Registry, ToolContext, tool
from perdure.worker import AgentWorker


@dataclass
class Deps:
    tickets: dict[str, str] = field(
        default_factory=lambda: {"4711": "How long is the notice period?"}
    )


@tool(timeout=timedelta(seconds=20), read_only=True)
async def read_ticket(ctx: ToolContext[Deps], number: str) -> str:
    """Read a ticket.

    Args:
        number: The ticket's number, such as 4711.
    """
    return ctx.deps.tickets[number]


@tool
async def close_ticket(ctx: ToolContext[Deps], number: str) -> str:
    """Close a ticket."""
    return f"closed {ctx.deps.tickets.pop(number)!r}, once, under {ctx.idempotency_key}"


@asynccontextmanager
async def lifespan():  # opened once a worker process; reaches tools as ctx.deps
    yield Deps()


support = Agent(
    name="support",
    description="Answers tickets",
    instructions="Read the ticket, answer it, and close it when it is answered.",
    model="main",
    tools=[read_ticket, close_ticket],
    max_iterations=10,
)
app = AgentWorker(Registry([support]), lifespan=lifespan, models={"main": "openai:gpt-5-mini"})
