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
from perdure.clients.cli.chatting.keyboard import InputLines
from perdure.clients.cli.common import Display, sender
from perdure.clients.cli.drawing.hints import CommandHints
from perdure.clients.cli.drawing.json_lines import tell
from perdure.clients.cli.drawing.screen import note
from perdure.clients.cli.exits import DONE
from perdure.clients.cli.running.following import conclude, follower
from perdure.clients.client import AgentClient
from perdure.clients.sessions.handle import Session
from perdure.clients.sessions.readable import SessionStatus
from perdure.text import one_line, word


@dataclass(frozen=True)
class ChatOptions:
    """The options of `perdure chat`.

    Attributes:
        agent: The name of the agent.
        session_id: The id of the session; None for a new session.
        session_options: The options of a session that is begun.
        by: The sender's name from the command line.
        as_json: Whether to print lines of JSON.
        address: The server's address from the command line, for suggested commands.
    """

    agent: str
    session_id: str | None
    session_options: Mapping[str, Any]
    by: str | None
    as_json: bool
    address: str | None

    def to_come_back(self, session_id: str) -> str:
        """Return the command that continues a session."""
        named = {} if self.by is None else {"by": self.by}
        return CommandHints(self.address).of("chat", self.agent, session=session_id, **named)


async def chat(client: AgentClient, options: ChatOptions) -> int:
    """Have the conversation, and return the exit code.

    Raises:
        PerdureError: The session cannot continue, or a message of a pipe has no answer.
    """
    session_id = options.session_id or f"{options.agent}-{secrets.token_hex(4)}"
    session = client.session(session_id, options.agent, live=True, **options.session_options)
    known = await _status(session, options) if options.session_id else None
    if known and any(options.session_options.values()):
        note(f"session {word(session.id)} exists; limits, labels and idle time stay as they are")
    if options.as_json or sys.stdin is None or not sys.stdin.isatty():
        return await _answer_lines(client, session, options)
    hints = Hints(CommandHints(options.address), options.to_come_back(session.id))
    return await Dialogue(client, session, options.agent, sender(options.by), hints).run(known)


async def _status(session: Session, options: ChatOptions) -> SessionStatus | None:
    """Return the status of a session that exists; None if there is none.

    Raises:
        SessionClosedError: It is closed.
        TurnConflictError: It belongs to another agent.
    """
    try:
        status = await session.status()
    except errors.SessionNotFoundError:
        return None
    if status.state == "closed":
        raise errors.SessionClosedError(
            f"session {word(session.id)} is closed; choose another id for a new one",
            context={"session_id": session.id},
        )
    if status.agent != options.agent:
        raise errors.TurnConflictError(
            f"session {word(session.id)} belongs to the agent {word(status.agent)}, and not to"
            f" {one_line(options.agent, 100)}; choose another id",
            context={"session_id": session.id},
        )
    return status


async def _answer_lines(client: AgentClient, session: Session, options: ChatOptions) -> int:
    """Send each line when the line before is answered; return the first exit code that is not 0.

    Raises:
        PerdureError: A message was refused, or has no answer.
    """
    _introduce(session, options.as_json)
    lines, code = InputLines(), DONE
    try:
        while (line := await lines.next()) is not None:
            if line.strip():
                code = await _answer(client, session, line.strip(), options) or code
    except asyncio.CancelledError:
        note(f"session {word(session.id)} stays open; to come back:")
        note(f"  {options.to_come_back(session.id)}")
        raise
    return code


def _introduce(session: Session, as_json: bool) -> None:
    if as_json:
        tell({"session": session.id, "kind": "session"})
    else:
        note(f"session {word(session.id)}")


async def _answer(client: AgentClient, session: Session, text: str, options: ChatOptions) -> int:
    sent = await session.say(text, by=sender(options.by))
    turn = await sent.turn()
    if options.as_json:
        tell({"session": session.id, "kind": "sent", "message": sent.id, "turn": turn.id})
    printer = follower(
        Display(as_json=options.as_json, address=options.address, outlives=False), answers=True
    )
    printer.start(turn)
    await printer.follow(turn, client.turn)
    return await conclude(turn, printer)
