"""What can be read of a turn."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, overload

from pydantic import JsonValue
from temporalio.client import Client

from perdure import validation
from perdure.base import T
from perdure.clients.reading.cursors import Cursor
from perdure.clients.reading.events import CaughtUp, Event
from perdure.clients.reading.feed import Feed, Feeds
from perdure.clients.reading.live_events import LiveItem, live_items
from perdure.clients.reading.live_text import TextBegins, TextVoid
from perdure.clients.reading.recorded import state_of
from perdure.clients.reading.timeouts import Timeout, at_most
from perdure.clients.reading.tool_progress import ToolProgress
from perdure.clients.reading.tree_text import TurnText, all_text, with_delegates
from perdure.clients.turns import deliveries, settling, undoing, waiting
from perdure.clients.turns.changes import Change, changes, changes_and_text
from perdure.clients.turns.deliveries import WebhookDelivery
from perdure.clients.turns.forks import Effect, Forks
from perdure.clients.turns.status import TurnStatus
from perdure.clients.turns.status_reader import look
from perdure.turn import ending, withheld
from perdure.turn.facts import TurnContinued
from perdure.turn.state import TurnState
from perdure.values.approvals import PendingApproval
from perdure.values.client_tools import ClientCall
from perdure.values.effects import EffectRecord
from perdure.values.reports import AgentReport, Step

logger = logging.getLogger("perdure")
OnStep = Callable[[Step], Awaitable[object] | object]
Delegates = bool | Literal["running"]
"""Whether to have the text of turns below; of those that run from now on with `running`."""


class ReadableTurn(Generic[T]):
    """The half of `Turn` that reads: it changes nothing, and needs no worker.

    Attributes:
        id: The turn's id, which is also the id of its workflow.
    """

    def __init__(
        self, client: Client, feeds: Feeds, turn_id: str, forks: Forks, runs: Sequence[str] = ()
    ) -> None:
        self.id = turn_id
        self._client = client
        self._feeds = feeds
        self._forks = forks
        self._known = feeds.of(turn_id, runs) if runs else None
        self._output: Any = None

    def __repr__(self) -> str:
        return f"Turn({self.id!r})"

    async def check(self) -> None:
        """Check that Temporal has the turn. A handle asks once, and decodes nothing.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
            ServerUnreachableError: Temporal does not answer.
        """
        await self._feed()

    async def first_run(self) -> str:
        """Return Temporal's id of the first run of the turn. A long turn has several.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
            ServerUnreachableError: Temporal does not answer.
        """
        return (await self._feed()).runs[0]

    async def _feed(self) -> Feed:
        """Return the feed of the turn: of the latest with this id when it is first asked about."""
        if self._known is None:
            self._known = await self._feeds.find(self.id)
        return self._known

    async def _last_known(self) -> str:
        return (await self._feed()).runs[-1]

    async def events(self, after: str | None = None) -> AsyncGenerator[Event, None]:
        """Yield every fact as it is recorded, until the turn is over.

        Needs no worker, works after the end, and continues after an outage of the server.

        Args:
            after: The cursor of the last known event; without it, events start from the beginning.

        Raises:
            StaleCursorError: The cursor belongs to another run: the turn was reset or started
                again.
            InvalidRequestError: The value is not a cursor.
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
        """
        feed, position = await self._from(after)
        async with contextlib.aclosing(feed.watch(position)) as watching:
            async for item in watching:
                if isinstance(item, Event):
                    yield item

    @validation.arguments("the events")
    async def _from(self, after: validation.Text | None) -> tuple[Feed, Cursor | None]:
        """Return the feed, and the position of a cursor in it."""
        feed = await self._feed()
        return feed, feed.place(after)

    async def check_cursor(self, after: str | None) -> None:
        """Refuse a cursor that is not a cursor of this turn, as `events` does when it is iterated.

        Raises:
            PerdureError: As `events` does.
        """
        await self._from(after)

    @overload
    def text(
        self, *, delegates: Literal[False] = False
    ) -> AsyncIterator[str | TextBegins | TextVoid]: ...

    @overload
    def text(self, *, delegates: bool) -> AsyncIterator[str | TextBegins | TextVoid | TurnText]: ...

    async def text(self, *, delegates: bool = False) -> AsyncIterator[Any]:
        """Yield the text of the model in pieces, until the turn is over.

        For a turn that was started with `live=True`, the pieces come while the model generates
        them; otherwise the text of a step comes in one piece when it is recorded. `TextBegins`
        precedes the pieces of each text. `TextVoid` means that the pieces since then do not count,
        because the attempt failed. The pieces of a step that count add up to exactly its text. They
        have not been checked: an output guardrail sees only the complete answer.

        Args:
            delegates: Whether to yield the text of the turns below as well, each piece and each
                mark in a `TurnText`.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
        """
        items = self._live(await self._feed(), None, delegates=delegates, only_words=True)
        async with contextlib.aclosing(items):
            async for item in items:
                if isinstance(item, str | TextBegins | TextVoid | TurnText):
                    yield item

    @overload
    def live(
        self, after: str | None = None, *, delegates: Literal[False] = False
    ) -> AsyncGenerator[Event | str | TextBegins | TextVoid | ToolProgress | CaughtUp, None]: ...

    @overload
    def live(
        self, after: str | None = None, *, delegates: Delegates
    ) -> AsyncGenerator[
        Event | str | TextBegins | TextVoid | TurnText | ToolProgress | CaughtUp, None
    ]: ...

    async def live(
        self, after: str | None = None, *, delegates: Delegates = False
    ) -> AsyncGenerator[Any, None]:
        """Yield what `events` and `text` yield, in one order, with the progress of tools.

        A text comes before the event that records it. `CaughtUp` comes once, after all events that
        history had at the beginning.

        Args:
            after: The cursor of the last known event; without it, events start from the beginning.
                The text of a model call that has not ended yet is yielded from its beginning.
            delegates: As of `text`. Of the turns below, text that was recorded before `after` is
                not yielded; with `"running"`, none of those that are not live, or that are over
                when it begins, with `after` at that event.

        Raises:
            StaleCursorError: The cursor belongs to another run: the turn was reset or started
                again.
            InvalidRequestError: The value is not a cursor.
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
        """
        feed, position = await self._from(after)
        async with contextlib.aclosing(self._live(feed, position, delegates=delegates)) as items:
            async for item in items:
                yield item

    def _live(
        self, feed: Feed, after: Cursor | None, *, delegates: Delegates, only_words: bool = False
    ) -> AsyncGenerator[LiveItem | TurnText, None]:
        if delegates:
            return with_delegates(
                self._feeds.find,
                feed,
                after,
                only_words=only_words,
                only_running=delegates == "running",
            )
        return live_items(feed, after, only_words=only_words)

    async def text_since(self, moment: datetime | None) -> AsyncGenerator[TurnText, None]:
        """Yield the text of the turn and of those below it, each piece with its turn.

        Args:
            moment: Text that was recorded until then is left out; None for all text.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
        """
        items = all_text(self._feeds.find, await self._feed(), self.id, moment)
        async with contextlib.aclosing(items):
            async for item in items:
                yield item

    async def status(self) -> TurnStatus:
        """Return the current status of the turn, from its history.

        Needs no worker, and works after the end. It reads the history of the turn, and the
        histories of the turns below it that are not over.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
            ServerUnreachableError: Temporal does not answer.
        """
        return await look(self._client, self.id, await self._last_known())

    async def wait(self, timeout: Timeout = None) -> TurnStatus:
        """Wait until the turn is over or needs a person, and return its status.

        A turn below it that needs a person counts too. If such a turn needs a person already,
        `wait` returns at once. `result` waits for the end only.

        Args:
            timeout: The longest wait, as a timedelta or in seconds; when it is over, the state in
                the status is `running`. Without it, the wait is unlimited.

        Raises:
            InvalidRequestError: The timeout is not valid.
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
            ServerUnreachableError: Temporal does not answer.
        """
        async with at_most(timeout), contextlib.aclosing(self.changes()) as changing:
            async for change in changing:
                if change.needs_person:
                    break
        return await self.status()

    async def changes(self) -> AsyncGenerator[Change, None]:
        """Yield every event with the state of the turn after it, until the turn is over.

        It is for programs that act when a person is needed: `change.needs_person` is about now,
        and not about the waits of the past.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
        """
        async with contextlib.aclosing(changes(await self._feed())) as changing:
            async for change in changing:
                yield change

    async def changes_and_text(
        self, *, delegates: bool = False
    ) -> AsyncGenerator[Change | str | TextBegins | TextVoid | TurnText, None]:
        """Yield what `changes` and `text` yield, in one order, until the turn is over.

        Args:
            delegates: Whether to yield the text of the turns below that run.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
        """
        find = self._feeds.find if delegates else None
        async with contextlib.aclosing(changes_and_text(await self._feed(), find)) as changing:
            async for change in changing:
                yield change

    async def result(self, *, on_step: OnStep | None = None) -> AgentReport[T]:
        """Wait for the end and return the report.

        The report's output is an instance of the requested type; without a type it is text, or JSON
        values if the agent has a type.

        Args:
            on_step: Called with every completed step, in order; may be async. Its exceptions are
                logged and have no other effect. An answer that the agent checks comes after the
                checks; a mark is in the place of an answer that they have not let pass.

        Raises:
            PerdureError: The turn ended without an answer. The subclass depends on the outcome;
                `.report` contains what was done.
            OutputInvalidError: The turn has an answer that is not an instance of the type.
        """
        state, began, ended, steps_told = TurnState(), None, None, 0
        async for event in self.events():
            began, ended = began or _beginning(event), event.at
            state = event.onto(state)
            if on_step and state.step_count > steps_told:
                for step in withheld.shown_steps(state, steps_told):
                    await _tell(on_step, step)
                    steps_told = step.number
        feed = await self._feed()
        report = self._report(await feed.with_session(state), began, ended)
        calls = await settling.still_unknown(self._client, self.id, report.unsettled, feed.runs)
        return self._close(state, report.model_copy(update={"unsettled": calls}))

    async def last_step(self) -> int:
        """Return the number of the last complete step: 0 before the first.

        Raises:
            InvalidRequestError: The turn ended before it had a task.
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
        """
        return (await self._forks.point(self.id, await self._last_known(), None)).step

    async def resume_step(self) -> int | None:
        """Return the number of the step from which `resume` lets a turn continue that is over.

        None for a turn that waits for a provider, or to be resumed: it continues as itself.

        Raises:
            InvalidRequestError: The turn completed, runs, or waits for something else.
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
        """
        point = await self._forks.resume_point(self.id, await self._last_known())
        return None if point is None else point.step

    @validation.arguments("the effects")
    async def effects_after(self, step: validation.CountOrZero | None = None) -> tuple[Effect, ...]:
        """Return the calls after a step that were run, except calls of read-only tools.

        They may happen again in a fork from that step. Calls that were denied are not among them;
        calls of delegates are, as one call each.

        Args:
            step: The number of a complete step; 0 for the point before the first. None is the last
                complete step.

        Raises:
            InvalidRequestError: The turn has no such complete step.
            TurnNotFoundError: Temporal no longer has the turn, or the part of it before that step.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
        """
        return await self._forks.effects(self.id, await self._last_known(), step)

    async def effects(self) -> tuple[EffectRecord, ...]:
        """Return what is known of the effects of its calls and of its delegates' calls.

        Only calls of tools with options about their effects are known, also those that were made
        before the turn was reset. What was taken back since has the status `undone`.

        Raises:
            TurnNotFoundError: The history is gone.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
            ServerUnreachableError: Temporal does not answer.
        """
        return await undoing.effects_of(self._client, self.id, await self._last_known())

    async def shared_state(self) -> dict[str, JsonValue]:
        """Return the shared state of its tools, as the history so far has it.

        Raises:
            TurnNotFoundError: Temporal does not have the turn.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
            ServerUnreachableError: Temporal does not answer.
        """
        return (await state_of(self._client, self.id, await self._last_known())).shared

    async def webhooks(self) -> tuple[WebhookDelivery, ...]:
        """Return the deliveries of its webhooks and of its delegates', as they began.

        Temporal's list, from which they are read, follows a little later.

        Raises:
            TurnNotFoundError: Temporal does not have the turn.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
            ServerUnreachableError: Temporal does not answer.
        """
        return await deliveries.deliveries_of(self._client, self.id)

    async def pending_approvals(self) -> tuple[PendingApproval, ...]:
        """Return the calls that wait for a person now, with their complete arguments.

        Calls that wait for the result of a job follow, with the kind `elsewhere`: nobody decides
        about them, and the token of the job is not among what is returned.
        Calls that have expired by the clock of this machine are left out.

        Raises:
            TurnNotFoundError: Temporal does not have the turn.
            ServerUnreachableError: Temporal does not answer.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
        """
        return await waiting.calls_that_wait(self._client, self.id, await self._last_known())

    async def client_calls(self) -> tuple[ClientCall, ...]:
        """Return the calls of `client_tools` that wait for the caller of the turn to run them.

        The result of each is sent with `AgentClient.finish_call` and its token.

        Raises:
            PerdureError: As `pending_approvals`.
        """
        return await waiting.calls_for_client(self._client, self.id, await self._last_known())

    def _report(
        self, state: TurnState, began: datetime | None, ended: datetime | None
    ) -> AgentReport[Any]:
        assert state.ended is not None
        assert began is not None
        assert ended is not None
        risk = state.ended.summary.risk if state.ended.summary else None
        return ending.report(self.id, state, state.ended.outcome, risk=risk, duration=ended - began)

    def _close(self, state: TurnState, report: AgentReport[Any]) -> AgentReport[T]:
        assert state.ended is not None
        error = ending.error_of(state.ended, state.cancel_reason)
        if error is None:
            return ending.typed(
                report, self._output, state.output_schema(state.agent) if state.agent else None
            )
        error.report = ending.without_answer(report)
        raise error


def _beginning(first: Event) -> datetime:
    """Return the time when a turn began, from its first known event."""
    for fact in first.before:
        if isinstance(fact, TurnContinued):
            return fact.continuation.began
    return first.at


async def _tell(on_step: OnStep, step: Step) -> None:
    try:
        outcome = on_step(step)
        if inspect.isawaitable(outcome):
            await outcome
    except Exception:
        logger.exception("on_step failed; the turn goes on")
