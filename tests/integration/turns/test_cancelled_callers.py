"""Every client method raises the cancellation of its caller, or of the caller's own timeout."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure import Budget
from perdure.clients import AgentClient, Turn
from perdure.testing import ScriptedModel, call, calls
from perdure.values.approvals import PendingApproval
from perdure.worker import AgentWorker

from ...conftest import eventually
from ...support.approving import agent, pending
from ...support.spending import queue

Tells = Callable[[AgentClient, Turn[Any], PendingApproval], Awaitable[object]]
MORE = Budget(time=timedelta(minutes=1))


class Freezing:
    """A proxy between a client and Temporal that forwards nothing once it is frozen."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self.frozen = False
        self.swallowed = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        from_server, to_server = await asyncio.open_connection(self._host, int(self._port))
        try:
            await asyncio.gather(self._pass(reader, to_server), self._pass(from_server, writer))
        finally:
            to_server.close()
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if self.frozen:
                    self.swallowed += len(data)
                else:
                    writer.write(data)
        writer.close()


@contextlib.asynccontextmanager
async def freezing(address: str) -> AsyncIterator[tuple[Freezing, str]]:
    """Such a proxy and its address."""
    between = Freezing(address)
    server = await asyncio.start_server(between.accept, "127.0.0.1", 0)
    try:
        yield between, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def _all(items: Any) -> list[Any]:
    return [item async for item in items]


METHODS: dict[str, Tells] = {
    "start": lambda client, turn, one: client.start("clerk", "go"),
    "run": lambda client, turn, one: client.run("clerk", "go"),
    "status of an id": lambda client, turn, one: client.turn(turn.id).status(),
    "list": lambda client, turn, one: _all(client.turns()),
    "pending_approvals": lambda client, turn, one: _all(client.pending_approvals()),
    "approve by id": lambda client, turn, one: client.turn(turn.id).approve(one.call_id),
    "deny by id": lambda client, turn, one: client.turn(turn.id).deny(one.call_id),
    "result": lambda client, turn, one: turn.result(),
    "events": lambda client, turn, one: _all(turn.events()),
    "text": lambda client, turn, one: _all(turn.text()),
    "cancel": lambda client, turn, one: turn.cancel(),
    "approvals of a turn": lambda client, turn, one: turn.pending_approvals(),
    "approve": lambda client, turn, one: turn.approve(one),
    "deny": lambda client, turn, one: turn.deny(one),
    "add_budget": lambda client, turn, one: turn.add_budget(MORE),
}
UPDATES = ("approve", "deny", "add_budget")


@pytest.mark.accepts("U16")
async def test_cancel_ends_every_method_while_the_server_says_nothing(perdure_server: str) -> None:
    """No method turns it into another error."""
    ended: dict[str, str] = {}
    async with (
        queue(perdure_server) as work,
        freezing(perdure_server) as (between, address),
        work.worker(AgentWorker(agent()), ScriptedModel(calls(call("send", to="Ann")))),
    ):
        begun = await work.client.start("clerk", "go")
        [one] = await pending(begun)
        client = await AgentClient.connect(address)
        turn = client.turn(begun.id)
        between.frozen = True
        for name, method in METHODS.items():
            before = between.swallowed
            task = asyncio.ensure_future(method(client, turn, one))
            await eventually(lambda before=before: between.swallowed > before, f"{name} asks")  # type: ignore[misc]
            task.cancel()
            await asyncio.wait({task}, timeout=60)
            ended[name] = "cancelled" if task.cancelled() else repr(task)
        await begun.cancel()

    assert ended == dict.fromkeys(METHODS, "cancelled")


@pytest.mark.accepts("U16")
@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.table(1)
async def test_cancel_and_timeout_end_an_update_that_no_worker_takes_in(
    perdure_server: str, name: str
) -> None:
    """The cancellation is raised, and no message about the workers."""
    method = METHODS[name]
    async with queue(perdure_server) as work:
        async with work.worker(AgentWorker(agent()), ScriptedModel(calls(call("send", to="Ann")))):
            turn = await work.client.start("clerk", "go", budget=Budget(time=timedelta(hours=1)))
            [one] = await pending(turn)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await method(work.client, turn, one)
        task = asyncio.ensure_future(method(work.client, turn, one))
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.wait({task}, timeout=60)
        await work.client.temporal.get_workflow_handle(turn.id).terminate()

    assert task.cancelled()
