"""A turn as the child of a user's workflow: `perdure.workflows.run_turn`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.worker import Worker

from perdure import errors
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.worker import AgentWorker, PerdurePlugin

from ...conftest import check_history, eventually
from ...support.delegating import FREE
from ...support.resets import reset_to, task_ends
from ...support.spending import SOON_S


@asynccontextmanager
async def theirs(
    server: str, workflows: Any, model: ScriptedModel
) -> AsyncIterator[tuple[Client, str]]:
    """A user's worker with the plugin, and its task queue."""
    client, queue = await Client.connect(server), f"test-{secrets.token_hex(6)}"
    plugin = PerdurePlugin(AgentWorker(workflows.CLERK, providers={"scripted": model}, prices=FREE))
    known = [workflows.Ticket, workflows.Careful, workflows.Impatient]
    async with Worker(client, task_queue=queue, workflows=known, plugins=[plugin]):
        yield client, queue


@pytest.mark.accepts("D17")
async def test_turn_is_the_child_of_their_workflow_and_its_answer_is_typed(
    perdure_server: str, workflows: Any
) -> None:
    """The report has the requested type; the turn can be read like any other."""
    model = ScriptedModel(calls(call("look")), says('{"days": 30}'))
    async with theirs(perdure_server, workflows, model) as (client, queue):
        handle = await client.start_workflow(
            "Ticket", "How long?", id=f"ticket-{queue}", task_queue=queue
        )
        found = await handle.result()
        described = await client.get_workflow_handle(f"ticket-{queue}/clerk").describe()
        report = await (
            AgentClient.from_temporal(client, task_queue=queue).turn(f"ticket-{queue}/clerk")
        ).result()
        await check_history(client, report.turn_id, None)

    assert found == {"days": 30, "turn_id": f"ticket-{queue}/clerk", "steps": 2}
    assert (described.parent_id, len(report.steps)) == (f"ticket-{queue}", 2)


@pytest.mark.slow
@pytest.mark.accepts("D17")
async def test_error_of_the_turn_is_the_same_class_in_their_workflow(
    perdure_server: str, workflows: Any
) -> None:
    """With its report."""
    model = ScriptedModel(calls(call("look")), fails(errors.LLMAuthError("no key")))
    async with theirs(perdure_server, workflows, model) as (client, queue):
        said = await client.execute_workflow(
            "Careful", "How long?", id=f"careful-{queue}", task_queue=queue
        )

    assert said == ["LLMAuthError", "no key", "failed", 2]


@pytest.mark.slow
@pytest.mark.accepts("U28")
async def test_retries_of_the_turn_are_those_of_their_workflow(
    perdure_server: str, workflows: Any
) -> None:
    model = ScriptedModel(fails(errors.LLMUnavailableError("overloaded", context={"status": 503})))
    async with theirs(perdure_server, workflows, model) as (client, queue):
        attempts = await client.execute_workflow(
            "Impatient", "How long?", id=f"impatient-{queue}", task_queue=queue
        )

    assert attempts == [1]


@pytest.mark.accepts("D17")
async def test_error_that_they_do_not_catch_fails_their_workflow(
    perdure_server: str, workflows: Any
) -> None:
    """It does not fail workflow tasks over and over."""
    async with theirs(
        perdure_server, workflows, ScriptedModel(fails(errors.LLMAuthError("no key")))
    ) as (client, queue):
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(
                "Ticket", "How long?", id=f"failing-{queue}", task_queue=queue
            )

    assert "no key" in str(failed.value.cause)


@pytest.mark.accepts("H110")
async def test_id_that_a_url_would_change_is_refused_in_their_workflow(
    perdure_server: str, workflows: Any
) -> None:
    """No turn is started; the id of a workflow of theirs is their own affair."""
    model = ScriptedModel()
    async with theirs(perdure_server, workflows, model) as (client, queue):
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(
                "Ticket", "How long?", id=f"{queue}/../ticket", task_queue=queue
            )

    assert "'..'" in str(failed.value.cause)
    assert model.call_count == 0


@pytest.mark.accepts("D17", "S103")
async def test_cancel_of_their_workflow_reaches_the_turn_after_a_reset(
    perdure_server: str, workflows: Any
) -> None:
    """The point of the reset is after the start of the turn."""
    model = ScriptedModel(says("never", delay=timedelta(seconds=60)))
    async with theirs(perdure_server, workflows, model) as (client, queue):
        name = f"reset-{queue}"
        await client.start_workflow("Ticket", "How long?", id=name, task_queue=queue)
        await eventually(lambda: bool(model.requests), "the model is asked")
        history = await client.get_workflow_handle(name).fetch_history()
        after = task_ends(history)[-1]
        run_id = await reset_to(client, name, history.run_id, after)
        again = client.get_workflow_handle(name, run_id=run_id)
        async with asyncio.timeout(SOON_S):
            while task_ends(await again.fetch_history())[-1] < after:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await client.get_workflow_handle(name).cancel(reason="enough")
        turn = AgentClient.from_temporal(client, task_queue=queue).turn(f"{name}/clerk")
        with pytest.raises(errors.TurnCancelledError, match="enough"):
            async with asyncio.timeout(SOON_S):
                await turn.result()
        with pytest.raises(WorkflowFailureError):
            await client.get_workflow_handle(name).result()


@pytest.mark.slow
@pytest.mark.accepts("D17")
async def test_cancel_of_their_workflow_reaches_the_turn_with_its_reason(
    perdure_server: str, workflows: Any
) -> None:
    """The workflow ends as cancelled, after the turn has ended."""
    model = ScriptedModel(says("never", delay=timedelta(seconds=60)))
    async with theirs(perdure_server, workflows, model) as (client, queue):
        handle = await client.start_workflow(
            "Ticket", "How long?", id=f"stopped-{queue}", task_queue=queue
        )
        await eventually(lambda: bool(model.requests), "the model is asked")
        await handle.cancel(reason="enough")
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        turn = AgentClient.from_temporal(client, task_queue=queue).turn(f"stopped-{queue}/clerk")
        with pytest.raises(errors.TurnCancelledError, match="enough"):
            async with asyncio.timeout(60):
                await turn.result()
        status = (await handle.describe()).status

    assert status is WorkflowExecutionStatus.CANCELED


@pytest.mark.slow
async def test_turn_that_is_cancelled_alone_is_an_error_in_their_workflow(
    perdure_server: str, workflows: Any
) -> None:
    """The turn is cancelled and the workflow is not."""
    model = ScriptedModel(says("never", delay=timedelta(seconds=60)))
    async with theirs(perdure_server, workflows, model) as (client, queue):
        handle = await client.start_workflow(
            "Careful", "How long?", id=f"alone-{queue}", task_queue=queue
        )
        await eventually(lambda: bool(model.requests), "the model is asked")

        turn_id = await _child_of(client, handle.id)
        await client.get_workflow_handle(turn_id).cancel(reason="not needed")
        said = await handle.result()

    assert (said[0], said[2]) == ("TurnCancelledError", "cancelled")
    assert "not needed" in said[1]


async def _child_of(client: Client, workflow_id: str) -> str:
    """The child that a workflow started, from its history, because Temporal's list may lag."""
    events = (await client.get_workflow_handle(workflow_id).fetch_history()).events
    begun = [
        event.start_child_workflow_execution_initiated_event_attributes.workflow_id
        for event in events
    ]
    return next(found for found in begun if found)
