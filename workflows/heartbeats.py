"""The heartbeats of a turn's activities, as the worker of the turn has them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow

from perdure.temporal.liveness import INTERVAL, timeout_for
from perdure.temporal.names import BEAT_SOON, HEARTBEAT_TIMEOUT


def timeout() -> timedelta:
    """Return the time without a heartbeat after which an activity counts as lost.

    It is the setting of the worker. A replay does not compare the timeouts of activities.
    """
    setting: Callable[[], timedelta] | None = workflow.extern_functions().get(HEARTBEAT_TIMEOUT)
    return timeout_for(INTERVAL) if setting is None else setting()


def beat_soon(activity_id: str) -> None:
    """Let a cancelled activity send heartbeats now, if it runs in the process of its turn.

    The answer to a heartbeat is how it learns of the cancel. Elsewhere it does so with its next.
    """
    beat = workflow.extern_functions().get(BEAT_SOON)
    if beat is not None and not workflow.unsafe.is_replaying():
        beat(workflow.info().run_id, activity_id)
