"""What the tests of turns with several runs share: turns that go on in a new run soon, and a worker
whose takeover of the run before can be held up.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.common import Priority
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Worker,
)

from perdure import Agent
from perdure.clients import Event, Turn
from perdure.clients.reading.recorded import runs_of as known_runs
from perdure.errors import PerdureError
from perdure.temporal import search_attributes, start_request
from perdure.temporal.names import CARRY, TURN, WORKER_SHUTDOWN
from perdure.temporal.payloads import pack
from perdure.testing import ScriptedModel, call, calls
from perdure.testing.scripted import Reply
from perdure.values.reports import AgentReport, Usage
from perdure.worker import AgentWorker, PerdurePlugin

from ..conftest import RecordingClient, Runtime, impatient
from .spending import SOON_S, Queue, ended, look

SHORT_TASK = timedelta(seconds=1)
"""A workflow task timeout with which a run has some 300 events."""
LONG_TASK = timedelta(seconds=20)

MANY = 60
"""Calls of one answer: two such steps fill a run."""
BULKY = "x" * 1_300_000
"""A text of which seven fill a run, whatever the timeout."""


def reader(**fields: Any) -> Agent:
    """An agent that looks as often as it likes."""
    given = {"name": "reader", "model": "scripted:reader", "tools": [look]}
    return Agent(**{**given, "max_iterations": "unlimited", **fields})


def looks(steps: int, usage: Usage | None = None) -> list[Reply]:
    """Answers with one call each."""
    return [calls(call("look", number=number), usage=usage) for number in range(steps)]


def filling(steps: int = 2, name: str = "look", usage: Usage | None = None) -> list[Reply]:
    """Answers with many calls each, of which two fill a run: for an agent with parallel tools."""
    return [
        calls(*(call(name, number=MANY * step + one) for one in range(MANY)), usage=usage)
        for step in range(steps)
    ]


def bulky(steps: int, usage: Usage | None = None) -> list[Reply]:
    """Answers with one call each, of which seven fill a run."""
    return [calls(call("look", number=number), text=BULKY, usage=usage) for number in range(steps)]


async def begin(
    client: RecordingClient,
    agent: str = "reader",
    task: str = "go",
    *,
    turn_id: str = "",
    timeout: timedelta = SHORT_TASK,
    priority: int | None = None,
    **given: Any,
) -> Turn:
    """Start a turn as the client does, but with this workflow task timeout."""
    request = start_request.turn_request(agent, task, **given)
    handle = await client.temporal.start_workflow(
        TURN,
        pack(request),
        id=turn_id or f"long-{secrets.token_hex(4)}",
        task_queue=client.task_queue,
        search_attributes=search_attributes.at_start(request.agent, request.labels),
        priority=Priority(priority_key=priority),
        **{**start_request.introduced(request, {}), "task_timeout": timeout},
    )
    return client.turn(handle.id)


async def runs_of(client: RecordingClient, turn: Turn) -> tuple[str, ...]:
    """The ids of the runs of a turn so far."""
    return await known_runs(client.temporal, turn.id)


async def until_run(client: RecordingClient, turn: Turn, number: int) -> str:
    """Wait until a turn is in this run, counted from 1, and return the id of that."""
    async with asyncio.timeout(SOON_S):
        while True:
            runs = await runs_of(client, turn)
            if len(runs) >= number:
                return runs[number - 1]
            await asyncio.sleep(0.02)


async def events_of(turn: Turn) -> list[Event]:
    """All events of a turn that is over."""
    return [event async for event in turn.events()]


async def delete(client: RecordingClient, workflow_id: str, run_id: str) -> None:
    """Delete the history of a run, as its retention would."""
    execution = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
    service = client.temporal.workflow_service
    await service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace=client.temporal.namespace, workflow_execution=execution
        )
    )
    handle = client.temporal.get_workflow_handle(workflow_id, run_id=run_id)
    async with asyncio.timeout(SOON_S):
        with contextlib.suppress(RPCError):
            while True:
                await handle.describe()
                await asyncio.sleep(0.05)


class Carries(Interceptor):
    """A worker's takeovers of a run before, which wait until they are let go.

    `added` is what was added to the limit of iterations to fill the run before. `kind` is the type
    of the activities that wait, if they are others.
    """

    def __init__(self, *, held: bool = True, kind: str = CARRY) -> None:
        self.kind = kind
        self.added = 0
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        if not held:
            self.let_go.set()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - Temporal's name
        """What is around an activity."""
        return _Held(next, self)


class _Held(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, carries: Carries) -> None:
        super().__init__(inner)
        self._carries = carries

    # Temporal calls the parameter `input`
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        if activity.info().activity_type == self._carries.kind:
            self._carries.begun.set()
            await self._until_let_go()
        return await super().execute_activity(input)

    async def _until_let_go(self) -> None:
        try:
            await self._carries.let_go.wait()
        except asyncio.CancelledError:
            if activity.is_worker_shutdown():  # lost, as every activity of Perdure is then
                raise ApplicationError("stopped", type=WORKER_SHUTDOWN) from None
            raise


@contextlib.asynccontextmanager
async def holding(work: Queue, app: AgentWorker, carries: Carries) -> AsyncIterator[None]:
    """A worker while the block runs, whose takeovers can be held up."""
    async with Worker(
        work.client.temporal,
        task_queue=work.client.task_queue,
        plugins=[PerdurePlugin(impatient(app))],
        interceptors=[carries],
        graceful_shutdown_timeout=timedelta(seconds=0.1),
    ):
        yield


async def compared(
    runtime: Runtime,
    given_app: Callable[[], AgentWorker],
    script: Callable[[], list[Reply]],
    **given: Any,
) -> tuple[AgentReport, PerdureError | None]:
    """Run a turn with short runs and in a single run; what it sent and told has to be the same.

    Returns the report, and the error of a turn that ended with one.
    """
    told, report, error = list[Any](), None, None
    for timeout in (SHORT_TASK, LONG_TASK):
        model = ScriptedModel(*script())
        async with runtime(given_app(), model=model) as client:
            turn = await begin(client, timeout=timeout, **given)
            end = await ended(turn)
            assert (len(await runs_of(client, turn)) > 1) == (timeout == SHORT_TASK)
        error = end if isinstance(end, PerdureError) else None
        report = end.report if isinstance(end, PerdureError) else end
        assert report is not None
        report = report.model_copy(update={"turn_id": "", "duration": timedelta()})
        sent = [(request.messages, request.options, request.model) for request in model.requests]
        told.append((sent, report, error and (type(error), error.message)))
    assert told[0][0] == told[1][0]
    assert told[0][1:] == told[1][1:]
    assert report is not None
    return report, error
