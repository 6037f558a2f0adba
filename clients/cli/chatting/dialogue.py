"""A conversation on a terminal: lines that are typed, and the turns of the session below them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from rich.text import Text

from perdure.clients.cli.chatting.conversation import ConversationView, remark
from perdure.clients.cli.chatting.keyboard import Keyboard, Typed
from perdure.clients.cli.chatting.session_follower import MOST_CHARACTERS, SessionFollower
from perdure.clients.cli.drawing.hints import CommandHints
from perdure.clients.cli.drawing.screen import fail, note
from perdure.clients.cli.exits import DONE
from perdure.clients.client import AgentClient
from perdure.clients.sessions.handle import Session
from perdure.clients.sessions.readable import SessionStatus
from perdure.clients.sessions.sent import Sent
from perdure.errors import PerdureError
from perdure.session.wire import Disposition, IfBusy
from perdure.text import one_line, word
from perdure.values.messages import AssistantMessage, UserMessage

_RECENT = 4
_PATIENCE_S = 5.0
_HELP = """\
/steer TEXT  send TEXT to the running turn, whose model reads it soon
/now TEXT    interrupt the running turn, and send TEXT
/resume      let messages be read that wait after an interruption
/close       close the session, which then takes no more messages
/quit        leave, as Ctrl-D does; the session stays open
Other lines are messages. If a turn runs, the next one reads them.
Ctrl-C interrupts the running turn; if none runs, it leaves.
Put a space before a message that begins with a slash."""
_DISPOSED = {
    Disposition.QUEUED: "the next turn reads it",
    Disposition.STEERED: "sent to the running turn",
    Disposition.INTERRUPTING: "the running turn is interrupted",
}


@dataclass(frozen=True)
class Hints:
    """Commands to copy: commands for waits, and the command that comes back to the session."""

    commands: CommandHints
    back: str


class Dialogue:
    """Reads lines, sends them as messages, and shows every turn of the session."""

    def __init__(
        self, client: AgentClient, session: Session, agent: str, by: str | None, hints: Hints
    ) -> None:
        self._session = session
        self._agent = agent
        self._by = by
        self._hints = hints
        self._conversation = ConversationView(hints.commands)
        self._keyboard = Keyboard("> ", sys.stderr)
        self._turns = SessionFollower(
            client, session, self._conversation, self._ask, self._keyboard.hide
        )
        self._following: asyncio.Task[None] | None = None
        self._interruption: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[Sent] | None = None

    async def run(self, known: SessionStatus | None) -> int:
        """Have the conversation until the user leaves or the session is closed.

        Raises:
            PerdureError: The session can no longer be followed.
        """
        async with self._leaving_by_keys():
            await self._begin(known)
            while (typed := await self._next()) is not None:
                if typed.was_shown:
                    self._conversation.typed()
                elif typed.line.strip():
                    self._conversation.typed_ahead(typed.line)
                if not await self._take(typed.line):
                    break
            self._say_how_to_come_back()
        return DONE

    @contextlib.asynccontextmanager
    async def _leaving_by_keys(self) -> AsyncIterator[None]:
        """Have Ctrl-C interrupt the running turn; without a turn, or the second time, it leaves."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        loop.add_signal_handler(signal.SIGINT, self._interrupt_or, task)
        try:
            with self._keyboard.taken():
                yield
        except asyncio.CancelledError:
            self._say_how_to_come_back()
            raise
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await _stop(self._following, self._interruption)

    async def _begin(self, known: SessionStatus | None) -> None:
        note(f"session {word(self._session.id)} with {word(self._agent)}; /help lists the commands")
        note(Text(f"to come back: {self._hints.back}", "dim"))
        if known is None:
            self._prompt()
            return
        await self._recall()
        if known.turn is None:
            self._ask(len(known.queue))
        self._follow_after(known.turns - (known.turn is not None))

    def _follow_after(self, turns: int) -> None:
        self._following = asyncio.create_task(self._turns.follow(turns))

    async def _recall(self) -> None:
        """Print the last messages."""
        texts = [
            (is_users, message.brief if isinstance(message, UserMessage) else message.text)
            for message in await self._session.messages()
            if isinstance(message, UserMessage | AssistantMessage)
            for is_users in [isinstance(message, UserMessage)]
        ]
        for is_users, text in [(by, text) for by, text in texts if text.strip()][-_RECENT:]:
            remark("user" if is_users else self._agent, text, MOST_CHARACTERS)

    # --- what is typed

    async def _next(self) -> Typed | None:
        """Return the next line; None at the end of the input or of the session."""
        coming = asyncio.create_task(self._keyboard.next())
        ends = {coming} if self._following is None else {coming, self._following}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if coming.done():
            return coming.result()
        coming.cancel()
        await self._over()
        return None

    async def _over(self) -> None:
        """Wait until the session is closed, and print that."""
        if self._following is not None:
            await self._following
        reason = one_line(self._turns.state.closed or "", 200)
        why = f": {reason}" if reason else ""
        note(f"session {word(self._session.id)} takes no more messages{why}")

    async def _take(self, line: str) -> bool:
        """Send a line or do what it says. Returns False at the end of the conversation."""
        text = line.strip()
        command, _, argument = text.partition(" ")
        if not line.startswith("/"):
            await self._say(text)
            return True
        match command:
            case "/quit":
                return False
            case "/close":
                return await self._close()
            case "/steer" | "/now" if argument.strip():
                await self._say(argument.strip(), "steer" if command == "/steer" else "interrupt")
            case "/resume":
                await self._resume()
            case "/help":
                note(_HELP)
                self._prompt_again()
            case _:
                note(f"{one_line(command, 40)} is no command, or needs a text; /help lists them")
                self._prompt_again()
        return True

    async def _say(self, text: str, if_busy: IfBusy = "queue") -> None:
        if not text:
            self._prompt_again()
            return
        was_idle, message_id = self._turns.is_idle.is_set(), uuid4().hex
        self._turns.typed[message_id] = was_idle
        self._turns.is_idle.clear()
        try:
            sent = await self._sent(
                self._session.say(text, id=message_id, if_busy=if_busy, by=self._by)
            )
        except PerdureError as error:
            self._refused(error, is_idle=was_idle)
            return
        if not was_idle and sent.disposition is not Disposition.STARTED:
            note(Text(_DISPOSED[sent.disposition], "dim"))
        if self._following is None:
            self._follow_after(0)

    async def _sent(self, saying: Coroutine[Any, Any, Sent]) -> Sent:
        """Wait until a message is accepted, and print if that takes long."""
        self._sending = pending = asyncio.create_task(saying)
        try:
            await asyncio.wait({pending}, timeout=_PATIENCE_S)
            if not pending.done():
                note("no worker has accepted the message yet; is one running?")
                await asyncio.wait({pending})
            return pending.result()
        finally:
            await _stop(pending)

    def _refused(self, error: PerdureError, *, is_idle: bool) -> None:
        fail("perdure", error.message)
        if is_idle:
            self._prompt()

    async def _resume(self) -> None:
        try:
            waits = await self._session.resume()
        except PerdureError as error:
            self._refused(error, is_idle=self._turns.is_idle.is_set())
            return
        if waits:
            self._turns.is_idle.clear()
        else:
            note("no message waits")
            self._prompt_again()

    async def _close(self) -> bool:
        """Close the session, and show the running turn until its end."""
        try:
            unread = await self._session.close()
        except PerdureError as error:
            self._refused(error, is_idle=self._turns.is_idle.is_set())
            return True
        for message in unread:
            note(Text(f"not read: {one_line(message.text, 200)}", "yellow"))
        await self._over()
        return False

    # --- the keys

    def _interrupt_or(self, leaving: asyncio.Task[Any]) -> None:
        """Interrupt the running turn. Without a turn, or the second time, leave."""
        is_first = self._interruption is None or self._interruption.done()
        is_unsent = self._sending is not None and not self._sending.done()
        if (
            self._turns.is_idle.is_set()
            or not is_first
            or (is_unsent and not self._turns.state.is_busy)
        ):
            leaving.cancel()
            return
        note(Text("\ninterrupting the turn; Ctrl-C again leaves", "dim"))
        self._interruption = asyncio.create_task(self._interrupt(leaving))

    async def _interrupt(self, leaving: asyncio.Task[Any]) -> None:
        """Interrupt the running turn, and wait for its end."""
        try:
            is_interrupted = await self._session.interrupt("Ctrl-C in perdure chat")
        except PerdureError:
            is_interrupted = False
        if not is_interrupted:
            leaving.cancel()
        await self._turns.is_idle.wait()

    # --- what is printed

    def _prompt(self) -> None:
        """Ask for a line. No turn runs."""
        self._turns.is_idle.set()
        if not self._keyboard.is_ahead:  # a line that was typed ahead is drawn when it is taken
            self._keyboard.ask()

    def _ask(self, waiting: int) -> None:
        """Ask for a line, after the number of messages that wait for it."""
        if waiting:
            noun = "message waits" if waiting == 1 else "messages wait"
            note(f"{waiting} {noun} for your next one; /resume lets them be read now")
        self._prompt()

    def _prompt_again(self) -> None:
        if self._turns.is_idle.is_set():
            self._prompt()

    def _say_how_to_come_back(self) -> None:
        is_begun = self._turns.typed or self._following is not None
        if is_begun and self._turns.state.closed is None:
            note(f"\nsession {word(self._session.id)} stays open; to come back:")
            note(f"  {self._hints.back}")


async def _stop(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and wait for their end, whatever they raise."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
