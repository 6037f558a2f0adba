"""A server that refuses its own page token."""

from datetime import timedelta
from typing import Any

from temporalio.service import RPCError, RPCStatusCode

from .counting import FORWARD, CountingService

WORDS = (
    "Current and request branch tokens, or current and request versioned transitions, don't match."
)


class StaleService(CountingService):
    """Forwards requests, and answers every other one that has a token like a server with a delayed
    notice of an older state.
    """

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.refused = 0
        self._tokens = 0

    async def _rpc_call(
        self,
        rpc: str,
        req: Any,
        resp_type: Any,
        *,
        service: str,
        retry: bool,
        metadata: Any,
        timeout: timedelta | None,
    ) -> Any:
        if rpc == FORWARD and req.next_page_token:
            self._tokens += 1
            if self._tokens % 2:
                self.refused += 1
                raise RPCError(WORDS, RPCStatusCode.INVALID_ARGUMENT, b"")
        return await super()._rpc_call(
            rpc, req, resp_type, service=service, retry=retry, metadata=metadata, timeout=timeout
        )
