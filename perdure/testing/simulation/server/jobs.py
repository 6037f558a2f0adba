"""The jobs of an activation: what a workflow object is told of an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

from perdure.temporal.acts import cancellations
from perdure.testing.simulation.server.history import RESET, attributes, name_of
from perdure.testing.simulation.server.sdk import Job, seed_of

Numbers = Mapping[int, int]
"""The numbers that the SDK has given to what was begun, by the events that began it."""

_ALREADY_EXISTS = 1


def init(event: HistoryEvent, workflow_id: str, seed: int) -> Job:
    """Return the job that starts a workflow."""
    begun = attributes(event)
    job = Job()
    job.initialize_workflow.workflow_id = workflow_id
    job.initialize_workflow.workflow_type = begun.workflow_type.name
    job.initialize_workflow.arguments.extend(begun.input.payloads)
    job.initialize_workflow.randomness_seed = seed
    job.initialize_workflow.attempt = 1
    return job


def patch(patch_id: str) -> Job:
    """Return the job that says that a history has a patch."""
    job = Job()
    job.notify_has_patch.patch_id = patch_id
    return job


def update(update_id: str, request: Any, *, is_new: bool) -> Job:
    """Return the job of an update. Only a new update is validated."""
    job = Job()
    job.do_update.id = job.do_update.protocol_instance_id = update_id
    job.do_update.name = request.input.name
    job.do_update.input.extend(request.input.args.payloads)
    job.do_update.meta.update_id = update_id
    job.do_update.run_validator = is_new
    return job


def of(event: HistoryEvent, numbers: Numbers) -> Job | None:
    """Return the job of an event; None for an event that a workflow object is not told of."""
    make = _JOBS.get(name_of(event))
    job = Job()
    if make is None or not make(job, attributes(event), numbers):
        return None
    if job.HasField("signal_workflow"):
        job.signal_workflow.originating_event_id = event.event_id
    return job


def never_began(kind: str, number: int) -> Job:
    """Return the job about something that was cancelled in the task in which it was begun."""
    job = Job()
    match kind:
        case "activity":
            job.resolve_activity.seq = number
            _cancelled(job.resolve_activity.result.cancelled.failure, "activity_failure_info")
        case "child":
            job.resolve_child_workflow_execution_start.seq = number
            _cancelled(
                job.resolve_child_workflow_execution_start.cancelled.failure,
                "child_workflow_execution_failure_info",
            )
        case _:
            failure = job.resolve_signal_external_workflow.failure
            job.resolve_signal_external_workflow.seq = number
            failure.message = "Signal was cancelled before being sent"
            failure.canceled_failure_info.SetInParent()
    return job


def local(number: int, marker: Any) -> Job:
    """Return the job of the end of a local activity, as its marker has it."""
    job = Job()
    job.resolve_activity.seq = number
    job.resolve_activity.is_local = True
    if "result" in marker.details:
        [result] = marker.details["result"].payloads
        job.resolve_activity.result.completed.result.CopyFrom(result)
    elif marker.failure.HasField("canceled_failure_info"):
        _cancelled(job.resolve_activity.result.cancelled.failure, "activity_failure_info")
    else:
        job.resolve_activity.result.failed.failure.CopyFrom(marker.failure)
    return job


def cancelled() -> Failure:
    """Return the failure of what was cancelled."""
    failure = Failure(message="cancelled")
    failure.canceled_failure_info.SetInParent()
    return failure


def _cancelled(failure: Failure, info: str) -> None:
    failure.message = "cancelled"
    getattr(failure, info).SetInParent()
    failure.cause.message = "cancelled"
    failure.cause.canceled_failure_info.SetInParent()


def _caused(failure: Failure, info: str, cause: Failure) -> None:
    failure.message = "failed"
    getattr(failure, info).SetInParent()
    failure.cause.CopyFrom(cause)


def _signalled(job: Job, event: Any, numbers: Numbers) -> bool:
    job.signal_workflow.signal_name = event.signal_name
    job.signal_workflow.input.extend(event.input.payloads)
    return True


def _cancel(job: Job, event: Any, numbers: Numbers) -> bool:
    job.cancel_workflow.reason = cancellations.reason_in(event.cause, None)
    return True


def _task_failed(job: Job, event: Any, numbers: Numbers) -> bool:
    """A run that was reset has other random numbers from there on."""
    if event.cause == RESET:
        job.update_random_seed.randomness_seed = seed_of(event.new_run_id)
    return bool(event.cause == RESET)


def _fired(job: Job, event: Any, numbers: Numbers) -> bool:
    job.fire_timer.seq = numbers[event.started_event_id]
    return True


def _activity_completed(job: Job, event: Any, numbers: Numbers) -> bool:
    job.resolve_activity.seq = numbers[event.scheduled_event_id]
    completed = job.resolve_activity.result.completed
    completed.SetInParent()
    for payload in event.result.payloads:
        completed.result.CopyFrom(payload)
    return True


def _activity_failed(job: Job, event: Any, numbers: Numbers) -> bool:
    job.resolve_activity.seq = numbers[event.scheduled_event_id]
    failure = job.resolve_activity.result.failed.failure
    _caused(failure, "activity_failure_info", event.failure)
    return True


def _activity_cancelled(job: Job, event: Any, numbers: Numbers) -> bool:
    job.resolve_activity.seq = numbers[event.scheduled_event_id]
    _cancelled(job.resolve_activity.result.cancelled.failure, "activity_failure_info")
    return True


def _child_started(job: Job, event: Any, numbers: Numbers) -> bool:
    job.resolve_child_workflow_execution_start.seq = numbers[event.initiated_event_id]
    run_id = event.workflow_execution.run_id
    job.resolve_child_workflow_execution_start.succeeded.run_id = run_id
    return True


def _child_not_started(job: Job, event: Any, numbers: Numbers) -> bool:
    job.resolve_child_workflow_execution_start.seq = numbers[event.initiated_event_id]
    failed = job.resolve_child_workflow_execution_start.failed
    failed.workflow_id, failed.workflow_type = event.workflow_id, event.workflow_type.name
    failed.cause = _ALREADY_EXISTS  # type: ignore[assignment]
    return True


def _child_completed(job: Job, event: Any, numbers: Numbers) -> bool:
    job.resolve_child_workflow_execution.seq = numbers[event.initiated_event_id]
    [result] = event.result.payloads
    job.resolve_child_workflow_execution.result.completed.result.CopyFrom(result)
    return True


def _child_failed(job: Job, event: Any, numbers: Numbers) -> bool:
    job.resolve_child_workflow_execution.seq = numbers[event.initiated_event_id]
    failure = job.resolve_child_workflow_execution.result.failed.failure
    _caused(failure, "child_workflow_execution_failure_info", event.failure)
    return True


def _child_cancelled(job: Job, event: Any, numbers: Numbers) -> bool:
    job.resolve_child_workflow_execution.seq = numbers[event.initiated_event_id]
    failure = job.resolve_child_workflow_execution.result.cancelled.failure
    _cancelled(failure, "child_workflow_execution_failure_info")
    return True


def _child_terminated(job: Job, event: Any, numbers: Numbers) -> bool:
    job.resolve_child_workflow_execution.seq = numbers[event.initiated_event_id]
    failure, cause = job.resolve_child_workflow_execution.result.failed.failure, Failure()
    cause.terminated_failure_info.SetInParent()
    _caused(failure, "child_workflow_execution_failure_info", cause)
    return True


def _signal_sent(job: Job, event: Any, numbers: Numbers) -> bool:
    job.resolve_signal_external_workflow.seq = numbers[event.initiated_event_id]
    return True


def _signal_not_sent(job: Job, event: Any, numbers: Numbers) -> bool:
    job.resolve_signal_external_workflow.seq = numbers[event.initiated_event_id]
    failure = job.resolve_signal_external_workflow.failure
    failure.message = "Unable to signal external workflow because it was not found"
    failure.application_failure_info.type = "ExternalWorkflowExecutionNotFound"
    return True


def _cancel_sent(job: Job, event: Any, numbers: Numbers) -> bool:
    """A workflow that is no child was asked to stop; of a child, the SDK waits for the end."""
    if event.initiated_event_id in numbers:
        job.resolve_request_cancel_external_workflow.seq = numbers[event.initiated_event_id]
    return event.initiated_event_id in numbers


def _cancel_not_sent(job: Job, event: Any, numbers: Numbers) -> bool:
    if _cancel_sent(job, event, numbers):
        failure = job.resolve_request_cancel_external_workflow.failure
        failure.message = "Unable to cancel external workflow because it was not found"
        failure.application_failure_info.type = "ExternalWorkflowExecutionNotFound"
    return event.initiated_event_id in numbers


_JOBS: dict[str, Callable[[Job, Any, Numbers], bool]] = {
    "WORKFLOW_EXECUTION_SIGNALED": _signalled,
    "WORKFLOW_EXECUTION_CANCEL_REQUESTED": _cancel,
    "WORKFLOW_TASK_FAILED": _task_failed,
    "TIMER_FIRED": _fired,
    "ACTIVITY_TASK_COMPLETED": _activity_completed,
    "ACTIVITY_TASK_FAILED": _activity_failed,
    "ACTIVITY_TASK_TIMED_OUT": _activity_failed,
    "ACTIVITY_TASK_CANCELED": _activity_cancelled,
    "CHILD_WORKFLOW_EXECUTION_STARTED": _child_started,
    "START_CHILD_WORKFLOW_EXECUTION_FAILED": _child_not_started,
    "CHILD_WORKFLOW_EXECUTION_COMPLETED": _child_completed,
    "CHILD_WORKFLOW_EXECUTION_FAILED": _child_failed,
    "CHILD_WORKFLOW_EXECUTION_CANCELED": _child_cancelled,
    "CHILD_WORKFLOW_EXECUTION_TERMINATED": _child_terminated,
    "EXTERNAL_WORKFLOW_EXECUTION_SIGNALED": _signal_sent,
    "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED": _signal_not_sent,
    "EXTERNAL_WORKFLOW_EXECUTION_CANCEL_REQUESTED": _cancel_sent,
    "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_FAILED": _cancel_not_sent,
}
