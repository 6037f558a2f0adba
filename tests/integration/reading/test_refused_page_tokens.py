"""A server that refuses its own page token: followers of a turn continue, and neither lose nor
repeat an event.
"""

import pytest
from temporalio.client import Client

from perdure import AgentReport
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Runtime
from ...support.event_kinds import kind
from ...support.spending import ended, look, spender
from ...support.stale_polls import StaleService


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
