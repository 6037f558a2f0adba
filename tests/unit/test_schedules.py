"""Cron expressions, time zones, and what the model is told of its slot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo, available_timezones

import pytest

from perdure import Context, Task, errors
from perdure.clients.schedules import cron, zones
from perdure.turn.facts import TurnStarted
from perdure.turn.fold import fold
from perdure.turn.slot import ScheduledBy, Slot, with_slot
from perdure.turn.wire import TurnRequest

from ..support.thorough import some

NOW = datetime(2026, 11, 23, 5, tzinfo=UTC)
BERLIN = ScheduledBy(
    id="digest", timezone="Europe/Berlin", offsets=zones.offsets("Europe/Berlin", NOW)
)


@pytest.mark.accepts("E61")
@pytest.mark.parametrize(
    ("text", "fits", "not_"),
    [
        ("0 7 * * 1-5", ["2026-11-23T07:00"], ["2026-11-22T07:00", "2026-11-23T07:01"]),
        ("*/15 9-17 * * *", ["2026-11-23T09:45"], ["2026-11-23T09:10", "2026-11-23T18:00"]),
        ("10-50/20 * * * *", ["2026-11-23T00:50"], ["2026-11-23T00:20"]),
        ("0 0 1,15 * MON", ["2026-11-15T00:00", "2026-11-23T00:00"], ["2026-11-17T00:00"]),
        ("0 0 */2 * mon", ["2026-11-23T00:00"], ["2026-11-16T00:00", "2026-11-25T00:00"]),
        ("0 0 * jan-MAR 7", ["2026-02-01T00:00"], ["2026-02-02T00:00", "2026-04-05T00:00"]),
        ("0 0 * * 5-7", ["2026-11-20T00:00", "2026-11-22T00:00"], ["2026-11-23T00:00"]),
        ("0 0 * * SUN", ["2026-11-22T00:00"], ["2026-11-23T00:00"]),
        ("0 0 29 2 *", ["2028-02-29T00:00"], ["2027-02-28T00:00"]),
    ],
)
def test_cron_expression_means_what_it_means_to_cron(
    text: str, fits: list[str], not_: list[str]
) -> None:
    """Also if both days are restricted: either of them matches then."""
    times = cron.parse(f"  {text.replace(' ', '   ')} ")

    assert times.text == text
    assert [at for at in fits if not times.matches(datetime.fromisoformat(at))] == []
    assert [at for at in not_ if times.matches(datetime.fromisoformat(at))] == []


@pytest.mark.accepts("E61")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has 0 fields, and not five"),
        ("@daily", "it has 1 fields, and not five"),
        ("0 0 7 * * 1", "it has 6 fields, and not five"),
        ("60 * * * *", "the minute '60' is not one of 0-59"),
        ("* 24 * * *", "the hour '24' is not one of 0-23"),
        ("* * 0 * *", "the day of the month '0' is not one of 1-31"),
        ("* * L * *", "the day of the month 'L' is not one of 1-31"),
        ("* * * 13 *", "the month '13' is not one of 1-12 or JAN"),
        ("* * * MON *", "the month 'MON' is not one of 1-12 or JAN"),
        ("* * * * 8", "the day of the week '8' is not one of 0-7 or SUN"),
        ("* * * * 1#2", "the day of the week '1#2' is not a number, a range or a step"),
        ("9-5 * * * *", "the minute '9-5' ends before it begins"),
        ("5/10 * * * *", "the minute '5/10' is not a number, a range or a step"),
        ("*/0 * * * *", "the minute '*/0' is not a number, a range or a step"),
        ("1,,2 * * * *", "the minute '' is not a number, a range or a step"),
        ("-5 * * * *", "the minute '-5' is not a number, a range or a step"),
        ("٣ * * * *", "the minute '٣' is not one of 0-59"),
        ("\x1b[2J * * * *", r"the minute '\x1b[2J' is not a number"),
        ("0 0 31 2,4 *", "there is no such day in these months"),
    ],
)
def test_cron_expression_that_is_none_is_refused_with_the_field(text: str, said: str) -> None:
    """The message has the name of the field and what is wrong with it."""
    with pytest.raises(errors.InvalidRequestError) as raised:
        cron.parse(text)

    assert said in raised.value.message
    assert raised.value.message.isprintable()


@pytest.mark.accepts("E62")
def test_local_times_of_every_zone_are_those_of_the_database() -> None:
    """At each change of an offset, one second before it, and between."""
    names = some(sorted(available_timezones()))
    wrong = []
    for name in names:
        table = ScheduledBy(id="x", timezone=name, offsets=zones.offsets(name, NOW))
        moments = [datetime.fromtimestamp(at, UTC) for at, _ in table.offsets]
        for at, more in product(moments[1:], (-1, 0, 86_400)):
            moment = at + timedelta(seconds=more)
            local = moment.astimezone(ZoneInfo(name))
            if f"{local:%Y-%m-%d %H:%M}" not in table.in_words(moment):
                wrong.append((name, moment, table.in_words(moment)))

    assert wrong == []
    assert len(names) > 10


@pytest.mark.accepts("E62")
@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("2026-11-23T06:00", "Monday, 2026-11-23 07:00 Europe/Berlin (UTC+01:00)"),
        ("2027-03-28T00:59", "Sunday, 2027-03-28 01:59 Europe/Berlin (UTC+01:00)"),
        ("2027-03-28T01:00", "Sunday, 2027-03-28 03:00 Europe/Berlin (UTC+02:00)"),
        ("1999-01-01T00:00", "Friday, 1999-01-01 00:00 UTC, for the time zone Europe/Berlin"),
    ],
)
def test_slot_is_told_in_local_time(at: str, said: str) -> None:
    """Outside of the table, which covers 25 years, in UTC."""
    assert BERLIN.in_words(datetime.fromisoformat(at).replace(tzinfo=UTC)) == said


@pytest.mark.accepts("E62")
def test_first_message_has_the_slot_after_the_context_and_before_the_task() -> None:
    """The fold adds it; without a slot, nothing is added."""
    request = TurnRequest(
        agent="a", task=Task(content="Go."), context=Context(blocks={"who": "Jo"}), schedule=BERLIN
    )
    slot = Slot(at=datetime(2026, 11, 23, 6, tzinfo=UTC), last_output="Yesterday.")
    by_hand = Slot(at=slot.at.replace(second=7))

    assert fold([TurnStarted(request, slot)]).transcript.messages[0].text == (  # type: ignore[union-attr]
        "<who>\nJo\n</who>\n\n<schedule>\nScheduled for Monday, 2026-11-23 07:00 Europe/Berlin"
        " (UTC+01:00).\n</schedule>\n\n<last_output>\nYesterday.\n</last_output>\n\nGo."
    )
    assert fold([TurnStarted(request)]).transcript.messages[0].text == "<who>\nJo\n</who>\n\nGo."  # type: ignore[union-attr]
    told = with_slot(None, BERLIN, by_hand)
    assert told is not None
    assert told.blocks == {
        "schedule": (
            "Started by hand, outside its schedule, on Monday, 2026-11-23 07:00 Europe/Berlin"
            " (UTC+01:00)."
        )
    }


@pytest.mark.accepts("E61")
@pytest.mark.parametrize("name", ["", "Berlin", "Europe/Berln", "CEST", "../../etc/passwd", "a\nb"])
def test_unknown_time_zone_is_refused(name: str) -> None:
    """With the nearest name, if there is one."""
    with pytest.raises(errors.InvalidRequestError, match="there is no time zone") as raised:
        zones.zone(name)

    assert ("did you mean 'Europe/Berlin'" in raised.value.message) == ("Berl" in name)
    assert raised.value.message.isprintable()
