"""What is left of turns in the memory of a worker that has stopped."""

import gc
import inspect
import secrets
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, Registry
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient
from perdure.testing import FunctionModel, Reply, Runtime, call, calls, says
from perdure.toolboxes import asking, waiting

from ...support.approving import questions, send
from ...support.jobs import Service, until_waiting

WAITS = {
    "job": call("deploy", target="shop"),
    "timer": call("wait", seconds=3600, note="an hour"),
    "event": call("wait_for", event="paid", note="the bill"),
    "approval": call("send", to="anna"),
    "question": call("ask", question="Which?", options=["this", "that"]),
    "delegate": call("delegate_to_agent", agent="helper", task="approval"),
}


def begin_wait(request: ModelRequest) -> Reply | str:
    """Begin the wait that the task names."""
    if request.model == "helper":
        return calls(WAITS["approval"])
    if len(request.messages) > 1:
        return says("done")
    return calls(WAITS[request.messages[0].text])  # type: ignore[union-attr]


def waiters(service: Service) -> Registry:
    """An agent for each wait, and one to whom it delegates."""
    job = service.tool(poll=service.poll, poll_every=timedelta(seconds=0.1))
    helper = Agent(name="helper", model="mine:helper", tools=[send])
    waiter = Agent(
        name="waiter",
        model="mine:m",
        tools=[send, job],
        toolboxes=[waiting(), asking()],
        delegates=["helper"],
    )
    return Registry([waiter, helper])


async def wait_in_each_way(client: AgentClient) -> None:
    """Start turns and a session, until all of them wait."""
    turns = {kind: await client.start("waiter", kind) for kind in WAITS}
    message = await client.session(f"kept-{secrets.token_hex(4)}", "waiter").say("approval")
    for kind in ("job", "timer", "event", "approval"):
        await until_waiting(turns[kind], kind)
    await until_waiting(turns["delegate"], "approval")
    await until_waiting(await message.turn(), "approval")
    await questions(turns["question"])


def in_memory() -> list[Coroutine[Any, Any, Any]]:
    """The coroutines of turns and sessions that are in memory."""
    coroutines = (found for found in gc.get_objects() if inspect.iscoroutine(found))
    return [found for found in coroutines if found.cr_code.co_name == "run_workflow"]


@pytest.mark.accepts("Y164")
async def test_turns_that_wait_are_dropped_in_silence(perdure_runtime: Runtime) -> None:
    """A worker that stops leaves them to Python, which closes their coroutines when it collects
    them: in any thread, and at any time. None of them may go on then.
    """
    service = Service()
    earlier = {id(found) for found in in_memory()}
    async with perdure_runtime(waiters(service), model=FunctionModel(begin_wait)) as client:
        await wait_in_each_way(client)
        await service.until_polled(2)
    left = [found for found in in_memory() if id(found) not in earlier]

    for found in left:
        found.close()

    states = [inspect.getcoroutinestate(found) for found in left]
    assert states == [inspect.CORO_CLOSED] * (len(WAITS) + 3)
