"""The definition of a schedule: what it starts, when, and what it does about trouble."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from annotated_types import Interval

from perdure import errors, limits, validation
from perdure.agents.agent import Agent
from perdure.clients.batches.items import BatchOf
from perdure.clients.schedules import batches, cron, messages, zones
from perdure.clients.schedules.cron import Cron
from perdure.temporal import search_attributes, start_request
from perdure.temporal.access import SCHEDULE
from perdure.temporal.priorities import Fairness, Priorities
from perdure.text import size
from perdure.turn.schedule_account import ScheduleAccount
from perdure.turn.slot import BLOCK, LAST_BLOCK, IfRunning, ScheduledBy, ScheduleLogEntry, logged
from perdure.turn.wire import TurnRequest
from perdure.validation import Must
from perdure.values import keywords
from perdure.values.batch_items import ScheduledBatch
from perdure.values.budgets import ABudget, Budget
from perdure.values.tasks import Task
from perdure.values.turn_options import TurnOptions

OnFailure = Literal["go on", "pause"]

_ID_BYTES = 255
MOMENT = Annotated[
    datetime,
    Must(
        "a datetime with a time zone, in the years 1970 to 9998",
        lambda value: (
            isinstance(value, datetime)
            and value.utcoffset() is not None
            and 1970 <= value.year < MAXYEAR
        ),
    ),
]
_OPTIONS: Mapping[str, Any] = {
    "timezone": validation.Text,
    "if_running": IfRunning,
    "catch_up": Annotated[
        timedelta,
        Interval(ge=limits.LEAST_CATCH_UP, le=validation.LONGEST),
        Must(
            f"a timedelta of {limits.LEAST_CATCH_UP.total_seconds():g} seconds to"
            f" {validation.LONGEST.days} days"
        ),
    ],
    "on_failure": OnFailure,
    "remember_last": bool,
    "jitter": validation.Time | None,
    "starts": MOMENT | None,
    "ends": MOMENT | None,
    "total": ABudget | None,
    "batch": ScheduledBatch | None,
    "priority": Priorities,
    "fairness": Fairness,
}


class ScheduleChanges(TurnOptions, total=False):
    """The arguments of `AgentClient.create_schedule`, of which `Schedule.change` takes any."""

    agent: Agent[Any] | str
    task: str | Task
    output: type[Any] | None
    session: str | None
    batch: BatchOf | None
    cron: str
    timezone: str
    if_running: IfRunning
    catch_up: timedelta
    on_failure: OnFailure
    remember_last: bool
    jitter: timedelta | None
    starts: datetime | None
    ends: datetime | None
    total: Budget | None
    priority: int | None
    fairness: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a schedule starts, and when. `AgentClient.create_schedule` describes the values.

    `request` is the input of its turns, without the schedule. With a session, it is the input of
    the workflows that send its messages; with a batch, it is the input of the batch, and has no
    task. `updates` are the ids of the last updates. `account` is what is stored about `total`.
    `log` has the last requests.
    """

    id: str
    task_queue: str
    request: TurnRequest
    cron: Cron
    timezone: str
    if_running: IfRunning = "skip"
    catch_up: timedelta = limits.CATCH_UP
    on_failure: OnFailure = "go on"
    remember_last: bool = False
    jitter: timedelta | None = None
    starts: datetime | None = None
    ends: datetime | None = None
    total: Budget | None = None
    batch: ScheduledBatch | None = None
    priority: int | None = None
    fairness: str | None = None
    account: ScheduleAccount | None = None
    updates: tuple[str, ...] = ()
    log: tuple[ScheduleLogEntry, ...] = ()

    def input(self, now: datetime) -> TurnRequest:
        """Return the input of the turns, with the schedule."""
        scheduled = ScheduledBy(
            id=self.id,
            timezone=self.timezone,
            offsets=zones.offsets(self.timezone, now),
            remember_last=self.remember_last,
            updates=self.updates or None,
            account=self._account(now),
            batch=self.batch,
            log=self.log or None,
            pauses=self.on_failure == "pause" if self.batch is not None else None,
        )
        if self.request.session is not None:
            rules = {"if_running": self.if_running, "pauses": self.on_failure == "pause"}
            scheduled = scheduled.model_copy(update=rules)
        return self.request.model_copy(update={"schedule": scheduled})

    def _account(self, now: datetime) -> ScheduleAccount | None:
        if self.total is None:
            return None
        account = self.account or ScheduleAccount(total=self.total, since=now)
        return account.model_copy(update={"total": self.total})

    def with_entry(self, entry: ScheduleLogEntry) -> Definition:
        """Return the definition with another entry in its log."""
        return replace(self, log=logged(self.log, entry))

    def changed(self, changes: ScheduleChanges) -> Definition:
        """Return the definition with other values.

        Raises:
            PerdureError: As `AgentClient.create_schedule` raises it.
        """
        keywords.check("a schedule", changes, ScheduleChanges)
        values: dict[str, Any] = {**changes}
        if values.get("batch") is not None:
            values.setdefault("task", "")
        elif values.get("task"):
            values.setdefault("batch", None)
        mine = {name: values.pop(name) for name in _OPTIONS if name in values}
        validation.check(
            "the schedule",
            mine,
            {name: _OPTIONS[name] for name in mine},
            errors.InvalidRequestError,
        )
        if "cron" in values:
            mine["cron"] = parsed(values.pop("cron"))
        new = replace(self, request=start_request.changed(self.request, values), **mine)
        new.check()
        return new

    def check(self) -> None:
        """Reject values that do not go together.

        Raises:
            InvalidRequestError: They do not.
        """
        if self.batch is None:
            start_request.refuse_silence(self.request)
        zones.zone(self.timezone)
        if self.starts is not None and self.ends is not None and self.starts >= self.ends:
            raise errors.InvalidRequestError(
                f"the schedule: it ends at {self.ends}, which is not after its start, {self.starts}"
            )
        for is_given, name in (
            (self.remember_last, "remember_last"),
            (self.on_failure == "pause", "on_failure='pause'"),
            (self.total is not None, "total"),
        ):
            if is_given and self.if_running == "allow":
                raise errors.InvalidRequestError(
                    f"the schedule: {name} needs turns that run one after another, so it cannot be"
                    " combined with if_running='allow'; use 'skip', 'queue' or 'cancel'"
                )
        if self.total is not None and self.total.time is not None:
            raise errors.InvalidRequestError(
                "the schedule: total has no time: give it to the budget of each turn"
            )
        self._check_session()
        self._check_batch()
        blocks = self.request.context.blocks if self.request.context else {}
        for name in (BLOCK, LAST_BLOCK):
            if name in blocks:
                raise errors.InvalidRequestError(
                    f"the schedule: the context may not have a block {name!r}: the turns of a"
                    " schedule get one with this name"
                )

    def _check_session(self) -> None:
        """Reject values that do not go with a session.

        Raises:
            PerdureError: They do not.
        """
        if self.request.session is None:
            return
        for name, why in (
            (self.if_running == "allow" and "if_running='allow'", "whose turns run one by one"),
            (self.remember_last and "remember_last", "which remembers more than the last output"),
            (self.priority is not None and "priority", "whose turns have that of the session"),
            (self.total is not None and "total", "which has a budget for all of its turns"),
        ):
            if name:
                raise errors.InvalidRequestError(
                    f"the schedule: {name} cannot be combined with a session, {why}"
                )
        messages.check(self.input(datetime.now(UTC)))

    def _check_batch(self) -> None:
        """Reject values that do not go with a batch.

        Raises:
            PerdureError: They do not.
        """
        if self.batch is None:
            return
        if self.request.session is not None or self.remember_last:
            name = "session" if self.request.session is not None else "remember_last"
            raise errors.InvalidRequestError(
                f"the schedule: {name} cannot be combined with a batch, whose turns have nothing of"
                " each other"
            )
        now = datetime.now(UTC)
        batches.check(turn_id_of(self.id, now), self.input(now))

    def differences(self, other: Definition) -> list[str]:
        """Return the names of the values that differ, as in `AgentClient.create_schedule`."""
        mine, theirs = _values(self), _values(other)
        return [name for name, value in mine.items() if value != theirs[name]]


