"""A workflow object and its activations: all that the simulation knows of the SDK's inside.

The SDK splits a worker in two: `sdk-core`, in Rust, reads histories and makes activations of them,
and a workflow object, in Python, answers each activation with commands. The second half needs no
server, no thread and no I/O. Its interface is not public, so no other module uses it: this module
names everything that a new release of the SDK may change, and `tests/unit/test_simulation_sdk.py`
lists these names.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio import workflow
from temporalio.api.common.v1 import Payload, Payloads, SearchAttributes
from temporalio.api.failure.v1 import Failure
from temporalio.api.schedule.v1 import Schedule as StoredSchedule
from temporalio.api.workflowservice.v1 import DescribeScheduleResponse
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.client import Client, Schedule, ScheduleDescription
from temporalio.common import Priority, TypedSearchAttributes
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    PayloadConverter,
    encode_search_attributes,
)
from temporalio.exceptions import FailureError
from temporalio.worker import (
    UnsandboxedWorkflowRunner,
    WorkflowInstance,
    WorkflowInstanceDetails,
    WorkflowInterceptorClassInput,
)

from perdure.errors import PerdureError
from perdure.testing.simulation.server.loops import loop_of
from perdure.workflows import WORKFLOWS
from perdure.workflows.single_input import OneInput

Job = WorkflowActivationJob
Command = WorkflowCommand
Activates = Callable[[str], bool]
"""Returns whether a worker's release has a patch, by its id."""


_MOST_STEPS = 50_000
"""The steps of the event loop in one activation; those of a long batch are some thousands."""


class _Failures(DefaultFailureConverter):
    """Failures without stack traces: they would depend on the machine, and take time.

    Those of a workflow task that failed are kept, for its story.
    """

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        cause: BaseException | None = exception if isinstance(exception, FailureError) else None
        while cause is not None:
            cause.__traceback__, cause = None, cause.__cause__
        super().to_failure(exception, payload_converter, failure)


CONVERTER = DataConverter(failure_converter_class=_Failures)
NAMESPACE = "simulation"
TASK_QUEUE = "perdure"

_IS_VALID = "__temporal_assert_local_activity_valid"
"""The function by which a workflow object asks whether a local activity is registered."""

_DEFINITIONS = {
    definition.name: definition
    for definition in map(workflow._Definition.must_from_class, WORKFLOWS)  # noqa: SLF001
}
_INTERCEPTOR = OneInput().workflow_interceptor_class(
    WorkflowInterceptorClassInput(unsafe_extern_functions={})
)


class TaskFailedError(Exception):
    """A workflow task failed: the workflow object could not answer an activation."""


@dataclass(frozen=True)
class BegunRun:
    """How a run was started, as its workflow object is told.

    Attributes:
        at_ns: The time of the start, in nanoseconds since 1970.
        parent: The ids of workflow and run of the parent; None without a parent.
        task_timeout: The workflow task timeout, which limits the length of a history.
        search_attributes: Those of the start.
        origin: The run whose seed it has, if it was reset.
        earlier: The runs that were reset and whose history it begins with.
        account: The run since which its bills are counted, if it was reset or continues such a run.
        build: The number of the build of the workers that its tasks go to.
    """

    workflow_id: str
    run_id: str
    first_run_id: str
    type: str
    at_ns: int
    continued: str = ""
    parent: tuple[str, str] | None = None
    memo: tuple[tuple[str, Payload], ...] = ()
    task_timeout: timedelta = timedelta(seconds=10)
    search_attributes: TypedSearchAttributes = TypedSearchAttributes.empty
    origin: str = ""
    earlier: tuple[str, ...] = ()
    account: str = ""
    build: int = 0

    @property
    def seed(self) -> int:
        """The seed of the run's own randomness; equal in each replay."""
        return seed_of(self.origin or self.run_id)


def encoded(attributes: TypedSearchAttributes) -> SearchAttributes:
    """Return the search attributes of a run as its history has them."""
    found = SearchAttributes()
    encode_search_attributes(attributes, found)
    return found


async def stored_as(schedule: Schedule, client: Client) -> StoredSchedule:
    """Return a schedule as the server stores it."""
    return await schedule._to_proto(client)  # noqa: SLF001


def description_of(schedule_id: str, response: DescribeScheduleResponse) -> ScheduleDescription:
    """Return the description of a schedule as a client returns it."""
    return ScheduleDescription._from_proto(schedule_id, response, CONVERTER)  # noqa: SLF001


def failure_of(error: Exception) -> Failure:
    """Return the failure of an activity that raises an error."""
    failure = Failure()
    CONVERTER.failure_converter.to_failure(error, CONVERTER.payload_converter, failure)
    return failure


