"""Follows a schedule: what it starts is yielded when it is over, with a cursor to go on after it.

The server counts the starts of a schedule and remembers the last ones. A cursor has the number of
the last start that was seen, and the starts up to it that were not over. What the server does not
remember any more is looked for in its list of workflows.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, ClassVar

from pydantic import AwareDatetime, Field
from temporalio.api.schedule.v1 import ScheduleInfo
from temporalio.api.workflowservice.v1 import DescribeScheduleResponse
from temporalio.client import Client

from perdure import errors
from perdure.clients.reading.cursors import StoredPosition
from perdure.clients.schedules import messages
from perdure.clients.schedules.status import (
    ScheduledTurn,
    ScheduleResult,
    Start,
    names_of,
    run_of,
    slot_of,
    zone_of,
)
from perdure.clients.schedules.stored import definition_of
from perdure.clients.turns.filters import Filter
from perdure.clients.turns.listing import Workflows
from perdure.temporal import schedule_updates
from perdure.temporal.access import SCHEDULE, no_cursor
from perdure.temporal.names import BATCHES, SCHEDULED_MESSAGE, TURN
from perdure.temporal.namespace_check import Index

_POLL_S = 2.0
_OPEN = 20
"""The number of starts that are followed at the same time, so that a cursor stays short."""
_PAGE = 200
_LISTED = 1_000
"""The number of starts from the list that are kept, in case that it is ahead of the schedule."""
_LIST_LAGS = timedelta(seconds=10)
"""What was started longer ago is in the server's list of workflows."""

Describe = Callable[[], Awaitable[DescribeScheduleResponse]]


class SchedulePosition(StoredPosition):
    """A position in the results of a schedule.

    `created` is the time of its creation, which tells it apart from another one of the same id.
    `number` counts its starts up to the last one that was seen, which is the workflow `last`, at
    the time `at`. `open` has the times of the starts up to that one that were not over, by the ids
    of their workflows.
    """

    subject: ClassVar[str] = "the results of a schedule"

    created: AwareDatetime
    number: int = 0
    last: str = ""
    at: AwareDatetime
    open: Annotated[dict[str, AwareDatetime], Field(max_length=_OPEN)] = {}

    @classmethod
    def begin(cls, info: ScheduleInfo) -> SchedulePosition:
        """Return the position before the starts that the server remembers."""
        created = info.create_time.ToDatetime(tzinfo=UTC)
        return cls(created=created, number=_before(info), at=created)

    def after(self, starts: Sequence[Start], count: int) -> SchedulePosition:
        """Return the position after the first of these starts, as many as may be open.

        `count` is the number of the last one.
        """
        seen = starts[: max(_OPEN - len(self.open), 0)]
        if not seen:
            return self
        changes = {
            "number": max(self.number, count - len(starts) + len(seen)),
            "last": seen[-1].id,
            "at": seen[-1].started_at,
            "open": {**self.open, **{start.id: start.started_at for start in seen}},
        }
        return self.model_copy(update=changes)

    def without(self, workflow_id: str) -> SchedulePosition:
        """Return the position after a start is over."""
        left = {id: at for id, at in self.open.items() if id != workflow_id}
        return self.model_copy(update={"open": left})


