"""What an operator may set in the environment of a worker. Where Temporal is comes from Temporal's own environment profiles."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

from perdure import errors, limits

STICKY_TIMEOUT = timedelta(seconds=1)
"""A turn whose worker was killed is picked up by another after this; the SDK waits 10 s."""

HEARTBEAT_THROTTLE = timedelta(seconds=1)
"""A cancel reaches an activity with its next heartbeat, so this bounds how long that takes."""


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What may be set.

    Attributes:
        task_queue: `PERDURE_TASK_QUEUE`: used instead of the one in the code.
        grace: `PERDURE_GRACE_S`: at SIGTERM, work in flight may go on for so long before it is cancelled.
        max_activities: `PERDURE_MAX_ACTIVITIES`: model and tool calls at once.
        health_port: `PERDURE_HEALTH_PORT`: answer probes there; none by default.
    """

    task_queue: str | None = None
    grace: timedelta = limits.MODEL_CALL
    max_activities: int = 100
    health_port: int | None = None

    @classmethod
    def from_environment(cls) -> WorkerSettings:
        """Read the environment.

        Raises:
            ConfigurationError: A variable is not a number above zero.
        """
        return cls(
            task_queue=os.environ.get("PERDURE_TASK_QUEUE"),
            grace=timedelta(seconds=_number("PERDURE_GRACE_S", limits.MODEL_CALL.total_seconds())),
            max_activities=max(1, int(_number("PERDURE_MAX_ACTIVITIES", 100))),
            health_port=int(_number("PERDURE_HEALTH_PORT", 0)) or None,
        )


def _number(name: str, default: float) -> float:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise errors.ConfigurationError(f"the environment variable {name} must be a number above zero, not {text!r}")
    return value
