"""The versions of a deployment, as Temporal knows them.

A version exists once one of its workers has polled. An empty build id stands for the workers
without a version.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.deployment.v1 import (
    RoutingConfig,
    WorkerDeploymentInfo,
    WorkerDeploymentVersion,
)
from temporalio.api.enums.v1 import TaskQueueType, WorkerDeploymentVersionStatus
from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    DescribeWorkerDeploymentVersionRequest,
    ListWorkerDeploymentsRequest,
)
from temporalio.client import Client

from perdure import errors
from perdure.base import Value
from perdure.clients.reading import task_queues
from perdure.temporal.access import Resource
from perdure.text import word
from perdure.worker.deployment import DEPLOYMENT, check_build_id, check_name

State = Literal["current", "ramping", "draining", "drained", "inactive"]

RESOURCE = Resource(
    noun="deployment",
    key="deployment",
    not_found=errors.InvalidRequestError,
    absence="Temporal does not know the {} yet: none of its workers has polled",
    id_characters=128,
)

_STATES: Mapping[int, State] = {
    WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_CURRENT: "current",
    WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_RAMPING: "ramping",
    WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINING: "draining",
    WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINED: "drained",
}
NO_VERSION = "without a version"
"""What people read in the place of an empty build id."""


class VersionStatus(Value):
    """A version of a deployment.

    Attributes:
        deployment: The name of the deployment.
        build_id: The build id; empty for the workers without a version.
        state: `current` gets new work, `ramping` a part of it. `draining` has pinned workflows
            left, by the server's last check, and `drained` none. `inactive` has never had any.
        percent: The part of the new work that a ramping version gets; 0 for others.
        pinned: The number of running workflows that are pinned to the version.
        workers: The number of workers that poll for it, at most as many as the server remembers.
        created_at: When its first worker polled; None for the workers without a version.
        current_at: When it was last made the current version; None if it never was.
        deactivated_at: When it last stopped being current or ramping; None if it never did.
    """

    deployment: str
    build_id: str
    state: State
    percent: float = 0.0
    pinned: int = 0
    workers: int = 0
    created_at: datetime | None = None
    current_at: datetime | None = None
    deactivated_at: datetime | None = None

    @property
    def name(self) -> str:
        """The build id, as people read it."""
        return shown(self.build_id)


@dataclass(frozen=True)
class VersionQueue:
    """A task queue of a version: its name, and the type of its tasks."""

    name: str
    type: TaskQueueType.ValueType

    def __str__(self) -> str:
        is_of_workflows = self.type == TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
        return f"{word(self.name)} ({'workflows' if is_of_workflows else 'activities'})"


def shown(build_id: str) -> str:
    """Return a build id as people read it."""
    return word(build_id) if build_id else NO_VERSION


def pinned_query(deployment: str, build_id: str) -> str:
    """Return the query for the running workflows that are pinned to a version.

    Raises:
        ConfigurationError: The build id is not valid.
    """
    check_build_id(build_id)
    return (
        f"TemporalWorkerDeploymentVersion = '{deployment}:{build_id}'"
        " AND TemporalWorkflowVersioningBehavior = 'Pinned' AND ExecutionStatus = 'Running'"
    )


class Deployment:
    """A deployment on a server.

    Attributes:
        client: The client of the server.
        name: The name of the deployment.
    """

    def __init__(self, client: Client, name: str) -> None:
        check_name(name)
        self.client = client
        self.name = name

    @classmethod
    async def found(cls, client: Client, name: str | None) -> Deployment:
        """Return the deployment with a name, or the only one of the namespace.

        Raises:
            InvalidRequestError: No name is given, and there is not exactly one deployment.
        """
        if name:
            return cls(client, name)
        names = [found async for found in deployments(client)]
        if len(names) == 1:
            return cls(client, names[0])
        if not names:
            raise errors.InvalidRequestError(
                "the namespace has no deployment: no worker with PERDURE_DEPLOYMENT and"
                " PERDURE_BUILD_ID has polled yet"
            )
        raise errors.InvalidRequestError(
            f"the namespace has {len(names)} deployments ({', '.join(sorted(names)[:10])}); name"
            f" one with --deployment or {DEPLOYMENT}"
        )

    async def described(self) -> WorkerDeploymentInfo:
        """Return what the server knows of the deployment.

        Raises:
            PerdureError: It knows none of this name, or does not answer.
        """
        request = DescribeWorkerDeploymentRequest(
            namespace=self.client.namespace, deployment_name=self.name
        )
        service = self.client.workflow_service
        answer = await RESOURCE.asked(
            self.name, service.describe_worker_deployment(request, retry=True)
        )
        return answer.worker_deployment_info

    async def versions(self) -> list[VersionStatus]:
        """Return the versions, the newest first, and workers without a version where they matter.

        Raises:
            PerdureError: As in `described`.
        """
        info = await self.described()
        routing, now = info.routing_config, datetime.now(UTC)
        statuses = [
            VersionStatus(
                deployment=self.name,
                build_id=summary.deployment_version.build_id,
                state=_STATES.get(summary.status, "inactive"),
                percent=_percent(routing, summary.deployment_version),
                created_at=_time(summary.create_time),
                current_at=_time(summary.current_since_time) or _time(summary.last_current_time),
                deactivated_at=_time(summary.last_deactivation_time),
            )
            for summary in info.version_summaries
        ]
        counted = await asyncio.gather(*map(self._counted, statuses))
        ordered = sorted(counted, key=lambda status: status.created_at or now, reverse=True)
        return [*self._unversioned(routing), *ordered]

    def _unversioned(self, routing: RoutingConfig) -> list[VersionStatus]:
        if current_of(routing):
            return []
        since = _time(routing.current_version_changed_time)
        state: State = "current"
        return [VersionStatus(deployment=self.name, build_id="", state=state, current_at=since)]

    async def _counted(self, status: VersionStatus) -> VersionStatus:
        queues = await self.queues(status.build_id)
        identities = [await self.pollers(status.build_id, queue) for queue in queues]
        return status.model_copy(
            update={
                "pinned": await self.count_pinned(status.build_id),
                "workers": len(frozenset[str]().union(*identities)),
            }
        )

    async def count_pinned(self, build_id: str) -> int:
        """Return the number of running workflows that are pinned to a version."""
        count = self.client.count_workflows(pinned_query(self.name, build_id))
        return (await RESOURCE.asked(self.name, count)).count

    async def queues(self, build_id: str) -> Sequence[VersionQueue]:
        """Return the task queues that workers of a version have polled; none if it is unknown."""
        request = DescribeWorkerDeploymentVersionRequest(
            namespace=self.client.namespace,
            deployment_version=WorkerDeploymentVersion(
                deployment_name=self.name, build_id=build_id
            ),
        )
        service = self.client.workflow_service
        answer = await RESOURCE.asked_if_known(
            self.name, service.describe_worker_deployment_version(request, retry=True)
        )
        return (
            []
            if answer is None
            else [VersionQueue(q.name, q.type) for q in answer.version_task_queues]
        )

    async def pollers(self, build_id: str, queue: VersionQueue) -> frozenset[str]:
        """Return the identities of the workers of a version that poll a task queue."""
        asking = task_queues.described(self.client, queue.name, queue.type, retry=True)
        answer = await RESOURCE.asked(self.name, asking)
        return frozenset(
            poller.identity
            for poller in task_queues.present(answer, datetime.now(UTC))
            if poller.deployment_options.build_id == build_id
            and poller.deployment_options.deployment_name == self.name
        )


async def deployments(client: Client) -> AsyncIterator[str]:
    """Yield the names of the deployments of the namespace.

    Raises:
        PerdureError: The server does not answer.
    """
    token = b""
    while True:
        request = ListWorkerDeploymentsRequest(namespace=client.namespace, next_page_token=token)
        service = client.workflow_service
        page = await RESOURCE.asked("", service.list_worker_deployments(request, retry=True))
        for summary in page.worker_deployments:
            yield summary.name
        token = page.next_page_token
        if not token:
            return


def current_of(routing: RoutingConfig) -> str:
    """Return the build id of the current version; empty for the workers without a version."""
    return routing.current_deployment_version.build_id


def _percent(routing: RoutingConfig, version: WorkerDeploymentVersion) -> float:
    ramping = routing.ramping_deployment_version
    is_ramping = bool(ramping.build_id) and ramping.build_id == version.build_id
    return routing.ramping_version_percentage if is_ramping else 0.0


def _time(stamp: Timestamp) -> datetime | None:
    return stamp.ToDatetime(UTC) if stamp.seconds else None
