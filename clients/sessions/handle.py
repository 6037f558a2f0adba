"""Conversations of many turns, as a caller sees them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, overload
from uuid import uuid4

from pydantic import JsonValue, ValidationError
from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import (
    Priority,
    RawValue,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from perdure import errors, limits, validation
from perdure.agents.agent import Agent
from perdure.base import T
from perdure.clients.sessions.forks import until
from perdure.clients.sessions.readable import ReadableSession
from perdure.clients.sessions.receipts import closed_before
from perdure.clients.sessions.sent import Sent
from perdure.clients.turns import cancelling, updates
from perdure.clients.turns.handle import Turn
from perdure.clients.turns.updates import packed_message
from perdure.session.state import SessionState
from perdure.session.wire import (
    NO_TIME,
    Disposition,
    ForgetReminder,
    IfBusy,
    Left,
    Queued,
    Receipt,
    Say,
    SessionFork,
    SessionReason,
    SessionRequest,
    Unqueue,
    UpdateResult,
)
from perdure.temporal import access, start_request
from perdure.temporal.encryption import data_subjects
from perdure.temporal.histories.runs import describe
from perdure.temporal.names import (
    ADD_BUDGET,
    CLOSE,
    FORGET_REMINDER,
    INTERRUPT,
    MEMO,
    RESUME,
    SAY,
    SESSION,
    UNQUEUE,
)
from perdure.temporal.payloads import pack, unpack
from perdure.temporal.priorities import inherited
from perdure.temporal.search_marks import Marks
from perdure.text import one_line
from perdure.turn.option_checks import check_options
from perdure.turn.wire import Resume
from perdure.values.budgets import ABudget, BudgetUpdate
from perdure.values.client_tools import ClientTool
from perdure.values.content import Content, MessageContent
from perdure.values.messages import Media, Text

_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_BUSY_TRIES = 20
_IfBusy = Annotated[IfBusy, validation.Must("'queue', 'steer', 'interrupt' or 'reject'")]


class Session(ReadableSession[T]):
    """A conversation with an agent, which may last for weeks.

    Attributes:
        id: The session's id, which is also the id of its workflow.
    """

    def __init__(
        self,
        client: Client,
        task_queue: str,
        marks: Marks,
        session_id: str,
        request: SessionRequest | None,
        turn: Callable[[str], Turn[Any]],
        order: Priority = Priority.default,
        output: Any = None,
    ) -> None:
        super().__init__(client, session_id, turn)
        self._output = output
        self._order = order
        self._task_queue = task_queue
        self._marks = marks
        self._request = request

    @overload
    async def say(
        self,
        content: str | Sequence[Text | Media],
        *,
        id: str | None = None,
        if_busy: IfBusy = "queue",
        by: str | None = None,
        client_tools: Sequence[ClientTool] = (),
        shared_state: Mapping[str, JsonValue] | None = None,
        agent: None = None,
    ) -> Sent[T]: ...
    @overload
    async def say(
        self,
        content: str | Sequence[Text | Media],
        *,
        id: str | None = None,
        if_busy: IfBusy = "queue",
        by: str | None = None,
        client_tools: Sequence[ClientTool] = (),
        shared_state: Mapping[str, JsonValue] | None = None,
        agent: str,
    ) -> Sent[Any]: ...
    @validation.arguments("the message")
    async def say(
        self,
        content: Content,
        *,
        id: validation.NewMessageId | None = None,
        if_busy: _IfBusy = "queue",
        by: validation.By | None = None,
        client_tools: Sequence[ClientTool] = (),
        shared_state: Mapping[str, JsonValue] | None = None,
        agent: validation.Unicode | None = None,
    ) -> Sent[Any]:
        """Send a message of the user. The first message begins the session.

        Once this returns, the message is recorded, and a turn reads it, in the order of sending.
        One that is steered goes before those that wait. Needs a worker.

        Args:
            content: The message: text, or a list of `Text` and `Media` with images and files. At
                most 256 KiB of text with those that wait, and 1 MB together with images and files;
                with an external storage, 20 MiB.
            id: The message's id: one line, at most 100 characters. The same id is the same message,
                so a call that was interrupted can be repeated. Without it, a random id.
            if_busy: What happens if a turn runs. `queue`: the next turn reads it, together with the
                other messages that wait. `steer`: it is sent to the running turn, as by
                `Turn.steer`; if that turn ends without an answer to it, the next turn reads it.
                `interrupt`: the running turn is cancelled, and the next turn reads it. `reject`: it
                is refused.
            by: The person or program that sends it: one line, at most 200 characters.
            client_tools: Tools that the caller runs in the turn that reads the message, as for
                `AgentClient.start`; of several messages, those of the last that has some. They do
                not go with `steer`.
            shared_state: What tools find in `ctx.shared_state` in the turn that reads the message,
                a JSON object of at most 16 KiB; without it, what the turn before has ended with.
                Of several messages, that of the last that has one. It does not go with `steer`.
            agent: The agent that answers this message and those after it. Without it, the agent
                that answered last: the session's own, or the agent that it handed over to. It does
                not go with `steer`. Its answer has the type of the session only if that was given
                as `output`; otherwise it is text or JSON values.

        Raises:
            SessionBusyError: A turn runs and `if_busy` is `reject`, or too many messages wait.
            SessionClosedError: The session is closed.
            SessionNotFoundError: There is no such session, and no agent was given to begin it.
            TurnConflictError: The session belongs to another agent, or to another data subject.
            TurnBudgetExceededError: The budget of the session is spent.
            TooLargeError: The message is too large.
            InvalidRequestError: An argument is not valid.
            ServerUnreachableError: No worker accepted it within 30 s; one may still do so later.
        """
        expects = self._request.agent if self._request else None
        text, parts = MessageContent.of(content)
        said = Say(
            text=text,
            if_busy=if_busy,
            by=by,
            agent=agent,
            expects=expects,
            parts=parts,
            client_tools=tuple(client_tools),
            shared_state=None if shared_state is None else dict(shared_state),
        )
        return await self.deliver(said, id or uuid4().hex)

    async def deliver(self, said: Say, message_id: str) -> Sent[Any]:
        """Send a message that was validated before, such as a message of a schedule.

        Raises:
            PerdureError: As `say` does.
        """
        message = packed_message(self._client, said)
        receipt = await self._say(message, message_id, may_wait=said.if_busy == "reject")
        receipt = await self._after_turns(message_id, receipt, said.by)
        return Sent(self, message_id, receipt, self._type_of_answer(said.agent))

    def _type_of_answer(self, agent: str | None) -> Any:
        """Return the type of the answer of a named agent; None if only that agent knows it."""
        request = self._request
        is_held = (
            request is None or request.output_schema is not None or agent in (None, request.agent)
        )
        return self._output if is_held else None

    async def _after_turns(self, message_id: str, receipt: Receipt, by: str | None) -> Receipt:
        """Return the receipt of a message; `started` if it came after the turn that it waits for.

        The session may have taken it in before it was told of the end. It then parks the message if
        that turn was cancelled, as it does with those that were sent before the end.
        """
        try:
            closed = await closed_before(self._client, self.id, message_id, receipt)
        except RPCError:
            return receipt  # the message is accepted
        if closed is None:
            return receipt
        if closed.is_cancelled:
            with contextlib.suppress(errors.SessionClosedError):
                await self.resume(by=by)
        return receipt.model_copy(update={"disposition": Disposition.STARTED})

    async def _say(self, message: RawValue, message_id: str, *, may_wait: bool) -> Receipt:
        for _ in range(_BUSY_TRIES):
            try:
                return unpack(await self._ask_or_start(message, message_id), Receipt)
            except errors.SessionBusyError as error:
                # the caller may know the end of a turn before the session does
                turn_id = error.context.get("turn_id")
                if not (may_wait and isinstance(turn_id, str) and await self._is_over(turn_id)):
                    raise
            await asyncio.sleep(_PAUSE_S)
        raise errors.SessionBusyError(f"session {self.id!r} does not learn that its turn is over")

    async def _is_over(self, turn_id: str) -> bool:
        describing = describe(self._client, turn_id, retry=True)
        description = await access.TURN.asked(turn_id, describing)
        return bool(description.workflow_execution_info.HasField("close_time"))

    async def _ask_or_start(self, message: RawValue, message_id: str) -> RawValue:
        try:
            with access.SESSION.asking(self.id):
                async with data_subjects.expecting(self._client, self.id, self._request):
                    return await self._ask(SAY, message, message_id)
        except errors.SessionNotFoundError:
            if self._request is None:
                raise
        return await self._begin_with(self._request, message, message_id)

    async def _begin_with(
        self, request: SessionRequest, message: RawValue, message_id: str
    ) -> RawValue:
        """Start the session with its first message, unless another caller just did."""
        subject = f"the first message of session {self.id!r}"

        async def begun(attributes: TypedSearchAttributes | None) -> RawValue:
            operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
                SESSION,
                pack(request, "the input of the session"),
                id=self.id,
                search_attributes=attributes,
                **self._start_options(request),
            )
            return await updates.ask_and_start(
                self._client, operation, SAY, message, subject, message_id
            )

        try:
            with access.SESSION.asking(self.id):
                return await self._marks.applied(request, begun)
        except WorkflowAlreadyStartedError:
            raise self._closed() from None

    def _start_options(self, request: SessionRequest) -> dict[str, Any]:
        return {
            "task_queue": self._task_queue,
            "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
            "id_reuse_policy": WorkflowIDReusePolicy.REJECT_DUPLICATE,
            "priority": self._order,
            "memo": {MEMO: {"agent": request.agent}},
            "task_timeout": limits.TASK_TIMEOUT,
            "static_summary": f"session with {one_line(request.agent, limits.NAME_CHARACTERS)}",
        }

    @validation.arguments("the interrupt")
    async def interrupt(
        self, reason: validation.Unicode = "", *, by: validation.By | None = None
    ) -> bool:
        """Cancel the running turn. Messages that wait stay waiting, until the next message comes.

        Args:
            reason: The reason, for people.
            by: The person or program that interrupts it: one line, at most 200 characters.

        Returns:
            Whether there was a turn to cancel.
        """
        return await self._done(INTERRUPT, SessionReason(reason=reason, by=by))

    @validation.arguments("the cancel")
    async def cancel(
        self, reason: validation.Unicode = "", *, by: validation.By | None = None
    ) -> bool:
        """Cancel the running turn, and close the session: it takes no more messages.

        Messages that no turn has read stay in its queue, as does a message that comes before a
        worker has taken the request.

        Args:
            reason: The reason, for people; it is not encrypted.
            by: The person or program that cancels it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked, and not encrypted.

        Returns:
            Whether there was something to cancel: False for a session that is over.

        Raises:
            SessionNotFoundError: Temporal does not have the session.
            InvalidRequestError: The reason is not a string, or `by` is not valid.
        """
        info = await self._info()
        return await cancelling.cancel(self._client, access.SESSION, info, reason, by)

    @validation.arguments("who asks")
    async def unqueue(self, id: str, *, by: validation.By | None = None) -> bool:
        """Take a message out of the queue. `by`, who asks, is one line of at most 200 characters.

        Returns: Whether it was there: False for a message that a turn has been given.
        """
        return await self._done(UNQUEUE, Unqueue(id=id, by=by))

    @validation.arguments("who asks")
    async def forget_reminder(self, id: str, *, by: validation.By | None = None) -> bool:
        """Give a reminder up that is not due yet. The status of the session has them all.

        Returns: Whether it was there. `by`, who gives it up, is one line of at most 200 characters.
        """
        return await self._done(FORGET_REMINDER, ForgetReminder(id=id, by=by))

    @validation.arguments("the resume")
    async def resume(self, *, by: validation.By | None = None) -> bool:
        """Let the next turn read the messages that wait, after a turn was cancelled.

        Args:
            by: The person or program that resumes it: one line, at most 200 characters.

        Returns:
            Whether there were any.
        """
        return await self._done(RESUME, Resume(by=by))

    @validation.arguments("what is added")
    async def add_budget(self, more: ABudget, *, by: validation.By | None = None) -> None:
        """Add to the budget of the session. Messages that wait for that are read.

        Args:
            more: The amounts to add to its limits.
            by: The person or program that adds it: one line, at most 200 characters.

        Raises:
            InvalidRequestError: The session has no such limit, or `more` or `by` is not valid.
        """
        await self._done(ADD_BUDGET, BudgetUpdate(**dict(more), by=by))

    @validation.arguments("the close")
    async def close(
        self, reason: validation.Unicode = "", *, by: validation.By | None = None
    ) -> tuple[Queued, ...]:
        """Close the session: it takes no more messages. A running turn continues to its end.

        Args:
            reason: The reason, for people.
            by: The person or program that closes it: one line, at most 200 characters.

        Returns:
            The messages that no turn has read. Images and files are named in their text.
        """
        return unpack(
            await self._ask(CLOSE, pack(SessionReason(reason=reason, by=by))), Left
        ).unread

    @validation.arguments("the fork")
    async def fork(
        self,
        at_turn: validation.CountOrZero | None = None,
        *,
        id: validation.Text,
        by: validation.By | None = None,
    ) -> Session[T]:
        """Start another session with the messages of this session, which is not changed.

        It has the same agent and options, and a budget of its own. The webhook of this one is not
        taken over, as for a fork of a turn.

        Args:
            at_turn: The number of the last turn whose messages are taken over; None for all.
            id: The new session's id; the same id is the same session.
            by: The person or program that forks it: one line, at most 200 characters. It is
                recorded, not checked, in `forked_from` of the status of the new session.

        Raises:
            InvalidRequestError: The session has no such turn that is over, or no longer has its
                messages.
            SessionNotFoundError: Temporal does not have the session, or no longer has it.
        """
        state = await self._current()
        urls = {"on_done": None, "on_wait": None}
        request = (state.request or SessionRequest(agent="")).model_copy(update=urls)
        snapshot = until(self.id, state, at_turn, request, by)
        shared = await self._shared_state_after(snapshot.forked_from, state)
        snapshot = snapshot.model_copy(update={"shared_state": shared})
        order = inherited((await self._info()).priority, self._order)
        started = await access.start(
            self._client,
            access.SESSION,
            SESSION,
            pack(snapshot, "the input of the session"),
            id=access.SESSION.new_id(id),
            marks=(self._marks, request),
            **{**self._start_options(request), "priority": order},
        )
        if started is None:
            raise self._closed()
        return Session(
            self._client,
            self._task_queue,
            self._marks,
            id,
            request,
            self._turn,
            order,
            self._output,
        )

    async def _shared_state_after(
        self, fork: SessionFork | None, state: SessionState
    ) -> dict[str, JsonValue]:
        """Return the shared state at a fork; empty if the history of its last turn is gone."""
        at_turn = fork.at_turn if fork else 0
        if at_turn == state.dropped + len(state.starts):
            return state.shared_state
        turn = next((turn for turn in state.turns if turn.number == at_turn), None)
        if turn is None:
            return {}
        with contextlib.suppress(errors.TurnNotFoundError):
            return await self._turn(turn.turn_id).shared_state()
        return {}

    async def _done(self, update: str, argument: Any) -> bool:
        return unpack(await self._ask(update, pack(argument)), UpdateResult).done

    async def _ask(self, update: str, payload: RawValue, update_id: str | None = None) -> RawValue:
        """Send an update.

        Raises:
            PerdureError: The session refused it, there is no such session, or it is closed.
        """
        if update != SAY:  # a turn has updates of the same names; only sessions take messages
            await self._last_run()
        try:
            return await updates.ask(
                self._client, access.SESSION, [""], self.id, update, payload, update_id
            )
        except errors.TurnOverError:
            await self._last_run()  # a message to what is no session, which is over
            raise self._closed() from None
        except errors.PerdureError as error:
            if type(error) is errors.PerdureError:  # no such update
                await self._last_run()
            raise


def session_request(agent: Agent[Any] | str, **options: Any) -> SessionRequest:
    """Return the input of a session.

    Raises:
        InvalidRequestError: An option is not valid.
        TooLargeError: The labels are over their limit.
        ConfigurationError: The output type cannot be enforced on a model.
    """
    idle, time = {"idle": options.get("idle")}, {"idle": validation.Time | None}
    validation.check("the session", idle, time, errors.InvalidRequestError)
    try:
        request = SessionRequest.model_validate(
            start_request.fields_of({"agent": agent, **options})
        )
    except ValidationError as error:
        raise errors.InvalidRequestError(
            f"the session cannot be started: "
            f"{validation.in_words(error, SessionRequest.model_fields)}"
        ) from None
    if request.budget is not None and request.budget.time is not None:
        raise errors.InvalidRequestError(NO_TIME)
    check_options(request)
    return request
