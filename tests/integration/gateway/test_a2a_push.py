"""Push notifications over A2A: the official client, a real worker, and a receiver on loopback."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from a2a.client import Client
from a2a.types import (
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.worker import Replayer

from perdure import Agent, errors, limits
from perdure.clients import AgentClient
from perdure.clients.gateway import A2AAgent
from perdure.delivery.push import Follow, PushCall
from perdure.temporal.names import FOLLOW, PUSH
from perdure.temporal.payloads import pack
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.worker import AgentWorker
from perdure.workflows import AgentPush

from ...conftest import Runtime, assert_no_task_failed
from ...support.delegating import delegate
from ...support.gateway.a2a import (
    DESK,
    agent_of,
    asks,
    decision,
    get,
    message,
    refund,
    refused,
    send,
)
from ...support.gateway.a2a_push import begin, cancelled_at_once, told
from ...support.gateway.served import as_, served
from ...support.long_turns import begin as start_turn
from ...support.long_turns import filling, reader, runs_of
from ...support.receiver import Answer, Receiver
from ...support.skipping import skip_time_in
from ...support.spending import look

SIGNALS = EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED
BOSS = Agent(name="boss", model="main", delegates=["payer"])
PAYER = Agent(name="payer", model="main", description="Pays.", tools=[refund])
PUBLISHED = (A2AAgent("desk", "Pays back."), A2AAgent("boss", "Has others pay back."))


@contextlib.asynccontextmanager
async def desk(
    runtime: Runtime, **models: ScriptedModel
) -> AsyncIterator[tuple[AgentClient, httpx.AsyncClient]]:
    """A client and a gateway of agents whose models are chosen by the task."""
    async with (
        runtime([DESK, BOSS, PAYER], model=ByTask(models)) as client,
        served(client, a2a_agents=PUBLISHED) as http,
    ):
        yield client, http


async def create(agent: Client, task: Task, **config: Any) -> TaskPushNotificationConfig:
    """A configuration for a task."""
    given = TaskPushNotificationConfig(task_id=task.id, **config)
    return await agent.create_task_push_notification_config(given)


async def known(agent: Client, task: Task) -> set[str]:
    """The ids of the configurations of a task."""
    request = ListTaskPushNotificationConfigsRequest(task_id=task.id)
    response = await agent.list_task_push_notification_configs(request)
    return {one.id for one in response.configs}


async def until_known(agent: Client, task: Task, count: int) -> None:
    """Wait until a task has this many configurations: a list may lag."""
    async with asyncio.timeout(60):
        while len(await known(agent, task)) != count:  # noqa: ASYNC110 - it is asked over HTTP
            await asyncio.sleep(0.1)


async def deliveries(client: AgentClient, task: Task, agent: str) -> list[WorkflowHandle[Any, Any]]:
    """The workflows of the configurations of a task after their ends, whose histories replay."""
    prefix = f"@acme/a2a/{agent}/{task.id}/push-"
    temporal = client.temporal
    query = f"WorkflowType = '{PUSH}' AND WorkflowId STARTS_WITH '{prefix}'"
    handles = [temporal.get_workflow_handle(one.id) async for one in temporal.list_workflows(query)]
    for handle in handles:
        with contextlib.suppress(WorkflowFailureError):
            await handle.result()
        history = await handle.fetch_history()
        assert_no_task_failed(history)
        replayer = Replayer(workflows=[AgentPush], data_converter=temporal.data_converter)
        assert (await replayer.replay_workflow(history)).replay_failure is None
    return handles


@pytest.mark.slow
@pytest.mark.accepts("H58")
async def test_receiver_is_told_of_a_wait_and_of_the_end(
    runtime: Runtime, receiver: Receiver
) -> None:
    """With its token and a signature, and no content. One that comes later is told of the wait
    there is; one that is deleted is told nothing more.
    """
    async with desk(runtime, lost=asks("Done.")) as (client, http):
        agent = await agent_of(http)
        first = {"id": "one", "url": receiver.url("/one"), "token": "for one"}
        task = await begin(agent, "lost", "a2ap1-m1", **first)
        again = await begin(agent, "lost", "a2ap1-m1", **first)
        one = await told(receiver, "/one", 1)
        later = [await create(agent, task, url=receiver.url("/later")) for _ in range(2)]
        await create(agent, task, id="gone", url=receiver.url("/gone"))
        waiting = [await told(receiver, path, 1) for path in ("/later", "/gone")]
        await until_known(agent, task, 3)
        wanted = GetTaskPushNotificationConfigRequest(task_id=task.id, id="one")
        found = await agent.get_task_push_notification_config(wanted)
        gone = DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="gone")
        for _ in range(2):
            await agent.delete_task_push_notification_config(gone)
        await until_known(agent, task, 2)
        await create(agent, task, id="gone", url=receiver.url("/anew"))
        anew = await told(receiver, "/anew", 1)
        asked = await send(agent, message("what is it?", "a2ap1-m2", task_id=task.id))
        done = await send(agent, decision(asked, "a2ap1-m3"))
        ends = [await told(receiver, path, 2) for path in ("/one", "/later", "/anew")]
        await deliveries(client, task, "desk")
        over = await refused(agent.get_task_push_notification_config(wanted))
        after = await create(agent, task, url=receiver.url("/after"))
        last = await told(receiver, "/after", 1)

    asking = (task.id, "TASK_STATE_INPUT_REQUIRED")
    completed = (task.id, "TASK_STATE_COMPLETED")
    assert (again.id, one, waiting) == (task.id, [asking], [[asking]] * 2)
    assert anew == [asking]
    assert ends == [[asking, completed]] * 3
    assert last == [completed]
    assert done.status.state == TaskState.TASK_STATE_COMPLETED
    assert later[0] == later[1]
    assert (found.id, found.url, found.task_id) == ("one", first["url"], task.id)
    assert (found.token, after.token) == ("", "")
    assert isinstance(over, TaskNotFoundError)
    paths = ("/one", "/later", "/gone", "/anew", "/after")
    assert [len(receiver.of(path)) for path in paths] == [2, 2, 1, 2, 1]
    tokens = {hook.path: hook.headers.get("x-a2a-notification-token") for hook in receiver.hooks}
    assert tokens == {"/one": "for one"} | dict.fromkeys(paths[1:])
    assert not any(b"refund" in hook.body or b"Done." in hook.body for hook in receiver.hooks)


@pytest.mark.slow
@pytest.mark.accepts("H58")
async def test_each_end_is_told_and_a_task_that_waits_for_its_turn(
    runtime: Runtime, receiver: Receiver
) -> None:
    """Failed, cancelled and rejected tasks, one of a delegate that asks, and one of a context in
    which another task runs.
    """
    models = {
        "bad": ScriptedModel(fails(errors.LLMRefusedError("no"))),
        "go on": asks(),
        "all": ScriptedModel(delegate("payer", "pay"), says("Paid.")),
        "pay": asks("Paid by me."),
        "lost": asks("Done.", "Next."),
    }
    async with desk(runtime, **models) as (client, http):
        agent, boss = await agent_of(http), await agent_of(http, agent="boss")
        await begin(agent, "bad", "a2ap2-m1", url=receiver.url("/bad"))
        stopped = await begin(agent, "go on", "a2ap2-m2", url=receiver.url("/stopped"))
        whole = await begin(boss, "all", "a2ap2-m3", url=receiver.url("/boss"))
        lost = await begin(agent, "lost", "a2ap2-m4", url=receiver.url("/lost"))
        await told(receiver, "/lost", 1)
        waits = await begin(agent, "next", "a2ap2-m5", lost.context_id, url=receiver.url("/next"))
        await told(receiver, "/stopped", 1)
        await client.turn(f"@acme/a2a/desk/{stopped.id}").cancel("enough")
        asked = await told(receiver, "/boss", 1)
        await send(boss, decision(await get(boss, whole.id), "a2ap2-m6"))
        await send(agent, decision(await get(agent, lost.id), "a2ap2-m7"))
        ends = {
            path: (await told(receiver, path, count))[-1][1].removeprefix("TASK_STATE_")
            for path, count in {
                "/bad": 1, "/stopped": 2, "/boss": 2, "/lost": 2, "/next": 1,
            }.items()
        }  # fmt: skip

    assert waits.status.state == TaskState.TASK_STATE_SUBMITTED
    assert asked == [(whole.id, "TASK_STATE_INPUT_REQUIRED")]
    assert ends == {
        "/bad": "FAILED",
        "/stopped": "CANCELED",
        "/boss": "COMPLETED",
        "/lost": "COMPLETED",
        "/next": "COMPLETED",
    }


@pytest.mark.slow
@pytest.mark.accepts("H59")
async def test_configurations_that_are_not_valid_are_refused(
    runtime: Runtime, receiver: Receiver
) -> None:
    """At once, also by a worker that does not send to the host, and then nothing is started. A
    configuration is of one task, and of those who may control it.
    """
    good = receiver.url("/good")
    bad: dict[str, dict[str, Any]] = {
        "no URL": {"url": "hooks"},
        "plain http": {"url": "http://hooks.example.com/"},
        "a password": {"url": "https://user:secret@hooks.example.com/"},
        "another host": {"url": "https://hooks.example.com/"},
        "a private address": {"url": "https://169.254.169.254/"},
        "credentials": {"url": good, "authentication": {"scheme": "Bearer", "credentials": "x"}},
        "a token of two lines": {"url": good, "token": "a\r\nhost: evil"},
        "a long token": {"url": good, "token": "x" * (limits.A2A_PUSH_CHARACTERS + 1)},
        "an id of two lines": {"url": good, "id": "a\nb"},
    }
    async with desk(runtime, lost=asks("Done.")) as (client, http):
        agent = await agent_of(http)
        begun = await asyncio.gather(
            *(
                refused(begin(agent, "lost", f"a2ap3-{number}", "a2ap3", **config))
                for number, config in enumerate(bad.values())
            )
        )
        started = [one async for one in client.sessions(id_prefix="@acme/a2a/desk/a2ap3")]
        task = await begin(agent, "lost", "a2ap3-m1", id="1", url=good)
        created = await asyncio.gather(
            *(refused(create(agent, task, **config)) for config in bad.values())
        )
        other = await refused(create(agent, task, id="1", url=receiver.url("/other")))
        for number in range(2, limits.A2A_PUSHES + 1):
            await create(agent, task, id=str(number), url=receiver.url(f"/{number}"))
        await until_known(agent, task, limits.A2A_PUSHES)
        many = await refused(create(agent, task, id="one more", url=good))
        same = await create(agent, task, id="1", url=good)
        unknown = await refused(
            agent.get_task_push_notification_config(
                GetTaskPushNotificationConfigRequest(task_id=task.id, id="none")
            )
        )
        http.headers.update(as_("rita"))
        readable = await known(agent, task)
        reader = await refused(create(agent, task, url=good))
        http.headers.update(as_("otto"))
        strange = await refused(known(agent, task))
        http.headers.update(as_("anna"))
        await send(agent, decision(await get(agent, task.id), "a2ap3-m2"))

    for found in (begun, created):
        assert dict(zip(bad, map(type, found), strict=True)) == dict.fromkeys(
            bad, InvalidParamsError
        )
    assert started == []
    assert isinstance(other, InvalidParamsError)
    assert "another URL" in other.message
    assert isinstance(many, InvalidParamsError)
    assert same.id == "1"
    assert isinstance(unknown, TaskNotFoundError)
    assert readable == {str(number) for number in range(1, limits.A2A_PUSHES + 1)}
    assert "403" in reader.message
    assert isinstance(strange, TaskNotFoundError)
    assert receiver.of("/other") == []


@pytest.mark.slow
@pytest.mark.accepts("H58")
async def test_receiver_that_is_away_gets_its_messages_later(
    runtime: Runtime, receiver: Receiver
) -> None:
    """One that wants no more gets none."""
    later = {"retry-after": "1"}
    async with desk(runtime, lost=asks("Done.")) as (client, http):
        agent = await agent_of(http)
        url = receiver.url("/busy", Answer(503, later), Answer(503, later))
        task = await begin(agent, "lost", "a2ap4-m1", url=url)
        await told(receiver, "/busy", 3)
        await create(agent, task, id="gone", url=receiver.url("/gone", Answer(410)))
        await receiver.until("/gone")
        await send(agent, decision(await get(agent, task.id), "a2ap4-m2"))
        states = [state for _, state in await told(receiver, "/busy", 4)]
        ended = [(await one.describe()).status for one in await deliveries(client, task, "desk")]

    assert states == ["TASK_STATE_INPUT_REQUIRED"] * 3 + ["TASK_STATE_COMPLETED"]
    assert len(receiver.of("/gone")) == 1
    statuses = {WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.FAILED}
    assert (len(ended), set(ended)) == (2, statuses)


@pytest.mark.slow
@pytest.mark.accepts("H58")
async def test_end_of_a_turn_that_tells_no_news_is_told(
    runtime: Runtime, receiver: Receiver
) -> None:
    """It was terminated, so none of its code ran: it is looked at from time to time."""
    async with desk(runtime, lost=asks()) as (client, http):
        agent = await agent_of(http)
        task = await begin(agent, "lost", "a2ap5-m1", url=receiver.url("/lost"))
        await told(receiver, "/lost", 1)
        await client.temporal.get_workflow_handle(f"@acme/a2a/desk/{task.id}").terminate("gone")
        [push] = [
            one
            async for one in client.temporal.list_workflows(f"WorkflowType = '{PUSH}'")
            if one.id.startswith(f"@acme/a2a/desk/{task.id}/")
        ]
        config = (await client.temporal.get_workflow_handle(push.id).describe()).raw_description
        life = config.execution_config.workflow_execution_timeout.ToTimedelta()
        await skip_time_in(client, push.id, limits.A2A_PUSH_LOOK)
        states = [state for _, state in await told(receiver, "/lost", 2)]
        await deliveries(client, task, "desk")

    assert states == ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_FAILED"]
    assert life == limits.A2A_PUSH_LIFE


@pytest.mark.slow
@pytest.mark.accepts("H58")
async def test_turn_of_several_runs_tells_its_news_in_each(
    runtime: Runtime, receiver: Receiver
) -> None:
    """The next run takes its followers over."""
    model = ScriptedModel(*filling(3), calls(call("refund", euros=1)), says("Done."))
    app = reader(parallel_tools=True, tools=[look, refund])
    async with runtime(app, model=model) as client:
        turn = await start_turn(client)
        call_ = PushCall(
            id="1", url=receiver.url("/runs"), turn_id=turn.id, task="c/1", context="c"
        )
        push = await client.temporal.start_workflow(
            PUSH, pack(call_), id=f"{turn.id}/push-1", task_queue=client.task_queue
        )
        status = await turn.wait(60)
        asked = await told(receiver, "/runs", 1)
        assert status.waits[0].call is not None
        await turn.approve(status.waits[0].call)
        await turn.result()
        both = await told(receiver, "/runs", 2)
        await push.result()
        runs = await runs_of(client, turn)
        assert_no_task_failed(await push.fetch_history())

    assert len(runs) > 1
    assert asked == [("c/1", "TASK_STATE_INPUT_REQUIRED")]
    assert both == [*asked, ("c/1", "TASK_STATE_COMPLETED")]


@pytest.mark.accepts("H59")
async def test_turn_tells_its_news_to_a_limited_number_of_followers(runtime: Runtime) -> None:
    """One of them twice is one, and those that are not there keep no turn from ending."""
    async with runtime([DESK], model=asks("Done.")) as client:
        turn = await client.start("desk", "lost", id="a2ap6")
        await turn.wait(60)
        handle = client.temporal.get_workflow_handle(turn.id)
        for number in [0, 0, *range(limits.FOLLOWERS + 5)]:
            await handle.signal(FOLLOW, pack(Follow(follower=f"nobody-{number}")))
        await handle.signal(FOLLOW, "no follower")
        [wait] = (await turn.status()).waits
        assert wait.call is not None
        await turn.approve(wait.call)
        report = await turn.result()
        events = [one.event_type async for one in handle.fetch_history_events()]

    assert report.output == "Done."
    assert events.count(SIGNALS) == limits.FOLLOWERS


@pytest.mark.accepts("S31")
async def test_client_is_answered_when_what_it_waits_for_is_cancelled(runtime: Runtime) -> None:
    """No worker has looked at the receiver: the client is told so, and may ask again."""
    call = PushCall(id="one", url="https://x.example/", task="t", context="c")
    async with runtime([DESK], model=ScriptedModel()) as client:
        clerk = Agent(name="clerk", model="scripted:clerk")
        late = AgentWorker([clerk], providers={"scripted": ScriptedModel()}, task_queue="late")
        cancelled = cancelled_at_once(client, call, "cancelled-push", "late")
        async with cancelled as (asking, handle), late.running(client.temporal):
            with pytest.raises(errors.TurnConflictError, match="cancelled before the receiver"):
                await asking
            with pytest.raises(WorkflowFailureError):
                await handle.result()
            description = await handle.describe()
            history = await handle.fetch_history()
        replayer = Replayer(workflows=[AgentPush], data_converter=client.temporal.data_converter)
        replayed = await replayer.replay_workflow(history)

    assert description.status == WorkflowExecutionStatus.CANCELED
    assert replayed.replay_failure is None
    assert_no_task_failed(history)
