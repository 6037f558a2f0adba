"""The tool that returns the time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from perdure import errors
from perdure.activities.toolboxes.clock import Moment
from perdure.agents.tool_context import encode
from perdure.agents.tools import Toolbox, as_tools
from perdure.toolboxes import clock

NOON = datetime(2026, 7, 4, 12, 30, 1, 999, tzinfo=UTC)


def ask(box: Toolbox, **arguments: object) -> Moment:
    """Call the tool as a turn does, with arguments as JSON."""
    (item,) = as_tools(box.tools)
    moment = item.function(**item.arguments.parse(encode(arguments)))
    assert isinstance(moment, Moment)
    return moment


def test_tool_reads_only() -> None:
    """A crash may repeat it."""
    (item,) = as_tools(clock().tools)

    assert (item.name, item.read_only, bool(item.description)) == ("now", True, True)


def test_time_is_told_in_a_zone() -> None:
    """The configured one, or another one that the model names, where the date may differ."""
    box = clock("Europe/Berlin", now=lambda: NOON)

    assert ask(box) == Moment(
        time="2026-07-04T14:30:01+02:00", weekday="Saturday", zone="Europe/Berlin"
    )
    assert ask(box, time_zone="Pacific/Auckland") == Moment(
        time="2026-07-05T00:30:01+12:00", weekday="Sunday", zone="Pacific/Auckland"
    )
    assert ask(box, time_zone="UTC").time == "2026-07-04T12:30:01+00:00"


def test_time_is_that_of_the_machine() -> None:
    """Unless it has another clock."""
    assert abs(datetime.fromisoformat(ask(clock()).time) - datetime.now(UTC)) < timedelta(
        seconds=10
    )


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "Mars/Olympus",
        "Europe",
        "../../etc/passwd",
        "/etc/passwd",
        "Europe/../Europe/Berlin",
        "UTC\0",
        "x" * 10_000,
    ],
)
def test_zone_that_is_none_is_refused(zone: str) -> None:
    """The name is looked up in a list, so no path reaches the file system."""
    with pytest.raises(ValueError, match="there is no time zone") as caught:
        ask(clock(), time_zone=zone)
    with pytest.raises(errors.ConfigurationError, match="there is no time zone"):
        clock(zone)

    assert len(str(caught.value)) < 200
