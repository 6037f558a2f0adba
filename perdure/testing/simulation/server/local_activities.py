"""Local activities, which a worker performs within the workflow task that begins them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure

from perdure.testing.simulation.server import jobs
from perdure.testing.simulation.server.commands import WrittenEvent, local_marker, variant
from perdure.testing.simulation.server.history import attributes, event_of
from perdure.testing.simulation.server.sdk import Command, Job

SCHEDULES = "schedule_local_activity"
_CANCELS = "request_cancel_local_activity"

Locally = Callable[[Any], tuple[Payload | Failure, float]]
"""Performs a local activity, by the content of its command. Returns its end, after how many seconds
it has ended."""

TRY_CANCEL = 0
"""The cancellation type of activities whose end nobody waits for."""


def perform(
    commands: list[Command], performed: dict[int, WrittenEvent], locally: Locally, now_ns: int
) -> tuple[list[Job], int]:
    """Perform the next local activity, whose event stands where it has ended.

    Returns: The job that tells of it, if there is one, and the time of its end.
    """
    for command in commands:
        name, content = variant(command)
        if name == SCHEDULES and content.seq not in performed:
            ended, takes_s = locally(content)
            ended_ns = now_ns + int(takes_s * 10**9)
            return [_ended(commands, command, performed, ended, ended_ns)], ended_ns
    return [], now_ns


def cancel(
    commands: list[Command],
    performed: dict[int, WrittenEvent],
    locally: Locally | None,
    now_ns: int,
) -> list[Job]:
    """Drop the cancels of local activities. Returns jobs that tell of their ends.

    The effect may be there nevertheless, so it is. A replay has the ends in its history.
    """
    contents = [variant(command) for command in commands]
    cancelled = {content.seq for name, content in contents if name == _CANCELS}
    commands[:] = [command for command in commands if variant(command)[0] != _CANCELS]
    if locally is None:
        return []
    told: list[Job] = []
    for command in list(commands):
        name, content = variant(command)
        is_running = name == SCHEDULES and content.seq in cancelled - performed.keys()
        if is_running and content.cancellation_type == TRY_CANCEL:
            locally(content)
            told.append(_ended(commands, command, performed, jobs.cancelled(), now_ns))
    return told


def _ended(
    commands: list[Command],
    command: Command,
    performed: dict[int, WrittenEvent],
    ended: Payload | Failure,
    ended_ns: int,
) -> Job:
    """Put a local activity where it has ended. Returns the job that tells of it."""
    content = variant(command)[1]
    marker = performed[content.seq] = local_marker(content, ended, ended_ns)
    commands.remove(command)
    commands.append(command)
    event = event_of(0, marker.name, marker.fields)
    return jobs.local(content.seq, attributes(event))
