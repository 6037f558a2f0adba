"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from perdure.values.model_retry import ModelRetryPolicy

_TIME = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")
_MOST_DAYS = 36_500

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Function], Function]


class Duration(click.ParamType[timedelta]):
    """A duration such as `1h30m`."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Return the duration, or fail with a usage error."""
        match = _TIME.fullmatch(value)
        if not value or match is None:
            self.fail(f"{value!r} is not a time; write it like 90s, 10m or 1h30m", param, ctx)
        days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
        try:
            return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        except OverflowError:
            self.fail(f"{value!r} is too long", param, ctx)


class Retries(click.ParamType["ModelRetryPolicy"]):
    """The retries of a model for a duration such as `10s`."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> ModelRetryPolicy:
        """Return the policy, or fail with a usage error."""
        from perdure import errors
        from perdure.values.model_retry import ModelRetryPolicy

        time = Duration().convert(value, param, ctx)
        try:
            return ModelRetryPolicy(maximum_elapsed=time)
        except errors.ConfigurationError as error:
            self.fail(error.message, param, ctx)


class When(click.ParamType[timedelta | datetime]):
    """A duration such as `1h30m`, or a date with its time zone."""

    name = "moment"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta | datetime:
        """Return the moment, or fail with a usage error."""
        if _TIME.fullmatch(value):
            return Duration().convert(value, param, ctx)
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a moment; write it like 90s, 2h or 2030-12-01T18:00:00+01:00",
                param,
                ctx,
            )


class Count(click.IntRange):
    """A whole number in a range."""

    name = "whole number"


class Label(click.ParamType[tuple[str, str]]):
    """A pair in the form `NAME=VALUE`."""

    name = "label"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the pair, or fail with a usage error."""
        name, equals, text = value.partition("=")
        if not equals:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, text


DAYS = click.IntRange(1, _MOST_DAYS - 1)
FOLDER = click.Path(path_type=Path, file_okay=False)


