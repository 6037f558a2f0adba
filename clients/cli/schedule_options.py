"""The options of a schedule: its times, its rules, and what it starts."""

from __future__ import annotations

import functools
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from perdure.clients.cli.options import Count, Decorator, Duration, SectionOption, limit, together

NEVER = "none"


class ScheduleTime(click.ParamType[datetime | str]):
    """A date, or a date and a time, in ISO 8601; or `none` for no time."""

    name = "moment"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | str:
        """Return the time, or `NEVER`, or fail with a usage error."""
        if value == NEVER:
            return NEVER
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a time; write it like 2026-12-24 or 2026-12-24T18:30", param, ctx
            )


_GO_ON = "go on"
_timing = functools.partial(click.option, cls=SectionOption, section="Schedule")


def definition(*, is_new: bool) -> Decorator[Any]:
    """Return the options that define a schedule. A new one requires the first two."""
    return together(_times(is_new=is_new), _STARTED, _RULES, _TOTAL, _PERIOD)


def _times(*, is_new: bool) -> Decorator[Any]:
    return together(
        _timing(
            "--cron", metavar="CRON", required=is_new, help="Its times, such as '0 7 * * 1-5'."
        ),
        _timing(
            "--timezone",
            metavar="ZONE",
            required=is_new,
            help="Their time zone, such as Europe/Berlin.",
        ),
    )


_STARTED = together(
    click.option(
        "--session",
        metavar="ID",
        help="A session that gets the task as a message, instead of a turn of its own.",
    ),
    click.option(
        "--batch",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Run the tasks of a file as a batch, instead of a turn: a line of JSON for each.",
    ),
    click.option(
        "--at-once",
        type=Count(min=1),
        metavar="N",
        help="At most this many turns of the batch at the same time (default: 10).",
    ),
    limit("--turn-usd", metavar="AMOUNT", help="Money for each turn of the batch."),
    click.option(
        "--on-error",
        type=click.Choice([_GO_ON, "stop"]),
        metavar="HOW",
        help="After a turn of the batch without an answer: 'go on' (default) or stop.",
    ),
)
_RULES = together(
    _timing(
        "--if-running",
        type=click.Choice(["skip", "queue", "cancel", "allow"]),
        metavar="HOW",
        help="At a time at which a turn is running: skip, queue, cancel or allow.",
    ),
    _timing(
        "--on-failure",
        type=click.Choice([_GO_ON, "pause"]),
        metavar="HOW",
        help="After a turn that failed: 'go on' or pause.",
    ),
    _timing(
        "--remember-last/--no-remember-last",
        default=None,
        help="Give each turn the output of the last one.",
    ),
    _timing(
        "--catch-up", metavar="TIME", type=Duration(), help="How late a missed time may be run."
    ),
    _timing(
        "--jitter", metavar="TIME", type=Duration(), help="The largest random delay; 0s for none."
    ),
)
_TOTAL = together(
    limit("--total-usd", metavar="AMOUNT", help="Money for all turns together, such as 20."),
    limit("--total-tokens", metavar="N", type=int, help="Tokens for all turns together."),
)
_PERIOD = together(
    _timing("--starts", metavar="WHEN", type=ScheduleTime(), help="No turn starts before it."),
    _timing("--ends", metavar="WHEN", type=ScheduleTime(), help="No turn starts after it."),
)
