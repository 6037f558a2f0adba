"""Schedules as `perdure schedule list` and `show` print them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime

from rich.text import Text

from perdure.clients.cli.drawing import details, json_lines
from perdure.clients.cli.drawing.amounts import budget_in_words, in_words
from perdure.clients.cli.drawing.listing import EntryTable
from perdure.clients.cli.drawing.progress import COLOURS
from perdure.clients.cli.drawing.screen import put
from perdure.clients.cli.exits import DONE
from perdure.clients.schedules.handle import Schedule
from perdure.clients.schedules.status import ScheduledTurn, ScheduleEntry, ScheduleStatus
from perdure.text import harmless, money, word
from perdure.turn.slot import ScheduleLogEntry
from perdure.values.budgets import DIMENSIONS, Budget, Remaining, Spending
from perdure.values.moments import period_in_words

_SHOWN_TIMES = 3
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def entry_table(entries: AsyncIterator[ScheduleEntry]) -> EntryTable[ScheduleEntry]:
    """Return a table of schedules."""
    return EntryTable(entries, _row, left_out=("AGENT", "ZONE", "TASK", "CRON"))


def _row(entry: ScheduleEntry, _: datetime) -> Mapping[str, Text]:
    text = entry.error.message if entry.error else _task(entry)
    return {
        "ID": Text(word(entry.id)),
        "AGENT": Text(word(entry.agent) if entry.agent else "–"),
        "CRON": Text(entry.cron or "–"),
        "ZONE": Text(word(entry.timezone) if entry.timezone else "–"),
        "NEXT": _following(entry),
        "TASK": Text(harmless(text), no_wrap=True, overflow="ellipsis"),
    }


def _following(entry: ScheduleEntry) -> Text:
    if entry.is_paused:
        return Text("paused", "yellow")
    return Text(_moment(entry.next[0]) if entry.next else "–")


async def show(schedule: Schedule, *, as_json: bool) -> int:
    """Print a schedule, and return the exit code.

    Raises:
        PerdureError: It cannot be described.
    """
    status = await schedule.status()
    if as_json:
        json_lines.tell(status)
    else:
        details.draw(_properties(status), list(map(_turn, status.last)), ("BY", "SPENT"))
    return DONE


async def follow(schedule: Schedule, after: str | None, limit: int | None, *, as_json: bool) -> int:
    """Print results as they come, at most `limit`, and return the exit code.

    Raises:
        PerdureError: They cannot be read.
    """
    count, reading = 0, schedule.results(after)
    async with contextlib.aclosing(reading):
        async for result in reading:
            if as_json:
                value = {"schedule": schedule.id, "kind": "result"}
                json_lines.tell({**value, **result.model_dump(mode="json")})
            else:
                put(_line(result))
            count += 1
            if count == limit:
                break
    return DONE


def _line(result: ScheduledTurn) -> str:
    """Format a result in one line: the time, what became of it, its cost and its id."""
    spent = "" if result.spent is None else f"  {money(result.spent)}"
    state = _known(result) or "–"
    return f"{_moment(result.at)}  {state}{spent}  {word(result.id or result.message)}"


def _properties(status: ScheduleStatus) -> Iterator[tuple[str, Text | str]]:
    yield (
        "schedule",
        Text.assemble((word(status.id), "bold"), ("  paused" * status.is_paused, "yellow")),
    )
    if status.reason:
        yield "reason", harmless(status.reason)
    if status.by is not None:
        yield "by", harmless(status.by)
    kind = "turn" if status.session is None else "message"
    kind = kind if status.tasks is None else "batch"
    yield kind, f"{word(status.agent)}: {_task(status)}"
    if status.session is not None:
        yield "session", word(status.session)
    yield "times", f"{status.cron}  {word(status.timezone)}"
    if status.next:
        yield "next", ", ".join(map(_moment, status.next[:_SHOWN_TIMES]))
    yield "rules", ", ".join(_rules(status))
    if status.budget:
        yield "budget", budget_in_words(status.budget)
    if status.turn_budget:
        yield "each turn", budget_in_words(status.turn_budget)
    if status.total:
        yield "total", _total(status.total, status.spent)
    if status.labels:
        yield (
            "labels",
            ", ".join(f"{word(name)}={word(value)}" for name, value in status.labels.items()),
        )
    counts = f"{status.started} started, {status.skipped} skipped, {status.missed} missed"
    yield "so far", counts
    for entry in status.log[:_SHOWN_TIMES]:
        yield "log", _logged(entry)


def _logged(entry: ScheduleLogEntry) -> str:
    reason = f": {harmless(entry.reason)}" if entry.reason else ""
    verb = entry.verb.replace("_", " ")
    by = f" by {harmless(entry.by)}" if entry.by else ""
    return f"{_moment(entry.at)}  {verb}{by}{reason}"


def _task(entry: ScheduleEntry) -> str:
    """Return the task, or the number of the tasks of a batch."""
    if entry.tasks is None:
        return harmless(entry.task)
    return f"{entry.tasks} task{'s' * (entry.tasks > 1)}"


def _total(total: Budget, spent: Spending) -> str:
    limited = [name for name in DIMENSIONS if getattr(total, name) is not None]
    used = Remaining.model_validate({name: getattr(spent, name) for name in limited})
    return f"{budget_in_words(total)}; spent: {in_words(used)}"


def _rules(status: ScheduleStatus) -> Iterator[str]:
    if status.at_once is not None:
        yield f"at once: {status.at_once}"
        yield f"on error: {status.on_error}"
    yield f"if running: {status.if_running}"
    yield f"catch up: {period_in_words(status.catch_up)}"
    yield f"on failure: {status.on_failure}"
    if status.remember_last:
        yield "with the last output"
    if status.jitter:
        yield f"jitter: {period_in_words(status.jitter)}"
    if status.starts:
        yield f"from {_moment(status.starts)}"
    if status.ends:
        yield f"until {_moment(status.ends)}"


def _turn(turn: ScheduledTurn) -> Mapping[str, Text]:
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
    if turn.error is not None and turn.state is None:
        return "refused"
    if turn.is_skipped:
        return "skipped"
    if turn.batch is not None:
        return f"{turn.batch.state.replace('_', ' ')}, {turn.batch.done} of {turn.batch.total}"
    return turn.outcome or turn.state or ""


def _moment(moment: datetime) -> str:
    return f"{_DAYS[moment.weekday()]} {moment:%Y-%m-%d %H:%M}"
