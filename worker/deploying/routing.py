"""Which version of a deployment gets new work: promote, ramp and roll back.

The server routes by what its task queues know, and these learn of a version with its first poll.
A version is therefore promoted only when its workers poll, and some seconds after its first poll.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.workflowservice.v1 import (
    SetWorkerDeploymentCurrentVersionRequest,
    SetWorkerDeploymentRampingVersionRequest,
)
from temporalio.common import WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.temporal.names import SETTLEMENT
from perdure.temporal.payloads import NOTHING
from perdure.worker.deploying.versions import (
    RESOURCE,
    Deployment,
    VersionQueue,
    VersionStatus,
    current_of,
    shown,
)
from perdure.worker.deployment import BUILD_ID, check_build_id

_SETTLES = timedelta(seconds=3)
"""How long after the first poll of a version its routing is exact; measured: 2 s."""
_PAUSE_S = 0.5
_PROBES_WITHIN_S = 20.0

Say = Callable[[str], None]
"""Called with a sentence about what happens."""


async def promote(deployment: Deployment, build_id: str, wait: timedelta, say: Say) -> str:
    """Make a version the current one, and return the build id of the version before.

    Args:
        deployment: The deployment.
        build_id: The version.
        wait: How long to wait until its workers poll.
        say: Called with what it waits for.

    Raises:
        InvalidRequestError: No worker of the version polls all queues of the current version.
        ServerUnreachableError: New work does not get to the version.
    """
    check_build_id(build_id)
    queues = await _until_polled(deployment, build_id, wait, say)
    before = await _set_current(deployment, build_id)
    for queue in queues:
        if queue.type == TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW:
            await _check_start(deployment, build_id, queue, say)
    return before


async def ramp(
    deployment: Deployment, build_id: str, percent: float, wait: timedelta, say: Say
) -> None:
    """Give a version a part of the new work; 0 ends that.

    Raises:
        InvalidRequestError: No worker of the version polls all queues of the current version, or it
            is the current version.
    """
    check_build_id(build_id)
    if percent:
        await _until_polled(deployment, build_id, wait, say)
    request = SetWorkerDeploymentRampingVersionRequest(
        namespace=deployment.client.namespace,
        deployment_name=deployment.name,
        build_id=build_id if percent else "",
        percentage=percent,
    )
    service = deployment.client.workflow_service
    await _asked(deployment, lambda: service.set_worker_deployment_ramping_version(request))


async def roll_back(deployment: Deployment, build_id: str | None, say: Say) -> tuple[str, str]:
    """Make an earlier version current again; return its build id, and that of the version before.

    Args:
        deployment: The deployment.
        build_id: The earlier version: None for the one that was current last, empty for the workers
            without a version.
        say: Called with what it waits for.

    Raises:
        InvalidRequestError: There is no earlier version, or none of its workers polls.
    """
    statuses = await deployment.versions()
    if build_id is None:
        build_id = _last_current(statuses)
    if build_id:
        return build_id, await promote(deployment, build_id, timedelta(), say)
    return build_id, await _set_current(deployment, build_id)


def _last_current(statuses: Sequence[VersionStatus]) -> str:
    earlier = [
        (status.deactivated_at, status.build_id)
        for status in statuses
        if status.state != "current" and status.current_at and status.deactivated_at
    ]
    if earlier:
        return max(earlier)[1]
    raise errors.InvalidRequestError(
        "no other version of the deployment was current before; name one, or roll back to the"
        " workers without a version with --unversioned"
    )


async def _set_current(deployment: Deployment, build_id: str) -> str:
    before = current_of((await deployment.described()).routing_config)
    if before == build_id:
        return before
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=deployment.client.namespace,
        deployment_name=deployment.name,
        build_id=build_id,
    )
    service = deployment.client.workflow_service
    await _asked(deployment, lambda: service.set_worker_deployment_current_version(request))
    return before


async def _asked(deployment: Deployment, ask: Callable[[], Awaitable[object]]) -> None:
    try:
        await ask()
    except RPCError as error:
        if error.status == RPCStatusCode.FAILED_PRECONDITION:
            raise errors.InvalidRequestError(
                f"Temporal refuses this for the deployment {deployment.name!r}: {error.message}"
            ) from error
        raise RESOURCE.translated(deployment.name, error) from error


async def _until_polled(
    deployment: Deployment, build_id: str, wait: timedelta, say: Say
) -> Sequence[VersionQueue]:
    """Wait until workers of a version poll its queues, and those of the current version.

    Raises:
        InvalidRequestError: They do not in time.
    """
    deadline, said = time.monotonic() + wait.total_seconds(), ""
    while True:
        queues, missing = await _missing(deployment, build_id)
        if not missing and queues:
            await _until_settled(deployment, build_id)
            return queues
        subject = ", ".join(map(str, missing)) or "any task queue"
        if time.monotonic() >= deadline:
            raise errors.InvalidRequestError(
                f"no worker of the deployment {deployment.name!r} with the build id"
                f" {build_id!r} polls {subject}; start its workers ({BUILD_ID}={build_id}), and"
                " keep them"
            )
        if subject != said:
            said = subject
            say(f"waits until a worker of {shown(build_id)} polls {subject}")
        await asyncio.sleep(_PAUSE_S)


async def _missing(
    deployment: Deployment, build_id: str
) -> tuple[Sequence[VersionQueue], Sequence[VersionQueue]]:
    """Return the queues of a version, and those that none of its workers polls.

    The queues of the current version are among them: work of its would find nobody.
    """
    queues = list(await deployment.queues(build_id))
    info = await RESOURCE.asked_if_known(deployment.name, deployment.described())
    current = current_of(info.routing_config) if info else ""
    if current and current != build_id:
        for queue in await deployment.queues(current):
            has_workers = queue in queues or await deployment.pollers(current, queue)
            if has_workers and queue not in queues:
                queues.append(queue)
    return queues, [queue for queue in queues if not await deployment.pollers(build_id, queue)]


async def _until_settled(deployment: Deployment, build_id: str) -> None:
    """Wait until some seconds have passed since the first poll of a version."""
    summaries = (await deployment.described()).version_summaries
    for summary in summaries:
        if summary.deployment_version.build_id == build_id:
            age = datetime.now(UTC) - summary.create_time.ToDatetime(UTC)
            await asyncio.sleep(max((_SETTLES - age).total_seconds(), 0))


async def _check_start(
    deployment: Deployment, build_id: str, queue: VersionQueue, say: Say
) -> None:
    """Start a workflow that does nothing, until one of them is run by the version.

    Raises:
        ServerUnreachableError: None is.
    """
    deadline = time.monotonic() + _PROBES_WITHIN_S
    while time.monotonic() < deadline:
        if await _build_of_probe(deployment, queue) == build_id:
            return
        say(f"waits until new work of {queue} gets to {shown(build_id)}")
        await asyncio.sleep(_PAUSE_S)
    raise errors.ServerUnreachableError(
        f"{build_id!r} is the current version of {deployment.name!r}, but a workflow that was"
        f" started on {queue} did not get to its workers within {_PROBES_WITHIN_S:g} s; look at"
        " their logs, or roll back"
    )


async def _build_of_probe(deployment: Deployment, queue: VersionQueue) -> str | None:
    """Run a workflow that ends at once; return the build id of its worker, None without any.

    It fails, because its input is none of a settlement, so nothing is settled.
    """
    handle = await RESOURCE.asked(
        deployment.name,
        deployment.client.start_workflow(
            SETTLEMENT,
            NOTHING,
            id=f"perdure.deploy-check/{secrets.token_hex(6)}",
            task_queue=queue.name,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            execution_timeout=timedelta(seconds=_PROBES_WITHIN_S),
        ),
    )
    async for event in handle.fetch_history_events(wait_new_event=True):
        if event.HasField("workflow_task_completed_event_attributes"):
            return event.workflow_task_completed_event_attributes.deployment_version.build_id
    return None
