"""A server that refuses its own page token: followers of a turn continue, and neither lose nor
repeat an event.
"""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure import AgentReport
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, call, calls, says

from ..conftest import Runtime
from ..counting import FORWARD, CountingService
from .spending import ended, look, spender
from .test_events import kind

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


@pytest.mark.accepts("Y17")
async def test_follower_goes_on_when_the_server_refuses_its_token(runtime: Runtime) -> None:
    """Every event is delivered once, in order, and the result is that of the turn."""
    model = ScriptedModel(
        *[calls(call("look", number=number)) for number in range(8)], says("done")
    )
    async with runtime(spender(tools=[look]), model=model) as client:
        service = StaleService(client.temporal.service_client)
        follower = AgentClient.from_temporal(Client(service, namespace=client.temporal.namespace))
        turn = await client.start("spender", "go")
        followed = follower.turn(turn.id)
        told = [event async for event in followed.events()]
        report = await ended(followed)
        expected = [event async for event in turn.events()]

    assert service.refused > 1
    assert [(event.cursor, kind(event.fact)) for event in told] == [
        (event.cursor, kind(event.fact)) for event in expected
    ]
    assert isinstance(report, AgentReport)
    assert report.output == "done"
