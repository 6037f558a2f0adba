"""The options of `perdure schedule create` and `change` as arguments of the client."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any

from perdure import errors
from perdure.clients.batches.items import BatchOf
from perdure.clients.cli.drawing.amounts import budget_of
from perdure.clients.cli.schedule_options import NEVER
from perdure.clients.schedules import zones
from perdure.clients.schedules.handle import Schedule
from perdure.values.budgets import DIMENSIONS

_BATCH = ("at_once", "turn_usd", "on_error")
_LIMITS = (*DIMENSIONS, "time")
_TOTALS = ("total_usd", "total_tokens")


def arguments(values: Mapping[str, Any], timezone: str = "") -> Any:
    """Return the arguments of `AgentClient.create_schedule` from the options of a command.

    `timezone` applies to times without a zone, unless the options name one.

    Raises:
        InvalidRequestError: A limit, or the time zone, is not valid.
    """
    named = {name: value for name, value in values.items() if value not in (None, (), {})}
    limits, totals, options = (_taken(named, names) for names in (_LIMITS, _TOTALS, _BATCH))
    if limits:
        named["budget"] = budget_of(limits)
    if totals:
        named["total"] = budget_of(
            {name.removeprefix("total_"): limit for name, limit in totals.items()}
        )
    if "batch" in named:
        named["batch"] = _batch(named["batch"], options)
    elif options:
        raise errors.InvalidRequestError(
            "--at-once, --turn-usd and --on-error are those of a batch; name its tasks with --batch"
        )
    if "jitter" in named:
        named["jitter"] = named["jitter"] or None
    for name, moment in _taken(named, ("starts", "ends")).items():
        zone = zones.zone(named.get("timezone", timezone))
        named[name] = None if moment == NEVER else _local(moment, zone)
    return named


def _taken(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Take the values with these names out of a dict, and return them."""
    return {name: values.pop(name) for name in names if name in values}


def _batch(tasks: Any, options: dict[str, Any]) -> BatchOf:
    if "turn_usd" in options:
        options["turn_budget"] = budget_of({"usd": options.pop("turn_usd")})
    return BatchOf(tasks, **options)


async def in_its_zone(schedule: Schedule, *moments: datetime | str) -> list[datetime]:
    """Return times in the time zone of a schedule, unless they have a zone.

    Raises:
        InvalidRequestError: A time is `none`.
    """
    zone = zones.zone((await schedule.status()).timezone)
    times = [_local(moment, zone) for moment in moments if isinstance(moment, datetime)]
    if len(times) < len(moments):
        raise errors.InvalidRequestError("a backfill needs a beginning and an end")
    return times


def _local(moment: datetime, zone: tzinfo) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
