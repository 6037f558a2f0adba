"""A connection that is being made: to await, or to enter as a block at whose end it is closed."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from perdure.temporal.connect import disconnect

if TYPE_CHECKING:
    from perdure.clients.client import AgentClient


class Connecting(Coroutine[Any, Any, "AgentClient"]):
    """What `AgentClient.connect` returns, a coroutine that is also an async context manager."""

    def __init__(self, connecting: Coroutine[Any, Any, AgentClient]) -> None:
        self._connecting = connecting

    def __await__(self) -> Generator[Any, Any, AgentClient]:
        return self._connecting.__await__()

    def send(self, value: Any) -> Any:
        """Go on."""
        return self._connecting.send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an error."""
        return self._connecting.throw(*error)

    def close(self) -> None:
        """Connect no more."""
        self._connecting.close()

    async def __aenter__(self) -> AgentClient:
        self._client = await self._connecting
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        disconnect(self._client.temporal)
