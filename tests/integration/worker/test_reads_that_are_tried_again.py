"""Activities that read a history while something is away for a moment: nothing is given up."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import (
    DataConverter,
    ExternalStorage,
    PayloadCodec,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
)

from perdure import Agent, Budget, Outcome
from perdure.clients import AgentClient
from perdure.clients.gateway import A2AAgent
from perdure.clients.schedules.definition import turn_id_of
from perdure.temporal.names import (
    END_OF_TURN,
    READ_CHANGE,
    READ_CHILD,
    RECORD_TURN,
    SEND_MESSAGE,
    SETTLE_SCHEDULE,
)
from perdure.testing import ByTask, ScriptedModel, says
from perdure.turn.facts import ChildScheduled, Scheduled
from perdure.values.messages import AssistantMessage, UserMessage
from perdure.worker import AgentWorker

from ...support.delegating import PRICED, delegate, editor, researcher, used
from ...support.gateway import served as gateway
from ...support.gateway.a2a import agent_of
from ...support.gateway.a2a_push import begin, told
from ...support.lost_delegates import found
from ...support.receiver import Receiver
from ...support.scheduled_messages import turn_with
from ...support.scheduling import DAILY, at, existing, new_id
from ...support.spending import Held, Queue, until
from ...support.storage import Folder
from ...support.webhooks import delivered

CLERK = Agent(name="clerk", model="scripted:clerk")


class Away:
    """Whether something does not answer: at the first reading by an activity of one kind.

    Attributes:
        is_due: Whether that reading is still to come.
        failed: The number of readings that failed.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.is_due = True
        self.failed = 0

    def check(self) -> None:
        """Fail if it is the reading.

        Raises:
            OSError: It is.
        """
        is_reading = activity.in_activity() and activity.info().activity_type == self._kind
        if is_reading and self.is_due:
            self.is_due = False
            self.failed += 1
            raise OSError("there is no answer")


class KeyService(PayloadCodec):
    """Changes nothing, and does not answer once."""

    def __init__(self, away: Away) -> None:
        self._away = away

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        self._away.check()
        return list(payloads)


class Storage(Folder):
    """Keeps payloads in a folder, and does not answer once."""

    def __init__(self, folder: Path, away: Away) -> None:
        super().__init__(folder)
        self._away = away

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        self._away.check()
        return await super().retrieve(context, claims)


@contextlib.asynccontextmanager
async def working(
    address: str, converter: DataConverter, app: AgentWorker
) -> AsyncIterator[AgentClient]:
    """A client, and a worker with the same converter."""
    temporal = await Client.connect(address, data_converter=converter)
    client = Queue(temporal).client
    async with replace(app, task_queue=client.task_queue).running(temporal):
        yield client


@contextlib.asynccontextmanager
async def served(address: str, away: Away, *answers: str) -> AsyncIterator[AgentClient]:
    """A client, and a worker whose key service may be away, and whose model has these answers."""
    converter = DataConverter(payload_codec=KeyService(away))
    app = AgentWorker(CLERK, providers={"scripted": ScriptedModel(*answers)})
    async with working(address, converter, app) as client:
        yield client


@pytest.mark.slow
@pytest.mark.accepts("Y72")
async def test_session_keeps_a_turn_that_could_not_be_read_at_once(perdure_server: str) -> None:
    """Only a turn whose history is gone is without its messages."""
    away = Away(RECORD_TURN)
    async with served(perdure_server, away, "one", "two") as client:
        session = client.session(f"reads-{secrets.token_hex(4)}", "clerk")
        await (await session.say("first")).result()
        await (await session.say("second")).result()
        messages = await session.messages()
        await session.close()

    assert away.failed == 1
    assert [one.text for one in messages if isinstance(one, UserMessage | AssistantMessage)][
        :2
    ] == [
        "first",
        "one",
    ]


@pytest.mark.slow
@pytest.mark.accepts("Y72")
async def test_schedule_counts_a_turn_although_its_total_could_not_be_read_at_once(
    perdure_server: str,
) -> None:
    """The turn ends after it was counted."""
    away = Away(SETTLE_SCHEDULE)
    async with served(perdure_server, away, "one") as client:
        daily = await client.create_schedule(
            new_id("reads"), "clerk", "Go.", **DAILY, total=Budget(model_calls=10)
        )
        await (await existing(client, await daily.run_now())).result()
        spent = (await daily.status()).spent
        await daily.delete()

    assert away.failed == 1
    assert spent.model_calls == 1