def _together(*decorators: Decorator[Function]) -> Decorator[Function]:
    """Combine several options into one decorator, in their order."""

    def decorate(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


TURN: Decorator[Any] = click.argument("turn", help="The turn's id.")
ADDRESS: Decorator[Any] = click.option(
    "--address",
    metavar="HOST:PORT",
    help="Temporal's address (default: its environment, or localhost:7233).",
)
STREAM: Decorator[Any] = click.option(
    "--stream", is_flag=True, help="Print the model's text while it is generated."
)
BY: Decorator[Any] = click.option(
    "--by",
    metavar="NAME",
    help="Who this is from, as it is recorded (default: PERDURE_BY, or your login name).",
)
CONNECTION = _together(
    ADDRESS,
    click.option(
        "--task-queue",
        metavar="NAME",
        envvar="PERDURE_TASK_QUEUE",
        default="perdure",
        help="The workers' task queue (default: PERDURE_TASK_QUEUE, or perdure).",
    ),
)
"""Temporal's address, and the task queue of the workers."""
ONE_OR_ALL_QUEUES = _together(
    ADDRESS,
    click.option(
        "--task-queue", metavar="NAME", help="Only turns of this task queue (default: of all)."
    ),
)
"""Temporal's address, for a command that lists turns."""
ANY_QUEUE = _together(ADDRESS, click.option("--task-queue", hidden=True, expose_value=False))
"""Temporal's address, for a command about one turn.

The id is sufficient, but scripts may pass a task queue to every command.
"""
_USD: Decorator[Any] = click.option(
    "--usd", metavar="AMOUNT", help="Money in US dollars, such as 0.50."
)
_TIME_LIMIT: Decorator[Any] = click.option(
    "--time", metavar="TIME", type=Duration(), help="Such as 90s, 10m or 1h30m."
)
_COUNTS = _together(
    click.option("--tokens", metavar="N", type=int, help="Input and output together."),
    click.option("--model-calls", metavar="N", type=int, help="Requests to models."),
    click.option("--tool-calls", metavar="N", type=int, help="Calls of tools."),
)
BUDGET = _together(_USD, _TIME_LIMIT, _COUNTS)
SESSION_BUDGET = _together(_USD, _COUNTS)
"""The budget of a session, which has no limit of time."""


NEVER = "none"


class Moment(click.ParamType[datetime | str]):
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


_CHOICES = {"if_running": ["skip", "queue", "cancel", "allow"], "on_failure": ["go on", "pause"]}


def timing(*, is_new: bool) -> Decorator[Any]:
    """Return the options for the times of a schedule. A new one requires the first two."""
    return _together(
        click.option(
            "--cron", metavar="CRON", required=is_new, help="Its times, such as '0 7 * * 1-5'."
        ),
        click.option(
            "--timezone",
            metavar="ZONE",
            required=is_new,
            help="Their time zone, such as Europe/Berlin.",
        ),
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
        click.option("--turn-usd", metavar="AMOUNT", help="Money for each turn of the batch."),
        click.option(
            "--on-error",
            type=click.Choice(["go on", "stop"]),
            metavar="HOW",
            help="After a turn of the batch without an answer: 'go on' (default) or stop.",
        ),
        click.option(
            "--if-running",
            type=click.Choice(_CHOICES["if_running"]),
            metavar="HOW",
            help="At a time at which a turn is running: skip, queue, cancel or allow.",
        ),
        click.option(
            "--on-failure",
            type=click.Choice(_CHOICES["on_failure"]),
            metavar="HOW",
            help="After a turn that failed: 'go on' or pause.",
        ),
        click.option(
            "--remember-last/--no-remember-last",
            default=None,
            help="Give each turn the output of the last one.",
        ),
        click.option(
            "--catch-up", metavar="TIME", type=Duration(), help="How late a missed time may be run."
        ),
        click.option(
            "--jitter",
            metavar="TIME",
            type=Duration(),
            help="The largest random delay; 0s for none.",
        ),
        click.option(
            "--total-usd", metavar="AMOUNT", help="Money for all turns together, such as 20."
        ),
        click.option(
            "--total-tokens", metavar="N", type=int, help="Tokens for all turns together."
        ),
        click.option("--starts", metavar="WHEN", type=Moment(), help="No turn starts before it."),
        click.option("--ends", metavar="WHEN", type=Moment(), help="No turn starts after it."),
    )


def iterations(name: str) -> Decorator[Any]:
    """Return the option for the limit of steps, or for an addition to it."""
    return click.option(
        name,
        metavar="N",
        type=Count(min=1),
        help="Steps of the turn itself, without those of its delegates.",
    )


MODEL_RETRY: Decorator[Any] = click.option(
    "--model-retry",
    metavar="TIME",
    type=Retries(),
    help="How long a provider that is unavailable is tried again, such as 10s.",
)
START = _together(
    click.option(
        "--delay",
        metavar="WHEN",
        type=When(),
        help="When it begins: 2h after its start, or a date such as 2030-12-01T18:00:00+01:00.",
    ),
    click.option(
        "--deadline",
        metavar="WHEN",
        type=When(),
        help="When it ends at the latest, waits for people included.",
    ),
    click.option(
        "--fairness", metavar="KEY", help="The key, such as a tenant, that takes turns with others."
    ),
    click.option("--weight", metavar="N", type=float, help="The share of that key (default: 1)."),
)
"""The options about when a new turn runs."""
FORK = _together(
    click.option("--id", metavar="ID", help="The new turn's id (default: TURN~1, …)."),
    click.option(
        "--yes", "is_agreed", is_flag=True, help="Do not ask before calls may happen again."
    ),
    click.option("--no-follow", is_flag=True, help="Start the new turn, and do not follow it."),
    STREAM,
)
"""The options of commands that start a turn from another one."""


QUESTION = _together(
    click.option(
        "--folder",
        type=FOLDER,
        default=Path("docs"),
        metavar="FOLDER",
        help="The documents (default: docs).",
    ),
    click.option(
        "--model",
        metavar="MODEL",
        help=(
            "Such as openai:gpt-5-mini (default: that with OPENAI_API_KEY, else offline:librarian)."
        ),
    ),
    click.option(
        "--base-url",
        metavar="URL",
        help="A server with OpenAI's API, such as http://localhost:11434/v1.",
    ),
    click.option(
        "--address",
        metavar="HOST:PORT",
        help="Use this Temporal server instead of an embedded one.",
    ),
)
"""The options for asking the librarian."""


def json_lines(what: str) -> Decorator[Any]:
    """Return the option `--json`; `what` describes the lines."""
    return click.option("--json", "as_json", is_flag=True, callback=_remember, help=what)


def labels(what: str) -> Decorator[Any]:
    """Return the option `--label`, which may be repeated."""
    return click.option(
        "--label", "labels", metavar="NAME=VALUE", type=Label(), multiple=True, help=what
    )


def _remember(context: click.Context, _: click.Parameter, value: bool) -> bool:
    """Make an error of this command print as JSON too."""
    context.obj["json"] = value
    return value
