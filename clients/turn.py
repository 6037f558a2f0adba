"""A turn, as its caller sees it."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from pydantic import JsonValue
from pydantic_core import to_json
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure import ends, errors, kinds
from perdure.activities.payloads import pack, unpack
from perdure.activities.signatures import ADD_BUDGET, DECIDE
from perdure.approvals import Decision, PendingApproval
from perdure.budgets import Budget, Remaining
from perdure.clients import updates
from perdure.clients.feed import Event, Feed, describe, state_of, unreadable
from perdure.clients.speech import TextBegins, TextVoid, told
from perdure.fold import apply
from perdure.outputs import T
from perdure.reports import AgentReport, Step
from perdure.state import TurnState

logger = logging.getLogger("perdure")

_ANSWER = {
    "pending": kinds.of("what pending_approvals gives", PendingApproval),
    "reason": kinds.TEXT,
    "arguments": kinds.MAPPING.optional(),
}

V = TypeVar("V")
OnStep = Callable[[Step], Awaitable[object] | object]


class Turn(Generic[T]):
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
        self._output: Any = None

    def typed(self, output: type[V]) -> Turn[V]:
        """The same turn, whose result is read as an instance of a type."""
        turn = Turn[V](self._client, self._feed, self.id, self.run_id)
        turn._output = output
        return turn

    async def events(self, after: str | None = None) -> AsyncIterator[Event]:
        """Every fact as it is recorded, until the turn is over. Needs no worker, works after the end, and goes on through an outage of the server.

        Args:
            after: The cursor of the last event seen; without it, from the beginning.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or not any more.
            InvalidRequestError: The cursor belongs to another turn.
        """
        kinds.check("the events", {"after": after}, {"after": kinds.TEXT.optional()}, errors.InvalidRequestError)
        watching = self._feed.watch(after)
        try:
            async for event in watching:
                yield event
        finally:
            await watching.aclose()  # type: ignore[attr-defined]

    async def text(self) -> AsyncIterator[str | TextBegins | TextVoid]:
        """What the model says in this turn, in pieces as they come, until the turn is over.

        Of a turn that was started with `live=True` the pieces come while the model speaks, about a second late; of any other, the text of a step
        comes whole when it is recorded. `TextBegins` stands before the pieces of each text. `TextVoid` says that what came since then does not
        count, because that attempt failed. The pieces of a step that do count are together exactly its text. Nothing has checked them before: an
        output guardrail sees the whole answer.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or not any more.
        """
        async with contextlib.aclosing(self.live()) as telling:
            async for one in telling:
                if not isinstance(one, Event):
                    yield one

    async def live(self) -> AsyncGenerator[Event | str | TextBegins | TextVoid, None]:
        """What `events` and `text` yield, in one order: a text stands before the event that records it.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or not any more.
        """
        async with contextlib.aclosing(told(self._feed)) as telling:
            async for one in telling:
                yield one

    async def result(self, *, on_step: OnStep | None = None) -> AgentReport[T]:
        """Wait for the end.

        The report's output is an instance of the type that was asked for; without one it is text, or JSON values where the agent has a type.

        Args:
            on_step: Called with every completed step, in order; may be async. What it raises is logged and changes nothing.

        Raises:
            PerdureError: The subclass says how the turn ended; `.report` holds what was done.
            OutputInvalidError: The turn has an answer, and it is no instance of the type.
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
            InvalidRequestError: The reason is no text.
        """
        kinds.check("the cancel", {"reason": reason}, {"reason": kinds.UNICODE}, errors.InvalidRequestError)
        if await self._is_over():  # a server takes the request for such a run as well
            return False
        try:
            await self._client.get_workflow_handle(self.id, run_id=self.run_id).cancel(reason=reason)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise unreadable(self.id, error) from error
            return False
        return True

    async def add_budget(self, more: Budget) -> Remaining:
        """Add to the budget; a turn that waits for that goes on. Needs a worker that runs the turn.

        Args:
            more: What is added to each limit that it names.

        Returns:
            What is left then; zero where what was added does not cover what is overdrawn.

        Raises:
            InvalidRequestError: `more` is no budget, the turn has no such limit, or is over.
            ServerUnreachableError: No worker took it in within 30 s; it may still do so later.
            TurnNotFoundError: Temporal does not have the turn.
        """
        kinds.check("what is added", {"more": more}, {"more": kinds.of("a Budget, such as Budget(usd='0.50')", Budget)}, errors.InvalidRequestError)
        handle = self._client.get_workflow_handle(self.id, run_id=self.run_id)
        return unpack(await updates.ask(handle, ADD_BUDGET, pack(more)), Remaining)

    async def pending_approvals(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a person now, with their arguments whole. What has expired by the clock of this machine is left out.

        Raises:
            TurnNotFoundError: Temporal does not have the turn.
            ServerUnreachableError: Temporal does not answer.
        """
        state = await state_of(self._client, self.id, self.run_id)
        waiting = state.waiting.pending if state.waiting and state.ended is None else ()
        calls, now = {call.id: call for call, _ in state.asked.calls}, datetime.now(UTC)
        pending = (one for one in waiting if one.call_id in calls and now < one.expires_at)
        return tuple(one.of_run(self.run_id, calls[one.call_id].arguments) for one in pending)

    async def approve(self, pending: PendingApproval, *, reason: str = "", arguments: Mapping[str, JsonValue] | None = None) -> None:
        """Let a call run, with its own arguments or with these. Needs a worker that runs the turn.

        Raises:
            ApprovalConflictError: It was answered already, has expired, or has other arguments than `pending` says.
            InvalidRequestError: The turn is over, or the arguments are no JSON.
            ServerUnreachableError: No worker took it in within 30 s; it may still do so later.
            TurnNotFoundError: Temporal does not have the turn.
        """
        await self._decide(pending, True, reason, arguments)

    async def deny(self, pending: PendingApproval, reason: str = "") -> None:
        """Refuse a call; the model is told why.

        Raises:
            PerdureError: As `approve` does.
        """
        await self._decide(pending, False, reason)

    async def _decide(self, pending: PendingApproval, approve: bool, reason: str, arguments: Mapping[str, JsonValue] | None = None) -> None:
        kinds.check("the answer", {"pending": pending, "reason": reason, "arguments": arguments}, _ANSWER, errors.InvalidRequestError)
        edited = None if arguments is None else _written(arguments)
        decision = Decision(call_id=pending.call_id, digest=pending.digest, approve=approve, reason=reason, arguments=edited)
        handle = self._client.get_workflow_handle(self.id, run_id=self.run_id)
        await updates.ask(handle, DECIDE, pack(decision))

    async def _is_over(self) -> bool:
        try:
            return (await describe(self._client, self.id, self.run_id, retry=True)).workflow_execution_info.HasField("close_time")
        except RPCError as error:
            raise unreadable(self.id, error) from error

    def _close(self, state: TurnState, began: datetime | None, ended: datetime | None) -> AgentReport[T]:
        assert state.ended is not None
        assert began is not None
        assert ended is not None
        risk = state.ended.summary.risk if state.ended.summary else None
        report = state.report(self.id, state.ended.outcome, risk=risk, duration=ended - began)
        error = ends.error_of(state.ended, state.cancel_reason)
        if error is None:
            return ends.typed(report, self._output, state.output_schema(state.agent) if state.agent else None)
        error.report = report
        raise error


def _written(arguments: Mapping[str, JsonValue]) -> str:
    try:
        return to_json(dict(arguments)).decode()
    except ValueError as error:
        raise errors.InvalidRequestError(f"the arguments of an approval are no JSON: {error}") from None


async def _tell(on_step: OnStep, step: Step) -> None:
    try:
        outcome = on_step(step)
        if inspect.isawaitable(outcome):
            await outcome
    except Exception:
        logger.exception("on_step failed; the turn goes on")
