"""The time for which a schedule started a turn, and how the model is told. Pure.

The fold makes the first message of a turn, so it must be the same on every machine. It therefore
reads the local time from a table in the input and not from a time zone database.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from perdure.base import Wire
from perdure.turn.schedule_account import ScheduleAccount
from perdure.values.batch_items import ScheduledBatch
from perdure.values.tasks import Context

BLOCK = "schedule"
"""The name of the block that says for when the turn was scheduled."""
LAST_BLOCK = "last_output"
"""The name of the block with the last output of the schedule."""

IfRunning = Literal["skip", "queue", "cancel", "allow"]
"""What a schedule does at a time at which a turn is running."""

_NAME_CHARACTERS = 64
_OFFSETS = 1_000
_DAY_S = 86_400
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


ScheduleVerb = Literal[
    "paused", "resumed", "cancelled", "run", "budget_added", "backfilled", "changed"
]

_LOGGED = 10
"""The number of requests that a schedule remembers."""


class ScheduleLogEntry(Wire):
    """A request to a schedule by a person or a program.

    Attributes:
        at: The time of the request, in UTC.
        verb: What was done: `paused`, `resumed`, `cancelled`, `run` by hand, `budget_added`,
            `backfilled` or `changed`.
        by: The person or program; empty without a name.
        reason: The reason that was given; empty without one.
        id: The id of the turn, message or batch that was started by hand; empty otherwise.
        via: Through what it was asked, as in [an audit](audit.md); empty if an earlier release has
            recorded it.
    """

    at: datetime
    verb: ScheduleVerb
    by: str
    reason: str = ""
    id: str = ""
    via: str = Field(default="", exclude_if=not_)


def logged(
    log: tuple[ScheduleLogEntry, ...] | None, entry: ScheduleLogEntry
) -> tuple[ScheduleLogEntry, ...]:
    """Return the log of a schedule with one more entry, the last; the oldest may be dropped."""
    return (*(log or ()), entry)[-_LOGGED:]


class ScheduledBy(Wire):
    """The schedule that starts a turn.

    `offsets` are pairs of the Unix time from which an offset of the time zone from UTC holds and
    the offset, both in seconds, in order. `remember_last` gives the turn the last output of the
    schedule. `if_running` and `pauses` are set for messages to a session: what to do if a turn of
    it runs, and whether a turn of it that failed pauses the schedule. `updates` are the ids of the
    last updates of the schedule (`perdure.temporal.schedule_updates`). `account` is the budget of
    all of its turns. With a `batch`, the schedule runs that instead of a turn, and `pauses` says
    whether a batch without all of its answers pauses it. `log` are the last requests to the
    schedule, the newest last; those of earlier releases had a name.
    """

    id: str
    timezone: str = Field(max_length=_NAME_CHARACTERS)
    offsets: tuple[tuple[int, Annotated[int, Field(gt=-_DAY_S, lt=_DAY_S)]], ...] = Field(
        default=(), max_length=_OFFSETS
    )
    remember_last: bool = False
    if_running: IfRunning | None = None
    pauses: bool | None = None
    updates: tuple[str, ...] | None = None
    account: ScheduleAccount | None = None
    batch: ScheduledBatch | None = None
    log: tuple[ScheduleLogEntry, ...] | None = None

    def in_words(self, at: datetime) -> str:
        """Format a time in the time zone: `Monday, 2026-11-23 07:00 Europe/Berlin (UTC+01:00)`.

        It is formatted in UTC if it is not covered by the table of offsets.
        """
        position = bisect_right(self.offsets, int(at.timestamp()), key=lambda pair: pair[0])
        if not position:
            return f"{_local(at, timedelta())} UTC, for the time zone {self.timezone}"
        offset = timedelta(seconds=self.offsets[position - 1][1])
        return f"{_local(at, offset)} {self.timezone} (UTC{_signed(offset)})"


class Slot(Wire):
    """The time for which a schedule started a turn.

    `at` is in UTC and has whole seconds. `last_output` is the output of the last turn of the
    schedule that completed; empty if there is none, or if the turn does not get it.
    """

    at: datetime
    last_output: str = ""

    @property
    def is_by_hand(self) -> bool:
        """Whether the turn was started by hand: the times of a cron expression have no seconds."""
        return self.at.second != 0


def with_slot(
    context: Context | None, scheduled: ScheduledBy | None, slot: Slot | None
) -> Context | None:
    """Return the context of a turn, followed by the blocks about its slot."""
    if scheduled is None or slot is None:
        return context
    when = scheduled.in_words(slot.at)
    by_hand = f"Started by hand, outside its schedule, on {when}."
    blocks = {BLOCK: by_hand if slot.is_by_hand else f"Scheduled for {when}."}
    if slot.last_output:
        blocks[LAST_BLOCK] = slot.last_output
    return Context(blocks={**(context.blocks if context else {}), **blocks})


def _local(at: datetime, offset: timedelta) -> str:
    local = at.astimezone(UTC).replace(tzinfo=None) + offset
    return f"{_DAYS[local.weekday()]}, {local.isoformat(sep=' ', timespec='minutes')}"


def _signed(offset: timedelta) -> str:
    minutes = int(offset.total_seconds()) // 60
    hours, minute = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02d}:{minute:02d}"
