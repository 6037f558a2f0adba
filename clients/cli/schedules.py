"""Schedules on the command line: their arguments, and how they are shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

from rich.text import Text

from perdure import errors
from perdure.clients.batches.items import BatchOf
from perdure.clients.cli.drawing import json_lines, table
from perdure.clients.cli.drawing.amounts import budget_of, in_words, time_in_words
from perdure.clients.cli.drawing.progress import COLOURS
from perdure.clients.cli.drawing.screen import note, put, wrapped
from perdure.clients.cli.exits import DONE
from perdure.clients.cli.options import NEVER
from perdure.clients.schedules import zones
from perdure.clients.schedules.handle import Schedule
from perdure.clients.schedules.status import ScheduledTurn, ScheduleEntry, ScheduleStatus
from perdure.text import harmless, money, word
from perdure.values.budgets import DIMENSIONS, Budget, Remaining, Spending

_BATCH = ("at_once", "turn_usd", "on_error")
_LEFT_OUT = ("AGENT", "ZONE", "TASK", "CRON")
_SHOWN_TIMES = 3
_LABEL = 10
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LIMITS = (*DIMENSIONS, "time")
_TOTALS = ("usd", "tokens")


def arguments(given: Mapping[str, Any], timezone: str = "") -> Any:
    """Return the arguments of `AgentClient.schedule` from the options of a command.

    `timezone` is that of times without one, if the options do not name it.

    Raises:
        InvalidRequestError: A limit, or the time zone, is not valid.
    """
    named = {name: value for name, value in given.items() if value not in (None, ())}
    limits = {name: named.pop(name) for name in _LIMITS if name in named}
    budget = budget_of(limits)
    if budget is not None:
        named["budget"] = budget
    totals = {name: named.pop(f"total_{name}") for name in _TOTALS if f"total_{name}" in named}
    total = budget_of(totals)
    if total is not None:
        named["total"] = total
    options = {name: named.pop(name) for name in _BATCH if name in named}
    if "turn_usd" in options:
        options["turn_budget"] = budget_of({"usd": options.pop("turn_usd")})
    if "batch" in named:
        named["batch"] = BatchOf(named["batch"], **options)
    elif options:
        raise errors.InvalidRequestError(
            "--at-once, --turn-usd and --on-error are those of a batch; name its tasks with --batch"
        )
    if "labels" in named:
        named["labels"] = dict(named["labels"])
    if "jitter" in named:
        named["jitter"] = named["jitter"] or None
    for name in ("starts", "ends"):
        if name in named:
            place = zones.zone(named.get("timezone", timezone))
            named[name] = None if named[name] == NEVER else _local(named[name], place)
    return named


async def in_its_zone(schedule: Schedule, *moments: datetime | str) -> list[datetime]:
    """Return times in the time zone of a schedule, unless they have one.

    Raises:
        InvalidRequestError: A time is `none`.
    """
    place = zones.zone((await schedule.status()).timezone)
    found = [_local(moment, place) for moment in moments if isinstance(moment, datetime)]
    if len(found) < len(moments):
        raise errors.InvalidRequestError("a backfill needs a beginning and an end")
    return found


def _local(moment: datetime, place: tzinfo) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=place)


async def show(schedule: Schedule, *, as_json: bool) -> int:
    """Print a schedule, and return the exit code.

    Raises:
        PerdureError: It cannot be described.
    """
    status = await schedule.status()
    if as_json:
        json_lines.tell(status)
        return DONE
    for label, words in _lines(status):
        put(wrapped(Text.assemble((f"{label:<{_LABEL}}", "dim"), words), sys.stdout, _LABEL))
    if status.last:
        put()
        table.draw([_turn(one) for one in status.last], ("BY", "SPENT"), sys.stdout)
    return DONE


def _lines(status: ScheduleStatus) -> Iterator[tuple[str, Text | str]]:
    """Yield what a schedule is, as labels and lines."""
    yield (
        "schedule",
        Text.assemble((word(status.id), "bold"), ("  paused" * status.is_paused, "yellow")),
    )
    if status.reason:
        yield "reason", harmless(status.reason)
    what = "turn" if status.session is None else "message"
    what = what if status.tasks is None else "batch"
    yield what, f"{word(status.agent)}: {_task(status)}"
    if status.session is not None:
        yield "session", word(status.session)
    yield "times", f"{status.cron}  {word(status.timezone)}"
    if status.next:
        yield "next", ", ".join(map(_moment, status.next[:_SHOWN_TIMES]))
    yield "rules", ", ".join(_rules(status))
    if status.budget:
        yield "budget", in_words(Remaining.model_validate(dict(status.budget)))
    if status.turn_budget:
        yield "each turn", in_words(Remaining.model_validate(dict(status.turn_budget)))
    if status.total:
        yield "total", _total(status.total, status.spent)
    if status.labels:
        yield (
            "labels",
            ", ".join(f"{word(name)}={word(value)}" for name, value in status.labels.items()),
        )
    counts = f"{status.started} started, {status.skipped} skipped, {status.missed} missed"
    yield "so far", counts


def _task(entry: ScheduleEntry) -> str:
    """Return the task, or the number of the tasks of a batch."""
    if entry.tasks is None:
        return harmless(entry.task)
    return f"{entry.tasks} task{'s' * (entry.tasks > 1)}"


def _total(total: Budget, spent: Spending) -> str:
    limited = [name for name in DIMENSIONS if getattr(total, name) is not None]
    used = Remaining.model_validate({name: getattr(spent, name) for name in limited})
    return f"{in_words(Remaining.model_validate(dict(total)))}; spent: {in_words(used)}"


def _rules(status: ScheduleStatus) -> Iterator[str]:
    if status.at_once is not None:
        yield f"at once: {status.at_once}"
        yield f"on error: {status.on_error}"
    yield f"if running: {status.if_running}"
    yield f"catch up: {time_in_words(status.catch_up)}"
    yield f"on failure: {status.on_failure}"
    if status.remember_last:
        yield "with the last output"
    if status.jitter:
        yield f"jitter: {time_in_words(status.jitter)}"
    if status.starts:
        yield f"from {_moment(status.starts)}"
    if status.ends:
        yield f"until {_moment(status.ends)}"


def show_all(entries: Sequence[ScheduleEntry], *, as_json: bool) -> None:
    """Print a line for each schedule."""
    if as_json:
        for entry in entries:
            json_lines.tell(entry)
    elif entries:
        table.draw(list(map(_row, entries)), _LEFT_OUT, sys.stdout)
    else:
        note("there is no schedule yet")


def _row(entry: ScheduleEntry) -> dict[str, Text]:
    words = entry.error.message if entry.error else _task(entry)
    return {
        "ID": Text(word(entry.id)),
        "AGENT": Text(word(entry.agent) if entry.agent else "–"),
        "CRON": Text(entry.cron or "–"),
        "ZONE": Text(word(entry.timezone) if entry.timezone else "–"),
        "NEXT": _following(entry),
        "TASK": Text(harmless(words), no_wrap=True, overflow="ellipsis"),
    }


def _following(entry: ScheduleEntry) -> Text:
    if entry.is_paused:
        return Text("paused", "yellow")
    return Text(_moment(entry.next[0]) if entry.next else "–")


def _turn(turn: ScheduledTurn) -> dict[str, Text]:
    known = _known(turn)
    colour = COLOURS.get(turn.outcome, "red") if turn.outcome else "cyan"
    return {
        "FOR": Text(_moment(turn.at)),
        "BY": Text("hand" if turn.is_by_hand else "schedule"),
        "STATE": Text(known, colour) if known else Text("–"),
        "SPENT": Text("–" if turn.spent is None else money(turn.spent)),
        "ID": Text(word(turn.id or turn.message)),
    }


def _known(turn: ScheduledTurn) -> str:
    """Return what is known of a turn, or of a message that no turn has read; empty for nothing."""
    if turn.error is not None:
        return "refused"
    if turn.is_skipped:
        return "skipped"
    if turn.batch is not None:
        return f"{turn.batch.state.replace('_', ' ')}, {turn.batch.done} of {turn.batch.total}"
    return turn.outcome or turn.state or ""


def _moment(moment: datetime) -> str:
    return f"{_DAYS[moment.weekday()]} {moment:%Y-%m-%d %H:%M}"
