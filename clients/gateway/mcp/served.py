"""The turns that an MCP server offers, and access to them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from perdure import errors
from perdure.clients.client import AgentClient
from perdure.clients.gateway.mcp.turn_view import TurnView, view
from perdure.clients.reading.live_text import Piece
from perdure.clients.reading.tree_text import TurnText
from perdure.clients.turns.changes import Change
from perdure.clients.turns.handle import Turn
from perdure.clients.turns.status import TurnStatus, in_words
from perdure.temporal import access
from perdure.temporal.encryption import data_keys
from perdure.temporal.histories.fetching import first_request
from perdure.text import one_line, word
from perdure.turn import withheld
from perdure.turn.state import TurnState
from perdure.turn.wire import TurnRequest
from perdure.values.approvals import PendingApproval

Tell = Callable[[float, float, str], Awaitable[None]]
"""Called with the elapsed seconds, the seconds available, and a description of the progress."""

Permission = Literal["read", "start", "control", "decide", "budget"]
"""What a caller may do; the same as over HTTP."""

LONGEST_WAIT = timedelta(minutes=10)
"""The longest time that a tool waits for a turn."""

_GONE_ON = (
    "; a person settles a call of a turn that has gone on with `perdure settle`, over HTTP, or on"
    " the page"
)
_TICK_S, _TEXT_TICK_S = 0.5, 0.1
_SHOWN_CHARACTERS = 160
"""The end of the text that is being generated, in a message of progress."""
_SILENCE_S = 10.0


class ForbiddenError(Exception):
    """The caller lacks a permission."""


@dataclass(frozen=True)
class Served:
    """The turns of all agents, or of some of them. `agents` is empty for all.

    The caller is the user of this machine, who may do everything. A gateway overrides what differs
    for its callers.
    """

    client: AgentClient
    agents: frozenset[str] = frozenset()

    @property
    def longest_wait(self) -> timedelta:
        """The longest time that a call waits for a turn."""
        return LONGEST_WAIT

    @property
    def id_prefix(self) -> str | None:
        """The beginning of the ids that the caller sees; None if it sees all."""
        return None

    @property
    def fairness(self) -> str | None:
        """The fairness key of turns that the caller starts."""
        return None

    def may(self, permission: Permission) -> bool:
        """Whether the caller has a permission."""
        return True

    def require(self, permission: Permission) -> None:
        """Refuse a call that needs a permission that the caller lacks.

        Raises:
            ForbiddenError: It does.
        """
        if not self.may(permission):
            raise ForbiddenError(f"this needs the permission {permission!r}")

    @property
    def has_subjects(self) -> bool:
        """Whether turns may have a data subject, for which there have to be keys."""
        return data_keys.of(self.client.temporal.data_converter.payload_codec) is not None

    def own(self, turn_id: str) -> str:
        """Return the complete id for an id that the caller gives, or for a data subject."""
        return turn_id

    def new_id(self, agent: str, own_id: str | None) -> str | None:
        """Return the complete id of a turn to start; None for one that the client makes."""
        return own_id

    async def check_turns(self, turn_id: str | None) -> None:
        """Refuse to start another turn if the caller has too many."""

    def name_of(self, program: str) -> str:
        """Return the name that decisions are recorded with. `program` is that of the client."""
        return program

    def stay_open(self) -> AbstractContextManager[None]:
        """Count a call that waits during a block."""
        return contextlib.nullcontext()

    def in_words(self, error: Exception) -> str | None:
        """Return what the caller is told of an error; None for an error of the server itself."""
        match error:
            case errors.PerdureError():
                return f"{error.code}: {error.message}"
            case ForbiddenError():
                return f"FORBIDDEN: {error}"
            case _:
                return None

    def offers(self, agent: str) -> bool:
        """Whether turns of this agent are served."""
        return not self.agents or agent in self.agents

    def check(self, agent: str) -> None:
        """Check that turns of this agent may be started.

        Raises:
            UnknownAgentError: The agent is not served.
        """
        if not self.offers(agent):
            raise errors.UnknownAgentError(
                f"this server offers {self._names}, and no agent {agent!r}"
            )

    async def turn(self, turn_id: str) -> tuple[Turn[Any], TurnView]:
        """Return a turn and its status.

        Raises:
            TurnNotFoundError: There is no such turn, or its agent is not served.
            ServerUnreachableError: Temporal does not answer.
        """
        turn = self.client.turn(self.own(turn_id))
        return turn, await self.look(turn)

    async def look(self, turn: Turn[Any]) -> TurnView:
        """Return the status of a turn, as tools return it.

        Raises:
            PerdureError: As `status` does.
        """
        return view(await self.status(turn))

    async def status(self, turn: Turn[Any]) -> TurnStatus:
        """Return the status of a turn.

        Raises:
            TurnNotFoundError: Its agent is not served.
            ServerUnreachableError: Temporal does not answer.
        """
        if self.agents and not self.offers(await self._root_agent(turn)):
            raise errors.TurnNotFoundError(
                f"the agent of turn {turn.id!r} is not one that this server offers: {self._names}"
            )
        return await turn.status()

    async def waiting(
        self, turn_id: str, call: str, digest: str, *, to_settle: bool = False
    ) -> PendingApproval:
        """Return a call that waits for a person, with the reviewed arguments.

        `to_settle` says that it is to be settled, for the error.

        Raises:
            ApprovalConflictError: The call does not wait, or has other arguments.
            PerdureError: As `turn` does.
        """
        turn, _ = await self.turn(turn_id)
        pending = {approval.call_id: approval for approval in await turn.pending_approvals()}
        approval = pending.get(call)
        if approval is None:
            raise errors.ApprovalConflictError(
                f"no call {call!r} of turn {turn.id!r} waits for approval (waiting:"
                f" {', '.join(map(word, pending)) or 'none'}){_GONE_ON if to_settle else ''}"
            )
        if approval.token != digest:
            raise errors.ApprovalConflictError(
                f"call {call!r} is not the one with digest {digest!r}: it has other arguments, or"
                " the turn was started again; look at the turn again"
            )
        return approval

    @property
    def _names(self) -> str:
        return ", ".join(sorted(self.agents))

    async def _root_agent(self, turn: Turn[Any]) -> str:
        """Return the agent of a turn, or of the turn at the root of its tree."""
        request = await self._request_of(turn)
        if request.lineage is None:
            return request.agent
        root = self.client.turn(request.lineage.ancestors[0].turn_id)
        return (await self._request_of(root)).agent

    async def _request_of(self, turn: Turn[Any]) -> TurnRequest:
        """Return the input of a turn.

        Raises:
            PerdureError: The server does not have the turn, or does not answer.
        """
        reading = first_request(self.client.temporal, turn.id, await turn.first_run())
        request, _ = await access.TURN.asked(turn.id, reading)
        return request


class TurnWatch:
    """Follows a turn until it is over or needs a person, and reports progress to the client.

    Many clients abandon a call that reports no progress.
    """

    def __init__(self, served: Served, turn: Turn[Any]) -> None:
        self._served = served
        self._turn = turn
        self._state = TurnState()
        self._speaker, self._said = "", ""

    async def wait(self, seconds: float, tell: Tell) -> None:
        """Wait for at most this number of seconds."""
        began, last_message, told_at = time.monotonic(), "", 0.0
        task = asyncio.create_task(self._follow())
        try:
            while not task.done() and (waited := time.monotonic() - began) < seconds:
                message = self._message()
                if message != last_message or waited - told_at >= _SILENCE_S:
                    await tell(round(waited, 1), seconds, message)
                    last_message, told_at = message, waited
                tick_s = _TEXT_TICK_S if self._said else _TICK_S
                await asyncio.wait({task}, timeout=min(tick_s, seconds - waited))
            if task.done():
                task.result()
        finally:
            task.cancel()

    def _message(self) -> str:
        """Return what the turn does, with the end of the last text that is being generated."""
        done = f"{self._state.step_count} steps done; {in_words(self._state)}"
        if not self._said:
            return one_line(done, 200)
        speaker = f"; {self._speaker}" if self._speaker else ""
        end = self._said[-_SHOWN_CHARACTERS:]
        told = f"{done}{speaker}: {'…' * (end != self._said)}{end}"
        return one_line(told, 200 + _SHOWN_CHARACTERS)

    async def _follow(self) -> None:
        changing = self._turn.changes_and_text(delegates=True)
        async with contextlib.aclosing(changing):
            async for change in changing:
                match change:
                    case Change():
                        self._said, self._state = "", change.state
                        if change.needs_person:
                            return
                    case TurnText(turn_id=turn_id, piece=piece):
                        self._hear(turn_id.removeprefix(f"{self._turn.id}/"), piece)
                    case _:
                        self._hear("", change)

    def _hear(self, speaker: str, piece: Piece) -> None:
        """Take in text of the turn, or of one below it whose name is the speaker's."""
        if not withheld.may_stream(self._state):
            return
        if speaker != self._speaker or not isinstance(piece, str):
            self._speaker, self._said = speaker, ""
        if isinstance(piece, str):
            self._said += piece