def parsed(text: str) -> Cron:
    """Return a cron expression after validation.

    Raises:
        InvalidRequestError: It is not valid.
    """
    validation.check(
        "the schedule", {"cron": text}, {"cron": validation.Text}, errors.InvalidRequestError
    )
    return cron.parse(text)


def checked_id(schedule_id: str) -> str:
    """Return the id of a new schedule after validation.

    Raises:
        InvalidRequestError: It is not valid, or has a character by which Temporal could not find
            the turns of the schedule.
    """
    SCHEDULE.new_id(schedule_id)
    if size(schedule_id) > _ID_BYTES:
        raise errors.InvalidRequestError(
            f"a schedule's id has at most {_ID_BYTES} bytes, not {size(schedule_id)}: the time of a"
            " turn is appended to it"
        )
    if search_attributes.keyword(schedule_id) != schedule_id:
        raise errors.InvalidRequestError(
            "a schedule's id has printable characters only, without quotation marks, % and \\"
        )
    return schedule_id


def turn_id_of(schedule_id: str, at: datetime) -> str:
    """Return the id that the server gives to the turn or batch of a slot, in whole seconds."""
    return f"{schedule_id}-{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _values(definition: Definition) -> dict[str, Any]:
    """Return the values by the names of the arguments that set them."""
    own_values = {
        field.name: getattr(definition, field.name)
        for field in fields(definition)
        if field.name not in ("id", "request", "account", "updates", "log")
    }
    request_values = definition.request.model_dump(mode="json")
    output = request_values.pop("output_schema")
    return {**request_values, **own_values, "output": output}