@pytest.mark.slow
@pytest.mark.accepts("Y72")
async def test_webhook_is_sent_although_the_end_could_not_be_read_at_once(
    perdure_server: str, receiver: Receiver
) -> None:
    """It says how the turn ended."""
    away = Away(END_OF_TURN)
    async with served(perdure_server, away, "one") as client:
        turn = await client.start("clerk", "go", id=new_id("reads"), on_done=receiver.url("/done"))
        memo = await delivered(client, turn)
    [hook] = receiver.of("/done")

    assert away.failed == 1
    assert memo["state"] == "delivered"
    assert hook.verified()["data"]["output"] == "one"


@pytest.mark.slow
@pytest.mark.accepts("Y72")
async def test_message_of_a_schedule_is_sent_although_the_session_could_not_be_read_at_once(
    perdure_server: str,
) -> None:
    """The second message reads how the turn of the first one has ended."""
    away = Away(SEND_MESSAGE)
    away.is_due = False
    async with served(perdure_server, away, "one", "two") as client:
        name = new_id("reads")
        session = client.session(name)
        daily = await client.create_schedule(
            name, "clerk", "Go.", **DAILY, session=name, on_failure="pause"
        )
        for day in (2, 3):
            [slot] = await daily.backfill(at(day), at(day, hour=9))
            turn = await turn_with(session, turn_id_of(name, slot))
            report = await turn.result()
            away.is_due = not away.failed
        await daily.delete()
        await session.close()

    assert away.failed == 1
    assert report.output == "two"


@pytest.mark.slow
@pytest.mark.accepts("Y72")
async def test_push_notification_is_sent_although_the_task_could_not_be_read_at_once(
    perdure_server: str, receiver: Receiver
) -> None:
    """It says how the task ended."""
    away = Away(READ_CHANGE)
    async with (
        served(perdure_server, away, "one") as client,
        gateway.served(client, a2a_agents=[A2AAgent("clerk", "Works.")]) as http,
    ):
        agent = await agent_of(http, agent="clerk")
        task = await begin(agent, "go", new_id("reads"), url=receiver.url("/push"))
        states = await told(receiver, "/push", 1)

    assert away.failed == 1
    assert states == [(task.id, "TASK_STATE_COMPLETED")]


@pytest.mark.slow
@pytest.mark.accepts("Y71", "Y72")
async def test_delegate_that_was_terminated_is_booked_although_it_could_not_be_read_at_once(
    perdure_server: str,
) -> None:
    """With what it spent, and not with its lease: it had asked no model."""
    away = Away(READ_CHILD)
    models = {
        "go": ScriptedModel(
            delegate("researcher", "Find.", used(300)), says("done", usage=used(300))
        ),
        "Find.": Held(says("never")),
    }
    app = AgentWorker(
        [editor(delegates=["researcher"]), researcher()],
        prices=PRICED,
        providers={"scripted": ByTask(models)},
    )
    converter = DataConverter(payload_codec=KeyService(away))
    async with working(perdure_server, converter, app) as client:
        turn = await client.start("editor", "go", budget=Budget(model_calls=50))
        await until(turn, ChildScheduled)
        child = await found(client, f"{turn.id}/researcher-1")
        await until(child, Scheduled)
        await client.temporal.get_workflow_handle(child.id).terminate()
        report = await turn.result()

    assert away.failed == 1
    assert [child.outcome for child in report.children] == [Outcome.TERMINATED]
    assert report.children[0].spent.model_calls == 1
    assert report.spent.model_calls == 3


@pytest.mark.slow
@pytest.mark.accepts("Y72")
async def test_session_keeps_a_turn_while_the_external_storage_is_away(
    perdure_server: str, tmp_path: Path
) -> None:
    """Its messages are read again."""
    away = Away(RECORD_TURN)
    storage = ExternalStorage(drivers=[Storage(tmp_path, away)], payload_size_threshold=100)
    app = AgentWorker(CLERK, providers={"scripted": ScriptedModel("one", "two")})
    converter = replace(DataConverter.default, external_storage=storage)
    async with working(perdure_server, converter, app) as client:
        session = client.session(new_id("reads"), "clerk")
        await (await session.say("first")).result()
        await (await session.say("second")).result()
        messages = await session.messages()
        await session.close()

    assert away.failed == 1
    assert [one.text for one in messages if isinstance(one, UserMessage)] == ["first", "second"]
