"""Activities that read a history while something is away for a moment: nothing is given up."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence

import pytest
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import DataConverter, PayloadCodec

from perdure import Agent, Budget
from perdure.clients import AgentClient
from perdure.temporal.names import END_OF_TURN, RECORD_TURN, SETTLE_SCHEDULE
from perdure.testing import ScriptedModel
from perdure.values.messages import AssistantMessage, UserMessage
from perdure.worker import AgentWorker

from ..receiver import Receiver
from .spending import Queue
from .test_schedules import DAILY, existing, new_id
from .test_webhooks import delivered

CLERK = Agent(name="clerk", model="scripted:clerk")


class KeyService(PayloadCodec):
    """Changes nothing, and does not answer at the first reading by an activity of one kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.failed = 0

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        is_reading = activity.in_activity() and activity.info().activity_type == self._kind
        if is_reading and not self.failed:
            self.failed += 1
            raise RuntimeError("the key service does not answer")
        return list(payloads)


@contextlib.asynccontextmanager
async def served(address: str, codec: KeyService, *answers: str) -> AsyncIterator[AgentClient]:
    """A client, and a worker with this codec, whose model has these answers."""
    temporal = await Client.connect(address, data_converter=DataConverter(payload_codec=codec))
    client = Queue(temporal).client
    model = ScriptedModel(*answers)
    app = AgentWorker(CLERK, providers={"scripted": model}, task_queue=client.task_queue)
    async with app.running(temporal):
        yield client


@pytest.mark.accepts("Y72")
async def test_session_keeps_a_turn_that_could_not_be_read_at_once(perdure_server: str) -> None:
    """Only a turn whose history is gone is without its messages."""
    codec = KeyService(RECORD_TURN)
    async with served(perdure_server, codec, "one", "two") as client:
        session = client.session(f"reads-{secrets.token_hex(4)}", "clerk")
        await (await session.say("first")).result()
        await (await session.say("second")).result()
        messages = await session.messages()
        await session.close()

    assert codec.failed == 1
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
    codec = KeyService(SETTLE_SCHEDULE)
    async with served(perdure_server, codec, "one") as client:
        daily = await client.create_schedule(
            new_id("reads"), "clerk", "Go.", **DAILY, total=Budget(model_calls=10)
        )
        await (await existing(client, await daily.run_now())).result()
        spent = (await daily.status()).spent
        await daily.delete()

    assert codec.failed == 1
    assert spent.model_calls == 1


@pytest.mark.slow
@pytest.mark.accepts("Y72")
async def test_webhook_is_sent_although_the_end_could_not_be_read_at_once(
    perdure_server: str, receiver: Receiver
) -> None:
    """It says how the turn ended."""
    codec = KeyService(END_OF_TURN)
    async with served(perdure_server, codec, "one") as client:
        turn = await client.start("clerk", "go", id=new_id("reads"), on_done=receiver.url("/done"))
        memo = await delivered(client, turn)
    [hook] = receiver.of("/done")

    assert codec.failed == 1
    assert memo["state"] == "delivered"
    assert hook.verified()["data"]["output"] == "one"
