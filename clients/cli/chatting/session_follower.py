"""All turns of a session, shown in order, no matter who sent their messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rich.text import Text

from perdure.clients.cli.chatting.conversation import ConversationView, remark
from perdure.clients.cli.drawing.screen import note
from perdure.clients.client import AgentClient
from perdure.clients.sessions.handle import Session
from perdure.session.facts import TurnBegan, TurnRecorded
from perdure.session.state import SessionState, apply

MOST_CHARACTERS = 400
"""The length at which a message of a person is cut."""


class SessionFollower:
    """Follows a session and shows its turns.

    Attributes:
        state: The state of the session, as far as its events were read.
        is_idle: Whether no turn runs or is about to begin.
        typed: The messages that were typed here, by id: whether no turn ran then.
    """

    def __init__(
        self,
        client: AgentClient,
        session: Session,
        conversation: ConversationView,
        ask: Callable[[int], None],
        hide: Callable[[], None],
    ) -> None:
        """Follow nothing yet.

        `ask` is called with the number of messages that wait, when no turn begins by itself, and
        `hide` before a turn is shown.
        """
        self.state = SessionState()
        self.is_idle = asyncio.Event()
        self.typed: dict[str, bool] = {}
        self._client = client
        self._session = session
        self._conversation = conversation
        self._ask = ask
        self._hide = hide

    async def follow(self, seen: int) -> None:
        """Show every turn after the first `seen` turns, until the session is closed."""
        async for event in self._session.events():
            self.state = apply(self.state, event.fact)
            if self.state.count <= seen:
                continue
            if isinstance(event.fact, TurnBegan):
                await self._show(event.fact.turn_id)
            elif isinstance(event.fact, TurnRecorded) and self.state.running is None:
                self._pause()

    async def _show(self, turn_id: str) -> None:
        """Show a turn, after the messages that were not typed just before it."""
        self.is_idle.clear()
        turn = await self._session.begun(turn_id)
        if turn is None:
            return  # the session starts its turn with another id
        self._hide()
        for message in self.state.given:
            was_just_typed = self.typed.get(message.id)
            if not was_just_typed:
                name = message.by or "user" if was_just_typed is None else "you"
                remark(name, message.text, MOST_CHARACTERS)
        await self._conversation.show(turn, self._client.turn)

    def _pause(self) -> None:
        """Ask for the next line, unless another turn begins at once."""
        state = self.state
        if state.may_start or state.closed is not None:
            return
        if state.is_spent:
            note(Text("the budget of the session is spent", "yellow"))
        self._ask(len(state.queue))
