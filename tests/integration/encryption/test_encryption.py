"""Turns with keys in the environment: what the server can read, keys that are missing, wrong or
exchanged, and payloads that somebody has changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import EventType, UpdateWorkflowExecutionLifecycleStage
from temporalio.api.update.v1 import Input, Meta, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import (
    StartWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.worker import Replayer

from perdure import Agent, errors, tool
from perdure.clients import AgentClient, Turn, gateway
from perdure.temporal.connect import connect_local
from perdure.temporal.data_converter import chosen
from perdure.temporal.encryption.hiding import VARIABLE
from perdure.temporal.encryption.keys import new_entry
from perdure.temporal.names import TURN
from perdure.testing import Runtime, ScriptedModel, call, calls, says
from perdure.worker import AgentWorker
from perdure.worker.decrypting import check_keys
from perdure.worker.deploying.checking import failure_of
from perdure.workflows import AgentTurn

from ...support.approving import pending
from ...support.listing import entry_of

K1, K2 = new_entry("k1"), new_entry("k2")
OTHERS = {"none": None, "other": K2, "wrong": new_entry("k1")}
"""What a process may have instead of the key: none, another one, another one of its name."""


@tool(requires_approval=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


PAYER = Agent(name="payer", model="scripted:payer", tools=[pay])


def pays(count: int = 1) -> ScriptedModel:
    """A model that calls the tool once in each turn."""
    return ScriptedModel(*[calls(call("pay", to="anna")), says("done")] * count)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One key, unless a test sets others."""
    monkeypatch.setenv(VARIABLE, K1)
    return monkeypatch


@contextlib.contextmanager
def other_keys(value: str | None) -> Iterator[None]:
    """Other keys in the environment, or none, for connections that are made in the block."""
    with pytest.MonkeyPatch.context() as patch:
        if value is None:
            patch.delenv(VARIABLE)
        else:
            patch.setenv(VARIABLE, value)
        yield


async def history_of(client: AgentClient, turn_id: str) -> WorkflowHistory:
    """The history as the server has it."""
    return await client.temporal.get_workflow_handle(turn_id).fetch_history()


def failed_tasks(history: WorkflowHistory) -> int:
    """How many workflow tasks failed."""
    return sum(
        event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED for event in history.events
    )


@pytest.mark.accepts("G11")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("none", "the key 'k1', which this process does not have"),
        ("other", "the key 'k2', which this process does not have"),  # of its failure
        ("wrong", "the key 'k1': it was changed or cut"),
    ],
)
async def test_worker_without_the_key_ends_a_new_turn_at_once(
    perdure_server: str, kind: str, words: str
) -> None:
    """With the name of the key, and without a failed task; the worker runs nothing of it."""
    app = AgentWorker(
        PAYER, task_queue=f"test-{secrets.token_hex(6)}", providers={"scripted": pays()}
    )
    caller = await AgentClient.connect(perdure_server, task_queue=app.task_queue)
    with other_keys(OTHERS[kind]):
        worker = await connect_local(perdure_server)
    async with app.running(worker):
        turn = await caller.start("payer", "go")
        with pytest.raises(errors.PerdureError) as caught:
            await asyncio.wait_for(turn.result(), 60)
    history = await history_of(caller, turn.id)

    assert isinstance(caught.value, errors.DecryptionError)
    assert words in str(caught.value)
    assert failed_tasks(history) == 0
    assert not any(
        event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED for event in history.events
    )


@pytest.mark.accepts("G11")
@pytest.mark.parametrize("kind", ["none", "other", "wrong"])
async def test_caller_without_the_key_gets_a_decryption_error(
    perdure_runtime: Runtime, perdure_server: str, kind: str
) -> None:
    """Status, result, events, decisions and forks; lists have one line with the code."""
    async with perdure_runtime(PAYER, model=pays()) as client:
        turn = await client.start("payer", "go", labels={"case": "without"})
        [one] = await pending(turn)
        with other_keys(OTHERS[kind]):
            stranger = await AgentClient.connect(perdure_server, task_queue=client._task_queue)
        other = stranger.turn(turn.id)
        for asking in (
            other.status(),
            other.result(),
            anext(aiter(other.events())),
            other.fork(1),
        ):
            with pytest.raises(errors.DecryptionError, match="key 'k1'") as caught:
                await asyncio.wait_for(asking, 60)
            assert caught.value.context["key"] == "k1"
        await turn.approve(one)
        report = await turn.result()
        listed = await entry_of(stranger, turn.id, labels={"case": "without"})

    assert report.output == "done"
    assert listed.error is not None
    assert listed.error.code == "DECRYPTION"


