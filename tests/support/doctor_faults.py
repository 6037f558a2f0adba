"""Faults of a running system that `perdure doctor` has to find, each planted for real."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio import workflow
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure import Agent, ModelRetryPolicy, errors, tool
from perdure.activities.provider import Provider
from perdure.clients import AgentClient, Turn
from perdure.temporal import namespace_check
from perdure.temporal.connect import connect_local
from perdure.testing import FunctionModel, ScriptedModel, call, calls, fails, local_runtime, says
from perdure.worker import AgentWorker, ModelQueue
from perdure.worker.doctor.examination import Examination
from perdure.worker.settings import WorkerSettings

from .approving import pending, send
from .encrypting import converter
from .examining import problem
from .receiver import SECRET
from .versioned import Versions

Plant = Callable[[str], AbstractAsyncContextManager[Examination]]
"""Plants a fault on the server at this address, and yields how to look for it."""

LETTERS = Agent(name="letters", model="mine:m", tools=[send])
PATIENT = ModelRetryPolicy(
    initial_interval=timedelta(hours=1),
    maximum_interval=timedelta(hours=1),
    maximum_elapsed=timedelta(days=1),
)
_ONE_MEGABYTE = "x" * 1_000_000


def queue() -> str:
    return f"doctor-{secrets.token_hex(4)}"


def looking(client: AgentClient, server: str, **thresholds: Any) -> Examination:
    return Examination(address=server, task_queue=client.task_queue, **thresholds)


async def terminate(client: AgentClient, turn: Turn[Any]) -> None:
    """End a turn that nothing can run."""
    await client.temporal.get_workflow_handle(turn.id).terminate()


@contextlib.asynccontextmanager
async def at_work(
    server: str, model: Provider, agent: Agent[Any] = LETTERS, **more: Any
) -> AsyncIterator[AgentClient]:
    """A worker with a queue of its own."""
    worker = AgentWorker([agent], providers={"mine": model}, task_queue=queue(), **more)
    async with local_runtime(worker, address=server) as client:
        yield client


@contextlib.asynccontextmanager
async def no_namespace(server: str) -> AsyncIterator[Examination]:
    """The environment names one that is not there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEMPORAL_NAMESPACE", queue())
        yield Examination(address=server)


@contextlib.asynccontextmanager
async def short_retention(server: str) -> AsyncIterator[Examination]:
    """Ended turns are kept for two hours."""
    async with new_namespace(server, retention=timedelta(hours=2)) as (examination, _):
        yield examination


@contextlib.asynccontextmanager
async def no_attributes(server: str) -> AsyncIterator[Examination]:
    """`perdure setup` was forgotten."""
    async with new_namespace(server) as (examination, _):
        yield examination


@contextlib.asynccontextmanager
async def another_type(server: str) -> AsyncIterator[Examination]:
    """Another program uses the name of a search attribute for a number."""
    async with new_namespace(server) as (examination, client):
        number = IndexedValueType.INDEXED_VALUE_TYPE_INT
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=client.namespace, search_attributes={"PerdureAgent": number}
            )
        )
        async with asyncio.timeout(60):
            while not (await namespace_check.look(client)).conflicting:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        yield examination


@contextlib.asynccontextmanager
async def new_namespace(
    server: str, *, retention: timedelta = timedelta(days=3)
) -> AsyncIterator[tuple[Examination, Client]]:
    """A namespace without search attributes, once the server uses it."""
    client, name = await connect_local(server), queue()
    kept = Duration()
    kept.FromTimedelta(retention)
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=kept)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEMPORAL_NAMESPACE", name)
        examination = Examination(address=server)
        await problem(examination, "perdure setup")
        yield examination, Client(client.service_client, namespace=name)


@contextlib.asynccontextmanager
async def clock_ahead(server: str) -> AsyncIterator[Examination]:
    """This machine is five minutes ahead."""
    yield Examination(address=server, clock=lambda: datetime.now(UTC) + timedelta(minutes=5))


@contextlib.asynccontextmanager
async def clock_behind(server: str) -> AsyncIterator[Examination]:
    """This machine is five minutes behind."""
    yield Examination(address=server, clock=lambda: datetime.now(UTC) - timedelta(minutes=5))


@contextlib.asynccontextmanager
async def no_worker(server: str) -> AsyncIterator[Examination]:
    """A turn was started, and nobody polls its queue."""
    client = AgentClient.from_temporal(await connect_local(server), task_queue=queue())
    turn = await client.start("letters", "Write")
    yield looking(client, server)
    await terminate(client, turn)


@contextlib.asynccontextmanager
async def no_worker_for_a_provider(server: str) -> AsyncIterator[Examination]:
    """The first worker gave a provider a queue of its own; the one after it does not poll that."""
    model = ScriptedModel(calls(call("send", to="anna")), says("Sent."))
    first = AgentWorker(
        [LETTERS], providers={"mine": model}, task_queue=queue(), queues={"mine": ModelQueue()}
    )
    temporal = await connect_local(server)
    client = AgentClient.from_temporal(temporal, task_queue=first.task_queue)
    quick = WorkerSettings(grace=timedelta(seconds=1))
    async with first.running(temporal, settings=quick):
        turn = await client.start("letters", "Write")
        [approval] = await pending(turn)
    async with replace(first, queues={}).running(temporal, settings=quick):
        await turn.approve(approval.call_id)
        yield looking(client, server)
        await turn.cancel()


