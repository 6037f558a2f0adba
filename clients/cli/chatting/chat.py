"""`perdure chat`: a session, from a terminal or from the lines of a pipe."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure import errors
from perdure.clients.cli.chatting.dialogue import Dialogue, Hints
from perdure.clients.cli.chatting.keyboard import Lines
from perdure.clients.cli.decisions import by_of
from perdure.clients.cli.drawing.hints import Commands
from perdure.clients.cli.drawing.json_lines import tell
from perdure.clients.cli.drawing.screen import note
from perdure.clients.cli.exits import DONE
from perdure.clients.cli.follow import View, conclude, follower
from perdure.clients.client import AgentClient
from perdure.clients.sessions.handle import Session, SessionStatus
from perdure.text import one_line, word


@dataclass(frozen=True)
class Asked:
    """What the command was asked for.

    Attributes:
        agent: The name of the agent.
        session_id: The id of the session; None for a new one.
        given: The options of a session that is begun.
        by: The sender's name from the command line.
        as_json: Whether to print lines of JSON.
        address: The server's address from the command line, for suggested commands.
    """

    agent: str
    session_id: str | None
    given: Mapping[str, Any]
    by: str | None
    as_json: bool
    address: str | None

    def to_come_back(self, session_id: str) -> str:
        """Return the command that goes on with a session."""
        named = {} if self.by is None else {"by": self.by}
        return Commands(self.address).of("chat", self.agent, session=session_id, **named)


async def chat(client: AgentClient, asked: Asked) -> int:
    """Have the conversation, and return the exit code.

    Raises:
        PerdureError: The session cannot go on, or a message of a pipe has no answer.
    """
    session_id = asked.session_id or f"{asked.agent}-{secrets.token_hex(4)}"
    session = client.session(session_id, asked.agent, live=True, **asked.given)
    known = await _status(session, asked) if asked.session_id else None
    if known and any(asked.given.values()):
        note(f"session {word(session.id)} exists; limits, labels and idle time stay as they are")
    if asked.as_json or sys.stdin is None or not sys.stdin.isatty():
        return await _answer_lines(client, session, asked)
    hints = Hints(Commands(asked.address), asked.to_come_back(session.id))
    return await Dialogue(client, session, asked.agent, by_of(asked.by), hints).run(known)


async def _status(session: Session, asked: Asked) -> SessionStatus | None:
    """Return the status of a session that exists; None if there is none.

    Raises:
        SessionClosedError: It is closed.
        TurnConflictError: It belongs to another agent.
    """
    try:
        found = await session.status()
    except errors.SessionNotFoundError:
        return None
    if found.state == "closed":
        raise errors.SessionClosedError(
            f"session {word(session.id)} is closed; choose another id for a new one",
            context={"session_id": session.id},
        )
    if found.agent != asked.agent:
        raise errors.TurnConflictError(
            f"session {word(session.id)} belongs to the agent {word(found.agent)}, and not to"
            f" {one_line(asked.agent, 100)}; choose another id",
            context={"session_id": session.id},
        )
    return found


async def _answer_lines(client: AgentClient, session: Session, asked: Asked) -> int:
    """Send each line when the one before is answered; return the first exit code that is not 0.

    Raises:
        PerdureError: A message was refused, or has no answer.
    """
    _introduce(session, asked.as_json)
    lines, code = Lines(), DONE
    try:
        while (line := await lines.next()) is not None:
            if line.strip():
                code = await _answer(client, session, line.strip(), asked) or code
    except asyncio.CancelledError:
        note(f"session {word(session.id)} stays open; to come back:")
        note(f"  {asked.to_come_back(session.id)}")
        raise
    return code


def _introduce(session: Session, as_json: bool) -> None:
    if as_json:
        tell({"session": session.id, "kind": "session"})
    else:
        note(f"session {word(session.id)}")


async def _answer(client: AgentClient, session: Session, text: str, asked: Asked) -> int:
    sent = await session.say(text, by=by_of(asked.by))
    turn = await sent.turn()
    if asked.as_json:
        tell({"session": session.id, "kind": "sent", "message": sent.id, "turn": turn.id})
    telling = follower(
        View(as_json=asked.as_json, address=asked.address, outlives=False), answers=True
    )
    telling.start(turn)
    await telling.follow(turn, client.turn)
    return await conclude(turn, telling)
