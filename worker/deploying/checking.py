"""`perdure deploy check`: replays histories of a namespace on this code.

A workflow whose history does not replay cannot be continued by this code: its workflow tasks would
fail until another version takes over. No tool and no model is called, and the server is only read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowHistory
from temporalio.worker import Replayer, ReplayerConfig

from perdure.base import Value
from perdure.temporal.encryption import data_subjects
from perdure.text import described
from perdure.worker import internals, replaying
from perdure.worker.deploying.versions import RESOURCE, Deployment, pinned_query
from perdure.workflows import WORKFLOWS

_TYPES = ", ".join(f"'{internals.workflow_name(workflow)}'" for workflow in WORKFLOWS)
_OF_PERDURE = f"WorkflowType IN ({_TYPES})"


class Replayed(Value):
    """A run of a workflow that was replayed.

    Attributes:
        id: The id of the workflow.
        run_id: The id of the run.
        type: The type of the workflow.
        running: Whether it runs, so that this code may have to continue it.
        failure: Why it does not replay; empty if it does.
    """

    id: str
    run_id: str
    type: str
    running: bool
    failure: str = ""


async def replayed(
    client: Client, last: int, of_version: tuple[Deployment, str] | None
) -> AsyncIterator[Replayed]:
    """Replay the last runs of a namespace, those that run first.

    Args:
        client: The client of the server.
        last: At most this many runs.
        of_version: Only what runs and is pinned to this version of a deployment.

    Raises:
        PerdureError: The server does not answer.
    """
    listed: dict[str, WorkflowExecution] = {}
    async with _replayer(client).workflow_replay_iterator(
        _histories(client, last, of_version, listed)
    ) as results:
        async for result in results:
            run = listed.pop(result.history.run_id)
            failure = result.replay_failure
            yield Replayed(
                id=run.id,
                run_id=run.run_id,
                type=run.workflow_type,
                running=run.status == WorkflowExecutionStatus.RUNNING,
                failure=described(failure) if failure else "",
            )


async def failure_of(client: Client, workflow_id: str, run_id: str) -> str:
    """Return why a run does not replay on this code; empty if it does, or if it is gone."""
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    history = await RESOURCE.asked_if_known(workflow_id, handle.fetch_history())
    if history is None or await _is_erased(client, history):
        return ""
    result = await _replayer(client).replay_workflow(history, raise_on_replay_failure=False)
    return described(result.replay_failure) if result.replay_failure else ""


def _replayer(client: Client) -> Replayer:
    options = ReplayerConfig(workflows=[], data_converter=client.data_converter)
    return Replayer(**replaying.configured(options))


async def _is_erased(client: Client, history: WorkflowHistory) -> bool:
    """Return whether nobody can replay a history any more."""
    started = history.events[0].workflow_execution_started_event_attributes
    return await data_subjects.is_erased(client, started.input.payloads)


async def _histories(
    client: Client,
    last: int,
    of_version: tuple[Deployment, str] | None,
    listed: dict[str, WorkflowExecution],
) -> AsyncIterator[WorkflowHistory]:
    queries = [
        f"{_OF_PERDURE} AND ExecutionStatus = 'Running'",
        f"{_OF_PERDURE} AND ExecutionStatus != 'Running'",
    ]
    if of_version is not None:
        deployment, build_id = of_version
        queries = [f"{_OF_PERDURE} AND {pinned_query(deployment.name, build_id)}"]
    left = last
    for query in queries:
        with RESOURCE.asking():
            async for run in client.list_workflows(query, limit=left):
                left -= 1
                handle = client.get_workflow_handle(run.id, run_id=run.run_id)
                history = await RESOURCE.asked_if_known(run.id, handle.fetch_history())
                # it may have been deleted meanwhile
                if history is not None and not await _is_erased(client, history):
                    listed[history.run_id] = run
                    yield history
        if left <= 0:
            return
