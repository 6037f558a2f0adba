"""A message that a session has accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from perdure.base import T
from perdure.clients.turns.handle import Turn
from perdure.session.wire import Disposition, Receipt
from perdure.values.reports import AgentReport

if TYPE_CHECKING:
    from perdure.clients.sessions.handle import Session


class Sent(Generic[T]):
    """A message that a session has accepted.

    Attributes:
        id: The id of the message.
        disposition: What the session does with it: `started`, `queued`, `steered` or
            `interrupting`.
        turn_id: The id of the turn that reads it. For a message that is queued, or that waits for
            an interrupted turn to end, that turn begins later. If a turn that is not of the session
            has that id, the session chooses another id, and `turn()` returns its turn.
    """

    def __init__(
        self, session: Session[Any], message_id: str, receipt: Receipt, output: Any
    ) -> None:
        self.id = message_id
        self.disposition: Disposition = receipt.disposition
        self.turn_id = receipt.turn_id
        self._session = session
        self._output = output

    def __repr__(self) -> str:
        return f"Sent({self.id!r}, {self.disposition}, turn_id={self.turn_id!r})"

    async def turn(self) -> Turn[T]:
        """Return the turn that reads the message, as soon as it has begun.

        Raises:
            SessionClosedError: The session was closed before, or the message was taken out of the
                queue.
        """
        return (await self._session.turn_of(self.id)).typed(self._output)

    async def result(self) -> AgentReport[T]:
        """Wait for the end of that turn and return its report, as `Turn.result` does."""
        return await (await self.turn()).result()
