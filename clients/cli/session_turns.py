"""All turns of a session, shown one after the other, whoever sent their messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from rich.text import Text

from perdure import errors
from perdure.clients.agent_client import AgentClient
from perdure.clients.cli.conversation import Conversation, remark
from perdure.clients.cli.screen import note
from perdure.clients.sessions import Session
from perdure.clients.turn import Turn
from perdure.session.facts import MessageSent, SessionFact, TurnBegan, TurnInterrupted, TurnRecorded
from perdure.session.state import SessionState, apply
from perdure.values.reports import Outcome

MOST_CHARACTERS = 400
"""The length at which a message of a person is cut."""
_NOT_YET_S, _TRIES = 0.05, 100


class SessionTurns:
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
        conversation: Conversation,
        ask: Callable[[int], None],
    ) -> None:
        """`ask` is called with the number of messages that wait, when no turn begins by itself."""
        self.state = SessionState()
        self.is_idle = asyncio.Event()
        self.typed: dict[str, bool] = {}
        self._client = client
        self._session = session
        self._conversation = conversation
        self._ask = ask
        self._interrupts = False

    async def follow(self, seen: int) -> None:
        """Show every turn after the first `seen` ones, until the session is closed."""
        async for event in self._session.events():
            self.state = apply(self.state, event.fact)
            self._note_interruption(event.fact)
            if self.state.count <= seen:
                continue
            if isinstance(event.fact, TurnBegan):
                await self._show(event.fact.turn_id)
            elif isinstance(event.fact, TurnRecorded) and self.state.running is None:
                self._pause()

    def _note_interruption(self, fact: SessionFact) -> None:
        """Note whether the running turn was interrupted by a message, which is read next."""
        match fact:
            case MessageSent(if_busy="interrupt"):
                self._interrupts = self.state.is_busy
            case TurnBegan() | TurnInterrupted():
                self._interrupts = False

    async def _show(self, turn_id: str) -> None:
        """Show a turn, after the messages that were not typed just before it."""
        self.is_idle.clear()
        for one in self.state.given:
            was_just_typed = self.typed.get(one.id)
            if not was_just_typed:
                name = one.by or "user" if was_just_typed is None else "you"
                remark(name, one.text, MOST_CHARACTERS)
        turn = await self._turn(turn_id)
        await self._conversation.show(turn, self._client.get)

    async def _turn(self, turn_id: str) -> Turn[Any]:
        """Return a turn that the session has begun; it exists a moment later."""
        for _ in range(_TRIES):
            with contextlib.suppress(errors.TurnNotFoundError):
                return await self._client.get(turn_id)
            await asyncio.sleep(_NOT_YET_S)
        return await self._client.get(turn_id)

    def _pause(self) -> None:
        """Ask for the next line, unless another turn begins at once."""
        state = self.state
        is_parked = state.turns[-1].outcome is Outcome.CANCELLED and not self._interrupts
        goes_on = state.queue and not is_parked and not state.is_spent
        if goes_on or state.closed is not None:
            return
        if state.is_spent:
            note(Text("the budget of the session is spent", "yellow"))
        self._ask(len(state.queue))
