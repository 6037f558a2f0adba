"""Reports to Temporal what a worker process had in flight when it died.

Temporal itself notices after a heartbeat timeout, or the timeout of a workflow task. The supervisor
knows at once that the process is gone, so it fails its activities in the same way as a worker that
is stopped, and gives its workflow tasks back. A process that was drained is asked after as well:
what Temporal sent to it while it interrupted its polls has never arrived.

What was in flight is decided by the server: an activity or a workflow task that it handed to the
identity of this process, which no other process has. So nothing of another worker is touched, and
what has ended in the meantime stays as it is.

It is imported after a process has died, and without the rest of Perdure, so that a supervisor is
small and reports soon.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import (
    ApplicationErrorCategory,
    EventType,
    PendingActivityState,
    PendingWorkflowTaskState,
    WorkflowTaskFailedCause,
)
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.workflow.v1 import PendingWorkflowTaskInfo
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeWorkflowExecutionRequest,
    GetWorkflowExecutionHistoryReverseRequest,
    ResetStickyTaskQueueRequest,
    RespondActivityTaskFailedByIdRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.envconfig import ClientConfig
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient

from perdure.temporal.names import LOCAL, WORKER_SHUTDOWN
from perdure.worker.supervision.held_runs import HeldRun, WorkerConnection

_AT_ONCE = 32
_TIMEOUT = timedelta(seconds=5)
_LOST = "the worker process that ran this has died"
_WAITING = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
_GONE = (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION)
"""It has ended in the meantime."""


@dataclass
class Lost:
    """The number of activities and of workflow tasks that were given back."""

    activities: int = 0
    tasks: int = 0


async def connect(address: str | None) -> ServiceClient:
    """Connect as a worker does, with the address, keys and certificates of the environment.

    Raises:
        Exception: The environment's configuration cannot be read, or Temporal does not answer.
    """
    settings = ClientConfig.load_client_connect_config()
    return await ServiceClient.connect(
        ConnectConfig(
            target_host=address or settings.get("target_host") or LOCAL,
            api_key=settings.get("api_key"),
            tls=settings.get("tls"),
            rpc_metadata=settings.get("rpc_metadata") or {},
            identity=f"{os.getpid()}@supervisor",
            runtime=Runtime(telemetry=TelemetryConfig(logging=_silent())),
        )
    )


def _silent() -> LoggingConfig:
    """Keep core from printing to standard output."""
    return LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))


async def give_back(
    service: ServiceClient, worker: WorkerConnection, runs: Sequence[HeldRun]
) -> Lost:
    """Fail everything that a dead process had in flight of these runs.

    Raises:
        RPCError: Temporal does not answer, or refuses.
    """
    return await _Report(service, worker).give_back(runs)


class _Report:
    def __init__(self, service: ServiceClient, worker: WorkerConnection) -> None:
        self._service = service.workflow_service
        self._worker = worker
        self._lost = Lost()
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def give_back(self, runs: Sequence[HeldRun]) -> Lost:
        done = await asyncio.gather(*(self._run(run) for run in runs), return_exceptions=True)
        for error in done:
            if isinstance(error, BaseException):
                raise error
        return self._lost

    async def _run(self, run: HeldRun) -> None:
        async with self._places:
            try:
                await self._give_back(run)
            except RPCError as error:
                if error.status not in _GONE:
                    raise

    async def _give_back(self, run: HeldRun) -> None:
        execution = WorkflowExecution(workflow_id=run.workflow_id, run_id=run.run_id)
        if run.is_cached:  # else the next workflow task waits for the dead process
            await self._service.reset_sticky_task_queue(
                ResetStickyTaskQueueRequest(namespace=self._worker.namespace, execution=execution),
                timeout=_TIMEOUT,
            )
        pending = await self._service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(namespace=self._worker.namespace, execution=execution),
            timeout=_TIMEOUT,
        )
        identity = self._worker.identity
        for item in pending.pending_activities:
            if item.last_worker_identity == identity and item.state != _WAITING:
                await self._fail_activity(run, item.activity_id)
        await self._fail_task(execution, pending.pending_workflow_task)

    async def _fail_activity(self, run: HeldRun, activity_id: str) -> None:
        request = RespondActivityTaskFailedByIdRequest(
            namespace=self._worker.namespace,
            workflow_id=run.workflow_id,
            run_id=run.run_id,
            activity_id=activity_id,
            identity=self._worker.identity,
            failure=failure_of_lost(),
        )
        try:
            await self._service.respond_activity_task_failed_by_id(request, timeout=_TIMEOUT)
        except RPCError as error:
            if error.status not in _GONE:
                raise
        else:
            self._lost.activities += 1

    async def _fail_task(
        self, execution: WorkflowExecution, pending: PendingWorkflowTaskInfo
    ) -> None:
        """Fail the workflow task in progress, if this process had it.

        A second attempt, or a task that only has an update, is not in history, which says who has
        it. It is left to its timeout.
        """
        if pending.state != PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED:
            return
        tail = await self._service.get_workflow_execution_history_reverse(
            GetWorkflowExecutionHistoryReverseRequest(
                namespace=self._worker.namespace, execution=execution, maximum_page_size=1
            ),
            timeout=_TIMEOUT,
        )
        last = tail.history.events[0]
        started = last.workflow_task_started_event_attributes
        if (
            last.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED
            or started.identity != self._worker.identity
        ):
            return
        token = workflow_task_token(
            await self._namespace_id(),
            execution,
            scheduled=started.scheduled_event_id,
            started=last.event_id,
            attempt=pending.attempt,
        )
        await self._service.respond_workflow_task_failed(
            RespondWorkflowTaskFailedRequest(
                namespace=self._worker.namespace,
                task_token=token,
                identity=self._worker.identity,
                cause=WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
            ),
            timeout=_TIMEOUT,
        )
        self._lost.tasks += 1

    async def _namespace_id(self) -> str:
        described = await self._service.describe_namespace(
            DescribeNamespaceRequest(namespace=self._worker.namespace), timeout=_TIMEOUT
        )
        return described.namespace_info.id


def failure_of_lost() -> Failure:
    """Return the failure of an activity whose process has died."""
    return Failure(
        message=_LOST,
        source="perdure",
        application_failure_info=ApplicationFailureInfo(
            type=WORKER_SHUTDOWN,
            category=ApplicationErrorCategory.APPLICATION_ERROR_CATEGORY_BENIGN,
        ),
    )


def workflow_task_token(
    namespace_id: str, execution: WorkflowExecution, *, scheduled: int, started: int, attempt: int
) -> bytes:
    """Return the token of a workflow task, which the SDK keeps to itself.

    It is the server's message `temporal.server.api.token.v1.Task`, in the encoding of protobuf. A
    server that expects another token refuses it, and the task's timeout ends the task.
    """
    texts = ((1, namespace_id), (2, execution.workflow_id), (3, execution.run_id))
    numbers = ((4, scheduled), (5, attempt), (10, started))
    return b"".join(
        [
            *(_varint(field << 3 | 2) + _sized(text.encode()) for field, text in texts),
            *(_varint(field << 3) + _varint(number) for field, number in numbers),
        ]
    )


def _sized(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
