"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import functools
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


class Header(click.ParamType[tuple[str, str]]):
    """A header in the form `NAME:VALUE`."""

    name = "header"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the name and the value, or fail with a usage error."""
        name, colon, text = value.partition(":")
        if not colon:
            self.fail(f"{value!r} is not NAME:VALUE", param, ctx)
        return name.strip(), text.strip()


class SectionOption(click.Option):
    """An option that the help lists in a section of its own."""

    def __init__(self, *args: Any, section: str, **attributes: Any) -> None:
        """Create the option; `attributes` are those of `click.Option`."""
        super().__init__(*args, **attributes)
        self.section = section


HEADER = Header()
DAYS = click.IntRange(1, _MOST_DAYS - 1)
FOLDER = click.Path(path_type=Path, file_okay=False)
limit = functools.partial(click.option, cls=SectionOption, section="Limits")
when = functools.partial(click.option, cls=SectionOption, section="When it runs")
temporal = functools.partial(click.option, cls=SectionOption, section="Temporal")


def together(*decorators: Decorator[Function]) -> Decorator[Function]:
    """Combine several options into one decorator, in their order."""

    def decorate(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


AGENT: Decorator[Any] = click.argument("agent", help="The agent's name.")
ADDRESS: Decorator[Any] = temporal(
    "--address",
    metavar="HOST:PORT",
    help="Temporal's address (default: its environment, or localhost:7233).",
)
STREAM: Decorator[Any] = click.option(
    "--stream",
    is_flag=True,
    help="Print the text of the model and of delegates while it is generated.",
)
BY: Decorator[Any] = click.option(
    "--by",
    metavar="NAME",
    help="Who this is from, as it is recorded (default: PERDURE_BY, or your login name).",
)
CONNECTION = together(
    ADDRESS,
    temporal(
        "--task-queue",
        metavar="NAME",
        envvar="PERDURE_TASK_QUEUE",
        default="perdure",
        help="The workers' task queue (default: PERDURE_TASK_QUEUE, or perdure).",
    ),
)
"""Temporal's address, and the task queue of the workers."""
ONE_OR_ALL_QUEUES = together(
    ADDRESS,
    temporal(
        "--task-queue", metavar="NAME", help="Only turns of this task queue (default: of all)."
    ),
)
"""Temporal's address, for a command that lists turns."""
ANY_QUEUE = together(ADDRESS, temporal("--task-queue", hidden=True, expose_value=False))
"""Temporal's address, for a command that needs no task queue.

Scripts may pass a task queue to every command.
"""
_USD: Decorator[Any] = limit("--usd", metavar="AMOUNT", help="Money in US dollars, such as 0.50.")
_TIME_LIMIT: Decorator[Any] = limit(
    "--time", metavar="TIME", type=Duration(), help="Such as 90s, 10m or 1h30m."
)
_COUNTS = together(
    limit("--tokens", metavar="N", type=int, help="Input and output together."),
    limit("--model-calls", metavar="N", type=int, help="Requests to models."),
    limit("--tool-calls", metavar="N", type=int, help="Calls of tools."),
)
REASON: Decorator[Any] = click.option(
    "--reason", default="", metavar="TEXT", help="The reason, for people; in one line."
)
BUDGET = together(_USD, _TIME_LIMIT, _COUNTS)
SESSION_BUDGET = together(_USD, _COUNTS)
"""The budget of a session, which has no limit of time."""


def listening(port: int) -> Decorator[Any]:
    """Return the options of a command that serves others: its address, and its port."""
    return together(
        click.option(
            "--host",
            default="127.0.0.1",
            metavar="ADDRESS",
            help="The IP address to listen on (default: 127.0.0.1).",
        ),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            default=port,
            metavar="PORT",
            help=f"The port; 0 for a free one (default: {port}).",
        ),
    )


def iterations(name: str) -> Decorator[Any]:
    """Return the option for the limit of steps, or for an addition to it."""
    return limit(
        name,
        metavar="N",
        type=Count(min=1),
        help="Steps of the turn itself, without those of its delegates.",
    )


LIMITS = together(
    iterations("--max-iterations"),
    limit(
        "--model-retry",
        metavar="TIME",
        type=Retries(),
        help="How long a provider that is unavailable is tried again, such as 10s.",
    ),
)
"""The limits of a turn besides its budget."""
START = together(
    when(
        "--delay",
        metavar="WHEN",
        type=When(),
        help="When it begins: 2h after its start, or a date such as 2030-12-01T18:00:00+01:00.",
    ),
    when(
        "--deadline",
        metavar="WHEN",
        type=When(),
        help="When it ends at the latest, waits for people included.",
    ),
    when("--weight", metavar="N", type=float, help="The share of that key (default: 1)."),
)
"""The options about when a new turn runs that only a turn has."""
IDLE: Decorator[Any] = click.option(
    "--idle",
    type=Duration(),
    metavar="TIME",
    help="Close a new session after this time without a message (default: never).",
)
WEBHOOKS = together(
    click.option(
        "--on-done",
        metavar="URL",
        help="An https URL that gets a signed webhook when a turn is over.",
    ),
    click.option(
        "--on-wait",
        metavar="URL",
        help="An https URL that gets a signed webhook when a turn waits for somebody.",
    ),
)
_ORDER = together(
    when(
        "--priority",
        metavar="N",
        type=Count(min=1, max=5),
        help="From 1, the first, to 5, the last, where work waits for workers (default: 3).",
    ),
    when(
        "--fairness", metavar="KEY", help="The key, such as a tenant, that takes turns with others."
    ),
)
FORK = together(
    click.option("--id", metavar="ID", help="The new turn's id (default: TURN~1, …)."),
    click.option(
        "--yes", "is_agreed", is_flag=True, help="Do not ask before calls may happen again."
    ),
    click.option("--no-follow", is_flag=True, help="Start the new turn, and do not follow it."),
    STREAM,
)
"""The options of commands that start a turn from another one."""


def _remember(context: click.Context, _: click.Parameter, value: bool) -> bool:
    """Make an error of this command print as JSON too."""
    context.obj["json"] = value
    return value


def json_lines(text: str) -> Decorator[Any]:
    """Return the option `--json`; `text` is its help."""
    return click.option("--json", "as_json", is_flag=True, callback=_remember, help=text)


EVENTS = json_lines("Print a line of JSON for each event, and one for the report.")
"""The option `--json` of a command that follows a turn."""


def labels(text: str) -> Decorator[Any]:
    """Return the option `--label`, which may be repeated, with a dict of all pairs as its value."""
    return click.option(
        "--label",
        "labels",
        metavar="NAME=VALUE",
        type=Label(),
        multiple=True,
        callback=lambda _context, _parameter, pairs: dict(pairs),
        help=text,
    )


VERSION: Decorator[Any] = click.option(
    "--version",
    metavar="VERSION",
    help="The version of the agent (default: as the rollout of the worker chooses).",
)


_SUBJECT: Decorator[Any] = click.option(
    "--subject",
    metavar="NAME",
    help="The person or customer whose data it is, for `perdure erase`.",
)


def turn(labelled: str, budget: Decorator[Any] = BUDGET) -> Decorator[Any]:
    """Return the options of a turn, for a command that starts turns.

    `labelled` is the help of `--label`, and `budget` has the limits of what may be spent.
    """
    return together(
        labels(labelled),
        VERSION,
        _SUBJECT,
        WEBHOOKS,
        budget,
        LIMITS,
        _ORDER,
    )
