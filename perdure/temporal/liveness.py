"""How often a running activity sends a heartbeat, and when it counts as lost without heartbeats.

The worker of a turn sets the timeout of its activities, and the worker of an activity derives the
interval from that, so that they agree also if their settings differ.
"""

from datetime import timedelta

INTERVAL = timedelta(seconds=3)
"""The interval between heartbeats, unless a worker sets another one."""

TOLERANCE = timedelta(seconds=12)
"""How late a heartbeat may be, unless a worker is set otherwise.

A machine is starved, or a connection breaks and is made again. A process that dies has a supervisor
that reports it at once, so this delays the recovery from a lost machine alone.
"""

_SHORTEST = timedelta(seconds=1)
_OF_LIMIT = 0.6


def timeout_for(interval: timedelta, tolerance: timedelta = TOLERANCE) -> timedelta:
    """Return the time without a heartbeat after which an activity counts as lost."""
    return interval + tolerance


def interval_for(
    timeout: timedelta | None,
    limit: timedelta | None = None,
    tolerance: timedelta = TOLERANCE,
) -> timedelta:
    """Return the interval at which an activity with this timeout sends heartbeats.

    A worker with less tolerance, such as a worker of an earlier release, sets a timeout that leaves
    less time, so heartbeats are more frequent then.

    The server shortens the timeout to the time limit of the activity, which then ends it. The
    single heartbeat before that proves that its worker is not lost.
    """
    if timeout is None:
        return INTERVAL
    return timeout * _OF_LIMIT if timeout == limit else max(timeout - tolerance, _SHORTEST)
