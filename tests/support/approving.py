"""An agent whose calls wait for a person, and decisions about them."""

import asyncio

from perdure import Agent, errors, tool
from perdure.clients import AgentClient, Turn
from perdure.values.approvals import PendingApproval

sent: list[str] = []


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    sent.append(to)
    return f"sent to {to}"


@tool(read_only=True)
def look(number: int = 1) -> str:
    """Look."""
    return f"seen {number}"


@tool
def note(text: str) -> str:
    """Write down."""
    return f"noted {text}"


async def pending(turn: Turn, count: int = 1) -> tuple[PendingApproval, ...]:
    """The calls that wait, as soon as there are any."""
    async with asyncio.timeout(60):
        # history is polled
        while len(found := await turn.pending_approvals()) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return found


async def questions(turn: Turn, count: int = 1) -> tuple[PendingApproval, ...]:
    """The questions that wait, as soon as there are any; jobs of the turn are left out."""
    async with asyncio.timeout(60):
        while True:
            found = tuple(each for each in await turn.pending_approvals() if each.is_question)
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)


def agent(**fields: object) -> Agent:
    """An agent that can send, look and note."""
    return Agent(
        **{"name": "clerk", "model": "scripted:clerk", "tools": [send, look, note], **fields}  # type: ignore[arg-type]
    )


async def begun(client: AgentClient, turn_id: str) -> Turn:
    """A turn of a session that was told to begin, as soon as the server has it."""
    async with asyncio.timeout(60):
        while True:
            try:
                await client.turn(turn_id).check()
                return client.turn(turn_id)
            except errors.TurnNotFoundError:
                await asyncio.sleep(0.05)
