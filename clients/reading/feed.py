"""The events of a turn, read from its history: reading adds nothing to it.

There is one long poll for each turn and process, shared by all watchers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client

from perdure import errors
from perdure.clients.reading import cursors
from perdure.clients.reading.cursors import Cursor
from perdure.clients.reading.event_context import EventContext
from perdure.clients.reading.events import CaughtUp, Event, is_event
from perdure.clients.reading.live_output import Ear
from perdure.clients.reading.recorded import runs_of, time_of
from perdure.clients.reading.unclaimed import warn_when_unclaimed
from perdure.errors import PerdureError
from perdure.temporal import access
from perdure.temporal.follow import Follower, Read
from perdure.temporal.histories.origins import with_session
from perdure.temporal.histories.runs import describe, describe_last
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.text import described
from perdure.turn.facts import Recorded, TurnEnded
from perdure.turn.state import TurnState

V = TypeVar("V")

_Place = tuple[int, tuple[int, bool]]
"""A position in the events that were read: the place of the run, and that in its history."""

_SHORT = timedelta(seconds=3)


class _Restarted:
    """One task at a time: each start cancels the task before, and leaving cancels the last."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._cancel()
        self._task = asyncio.create_task(coroutine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class Feed:
    """The recorded events of a turn, in all of its runs, shared by all watchers.

    Attributes:
        ear: The live output of the turn.
    """

    def __init__(self, client: Client, turn_id: str, runs: Sequence[str]) -> None:
        self.ear = Ear(self._describe, client.data_converter, self._tell_listeners)
        self._client = client
        self._turn_id = turn_id
        self._first = runs[0]
        self._follower = Follower(
            client, access.TURN, turn_id, runs, lambda: HistoryReader(client.data_converter).facts
        )
        self._context = EventContext()
        self._events: list[Event] = []
        self._places: list[_Place] = []
        self._hidden: list[Recorded] = []
        self._error: PerdureError | None = None
        self._news = asyncio.Event()
        self._news_or_output = asyncio.Event()
        self._watchers = 0
        self._pump: asyncio.Task[None] | None = None

    @property
    def runs(self) -> list[str]:
        """Temporal's ids of the runs of the turn, in order, as far as they are known."""
        return self._follower.runs

    async def watch(
        self, after: Cursor | None = None, *, until: Cursor | None = None
    ) -> AsyncGenerator[Event | CaughtUp, None]:
        """Yield every event after a position, future events included, until the turn is over.

        Args:
            after: The position; None for the beginning.
            until: The end of the history at the start; `CaughtUp` is yielded after that part.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
            StaleCursorError: The turn is over and had no such run.
        """
        async with contextlib.aclosing(self.ticking(after, until=until)) as watching:
            async for event in watching:
                if event is not None:
                    yield event

    async def ticking(
        self,
        after: Cursor | None = None,
        *,
        until: Cursor | None = None,
        pause_s: Callable[[], float | None] = lambda: None,
    ) -> AsyncGenerator[Event | CaughtUp | None, None]:
        """Yield what `watch` yields, and None when no event comes for a time, or live output does.

        Args:
            after: As of `watch`.
            until: As of `watch`.
            pause_s: Returns that time in seconds before each wait; None to wait for events only.

        Raises:
            PerdureError: As `watch` does.
        """
        seen = 0
        async with self.joined():
            while True:
                while seen < len(self._events):
                    event, position = self._events[seen], self._places[seen]
                    seen += 1
                    if self._is_after(position, after):
                        yield event
                if until is not None and self._has_read(until):
                    until = None
                    yield CaughtUp()
                elif self._ends_after(seen, after):
                    return
                elif (pause := pause_s()) is None:
                    await self._news.wait()
                elif not await self._has_news(pause):
                    yield None

    async def _has_news(self, pause_s: float) -> bool:
        """Wait for news or live output, for that long at most; return whether there are news."""
        news = self._news
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._news_or_output.wait()
        return news.is_set()

    @contextlib.asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        """Poll during the block. There is one poll for all who have joined."""
        self._watchers += 1
        if self._pump is None or self._pump.done():
            self._error = None
            self._pump = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """Remove a watcher. The last watcher ends the poll."""
        self._watchers -= 1
        if self._watchers == 0 and self._pump is not None:
            pump, self._pump = self._pump, None
            pump.cancel()
            await asyncio.wait({pump})
            if self._watchers == 0:  # none has come meanwhile
                await self.ear.close()

    def _ends_after(self, seen: int, after: Cursor | None) -> bool:
        """Return whether no event follows the first `seen` ones.

        Raises:
            PerdureError: The turn cannot be read any further.
            StaleCursorError: The turn is over and had no run of the position `after`.
        """
        if self._is_over and seen == len(self._events):
            if after is not None and after.run not in self.runs:
                raise self._stale()
            return True
        if self._error is not None:
            raise self._error
        return False

    async def with_session(self, state: TurnState) -> TurnState:
        """Return the state with the messages of the session before the turn, if it lacks them.

        If the history of the session is gone, the state stays as it is.

        Raises:
            PerdureError: They cannot be read.
        """
        try:
            return await self._patiently(lambda: with_session(self._client, self._turn_id, state))
        except errors.TurnNotFoundError:
            return state

    @property
    def unfolded(self) -> tuple[Recorded, ...]:
        """The facts after the last event that are none of the turn's own, as in `Event.before`."""
        return tuple(self._hidden)

    async def end(self) -> Cursor:
        """Return the position of the last event that Temporal has now.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
        """
        description = await self._patiently(
            lambda: describe_last(self._client, self._turn_id, self.runs[-1], timeout=_SHORT)
        )
        info = description.workflow_execution_info
        return Cursor(self._first, info.execution.run_id, info.history_length)

    def place(self, cursor: str | None) -> Cursor | None:
        """Return the position of a cursor in history; None without a cursor.

        Raises:
            StaleCursorError: The cursor belongs to another turn, or to a run before a reset.
            InvalidRequestError: The value is not a cursor.
        """
        if cursor is None:
            return None
        position = cursors.read(cursor)
        may_come = position.first == self._first != position.run and not self._is_over
        if position.run not in self.runs and not may_come:
            raise self._stale()
        return position

    def is_after(self, event: Event, after: Cursor | None) -> bool:
        """Return whether an event of this feed comes after a position."""
        at = cursors.read(event.cursor)
        return self._is_after((self.runs.index(at.run), at.place), after)

    def _is_after(self, position: _Place, after: Cursor | None) -> bool:
        if after is None:
            return True
        return after.run in self.runs and position > (self.runs.index(after.run), after.place)

    def _has_read(self, until: Cursor) -> bool:
        now = self._follower.run, self._follower.event_id
        return until.run in self.runs and now >= (self.runs.index(until.run), until.event)

    def _stale(self) -> errors.StaleCursorError:
        return errors.StaleCursorError(
            f"the cursor belongs to another run than the one of turn {self._turn_id} that is"
            " watched: the turn was reset or started again since, or the cursor belongs to another"
            " turn; read the events from the beginning",
            context={"turn_id": self._turn_id},
        )

    async def _follow(self) -> None:
        """Poll until the turn is over or cannot be read."""
        try:
            with _Restarted() as unclaimed:
                async with contextlib.aclosing(self._follower.events()) as reading:
                    async for read in reading:
                        self._store(read)
                        self._tell()
                        if read.is_last:
                            unclaimed.start(
                                warn_when_unclaimed(
                                    self._client, self._turn_id, read.event, self._describe
                                )
                            )
            if not self._is_over:
                self._error = errors.TurnNotFoundError(
                    f"the history of {self._turn_id} ends without an end of the turn"
                )
        except PerdureError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - watchers must learn of any error that ends the feed
            self._error = PerdureError(
                f"reading the history of {self._turn_id}: {described(error)}"
            )
        finally:
            self._tell()

    @property
    def _is_over(self) -> bool:
        return bool(self._events) and isinstance(self._events[-1].fact, TurnEnded)

    async def _patiently(self, ask: Callable[[], Awaitable[V]]) -> V:
        """Return the server's answer, after an outage of any length.

        Raises:
            PerdureError: The turn cannot be read.
        """
        return await access.TURN.patiently(self._turn_id, ask)

    def _store(self, read: Read[Recorded]) -> None:
        for number, fact in enumerate(read.facts, 1):
            context = self._context.of(fact)
            if not is_event(fact):
                self._hidden.append(fact)
                continue
            run, is_within = self.runs[read.run], number < len(read.facts)
            cursor = Cursor(self._first, run, read.event.event_id, is_within)
            before, self._hidden = tuple(self._hidden), []
            at = time_of(read.event)
            self._events.append(
                Event(str(cursor), at, fact, self._turn_id, before=before, **context)
            )
            self._places.append((read.run, cursor.place))

    def _tell(self) -> None:
        """Wake all watchers; each waits on the `asyncio.Event` that was current when it looked."""
        self._news.set()
        self._news = asyncio.Event()
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        """Wake the watchers that also wait for live output."""
        self._news_or_output.set()
        self._news_or_output = asyncio.Event()

    async def _describe(self) -> DescribeWorkflowExecutionResponse:
        run = self.runs[self._follower.run]
        return await describe(self._client, self._turn_id, run, timeout=_SHORT)


class Feeds:
    """The feeds of a client, shared by all handles of a turn in this process."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: WeakValueDictionary[tuple[str, str], Feed] = WeakValueDictionary()

    def of(self, turn_id: str, runs: Sequence[str]) -> Feed:
        """Return the feed of a turn with these runs."""
        feed = self._known.get((turn_id, runs[0]))
        if feed is None or feed.runs[: len(runs)] != list(runs)[: len(feed.runs)]:
            feed = self._known[turn_id, runs[0]] = Feed(self._client, turn_id, runs)
        return feed

    async def find(self, turn_id: str) -> Feed:
        """Return the feed of the latest turn with an id.

        Raises:
            PerdureError: As `runs_of` does.
        """
        return self.of(turn_id, await runs_of(self._client, turn_id))
