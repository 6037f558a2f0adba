"""A turn, as its caller sees it."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar, Unpack
from uuid import uuid4

from pydantic import JsonValue
from pydantic_core import to_json
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client
from temporalio.common import RawValue

from perdure import errors, validation
from perdure.agents.agent import Agent
from perdure.base import T
from perdure.clients.reading.cursors import Cursor
from perdure.clients.reading.events import CaughtUp, Event
from perdure.clients.reading.feed import Feed, Feeds
from perdure.clients.reading.live_events import told
from perdure.clients.reading.live_text import TextBegins, TextVoid
from perdure.clients.reading.timeouts import Timeout, at_most
from perdure.clients.reading.tool_progress import ToolProgress
from perdure.clients.turns import cancelling, updates, waiting
from perdure.clients.turns.changes import Change, changes
from perdure.clients.turns.forks import UNCHANGED, Effect, ForkOptions, Forks
from perdure.clients.turns.status import TurnStatus
from perdure.clients.turns.status_reader import look
from perdure.temporal import access, start_request
from perdure.temporal.names import ADD_BUDGET, DECIDE, RESUME, STEER
from perdure.temporal.payloads import pack, unpack
from perdure.temporal.runs import describe_last
from perdure.turn import ending, withheld
from perdure.turn.facts import TurnContinued
from perdure.turn.state import TurnState
from perdure.turn.wire import Resume, Steer
from perdure.validation import Must
from perdure.values import keywords
from perdure.values.approvals import Decision, PendingApproval
from perdure.values.budgets import ABudget, Budget, BudgetUpdate, Remaining
from perdure.values.model_retry import APolicy, ModelRetryPolicy
from perdure.values.reports import AgentReport, Step
from perdure.values.webhooks import WebhookUrl

logger = logging.getLogger("perdure")

_ANSWER = {
    "call": Annotated[
        PendingApproval | str,
        validation.instance("what pending_approvals gives, or its id", PendingApproval, str),
    ],
    "token": validation.Text | None,
    "reason": validation.Text,
    "arguments": Annotated[Mapping[Any, Any], Must("a mapping, such as a dict")] | None,
    "by": validation.By | None,
}
_MORE = {
    "more": ABudget | None,
    "iterations": validation.Count | None,
    "by": validation.By | None,
}
_STEP = {"at_step": validation.CountOrZero | None}
_SAY = {"say": validation.Message | None}
_FORK = {
    "agent": Annotated[Agent[Any] | str, validation.instance("an agent or its name", Agent, str)]
    | None,
    "model": validation.Unicode | None,
    "labels": validation.Texts | None,
    "on_done": WebhookUrl | None,
}
_STEER = {
    "text": validation.Message,
    "id": validation.NewMessageId | None,
    "now": validation.Flag,
    "deny_pending": validation.Flag,
    "by": validation.By | None,
}
_LIMITS = {
    "budget": ABudget | None,
    "max_iterations": validation.Count | None,
    "model_retry": APolicy | None,
    "id": validation.Text | None,
}

V = TypeVar("V")
OnStep = Callable[[Step], Awaitable[object] | object]


class Turn(Generic[T]):
    """A turn that was started, running or over.

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

    def typed(self, output: type[V]) -> Turn[V]:
        """Return the same turn with its result read as an instance of a type."""
        turn = Turn[V](self._client, self._feeds, self.id, self._forks)
        turn._known = self._known
        turn._output = output
        return turn

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
            async for one in watching:
                if isinstance(one, Event):
                    yield one

    async def _from(self, after: str | None) -> tuple[Feed, Cursor | None]:
        """Return the feed, and the position of a cursor in it."""
        validation.check(
            "the events",
            {"after": after},
            {"after": validation.Text | None},
            errors.InvalidRequestError,
        )
        feed = await self._feed()
        return feed, feed.place(after)

    async def check_cursor(self, after: str | None) -> None:
        """Refuse a cursor that is not one of this turn, as `events` does when it is iterated.

        Raises:
            PerdureError: As `events` does.
        """
        await self._from(after)

    async def text(self) -> AsyncIterator[str | TextBegins | TextVoid]:
        """Yield the text of the model in pieces, until the turn is over.

        For a turn that was started with `live=True`, the pieces come while the model generates
        them, about a second late; otherwise the text of a step comes in one piece when it is
        recorded. `TextBegins` precedes the pieces of each text. `TextVoid` means that the pieces
        since then do not count, because the attempt failed. The pieces of a step that count add up
        to exactly its text. They have not been checked: an output guardrail sees only the complete
        answer.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
        """
        async with contextlib.aclosing(told(await self._feed(), only_words=True)) as telling:
            async for one in telling:
                if isinstance(one, str | TextBegins | TextVoid):
                    yield one

    async def live(
        self, after: str | None = None
    ) -> AsyncGenerator[Event | str | TextBegins | TextVoid | ToolProgress | CaughtUp, None]:
        """Yield what `events` and `text` yield, in one order, with the progress of tools.

        A text comes before the event that records it. `CaughtUp` comes once, after all events that
        history had at the beginning.

        Args:
            after: The cursor of the last known event; without it, events start from the beginning.
                The text of a model call that has not ended yet is yielded from its beginning.

        Raises:
            StaleCursorError: The cursor belongs to another run: the turn was reset or started
                again.
            InvalidRequestError: The value is not a cursor.
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
        """
        async with contextlib.aclosing(told(*await self._from(after))) as telling:
            async for one in telling:
                yield one

    async def status(self) -> TurnStatus:
        """Return the current status of the turn, from its history.

        Needs no worker, and works after the end. It reads the history of the turn, and those of the
        turns below it that are not over.

        Raises:
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
            ServerUnreachableError: Temporal does not answer.
        """
        return await look(self._client, self.id, await self._last_known())

    async def wait(self, timeout: Timeout = None) -> TurnStatus:
        """Wait until the turn is over or needs a person, and return its status.

        A turn below it that needs a person counts too. If one needs a person already, `wait`
        returns at once. `result` waits for the end only.

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

    async def result(self, *, on_step: OnStep | None = None) -> AgentReport[T]:
        """Wait for the end and return the report.

        The report's output is an instance of the requested type; without one it is text, or JSON
        values if the agent has a type.

        Args:
            on_step: Called with every completed step, in order; may be async. Its exceptions are
                logged and have no other effect. An answer that the agent checks comes after the
                checks; a mark is in the place of one that they have not let pass.

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
                for step in withheld.told_steps(state, steps_told):
                    await _tell(on_step, step)
                    steps_told = step.number
        return self._close(await (await self._feed()).with_session(state), began, ended)

    async def cancel(self, reason: str = "", *, by: str | None = None) -> bool:
        """Ask the turn to stop.

        It ends within seconds, with the reason in its report. A turn that is over is not changed.

        Args:
            reason: The reason, for people; it is not encrypted.
            by: The person or program that cancels it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked, and not encrypted.

        Returns:
            Whether there was a turn to stop: False for a turn that is over.

        Raises:
            TurnNotFoundError: Temporal does not have the turn.
            InvalidRequestError: The reason is not a string, or `by` is not valid.
        """
        cancelling.check(reason, by)
        run_id = await self._last_known()
        while True:  # a turn that goes on in a new run meanwhile is cancelled there
            info = await self._last_run(run_id)
            if info.HasField("close_time"):  # a server accepts the request for such a run as well
                return False
            run_id = info.execution.run_id
            asking = cancelling.request(self._client, self.id, reason, by, run_id)
            try:
                await access.TURN.asked(self.id, asking)
            except errors.TurnNotFoundError:
                return False  # it ended meanwhile
            if (await self._last_run(run_id)).execution.run_id == run_id:
                return True

    async def _last_run(self, run_id: str) -> WorkflowExecutionInfo:
        describing = describe_last(self._client, self.id, run_id, retry=True)
        return (await access.TURN.asked(self.id, describing)).workflow_execution_info

    async def add_budget(
        self, more: Budget | None = None, *, iterations: int | None = None, by: str | None = None
    ) -> Remaining:
        """Add to the budget, to the limit of iterations, or to both.

        A turn that waits for that goes on. Needs a worker that runs the turn.

        Args:
            more: The amounts to add to the limits of the budget.
            iterations: The number to add to the limit of iterations, from 1.
            by: The person or program that adds it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked.

        Returns:
            The rest of the budget; zero for a limit that is still overdrawn.

        Raises:
            InvalidRequestError: Nothing is added, `more` is not a budget, `iterations` is not a
                valid number, or the turn has no such limit or is over.
            ServerUnreachableError: No worker accepted it within 30 s; one may still do so later.
            TurnNotFoundError: Temporal does not have the turn.
        """
        given = {"more": more, "iterations": iterations, "by": by}
        validation.check("what is added", given, _MORE, errors.InvalidRequestError)
        if more is None and iterations is None:
            raise errors.InvalidRequestError(
                "nothing is added: give a Budget, iterations=…, or both"
            )
        update = BudgetUpdate(**dict(more or ()), iterations=iterations, by=by)
        return unpack(await self._ask(ADD_BUDGET, pack(update)), Remaining)

    async def steer(
        self,
        text: str,
        *,
        id: str | None = None,
        now: bool = False,
        deny_pending: bool = False,
        by: str | None = None,
    ) -> str:
        """Send a message of the user to the running turn.

        Once this returns, the model reads the message with its next call, after the results of the
        tools that are running; or the turn ends before that, and its report lists the message under
        `unread`. If the model is done when the message comes, the turn goes on. At the limit of
        iterations it makes one more step, once. Nothing is added to its budget. A turn that waits
        for a person goes on waiting. Needs a worker that runs the turn.

        Args:
            text: The message, at most 256 KiB with those that are unread.
            id: The message's id: one line, at most 100 characters. The same id is the same message,
                so a call that was interrupted can be repeated. Without it, a random one.
            now: Whether a running model call is stopped, so that the model reads the message at
                once. The call is charged at the most that it may have cost. Tools are not stopped.
            deny_pending: Whether calls that wait for approval are denied, with the text as the
                reason.
            by: The person or program that sends it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked.

        Returns:
            The id of the message. The event `said` and the event of the model call that reads it
            (`Event.read`) name it.

        Raises:
            TurnOverError: The turn is over or about to end. `report` is the report of a turn that
                is over.
            TooLargeError: Twenty messages are unread, or they are too large together.
            InvalidRequestError: An argument is not valid.
            ServerUnreachableError: No worker accepted it within 30 s; one may still do so later.
            TurnNotFoundError: Temporal does not have the turn.
        """
        given = {"text": text, "id": id, "now": now, "deny_pending": deny_pending, "by": by}
        validation.check("the message", given, _STEER, errors.InvalidRequestError)
        message_id = id or uuid4().hex
        message = Steer(text=text, now=now, deny_pending=deny_pending, by=by)
        try:
            await updates.ask(
                self._client,
                access.TURN,
                (await self._feed()).runs,
                self.id,
                STEER,
                pack(message, "the message"),
                message_id,
            )
        except errors.TurnOverError as error:
            error.report = await self._report_if_over()
            raise
        return message_id

    async def _report_if_over(self) -> AgentReport[Any] | None:
        """Return the report of a turn that is over; None if it runs, or cannot be read."""
        try:
            if not (await self._last_run(await self._last_known())).HasField("close_time"):
                return None
            return await self.result()
        except errors.PerdureError as error:
            return error.report

    @keywords.shows(ForkOptions, UNCHANGED)
    async def fork(
        self,
        at_step: int | None = None,
        *,
        id: str | None = None,
        **given: Unpack[ForkOptions],
    ) -> Turn[Any]:
        """Start a new turn that goes on from a complete step of this one, which is not changed.

        The new turn begins with the messages of this one up to that step. It has its own steps from
        1, and nothing that this turn spent counts for it. Task, options, output type and allowed
        tools are the same; so are agent, model, labels and limits unless they are given. Its agent
        is the one that is deployed now; after a handoff, the one that had the turn at that step,
        with its own model. It is started on the task queue of this turn.

        Calls after that step may happen again, with other idempotency keys: see `effects_after`.

        Args:
            at_step: The number of the step, which may be any complete step, also of a turn that
                runs. 0 is the point before the first step: the task alone. None is the last
                complete step.
            say: A message of the user after the messages. It is required after a last answer.
            agent: The agent of the new turn, or its name.
            model: `provider:model`, or an alias of the worker; it overrides the agent's.
            budget: The limits of what the new turn may spend. Each limit overrides the one that
                this turn was given.
            max_iterations: The largest number of steps of the new turn.
            model_retry: The retries of the new turn while a provider is unavailable.
            id: The new turn's id; the same id is the same turn. Without it, the first free one of
                `<id>~1`, `<id>~2` and so on.
            labels: The labels of the new turn, in place of those of this one.
            on_done: The URL of its webhook, as for `AgentClient.start`. That of this turn is not
                taken over.

        Raises:
            InvalidRequestError: The turn has no such complete step, the step is an answer and there
                is no message, or an argument is not valid.
            TooLargeError: The message or the labels are too large.
            TurnConflictError: A turn of this id has another input.
            TurnNotFoundError: Temporal no longer has the turn, or the part of it before that step.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
            ServerUnreachableError: Temporal does not answer.
        """
        keywords.check("a fork", given, ForkOptions)
        options: ForkOptions = {**UNCHANGED, **given}
        validation.check(
            "the fork",
            {"at_step": at_step, "id": id, **options},
            {**_STEP, **_SAY, **_FORK, **_LIMITS},
            errors.InvalidRequestError,
        )
        if id is not None:
            access.TURN.new_id(id)
        point = await self._forks.point(self.id, await self._last_known(), at_step)
        changes: dict[str, Any] = {name: value for name, value in options.items() if name != "say"}
        turn = await self._forks.start(point, options["say"] or "", id, **changes)
        agent = options["agent"]
        output, request = self._output, point.state.request
        if agent is not None and request is not None and request.output_schema is None:
            output = start_request.type_of(agent, None)
        return turn.typed(output)

    async def resume(
        self,
        budget: Budget | None = None,
        *,
        max_iterations: int | None = None,
        model_retry: ModelRetryPolicy | None = None,
        id: str | None = None,
        by: str | None = None,
    ) -> Turn[T]:
        """Let a turn go on that ended without an answer, or that waits for a provider.

        A turn that is over goes on as a new one, a fork from its last step after which a model can
        be asked (see `resume_step`). A last answer that the turn gave because its budget was spent,
        or that was not valid, is left out. A turn that waits for a provider, or is paused because a
        provider was unavailable, asks its model again at once: its `ModelRetryPolicy` starts over.
        This needs a worker that runs the turn, and takes no arguments but `by`.

        Args:
            budget: The limits of what the new turn may spend. Each limit overrides the one that
                this turn was given; what this turn spent does not count.
            max_iterations: The largest number of steps of the new turn, instead of that of this
                one.
            model_retry: The retries of the new turn while a provider is unavailable, instead of
                those of this one.
            id: The new turn's id, as for `fork`.
            by: The person or program that resumes it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked: in the event of a turn that waits, and
                in `forked_from` of a new turn.

        Returns:
            The new turn; for a turn that waits, this one.

        Raises:
            InvalidRequestError: The turn completed, runs, or waits for something else; it waits for
                a provider and arguments are given; or an argument is not valid.
            PerdureError: As `fork` raises it for a turn that is over.
            ServerUnreachableError: Temporal does not answer, or no worker accepted it within 30 s;
                one may still do so later.
            TurnNotFoundError: Temporal does not have the turn.
        """
        given = {
            "budget": budget,
            "max_iterations": max_iterations,
            "model_retry": model_retry,
        }
        validation.check("the resume", {**given, "id": id}, _LIMITS, errors.InvalidRequestError)
        validation.check_by("the resume", by)
        if id is not None:
            access.TURN.new_id(id)
        point = await self._forks.resume_point(self.id, await self._last_known())
        if point is None:
            return await self._ask_again({**given, "id": id}, by)
        turn = await self._forks.start(point, "", id, by=by, **given)
        return turn.typed(self._output)

    async def last_step(self) -> int:
        """Return the number of the last complete step: 0 before the first.

        Raises:
            InvalidRequestError: The turn ended before it had a task.
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
        """
        return (await self._forks.point(self.id, await self._last_known(), None)).step

    async def resume_step(self) -> int | None:
        """Return the number of the step from which `resume` lets a turn go on that is over.

        None for a turn that waits for a provider, or to be resumed: it goes on as itself.

        Raises:
            InvalidRequestError: The turn completed, runs, or waits for something else.
            TurnNotFoundError: Temporal does not have the turn, or no longer has it.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
        """
        point = await self._forks.resume_point(self.id, await self._last_known())
        return None if point is None else point.step

    async def effects_after(self, step: int | None = None) -> tuple[Effect, ...]:
        """Return the calls after a step that were run, except those of read-only tools.

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
        validation.check(
            "the effects",
            {"step": step},
            {"step": validation.CountOrZero | None},
            errors.InvalidRequestError,
        )
        return await self._forks.effects(self.id, await self._last_known(), step)

    async def _ask_again(self, given: Mapping[str, object], by: str | None) -> Turn[T]:
        names = [name for name, value in given.items() if value is not None]
        if names:
            raise errors.InvalidRequestError(
                f"turn {self.id!r} waits for a provider and goes on as itself, so it takes no"
                f" {' and no '.join(names)}; add to its limits with add_budget",
                context={"turn_id": self.id},
            )
        await self._ask(RESUME, pack(Resume(by=by)))
        return self

    async def _ask(self, update: str, given: RawValue) -> RawValue:
        return await updates.ask(
            self._client, access.TURN, (await self._feed()).runs, self.id, update, given
        )

    async def pending_approvals(self) -> tuple[PendingApproval, ...]:
        """Return the calls that wait for a person now, with their complete arguments.

        Calls that have expired by the clock of this machine are left out.

        Raises:
            TurnNotFoundError: Temporal does not have the turn.
            ServerUnreachableError: Temporal does not answer.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
        """
        return await waiting.calls_that_wait(self._client, self.id, await self._last_known())

    async def approve(
        self,
        call: PendingApproval | str,
        *,
        token: str | None = None,
        reason: str = "",
        arguments: Mapping[str, JsonValue] | None = None,
        by: str | None = None,
    ) -> None:
        """Approve a call, with its own arguments or with `arguments`.

        Needs a worker that runs the turn.

        Args:
            call: The call, from `pending_approvals`, or its id.
            token: The call's token, from `pending_approvals`; a call itself has it. The call runs
                only if it is still the one that was reviewed, in the same run. A program that shows
                calls to people gives it. Without it, the call that waits now is approved, whoever
                reviewed what; it is required for a turn that was restarted or reset, and for a call
                whose tool changed.
            reason: The reason for the decision.
            arguments: Arguments that replace the call's own.
            by: The person or program that approves it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked.

        Raises:
            ApprovalConflictError: No such call waits, it was already decided, has expired, has
                other arguments than the one that was reviewed, or has another token than `token`.
            InvalidRequestError: The turn is over, the arguments are not JSON, or `by` is not valid.
            ServerUnreachableError: No worker accepted it within 30 s; one may still do so later.
            TurnNotFoundError: Temporal does not have the turn.
        """
        await self._decide(call, token, True, reason, by, arguments)

    async def deny(
        self,
        call: PendingApproval | str,
        reason: str = "",
        *,
        token: str | None = None,
        by: str | None = None,
    ) -> None:
        """Refuse a call; the model sees the reason. The arguments are those of `approve`.

        Raises:
            PerdureError: As `approve` does.
        """
        await self._decide(call, token, False, reason, by)

    async def _decide(
        self,
        call: PendingApproval | str,
        token: str | None,
        approve: bool,
        reason: str,
        by: str | None,
        arguments: Mapping[str, JsonValue] | None = None,
    ) -> None:
        given = {"call": call, "token": token, "reason": reason, "arguments": arguments, "by": by}
        validation.check("the answer", given, _ANSWER, errors.InvalidRequestError)
        edited = None if arguments is None else _written(arguments)
        if isinstance(call, str):
            name = call if token is None else f"{call}:{token}"
            [call] = await waiting.named(self._client, self, [name], to_run=approve)
        elif token not in (None, call.token):
            raise errors.ApprovalConflictError(
                f"the token {token!r} is not that of the call {call.call_id!r} that was given with"
                " it; nothing was decided",
                context={"turn_id": self.id},
            )
        decision = Decision(
            call_id=call.call_id,
            digest=call.digest,
            approve=approve,
            reason=reason,
            arguments=edited,
            by=by,
        )
        await self._ask(DECIDE, pack(decision))

    def _close(
        self, state: TurnState, began: datetime | None, ended: datetime | None
    ) -> AgentReport[T]:
        assert state.ended is not None
        assert began is not None
        assert ended is not None
        risk = state.ended.summary.risk if state.ended.summary else None
        report = ending.report(
            self.id, state, state.ended.outcome, risk=risk, duration=ended - began
        )
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


def _written(arguments: Mapping[str, JsonValue]) -> str:
    try:
        return to_json(dict(arguments)).decode()
    except ValueError as error:
        raise errors.InvalidRequestError(
            f"the arguments of an approval are not JSON: {error}"
        ) from None


async def _tell(on_step: OnStep, step: Step) -> None:
    try:
        outcome = on_step(step)
        if inspect.isawaitable(outcome):
            await outcome
    except Exception:
        logger.exception("on_step failed; the turn goes on")