class ScheduleResults:
    """Reads the results of one schedule. `describe` returns the server's description of it."""

    def __init__(self, client: Client, index: Index, schedule_id: str, describe: Describe) -> None:
        self._client = client
        self._index = index
        self._id = schedule_id
        self._describe = describe
        self._listed_ids = deque[str](maxlen=_LISTED)

    async def after(self, cursor: str | None) -> AsyncGenerator[ScheduleResult, None]:
        """Yield the results after a cursor, until the schedule is deleted.

        Without a cursor, they begin with what the server remembers.

        Raises:
            PerdureError: As `Schedule.results` does.
        """
        known = None if cursor is None else SchedulePosition.of(cursor)
        if known is not None and any(slot_of(self._id, id) is None for id in known.open):
            raise no_cursor(cursor or "", SchedulePosition.subject)  # of what others started
        description: DescribeScheduleResponse | None = await self._describe()
        assert description is not None
        beginning = SchedulePosition.begin(description.info)
        position = known or beginning
        if position.created != beginning.created:
            raise errors.StaleCursorError(
                f"the cursor belongs to another schedule than {self._id!r}, or to one of this id"
                " that was deleted; read the results from the beginning",
                context=SCHEDULE.context(self._id),
            )
        while description is not None:
            reading = functools.partial(self._read, description, position)
            position, ended = await SCHEDULE.patiently(self._id, reading)
            for turn in ended:
                position = position.without(turn.message or turn.id)
                yield ScheduleResult(**dict(turn), cursor=position.cursor())
            await asyncio.sleep(_POLL_S)
            description = await self._described()

    async def _described(self) -> DescribeScheduleResponse | None:
        """Return the server's description, after an outage of any length; None if it is deleted."""
        try:
            return await SCHEDULE.patiently(
                self._id, lambda: schedule_updates.described(self._client, self._id)
            )
        except errors.ScheduleNotFoundError:
            return None

    async def _read(
        self, description: DescribeScheduleResponse, position: SchedulePosition
    ) -> tuple[SchedulePosition, Sequence[ScheduledTurn]]:
        """Return the position after what was started meanwhile, and what is over."""
        position = await self._with_new(description.info, position)
        try:
            return position, await self._ended(description, position)
        except errors.ServerUnreachableError:
            return position, ()  # a session could not be read; it is read the next time

    async def _with_new(self, info: ScheduleInfo, position: SchedulePosition) -> SchedulePosition:
        """Return the position after what was started meanwhile."""
        recent = [Start.of(action) for action in info.recent_actions]
        missing = _before(info) - position.number
        if missing <= 0:
            new = recent[-missing:]
        else:
            listed = await self._listed(position, recent)
            is_settled = not recent or datetime.now(UTC) - recent[0].started_at > _LIST_LAGS
            if len(listed) < missing and not is_settled:
                return position
            new = [*listed, *recent]
        known = {*position.open, *self._listed_ids}
        new = [start for start in new if start.id not in known]
        following = position.after(new, info.action_count)
        if missing > 0:
            self._listed_ids += following.open.keys() - position.open.keys()
        return following

    async def _listed(self, position: SchedulePosition, recent: Sequence[Start]) -> list[Start]:
        """Return the starts after a position that the server has forgotten, in order.

        They are as many as the server retains.
        """
        filters = Filter(schedule=self._id, workflows=(TURN, SCHEDULED_MESSAGE, *BATCHES))
        workflows = Workflows(self._client, self._index, filters, SCHEDULE)
        query = f"{await workflows.query()} AND StartTime >= '{position.at.isoformat()}'"
        known = {position.last, *position.open, *self._listed_ids}
        known |= {start.id for start in recent}
        starts, token = list[Start](), b""
        while True:
            found, token = await workflows.page(query, _PAGE, token, retry=True)
            for info in found:
                id, at = info.execution.workflow_id, info.start_time.ToDatetime(tzinfo=UTC)
                is_start = slot_of(self._id, id) is not None  # the turns of a batch are not
                if is_start and id not in known:
                    starts.append(Start(id, "", at))
            if not token:
                return sorted(starts, key=lambda start: (start.started_at, start.id))

    async def _ended(
        self, description: DescribeScheduleResponse, position: SchedulePosition
    ) -> Sequence[ScheduledTurn]:
        """Return what is over, in the order of the starts."""
        if not position.open:
            return ()
        definition = await definition_of(self._client, self._id, description)
        session, zone, names = definition.request.session, zone_of(definition), names_of(definition)
        read = None if session is None else await messages.turns_of(self._client, session)
        reading = (
            run_of(self._client, self._id, zone, Start(id, "", at), read, names)
            for id, at in position.open.items()
        )
        turns = await asyncio.gather(*reading)
        return [turn for turn in turns if await self._is_over(turn, session or "")]

    async def _is_over(self, turn: ScheduledTurn, session_id: str) -> bool:
        if turn.state is not None:
            return turn.ended_at is not None
        if not turn.message:
            return True  # its retention is over
        if turn.id:  # the session may have named the turn before it exists
            return await messages.running_in(self._client, session_id) != turn.id
        if turn.is_skipped or turn.error is not None:
            return True
        return await messages.is_forgotten(self._client, session_id, turn.message)


def _before(info: ScheduleInfo) -> int:
    """Return the number of starts that the server does not remember."""
    return int(info.action_count) - len(info.recent_actions)
