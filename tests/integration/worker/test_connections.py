"""What a connection to Temporal saves: compression on loopback, and the way through a queue."""

from __future__ import annotations

import pytest
from temporalio.service import GrpcCompression

from perdure import Agent, Outcome
from perdure.temporal.connect import compression_for, connect, connect_local
from perdure.testing import ScriptedModel
from perdure.worker import AgentWorker

from ...conftest import RecordingClient
from ...support.spending import queue

HERE = ["localhost:7233", "127.0.0.1:7233", "127.8.9.10:1", "[::1]:7233"]
ELSEWHERE = [
    *["temporal:7233", "10.0.0.1:7233", "[2001:db8::1]:7233", "localhost.example.com:7233"],
    *["team.a1b2c.tmprl.cloud:7233", "host", ""],
]


@pytest.mark.accepts("E121")
@pytest.mark.parametrize("address", HERE)
def test_loopback_is_not_compressed(address: str) -> None:
    """By name or by address."""
    assert compression_for(address) is GrpcCompression.NONE


@pytest.mark.accepts("E121")
@pytest.mark.parametrize("address", ELSEWHERE)
def test_everything_else_is(address: str) -> None:
    """That is the default of the SDK."""
    assert compression_for(address) is GrpcCompression.GZIP


@pytest.mark.accepts("E121")
async def test_connections_use_it(perdure_server: str) -> None:
    """Both those of workers and clients, and those of the embedded server."""
    connected = [await connect(perdure_server), await connect_local(perdure_server)]

    used = {client.service_client.config.grpc_compression for client in connected}
    assert used == {GrpcCompression.NONE}


@pytest.mark.accepts("E121")
async def test_worker_on_the_connection_of_the_client_gets_the_turn_with_the_answer_to_its_start(
    perdure_server: str,
) -> None:
    """A turn that is started from elsewhere goes through the task queue."""
    app = AgentWorker(Agent(name="plain", model="scripted:x"))
    async with queue(perdure_server) as work, work.worker(app, ScriptedModel("here", "there")):
        elsewhere = RecordingClient(await connect(perdure_server), work.client.task_queue)
        turns = [await client.start("plain", "go") for client in (work.client, elsewhere)]
        reports = [await turn.result() for turn in turns]
        histories = [await work.client.history(turn) for turn in turns]

    assert [report.outcome for report in reports] == [Outcome.COMPLETED] * 2
    assert [
        history.events[0].workflow_execution_started_event_attributes.eager_execution_accepted
        for history in histories
    ] == [True, False]