@pytest.mark.slow
@pytest.mark.accepts("G11")
async def test_worker_that_lacks_the_key_of_a_running_turn_does_not_start(
    perdure_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The turn waits; a worker that starts all the same leaves it alone, and one with the key ends
    it.
    """
    app = AgentWorker(
        PAYER, task_queue=f"test-{secrets.token_hex(6)}", providers={"scripted": pays()}
    )
    ours = await connect_local(perdure_server)
    caller = AgentClient.from_temporal(ours, task_queue=app.task_queue)
    async with app.running(ours):
        turn = await caller.start("payer", "go", id=f"held-{secrets.token_hex(6)}")
        [one] = await pending(turn)
    with other_keys(K2):
        lacking = await connect_local(perdure_server)
    async with asyncio.timeout(60):
        while True:  # a list lags behind
            try:
                await check_keys(lacking, app.task_queue)
            except errors.DecryptionError as error:
                refused = error
                break
            await asyncio.sleep(0.1)
    await check_keys(ours, app.task_queue)
    async with app.running(lacking):
        await ours.get_workflow_handle(turn.id).signal("nudge")
        async with asyncio.timeout(60):
            while not failed_tasks(await history_of(caller, turn.id)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    async with app.running(ours):
        run = ours.get_workflow_handle(turn.id)
        async with asyncio.timeout(60):  # while a task has failed, the server takes no decision
            while (await run.describe()).raw_description.HasField("pending_workflow_task"):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await asyncio.wait_for(turn.approve(one), 60)
        report = await asyncio.wait_for(turn.result(), 60)

    assert refused.context == {"key": "k1"}
    assert turn.id in refused.message
    assert "the worker cannot start" in refused.message
    assert report.output == "done"
    assert any(
        f"{turn.id} cannot go on at this worker" in record.getMessage() for record in caplog.records
    )


@pytest.mark.accepts("G12")
async def test_keys_rotate_while_turns_run(perdure_server: str) -> None:
    """k1, then k1 and k2, then k2 and k1: turns that were begun before go on, and are replayed."""
    model = pays(3)
    app = AgentWorker(
        PAYER, task_queue=f"test-{secrets.token_hex(6)}", providers={"scripted": model}
    )
    turns: list[Turn[Any]] = []
    ends: list[object] = []
    for value in (K1, f"{K1},{K2}", f"{K2},{K1}"):
        with other_keys(value):
            temporal = await connect_local(perdure_server)
        client = AgentClient.from_temporal(temporal, task_queue=app.task_queue)
        async with app.running(temporal):
            for turn in turns:
                mine = client.turn(turn.id)
                await mine.approve((await pending(mine))[0])
                ends.append((await mine.result()).output)
            turns = [await client.start("payer", "go", id=f"kept-{secrets.token_hex(6)}")]
            await pending(turns[0])
    async with app.running(temporal):
        await client.turn(turns[0].id).cancel("enough")
        with pytest.raises(errors.TurnCancelledError, match="enough"):
            await client.turn(turns[0].id).result()
    history = await history_of(client, turns[0].id)
    with other_keys(f"{K1},{K2}"):
        await Replayer(workflows=[AgentTurn], data_converter=chosen()).replay_workflow(history)
    started = history.events[0].workflow_execution_started_event_attributes.input.payloads[0]

    assert ends == ["done", "done"]
    assert started.metadata["encryption-key-id"] == b"k2"


@pytest.mark.accepts("S103")
async def test_reason_that_a_turn_gives_its_delegate_is_hidden(perdure_runtime: Runtime) -> None:
    """The delegate ends with it, and Temporal does not have it."""
    lead = Agent(name="lead", model="scripted:m", delegates=[PAYER])
    hands_on = calls(call("delegate_to_agent", agent="payer", task="Pay."))
    model = ScriptedModel(hands_on, calls(call("pay", to="Ann")))
    async with perdure_runtime(AgentWorker([lead, PAYER]), model=model) as client:
        turn = await client.start("lead", "go")
        delegate = client.turn(f"{turn.id}/payer-1")
        async with asyncio.timeout(60):
            while model.call_count < 2:  # noqa: ASYNC110 - the worker asks it
                await asyncio.sleep(0.05)
        await pending(delegate)
        await turn.cancel("a private matter")
        with pytest.raises(errors.TurnCancelledError, match=r"cancelled: a private matter$"):
            await delegate.result()
        history = await history_of(client, delegate.id)

    assert not any(b"private" in event.SerializeToString() for event in history.events)


async def replayed_into(client: Client, turn_id: str, payload: Payload, queue: str) -> None:
    """Start a turn with the encrypted input of another one, as somebody without a key may."""
    request = StartWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_id=turn_id,
        request_id=secrets.token_hex(8),
        input=Payloads(payloads=[payload]),
    )
    request.workflow_type.name, request.task_queue.name = TURN, queue
    await client.workflow_service.start_workflow_execution(request)


@pytest.mark.accepts("G11")
@pytest.mark.parametrize("kind", ["replayed", "cut"])
async def test_input_of_another_turn_starts_nothing(perdure_runtime: Runtime, kind: str) -> None:
    """The turn ends with a clear status, before an activity is scheduled."""
    async with perdure_runtime(PAYER, model=pays()) as client:
        turn = await client.start("payer", "go", id=f"own-{secrets.token_hex(6)}")
        history = await history_of(client, turn.id)
        [payload] = history.events[0].workflow_execution_started_event_attributes.input.payloads
        if kind == "cut":
            payload = Payload(metadata=dict(payload.metadata), data=payload.data[:-3])
        thief = client.turn(f"{turn.id}-2")
        await replayed_into(client.temporal, thief.id, payload, client._task_queue)
        with pytest.raises(errors.DecryptionError) as caught:
            await asyncio.wait_for(thief.result(), 60)
        ending = client.temporal.get_workflow_handle(thief.id)
        with pytest.raises(WorkflowFailureError):  # a reader may have seen the input before
            await asyncio.wait_for(ending.result(), 60)
        ended = await ending.describe()
        events = (await history_of(client, thief.id)).events
        await turn.cancel()

    assert (
        "changed or cut" if kind == "cut" else f"encrypted for '{turn.id}'"
    ) in caught.value.message
    assert ended.status is not None
    assert ended.status.name == "FAILED"
    assert not any(one.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED for one in events)


@pytest.mark.accepts("G11")
async def test_update_of_another_turn_is_refused(perdure_runtime: Runtime) -> None:
    """A decision that was recorded in one turn does not decide another one."""
    async with perdure_runtime(PAYER, model=pays(2)) as client:
        first = await client.start("payer", "go")
        await first.approve((await pending(first))[0])
        await first.result()
        second = await client.start("payer", "go")
        await pending(second)
        [accepted] = [
            event.workflow_execution_update_accepted_event_attributes.accepted_request
            for event in (await history_of(client, first.id)).events
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
        ]
        request = UpdateWorkflowExecutionRequest(
            namespace=client.temporal.namespace,
            workflow_execution=WorkflowExecution(workflow_id=second.id),
            request=Request(
                meta=Meta(update_id="copied"),
                input=Input(name=accepted.input.name, args=accepted.input.args),
            ),
            wait_policy=WaitPolicy(
                lifecycle_stage=UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
            ),
        )
        answer = await client.temporal.workflow_service.update_workflow_execution(request)
        still = await pending(second)
        await second.cancel()

    assert answer.outcome.HasField("failure")
    assert answer.outcome.failure.application_failure_info.type == "DECRYPTION"
    assert len(still) == 1


@pytest.mark.accepts("G11")
async def test_schedule_gateway_and_replay_without_the_key_say_so(
    perdure_runtime: Runtime, perdure_server: str
) -> None:
    """A schedule, a turn over HTTP, and the replay of `perdure deploy check`."""
    schedule_id = f"plan-{secrets.token_hex(6)}"
    async with perdure_runtime(PAYER, model=pays()) as client:
        turn = await client.start("payer", "go")
        await turn.approve((await pending(turn))[0])
        await turn.result()
        plan = await client.create_schedule(
            schedule_id, "payer", "go", cron="0 4 * * *", timezone="UTC"
        )
        await plan.pause("because", by="anna")
        with other_keys(K2):
            stranger = await AgentClient.connect(perdure_server)
        for asking in (
            stranger.schedule(schedule_id).status(),
            stranger.schedule(schedule_id).change(task="other"),
        ):
            with pytest.raises(errors.DecryptionError, match="key 'k1'"):
                await asking
        [entry] = [one async for one in stranger.schedules() if one.id == schedule_id]
        transport = httpx.ASGITransport(gateway.app(stranger, gateway.one_token("t" * 40)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            answer = await http.get(
                f"/v1/turns/{turn.id}", headers={"authorization": f"Bearer {'t' * 40}"}
            )
        described = await client.temporal.get_workflow_handle(turn.id).describe()
        failure = await failure_of(stranger.temporal, turn.id, described.run_id)
        readable = await failure_of(client.temporal, turn.id, described.run_id)
        await plan.delete()

    assert entry.error is not None
    assert (entry.error.code, entry.reason) == ("DECRYPTION", "(encrypted with the key 'k1')")
    assert answer.status_code == 500
    assert answer.json()["code"] == "DECRYPTION"
    assert "encrypted with the key 'k1'" in failure
    assert readable == ""