def seed_of(run_id: str) -> int:
    """Return the seed of the randomness of a run."""
    return int.from_bytes(run_id.encode()[-7:], "big")


class _StepQueue(deque[asyncio.Handle]):
    """What a workflow object has to run. It is an error if an activation never ends.

    Attributes:
        left: The number of steps that the activation may have.
    """

    left = 0

    def popleft(self) -> asyncio.Handle:
        """Return the next step.

        Raises:
            RuntimeError: The activation has had too many.
        """
        self.left -= 1
        if self.left < 0:
            self.clear()
            raise RuntimeError(f"the workflow task does not end: it has had {_MOST_STEPS} steps")
        return super().popleft()


class Instance:
    """A workflow object in the memory of a worker."""

    def __init__(self, begun: BegunRun, activates: Activates | None = None) -> None:
        """Make the object of a worker that has all patches, or those that `activates` says."""
        self._begun = begun
        self._inner = loop_of("workflows").run_until_complete(_make(begun, activates))
        self._ready = _StepQueue()
        self._inner._ready = self._ready  # type: ignore[attr-defined]  # noqa: SLF001

    def activate(
        self,
        jobs: Iterable[Job],
        *,
        now_ns: int,
        is_replaying: bool,
        length: int,
        size_bytes: int,
        flags: Sequence[int],
        moves: bool = False,
    ) -> tuple[list[Command], list[int]]:
        """Do an activation, and return the commands and the SDK's flags that it used.

        `moves` is whether another build than that of the run is to go on with it.

        Raises:
            TaskFailedError: The workflow task failed.
        """
        activation = WorkflowActivation(
            run_id=self._begun.run_id,
            is_replaying=is_replaying,
            history_length=length,
            history_size_bytes=size_bytes,
            available_internal_flags=flags,
            target_worker_deployment_version_changed=moves,
            jobs=jobs,
        )
        activation.timestamp.FromNanoseconds(now_ns)
        self._ready.left = _MOST_STEPS
        completion = self._inner.activate(activation)
        if completion.HasField("failed"):
            failure = completion.failed.failure
            raise TaskFailedError(f"{failure.message}\n{failure.stack_trace[-2000:]}")
        used = completion.successful
        return list(used.commands), list(used.used_internal_flags)

    def evict(self) -> None:
        """Remove the object from memory; its asyncio tasks end."""
        job = Job()
        job.remove_from_cache.SetInParent()
        self._ready.left = _MOST_STEPS
        self._inner.activate(WorkflowActivation(run_id=self._begun.run_id, jobs=[job]))

    @property
    def workflow(self) -> object:
        """The object of the workflow class, which the first activation makes."""
        return self._inner._object  # type: ignore[attr-defined]  # noqa: SLF001


async def _make(begun: BegunRun, activates: Activates | None) -> WorkflowInstance:
    """Make an instance, which needs a running event loop for a moment."""
    start = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=begun.at_ns // 1000)
    parent = None
    if begun.parent is not None:
        workflow_id, run_id = begun.parent
        parent = workflow.ParentInfo(namespace=NAMESPACE, workflow_id=workflow_id, run_id=run_id)
    info = workflow.Info(
        attempt=1,
        continued_run_id=begun.continued or None,
        cron_schedule=None,
        execution_timeout=None,
        first_execution_run_id=begun.first_run_id,
        headers={},
        namespace=NAMESPACE,
        original_execution_run_id=begun.run_id,
        parent=parent,
        root=None,
        priority=Priority.default,
        raw_memo=dict(begun.memo),
        retry_policy=None,
        run_id=begun.run_id,
        run_timeout=None,
        search_attributes={},
        start_time=start,
        task_queue=TASK_QUEUE,
        task_timeout=begun.task_timeout,
        typed_search_attributes=begun.search_attributes,
        workflow_id=begun.workflow_id,
        workflow_start_time=start,
        workflow_type=begun.type,
    )
    return UnsandboxedWorkflowRunner().create_instance(
        WorkflowInstanceDetails(
            payload_converter_factory=lambda: CONVERTER.payload_converter,
            failure_converter_class=CONVERTER.failure_converter_class,
            interceptor_classes=[_INTERCEPTOR],
            defn=_DEFINITIONS[begun.type],
            info=info,
            randomness_seed=begun.seed,
            extern_functions={_IS_VALID: lambda name: None},
            disable_eager_activity_execution=False,
            worker_level_failure_exception_types=[PerdureError],
            patch_activation_callback=activates and (lambda asked: activates(asked.patch_id)),
            last_completion_result=Payloads(),
            last_failure=None,
        )
    )
