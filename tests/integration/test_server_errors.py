"""Errors of the Temporal server: turns, sessions, batches and schedules agree about them."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, says

from ..conftest import RecordingClient, Runtime
from ..counting import CountingService
from .spending import SOON_S, app
from .test_sessions import session_of
from .test_stale_polls import StaleService

FOLLOWED = "get_workflow_execution_history"


class RefusingService(CountingService):
    """Refuses requests of a name with an error, once or for ever."""

    def __init__(self, inner: Any, rpcs: tuple[str, ...], error: RPCStatusCode) -> None:
        super().__init__(inner)
        self._rpcs = rpcs
        self._error = error
        self.refused = 0
        self.is_passing = False

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
        if rpc in self._rpcs and not (self.is_passing and self.refused):
            self.refused += 1
            raise RPCError("refused by the test", self._error, b"")
        return await super()._rpc_call(
            rpc, req, resp_type, service=service, retry=retry, metadata=metadata, timeout=timeout
        )


async def all_of(events: AsyncIterator[Any]) -> int:
    return len([event async for event in events])


def reads(client: AgentClient, ids: dict[str, str], known: Any) -> dict[str, Any]:
    """The read of each resource that ends."""

    async def batch() -> int:
        return await all_of((await client.get_batch(ids["batch"])).results())

    async def schedule() -> Any:
        return await client.get_schedule(ids["schedule"])

    return {
        "turn": all_of(known.events()),
        "session": all_of(client.session(ids["session"]).events()),
        "batch": batch(),
        "schedule": schedule(),
    }


async def prepared(client: RecordingClient) -> dict[str, str]:
    """The ids of a turn, a session, a batch and a schedule; all but the last are over."""
    name = secrets.token_hex(4)
    session = session_of(client)
    sent = await session.say("hello")
    await sent.result()
    await session.close()
    async for _ in session.events():
        pass
    batch = await client.batch(f"batch-{name}", "spender", ["a task"])
    await batch.result()
    schedule = await client.schedule(
        f"schedule-{name}", "spender", "a task", cron="0 3 * * *", timezone="UTC"
    )
    return {
        "turn": sent.turn_id,
        "session": session.id,
        "batch": batch.id,
        "schedule": schedule.id,
    }


FATAL = {
    RPCStatusCode.PERMISSION_DENIED: errors.ConfigurationError,
    RPCStatusCode.UNAUTHENTICATED: errors.ConfigurationError,
    RPCStatusCode.UNIMPLEMENTED: errors.ServerUnreachableError,
}
REFUSED = (FOLLOWED, "describe_schedule")


@pytest.mark.accepts("E152")
async def test_error_of_the_server_has_one_class_everywhere(runtime: Runtime) -> None:
    """One that does not pass ends every read; one that passes ends none that follows."""
    model = ScriptedModel(says("one"), says("two"))
    raised, refused, passed = [], [], []
    async with runtime(app(), model=model) as client:
        ids = await prepared(client)
        for code in FATAL:
            service = RefusingService(client.temporal.service_client, REFUSED, code)
            other = AgentClient.from_temporal(Client(service, namespace=client.temporal.namespace))
            async with asyncio.timeout(SOON_S):
                service.is_passing, service.refused = True, 1
                turn = await other.get(ids["turn"])
                service.is_passing, service.refused = False, 0
                results = await asyncio.gather(
                    *reads(other, ids, turn).values(), return_exceptions=True
                )
            raised += [(code, type(one)) for one in results]
            refused.append(service.refused)
        service = RefusingService(
            client.temporal.service_client, (FOLLOWED,), RPCStatusCode.INTERNAL
        )
        other = AgentClient.from_temporal(Client(service, namespace=client.temporal.namespace))
        turn = await other.get(ids["turn"])
        for name, reading in reads(other, ids, turn).items():
            service.is_passing, service.refused = True, 0
            async with asyncio.timeout(SOON_S):
                await reading
            passed.append((name, service.refused))
        await (await client.get_schedule(ids["schedule"])).delete()

    assert raised == [(code, cls) for code, cls in FATAL.items() for _ in range(4)]
    assert all(count >= 4 for count in refused)
    assert passed == [("turn", 1), ("session", 1), ("batch", 1), ("schedule", 0)]


@pytest.mark.accepts("E153")
async def test_events_of_a_session_go_on_when_the_server_refuses_its_token(
    runtime: Runtime,
) -> None:
    """Every fact is delivered once, in order."""
    model = ScriptedModel(*[says(f"answer {number}") for number in range(4)])
    async with runtime(app(), model=model) as client:
        service = StaleService(client.temporal.service_client)
        follower = AgentClient.from_temporal(Client(service, namespace=client.temporal.namespace))
        session = session_of(client)
        sent = await session.say("hello")

        async def followed() -> list[str]:
            return [event.cursor async for event in follower.session(session.id).events()]

        following = asyncio.create_task(followed())
        for number in range(3):
            await sent.result()
            sent = await session.say(f"message {number}")
        await sent.result()
        await session.close()
        async with asyncio.timeout(SOON_S):
            cursors = await following
        expected = [event.cursor async for event in session.events()]

    assert service.refused > 1
    assert cursors == expected
