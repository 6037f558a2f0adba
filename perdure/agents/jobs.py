"""What a tool says about a job that it starts, and whose result comes later.

The function of such a tool starts the job and returns its handle. The call then stays open without
a worker, until somebody sends the result, or a poll finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

from perdure import errors, limits, validation
from perdure.base import Wire

HANDLE = "handle"
"""The argument of a tool in `poll=` or `cancel=` that gets what the function returned."""
ANSWERS = "answers of people"
"""What people have answered to the server of a job. No argument of a function has this name."""


class JobOptions(TypedDict, total=False):
    """The options of a tool about the job that it starts; see `perdure.tool`."""

    later: bool | timedelta
    poll: Any
    poll_every: timedelta
    cancel: Any


DEFAULTS = JobOptions(later=False, poll=None, poll_every=limits.POLL, cancel=None)
KINDS = {"later": bool | validation.Time, "poll_every": validation.Time}


@dataclass(frozen=True, slots=True)
class PendingJob:
    """What a poll has found out about a job that has no result yet.

    Attributes:
        reason: What is known of it, for people who look at the turn in Temporal.
        after: The pause until the next poll; None for that of the tool.
    """

    reason: str
    after: timedelta | None = None


class PinnedJob(Wire):
    """What a turn is pinned to of the jobs of a tool.

    Attributes:
        activity: The activity type that runs the tool. It stands here, so that a worker of an
            earlier release, which knows no jobs, cannot run the tool.
        longest_s: The time after which a call is given up, in seconds, from when it waits.
        polls: Whether the worker asks for the result, every `poll_every_s` seconds; one poll takes
            at most `poll_timeout_s` seconds.
        poll_every_s: The pause between two polls.
        poll_timeout_s: The time limit of a poll.
        can_cancel: Whether another tool cancels a job; it takes at most `cancel_timeout_s` seconds.
        cancel_timeout_s: The time limit of that tool.
    """

    activity: str = ""
    longest_s: float
    polls: bool = False
    poll_every_s: float = 0
    poll_timeout_s: float = 0
    can_cancel: bool = False
    cancel_timeout_s: float = 0


def check(tool: str, options: JobOptions, *, is_local: bool) -> None:
    """Refuse options that do not fit together.

    Raises:
        ConfigurationError: An option needs `later=`, or the tool is local.
    """
    if options["later"] is not False:
        if is_local:
            raise errors.ConfigurationError(
                f"tool {tool} is local, so its result is there within a second: leave out later= or"
                " local="
            )
        return
    given = [name for name in DEFAULTS if options.get(name) != DEFAULTS[name]]  # type: ignore[literal-required]
    if given:
        raise errors.ConfigurationError(
            f"tool {tool}: {given[0]}= is for a job whose result comes later; add later=True"
        )


def pinned(
    options: JobOptions, poll_timeout: timedelta | None, cancel_timeout: timedelta | None
) -> PinnedJob | None:
    """Return what a turn is pinned to; None for a tool whose result comes at once.

    The time limits are those of the tools in `poll=` and `cancel=`, None without one.
    """
    later = options["later"]
    if later is False:
        return None
    longest = later if isinstance(later, timedelta) else limits.LONGEST_JOB
    nothing = timedelta()
    return PinnedJob(
        longest_s=longest.total_seconds(),
        polls=poll_timeout is not None,
        poll_every_s=(options["poll_every"] if poll_timeout else nothing).total_seconds(),
        poll_timeout_s=(poll_timeout or nothing).total_seconds(),
        can_cancel=cancel_timeout is not None,
        cancel_timeout_s=(cancel_timeout or nothing).total_seconds(),
    )
