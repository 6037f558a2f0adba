"""Helpers for tests of budgets: an agent whose model costs a tenth of a cent per token, and ways to
follow its spending.
"""

import asyncio
import contextlib
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.testing import TimeSkippingConfig, WorkflowEnvironment
from temporalio.worker import Worker

from perdure import Agent, AgentReport, Price, Usage, tool
from perdure.activities.provider import ModelRequest, Provider
from perdure.clients import Event, Turn
from perdure.errors import PerdureError
from perdure.testing.scripted import Reply, ScriptedModel
from perdure.turn.facts import Fact
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker
from perdure.worker.settings import WorkerSettings

from ..conftest import RecordingClient, check_history, impatient

PRICE = Price(input="1000", output="1000")
"""300 tokens cost $0.30.

The input of a short request reserves more than a dollar: 1000 tokens that a provider may add, and
the rest.
"""

TOKEN = Decimal("0.001")
SOON_S = 60.0
"""A turn that takes longer hangs; on a busy machine none takes more than a few seconds."""

SHORT = timedelta(seconds=6)
"""A time that a test can wait for, and in which a turn reaches its first calls, also on a machine
that is very busy.
"""


@tool(read_only=True)
def look(number: int = 1) -> str:
    """Look somewhere."""
    return f"seen {number}"


def spender(**fields: Any) -> Agent:
    """An agent with one tool."""
    return Agent(**{"name": "spender", "model": "scripted:spender", "tools": [look], **fields})


def app(*agents: Agent, **fields: Any) -> AgentWorker:
    """A worker with these agents, or with one agent of these fields; their models have a price."""
    return AgentWorker(agents or spender(**fields), prices={"scripted:*": PRICE})


def usage(tokens: int) -> Usage:
    """Usage of this number of tokens."""
    return Usage(input_tokens=tokens - 10, output_tokens=10)


def at_most(request: ModelRequest) -> Decimal:
    """The most that a request can cost, computed here: a token has at least one byte."""
    messages = "".join(message.model_dump_json() for message in request.messages)
    tools = "".join(
        item.model_dump_json(include={"name", "description", "parameters"})
        for item in request.tools
    )
    assert request.options.max_output_tokens is not None
    return (
        len((request.system + messages + tools).encode()) + request.options.max_output_tokens
    ) * TOKEN


def money_left(request: ModelRequest) -> Decimal:
    """The remaining money according to a request."""
    assert request.budget is not None
    assert request.budget.usd is not None
    return request.budget.usd


def time_left(request: ModelRequest) -> timedelta:
    """The remaining time according to a request."""
    assert request.budget is not None
    assert request.budget.time is not None
    return request.budget.time


class Improvised(ScriptedModel):
    """A model whose replies are functions of the request."""

    def __init__(self, *replies: Callable[[ModelRequest], Reply]) -> None:
        super().__init__()
        self._makers = replies

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.requests.append(request)
        reply = self._makers[self.call_count - 1](request)
        assert reply.answer is not None
        return reply.answer


class Held(ScriptedModel):
    """A model that answers when it is released."""

    def __init__(self, *replies: Reply | str) -> None:
        super().__init__(*replies)
        self.let_go = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        is_free = self.let_go.is_set()  # read now: it may be cleared as soon as the call is counted
        answer = await super().complete(request)
        if not is_free:
            await self.let_go.wait()
        return answer


async def until(turn: Turn, fact: type[Fact], times: int = 1) -> Event:
    """The nth event of a turn with a fact like this."""
    async with asyncio.timeout(SOON_S):
        async for event in turn.events():
            times -= isinstance(event.fact, fact)
            if not times:
                return event
    raise AssertionError(f"the turn is over, without {fact.__name__}")


async def ended(turn: Turn[Any]) -> AgentReport | PerdureError:
    """The end of a turn: its report, or its error with the report in it."""
    async with asyncio.timeout(SOON_S):
        try:
            return await turn.result()
        except PerdureError as error:
            return error


async def report_of(turn: Turn) -> AgentReport:
    """The report of a turn, however it ended."""
    end = await ended(turn)
    report = end.report if isinstance(end, PerdureError) else end
    assert report is not None
    return report


class Queue:
    """A task queue whose workers can be started and stopped."""

    def __init__(self, temporal: Client) -> None:
        self.client = RecordingClient(temporal, f"test-{secrets.token_hex(6)}")

    def worker(
        self, given: AgentWorker, model: Provider | None = None
    ) -> AbstractAsyncContextManager[Worker]:
        """A worker during the block. At its end, running activities get a tenth of a second."""
        made = replace(
            impatient(given),
            task_queue=self.client.task_queue,
            providers={"scripted": model} if model else given.providers,
        )
        return made.running(
            self.client.temporal, settings=WorkerSettings(grace=timedelta(seconds=0.1))
        )


@contextlib.asynccontextmanager
async def queue(address: str) -> AsyncIterator[Queue]:
    """A queue without a worker; its turns are checked at the end, after all workers have
    stopped.
    """
    made = Queue(await Client.connect(address))
    yield made
    for turn_id, run_id in made.client.recorded:
        await check_history(made.client.temporal, turn_id, run_id)


@contextlib.asynccontextmanager
async def skipping(*, by_hand: bool = True) -> AsyncIterator[WorkflowEnvironment]:
    """A time-skipping server on which a turn can sleep for days, automatically or `by_hand`."""
    switch = ["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"]
    binary = str(Path(sys.executable).parent / "temporal")
    config = TimeSkippingConfig(enabled=not by_hand)
    async with await WorkflowEnvironment.start_time_skipping_v2(
        ts_config=config,
        dev_server_existing_path=binary,
        dev_server_extra_args=switch,
        dev_server_log_level="error",
    ) as environment:
        yield environment


async def until_idle(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until a workflow does nothing but wait.

    A worker that is stopped before that may take a workflow task with it, which the server hands
    out again after 20 s.
    """
    async with asyncio.timeout(SOON_S):
        while True:
            state = (await handle.describe()).raw_description
            if not state.pending_activities and not state.HasField("pending_workflow_task"):
                return
            await asyncio.sleep(0.02)


async def sleep_through(environment: WorkflowEnvironment, turn: Turn, time: timedelta) -> None:
    """Skip this much time for a turn, once it does nothing but wait."""
    handle = environment.client.get_workflow_handle(turn.id)
    await until_idle(handle)
    async with asyncio.timeout(SOON_S):
        await environment.fast_forward(handle, time)
