"""Sessions, their models, and the moments at which they are idle."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

from perdure.activities.provider import ModelRequest
from perdure.clients import Session
from perdure.session.facts import TurnRecorded
from perdure.testing import ScriptedModel
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Message, UserMessage

from ..conftest import RecordingClient
from .spending import SOON_S


def texts(messages: Sequence[Message]) -> list[str]:
    """What the user and the model have said."""
    return [
        message.text
        for message in messages
        if isinstance(message, UserMessage | AssistantMessage) and message.text
    ]


def session_of(client: RecordingClient, **given: Any) -> Session:
    return client.session(f"chat-{secrets.token_hex(4)}", "spender", **given)


async def until_recorded(session: Session, turns: int) -> tuple[Message, ...]:
    """The messages of a session after so many turns."""
    count = 0
    async for event in session.events():
        if isinstance(event.fact, TurnRecorded) and event.fact.part and event.fact.part.end:
            count += 1
        if count == turns:
            break
    return await session.messages()


class Paced(ScriptedModel):
    """A model whose calls are held until each is let go; `begun` counts them."""

    def __init__(self, *replies: Any) -> None:
        super().__init__(*replies)
        self.begun = asyncio.Semaphore(0)
        self.free = asyncio.Semaphore(0)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        answer = await super().complete(request)
        self.begun.release()
        await self.free.acquire()
        return answer

    def let_go(self, calls: int = 1) -> None:
        """Let so many calls answer."""
        for _ in range(calls):
            self.free.release()


async def until_idle(session: Session) -> None:
    """Wait until no turn of a session runs."""
    async with asyncio.timeout(SOON_S):
        while (await session.status()).state != "idle":  # noqa: ASYNC110 - read from history
            await asyncio.sleep(0.1)
