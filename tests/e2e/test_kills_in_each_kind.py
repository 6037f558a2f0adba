"""The worker process is killed in each kind of activity that there is: before the activity begins,
and when it is done, but its result has not been sent. Its supervisor reports it.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from a2a.client import Client as A2AClient
from a2a.client.errors import A2AClientError
from a2a.types import Task
from temporalio.client import Client

from perdure import Budget, Outcome, ToolOutcome, errors
from perdure.clients import BatchOf, Schedule, ScheduledTurn
from perdure.clients.gateway import A2AAgent
from perdure.clients.schedules.definition import turn_id_of
from perdure.temporal import names
from perdure.testing.stub_provider import StubCall, StubReply
from perdure.turn.facts import Scheduled, WaitBegan
from perdure.values.messages import AssistantMessage, UserMessage
from perdure.worker.internals import activity_name

from ..support.e2e.app import AGENT
from ..support.e2e.gate import FOLDER, held, hold
from ..support.e2e.kinds_app import HIRED, make
from ..support.e2e.stories import Improviser, Process, Story, asks, kill, results, says, use
from ..support.gateway.a2a import agent_of
from ..support.gateway.a2a_push import begin, told
from ..support.gateway.served import served
from ..support.lost_delegates import found
from ..support.receiver import SECRET, Receiver, receiving
from ..support.scheduled_batches import existing as existing_batch
from ..support.scheduled_messages import turn_with
from ..support.scheduling import existing
from ..support.spending import ended, until
from ..support.webhooks import delivered

A_TOOL, A_DYNAMIC_TOOL = "fetch", "notes__echo"
SLOT = datetime(2026, 10, 24, 7, tzinfo=ZoneInfo("Europe/Berlin"))
WITHIN_S = 150.0
CLERK = (
    asks(use("fetch", "one"), {"name": A_DYNAMIC_TOOL, "arguments": {"text": "two"}}),
    says("done"),
)
HIRE = (asks(use("bring", "one"), use("carry", "two")), says("done"))
DELEGATES = (
    asks({"name": "delegate_to_agent", "arguments": {"agent": AGENT, "task": "wait"}}),
    says("done"),
)


EVENT_KEY = f"kind-{secrets.token_hex(4)}"
OWN_CALLS: Mapping[str, StubCall] = {
    names.POLL_CALL: use("launch", "one"),
    names.CANCEL_CALL: use("linger", "one"),
    names.REGISTER_WAITER: {
        "name": "wait_for",
        "arguments": {"event": "built", "key": EVENT_KEY, "note": "the build"},
    },
}
"""The calls that need these kinds of activity."""


class Models(Improviser):
    """A provider with a script for each model."""

    def __init__(self, replies: Mapping[str, Sequence[StubReply]], log: Path) -> None:
        super().__init__((), log)
        self._scripts = replies

    def reply(self, body: Mapping[str, Any]) -> StubReply | None:
        """The reply, by the model and the number of its answers."""
        answers: int = sum(message["role"] == "assistant" for message in body["messages"])
        return self._scripts[body["model"]][answers]


@dataclass(frozen=True)
class Stage:
    """Workers that are killed, and a receiver of webhooks."""

    story: Story
    worker: Process
    receiver: Receiver
    folder: Path
    kind: str

    @contextlib.asynccontextmanager
    async def kills(self) -> AsyncIterator[None]:
        """Kill the worker in an activity of this kind, twice, while the block runs."""
        hold(self.folder, self.kind, "input")
        killing = asyncio.create_task(self._kill_twice())
        yield
        await killing

    async def _kill_twice(self) -> None:
        await held(self.folder, self.kind, "input")
        hold(self.folder, self.kind, "result")
        await kill(self.worker)
        await held(self.folder, self.kind, "result")
        await kill(self.worker)


async def turn_of_a_clerk(stage: Stage) -> None:
    """The turn completes, with the result of each tool."""
    async with stage.kills():
        report = await stage.story.report(await stage.story.start())

    fetched, echoed = results(report)
    assert fetched == f"one by attempt {3 if stage.kind == A_TOOL else 1}"
    assert echoed == "two"


async def turn_of_a_factory(stage: Stage) -> None:
    """The same, with an agent that is made for the turn, and its tools."""
    async with stage.kills():
        report = await stage.story.report(await stage.story.client.start(HIRED, "go"))

    assert results(report) == ["one brought", "two carried"]


async def lost_order(stage: Stage) -> None:
    """It is looked up, and not made again."""
    async with stage.kills():
        report = await stage.story.report(await stage.story.client.start(HIRED, "go"))

    [order] = report.steps[0].results
    assert order.outcome is ToolOutcome.VERIFIED
    assert stage.story.ran() == [("one", 1)]


async def polled_job(stage: Stage) -> None:
    """Its result is found, and it is not started again."""
    async with stage.kills():
        report = await stage.story.report(await stage.story.client.start(HIRED, "go"))

    assert results(report) == ["one is done"]
    assert stage.story.ran() == [("one", 1)]


async def cancelled_job(stage: Stage) -> None:
    """The report says that it was cancelled."""
    turn = await stage.story.client.start(HIRED, "go")
    await until(turn, WaitBegan)
    async with stage.kills():
        await turn.cancel("enough")
        end = await ended(turn)

    assert isinstance(end, errors.TurnCancelledError)
    assert end.report is not None
    [unsettled] = end.report.unsettled
    assert unsettled.reason.endswith("it was cancelled")


async def event_by_key(stage: Stage) -> None:
    """The turn is told of it."""
    async with stage.kills():
        turn = await stage.story.client.start(HIRED, "go")
        await until(turn, WaitBegan)
        await stage.story.client.emit("built", key=EVENT_KEY, body="done")
        report = await turn.result()

    assert results(report)[0].endswith('It holds:\n"done"')


async def fork(stage: Stage) -> None:
    """The fork takes over the messages of the turn."""
    turn = await stage.story.start()
    before = await stage.story.report(turn)
    async with stage.kills():
        report = await (await turn.fork(say="again")).result()

    assert report.outcome is Outcome.COMPLETED
    assert report.messages[: len(before.messages)] == before.messages


async def terminated_delegate(stage: Stage) -> None:
    """What it has spent is booked."""
    story = stage.story
    turn = await story.client.start(HIRED, "go")
    await story.asked(2)
    async with stage.kills():
        child = await found(story.client, f"{turn.id}/{AGENT}-1")
        await until(child, Scheduled)
        await story.temporal.get_workflow_handle(child.id).terminate()
        report = await turn.result()

    assert report.outcome is Outcome.COMPLETED
    assert [child.spent.model_calls for child in report.children] == [1]
    assert report.spent.model_calls == len(story.log()) == 3


async def message_to_a_session(stage: Stage) -> None:
    """Question and answer are in the session, also for the next turn, and count."""
    session = stage.story.client.session(new_id(), AGENT, budget=Budget(model_calls=100))
    async with stage.kills():
        await (await session.say("first", id="m-1")).result()
        await (await session.say("second", id="m-2")).result()
    await session.close()
    async for _ in session.events():
        pass
    status, turns = await session.status(), await session.turns()
    messages = await session.messages()

    assert [one.text for one in messages if isinstance(one, UserMessage)] == ["first", "second"]
    assert len([one for one in messages if isinstance(one, AssistantMessage)]) == 4
    assert [(turn.outcome, turn.messages) for turn in turns] == [
        (Outcome.COMPLETED, ("m-1",)),
        (Outcome.COMPLETED, ("m-2",)),
    ]
    assert status.spent.model_calls == len(stage.story.log())


async def message_of_a_schedule(stage: Stage) -> None:
    """It is said once, and the schedule knows the turn that read it."""
    client, name = stage.story.client, new_id()
    session = client.session(name)
    daily = await client.create_schedule(
        name, AGENT, "go", cron="0 7 * * *", timezone="Europe/Berlin", session=name
    )
    async with stage.kills():
        [slot] = await daily.backfill(SLOT, SLOT)
        turn = await turn_with(session, turn_id_of(name, slot), WITHIN_S)
        await turn.result()
    last = await last_of(daily)
    await daily.delete()

    assert [read for one in await session.turns() for read in one.messages] == [
        turn_id_of(name, slot)
    ]
    assert [one.id for one in last] == [turn.id]


async def last_of(daily: Schedule) -> tuple[ScheduledTurn, ...]:
    """The last turns of a schedule, once it has any."""
    while not (last := (await daily.status()).last):  # noqa: ASYNC110 - the server is asked
        await asyncio.sleep(0.1)
    return last


async def total_of_a_schedule(stage: Stage) -> None:
    """The schedule counts what the provider was asked."""
    client, name = stage.story.client, new_id()
    daily = await client.create_schedule(
        name,
        AGENT,
        "go",
        cron="0 7 * * *",
        timezone="Europe/Berlin",
        total=Budget(model_calls=100),
    )
    async with stage.kills():
        [slot] = await daily.backfill(SLOT, SLOT)
        await (await existing(client, turn_id_of(name, slot))).result()
    status = await daily.status()
    await daily.delete()

    assert status.spent.model_calls == len(stage.story.log())


async def batch_of_a_schedule(stage: Stage) -> None:
    """Each task is run once, and the schedule counts what the provider was asked."""
    client, name = stage.story.client, new_id()
    daily = await client.create_schedule(
        name,
        AGENT,
        batch=BatchOf(["go", "go on"]),
        cron="0 7 * * *",
        timezone="Europe/Berlin",
        total=Budget(model_calls=100),
    )
    async with stage.kills():
        [slot] = await daily.backfill(SLOT, SLOT)
        batch = await existing_batch(client, turn_id_of(name, slot))
        ended = await batch.wait()
    status = await daily.status()
    await daily.delete()

    assert ended.done == 2
    assert status.spent.model_calls == len(stage.story.log())


async def webhook(stage: Stage) -> None:
    """The receiver has the message, and each time the same."""
    async with stage.kills():
        turn = await stage.story.start(id=new_id(), on_done=stage.receiver.url("/done"))
        memo = await delivered(stage.story.client, turn)

    assert memo["state"] == "delivered"
    assert len({hook.headers["webhook-id"] for hook in stage.receiver.of("/done")}) == 1


async def begun_at_last(agent: A2AClient, message_id: str, url: str) -> Task:
    """The task of a message, which is sent again while no worker answers within half a minute."""
    while True:
        try:
            return await begin(agent, "go", message_id, url=url)
        except A2AClientError as error:
            if "503" not in str(error):
                raise


async def push_notification(stage: Stage) -> None:
    """The receiver is told of the end of the task, and each time the same."""
    agents = [A2AAgent(AGENT, "Fetches.")]
    async with stage.kills(), served(stage.story.client, name="root", a2a_agents=agents) as http:
        agent, url = await agent_of(http, agent=AGENT), stage.receiver.url("/push")
        task = await begun_at_last(agent, new_id(), url)
        states = await told(stage.receiver, "/push", 1, WITHIN_S)

    assert states == [(task.id, "TASK_STATE_COMPLETED")]
    assert len({hook.headers["webhook-id"] for hook in stage.receiver.of("/push")}) == 1


KINDS: dict[str, Callable[[Stage], Awaitable[None]]] = {
    names.RESOLVE_AGENT: turn_of_a_factory,
    names.CALL_MODEL: turn_of_a_clerk,
    names.ASK_POLICY: turn_of_a_clerk,
    names.RUN_MIDDLEWARE: turn_of_a_clerk,
    names.TELL_OBSERVERS: turn_of_a_clerk,
    names.CALL_TOOL: turn_of_a_factory,
    names.CALL_SYNC_TOOL: turn_of_a_factory,
    names.VERIFY: lost_order,
    names.POLL_CALL: polled_job,
    names.CANCEL_CALL: cancelled_job,
    names.REGISTER_WAITER: event_by_key,
    names.CARRY: fork,
    names.READ_CHILD: terminated_delegate,
    names.RECORD_TURN: message_to_a_session,
    names.SEND_MESSAGE: message_of_a_schedule,
    names.SETTLE_SCHEDULE: total_of_a_schedule,
    names.STORE_BATCH: batch_of_a_schedule,
    names.END_OF_TURN: webhook,
    names.NOTIFY: webhook,
    names.CHECK_RECEIVER: push_notification,
    names.READ_CHANGE: push_notification,
    A_TOOL: turn_of_a_clerk,
    A_DYNAMIC_TOOL: turn_of_a_clerk,
}
"""What is done and must hold, by the kind of activity in which the worker is killed."""
CASES = [*KINDS.items(), (names.NOTIFY, push_notification)]
"""With what else has an activity of these kinds."""


def new_id() -> str:
    """An id that no other test has."""
    return f"kind-{secrets.token_hex(4)}"


def replies_for(kind: str) -> Mapping[str, Sequence[StubReply]]:
    """The replies of the models, by their names."""
    if kind == names.READ_CHILD:
        return {"hired": DELEGATES, "clerk": [says("late", delay_s=WITHIN_S)]}
    if kind == names.VERIFY:
        return {"hired": (asks(use("order", "one")), says("done"))}
    if kind in OWN_CALLS:
        return {"hired": (asks(OWN_CALLS[kind]), says("done"))}
    return {"hired": HIRE, "clerk": (*CLERK, *CLERK)}


@pytest.mark.accepts("Y70")
async def test_every_kind_of_activity_is_killed(
    perdure_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a worker registers are below, with its only tool and its dynamic activity."""
    monkeypatch.setenv("E2E_PROVIDER", "http://127.0.0.1:9")
    monkeypatch.setenv("E2E_NOTES", str(tmp_path))
    worker = make().build(await Client.connect(perdure_server))

    registered = {activity_name(one) for one in worker.config(active_config=True)["activities"]}

    assert registered == {"" if kind == A_DYNAMIC_TOOL else kind for kind in KINDS}


@pytest.mark.slow
@pytest.mark.accepts("Y70", "Y71", "B19")
@pytest.mark.parametrize(
    ("kind", "what"), CASES, ids=[f"{kind}-{what.__name__}" for kind, what in CASES]
)
async def test_nothing_is_lost_when_the_worker_is_killed_in_this_kind_of_activity(
    perdure_server: str, tmp_path: Path, kind: str, what: Callable[[Stage], Awaitable[None]]
) -> None:
    """Twice: before it begins, and before its result is sent."""
    stub = Models(replies_for(kind), tmp_path / "requests.jsonl")
    gate, notes = tmp_path / "gate", tmp_path / "notes"
    gate.mkdir()
    notes.mkdir()
    async with Story(perdure_server, tmp_path, stub=stub, supervised=True) as story:
        with receiving() as receiver:
            worker = await story.worker(
                "tests.support.e2e.kinds_app:make",
                E2E_NOTES=str(notes),
                PERDURE_WEBHOOK_HOSTS=f"private:127.0.0.1:{receiver.port}",
                PERDURE_WEBHOOK_SECRETS=SECRET,
                **{FOLDER: str(gate)},
            )
            async with asyncio.timeout(WITHIN_S):
                await what(Stage(story, worker, receiver, gate, kind))
