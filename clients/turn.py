"""A turn, as its caller sees it."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.clients.feed import Event, Feed, unreadable
from perdure.errors import PerdureError
from perdure.facts import TurnEnded
from perdure.fold import TurnState, apply
from perdure.reports import AgentReport, Outcome, Step

logger = logging.getLogger("perdure")

OnStep = Callable[[Step], Awaitable[object] | object]


class Turn:
    """A turn that was started, running or over.

    Attributes:
        id: The turn's id, which is its workflow's id.
        run_id: Temporal's id of the run.
    """

    def __init__(self, client: Client, feed: Feed, turn_id: str, run_id: str) -> None:
        self.id = turn_id
        self.run_id = run_id
        self._client = client
        self._feed = feed

    async def events(self, after: str | None = None) -> AsyncIterator[Event]:
        """Every fact as it is recorded, until the turn is over. Needs no worker, works after the end, and goes on through an outage of the server.

        Args:
            after: The cursor of the last event seen; without it, from the beginning.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or not any more.
            InvalidRequestError: The cursor belongs to another turn.
        """
        watching = self._feed.watch(after)
        try:
            async for event in watching:
                yield event
        finally:
            await watching.aclose()  # type: ignore[attr-defined]

    async def result(self, *, on_step: OnStep | None = None) -> AgentReport:
        """Wait for the end.

        Args:
            on_step: Called with every completed step, in order; may be async. What it raises is logged and changes nothing.

        Raises:
            PerdureError: The subclass says how the turn ended; `.report` holds what was done.
        """
        state, began, ended = TurnState(), None, None
        async for event in self.events():
            began, ended = began or event.at, event.at
            steps = len(state.steps)
            state = apply(state, event.fact)
            if on_step and len(state.steps) > steps:
                await _tell(on_step, state.steps[-1])
        return self._close(state, began, ended)

    async def cancel(self, reason: str = "") -> bool:
        """Ask the turn to stop. It ends within seconds and its report says why; a turn that is over stays as it is.

        Returns:
            Whether there was something to stop: False for a turn that is over.

        Raises:
            TurnNotFoundError: Temporal does not have the turn.
        """
        handle = self._client.get_workflow_handle(self.id, run_id=self.run_id)
        try:
            await handle.cancel(reason=reason)
            return True
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise unreadable(self.id, error) from error
            await self._check_exists()
            return False

    async def _check_exists(self) -> None:
        try:
            await self._client.get_workflow_handle(self.id, run_id=self.run_id).describe()
        except RPCError as error:
            raise unreadable(self.id, error) from error

    def _close(self, state: TurnState, began: datetime | None, ended: datetime | None) -> AgentReport:
        assert state.ended is not None
        assert began is not None
        assert ended is not None
        summary = state.ended.summary
        report = AgentReport(
            turn_id=self.id,
            agent=state.request.agent if state.request else "",
            outcome=state.ended.outcome,
            output=state.answer.message.text if state.answer else "",
            risk=summary.risk if summary else None,
            steps=state.steps,
            messages=state.partial,
            usage=state.usage,
            model_calls=state.model_calls,
            tool_calls=state.tool_calls,
            duration=ended - began,
            unstopped=tuple(str(key) for key in state.in_flight),
        )
        error = error_of(state.ended, state.cancel_reason)
        if error is None:
            return report
        error.report = report
        raise error


def error_of(ended: TurnEnded, cancel_reason: str | None) -> PerdureError | None:
    """The error that an end means for the caller; None for a turn that has an answer."""
    match ended.outcome:
        case Outcome.COMPLETED | Outcome.TRUNCATED:
            return None
        case Outcome.CANCELLED:
            return errors.TurnCancelledError(f"the turn was cancelled: {cancel_reason}" if cancel_reason else None)
        case Outcome.TERMINATED:
            return errors.TurnTerminatedError(f"the turn was terminated: {ended.reason}" if ended.reason else None)
        case Outcome.TIMED_OUT:
            return errors.TurnTimeoutError(ended.reason)
        case _:
            info = ended.summary.error if ended.summary else None
            return errors.from_info(info) if info else PerdureError(ended.reason)


async def _tell(on_step: OnStep, step: Step) -> None:
    try:
        outcome = on_step(step)
        if inspect.isawaitable(outcome):
            await outcome
    except Exception:
        logger.exception("on_step failed; the turn goes on")
