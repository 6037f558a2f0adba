"""The activity that Temporal itself repeats: it reads the messages of a session's turn."""

from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure import Agent
from perdure.temporal.names import RECORD_TURN
from perdure.worker import AgentWorker, PerdurePlugin


@workflow.defn(name="ReadTwice")
class ReadTwice:
    """Reads a turn of a run that the server cannot find, as if it were away."""

    @workflow.run
    async def run(self) -> None:
        """Run."""
        await workflow.execute_activity(
            RECORD_TURN,
            {"turn_id": "read-twice", "run_id": "not a run", "part": 1},
            start_to_close_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(milliseconds=10), maximum_attempts=2
            ),
        )


async def test_turn_of_a_session_is_read_again_after_a_failed_attempt(perdure_server: str) -> None:
    """Refused as a second attempt, it would be repeated for ever, and the session would wait."""
    client = await Client.connect(perdure_server)
    app = AgentWorker(Agent(name="clerk", model="offline:librarian"))
    async with Worker(
        client,
        task_queue="read-twice",
        workflows=[ReadTwice],
        plugins=[PerdurePlugin(app)],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        with pytest.raises(WorkflowFailureError) as raised:
            await client.execute_workflow("ReadTwice", id="read-twice", task_queue="read-twice")

    assert isinstance(raised.value.cause, ActivityError)
    assert "UNAVAILABLE" in str(raised.value.cause.cause)
