"""What an attempt of an activity is told of itself, as the server and the SDK tell it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from temporalio.activity import Info
from temporalio.common import RetryPolicy
from temporalio.testing import ActivityEnvironment

from perdure.base import replace
from perdure.testing.simulation.server.runs import Activity
from perdure.testing.simulation.server.sdk import NAMESPACE, TASK_QUEUE

_LATER = timedelta(milliseconds=1)


def info_of(activity: Activity, now_ns: int) -> Info:
    """Return what the attempt of an activity is told that begins now."""
    now = datetime.fromtimestamp(now_ns / 1e9, UTC)
    return replace(
        ActivityEnvironment.default_info(),
        activity_id=activity.key,
        activity_type=activity.type,
        attempt=activity.attempt,
        scheduled_time=now - _LATER if activity.is_again else now,
        current_attempt_scheduled_time=now,
        started_time=now,
        retry_policy=RetryPolicy.from_proto(activity.retries),
        task_queue=TASK_QUEUE,
        workflow_id=activity.run.id,
        workflow_namespace=NAMESPACE,
        workflow_run_id=activity.run.begun.run_id,
        workflow_type=activity.run.begun.type,
        start_to_close_timeout=timedelta(seconds=activity.timeout_s or 60),
    )