@contextlib.asynccontextmanager
async def busy_worker(server: str) -> AsyncIterator[Examination]:
    """The only slot for tools is taken, and the call of another turn waits for it."""
    free = asyncio.Event()

    @tool
    async def hold() -> str:
        """Hold a slot."""
        await free.wait()
        return "held"

    model = FunctionModel(lambda asked: "Done." if asked.messages[1:] else calls(call("hold")))
    agent = Agent(name="holder", model="mine:m", tools=[hold])
    app = AgentWorker([agent], providers={"mine": model}, task_queue=queue())
    temporal = await connect_local(server)
    async with app.running(temporal, settings=WorkerSettings(max_activities=1)):
        client = AgentClient.from_temporal(temporal, task_queue=app.task_queue)
        turns = [await client.start("holder", "Hold") for _ in range(2)]
        yield looking(client, server, longest_backlog=timedelta(seconds=0.5))
        free.set()
        for turn in turns:
            await turn.result()


@contextlib.asynccontextmanager
async def no_worker_of_a_build(server: str) -> AsyncIterator[Examination]:
    """A release stopped the workers of the old build before it was drained."""
    versions = Versions(await connect_local(server))
    providers = {"mine": ScriptedModel(calls(call("send", to="anna")))}
    async with versions.worker("v1", LETTERS, providers=providers):
        await versions.promote("v1")
        turn = await versions.client.start("letters", "Write")
        await pending(turn)
    async with versions.worker("v2", LETTERS, providers=providers):
        await versions.promote("v2")
        yield looking(versions.client, server)
        await terminate(versions.client, turn)


@workflow.defn(name="AgentTurn", sandboxed=False)
class Raising:
    """A release that cannot run turns."""

    @workflow.run
    async def run(self, _: object) -> None:
        """Fail the workflow task."""
        raise RuntimeError("planted in the code of turns")


@contextlib.asynccontextmanager
async def failing_tasks(server: str) -> AsyncIterator[Examination]:
    """The code of turns raises."""
    temporal = await connect_local(server)
    client = AgentClient.from_temporal(temporal, task_queue=queue())
    async with Worker(
        temporal,
        task_queue=client.task_queue,
        workflows=[Raising],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        turn = await client.start("letters", "Write")
        yield looking(client, server)
        await terminate(client, turn)


@contextlib.asynccontextmanager
async def failing_webhook(server: str) -> AsyncIterator[Examination]:
    """Nothing listens where the webhook of a turn is sent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERDURE_WEBHOOK_HOSTS", "private:localhost:9")
        patch.setenv("PERDURE_WEBHOOK_SECRETS", SECRET)
        async with at_work(server, ScriptedModel(says("Done."))) as client:
            turn = await client.start("letters", "Write", on_done="https://localhost:9/done")
            await turn.result()
            yield looking(client, server)


@contextlib.asynccontextmanager
async def forgotten_approval(server: str) -> AsyncIterator[Examination]:
    """A call has waited for a person for longer than it should."""
    model = ScriptedModel(calls(call("send", to="anna")), says("Sent."))
    async with at_work(server, model) as client:
        turn = await client.start("letters", "Write")
        [approval] = await pending(turn)
        yield looking(client, server, longest_wait=timedelta(seconds=0.5))
        await turn.approve(approval.call_id)
        await turn.result()


@contextlib.asynccontextmanager
async def provider_that_is_down(server: str) -> AsyncIterator[Examination]:
    """The provider of a turn has been down for longer than usual."""
    model = ScriptedModel(*[fails(errors.LLMUnavailableError("overloaded"))] * 9)
    agent = Agent(name="letters", model="mine:m", model_retry=PATIENT)
    async with at_work(server, model, agent) as client:
        turn = await client.start("letters", "Write")
        yield looking(client, server, longest_wait=timedelta(seconds=0.5))
        await turn.cancel()


@contextlib.asynccontextmanager
async def long_history(server: str) -> AsyncIterator[Examination]:
    """Signals that nobody reads, until the history of a turn that waits has more than 20 MiB."""
    async with at_work(server, ScriptedModel(calls(call("send", to="anna")))) as client:
        turn = await client.start("letters", "Write")
        await pending(turn)
        handle = client.temporal.get_workflow_handle(turn.id)
        for _ in range(22):
            await handle.signal("unknown", _ONE_MEGABYTE)
        yield looking(client, server)
        await terminate(client, turn)


@contextlib.asynccontextmanager
async def another_key(server: str) -> AsyncIterator[Examination]:
    """The client that started a turn encrypts, and this process has no key."""
    temporal = await connect_local(server, converter=converter)
    client = AgentClient.from_temporal(temporal, task_queue=queue())
    turn = await client.start("letters", "Write")
    yield looking(client, server)
    await terminate(client, turn)


FAULTS: dict[str, tuple[Plant, str]] = {
    "no namespace": (no_namespace, "perdure setup --create-namespace"),
    "short retention": (short_retention, "operator namespace update"),
    "no search attributes": (no_attributes, "`perdure setup` registers"),
    "a search attribute of another type": (another_type, "a namespace of its own"),
    "a clock that is ahead": (clock_ahead, "synchronise their clocks"),
    "a clock that is behind": (clock_behind, "synchronise their clocks"),
    "no worker": (no_worker, "with PERDURE_TASK_QUEUE=doctor-"),
    "no worker for a provider": (no_worker_for_a_provider, ".mine"),
    "no worker of a build": (no_worker_of_a_build, "perdure deploy drain v1 --override"),
    "a busy worker": (busy_worker, "raise PERDURE_MAX_MODEL_CALLS"),
    "code that raises": (failing_tasks, "deploy the code that its history was made with"),
    "a webhook that nobody takes": (failing_webhook, "the call is tried again"),
    "a forgotten approval": (forgotten_approval, "perdure approvals"),
    "a provider that is down": (provider_that_is_down, "look at the provider"),
    "a long history": (long_history, "holds up its next run"),
    "another key": (another_key, "the data converter and the keys"),
}
"""By its name: the fault, and words of the remedy by which its finding is known."""
