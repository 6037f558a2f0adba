"""A turn, as its caller sees it: what can be read of it, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar, Unpack
from uuid import uuid4

from pydantic import JsonValue
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.common import RawValue

from perdure import errors, validation
from perdure.agents.agent import Agent
from perdure.base import T
from perdure.clients.turns import cancelling, deliveries, undoing, updates
from perdure.clients.turns.decidable import DecidableTurn
from perdure.clients.turns.deliveries import WebhookDelivery
from perdure.clients.turns.fork_options import UNCHANGED, ForkOptions
from perdure.temporal import access, start_request
from perdure.temporal.histories.runs import describe_last
from perdure.temporal.names import ADD_BUDGET, EMIT, RESUME, STEER
from perdure.temporal.payloads import pack, unpack
from perdure.turn.call_waits import json_body
from perdure.turn.wait_values import Emit
from perdure.turn.wire import Resume, Steer
from perdure.values import keywords
from perdure.values.budgets import ABudget, BudgetUpdate, Remaining
from perdure.values.client_tools import ClientTool
from perdure.values.content import Content, MessageContent
from perdure.values.effects import EffectRecord
from perdure.values.model_retry import APolicy
from perdure.values.options import RequestOptions
from perdure.values.reports import AgentReport
from perdure.values.turn_options import Version
from perdure.values.webhooks import WebhookUrl

_FORK = {
    "say": validation.Message | None,
    "agent": Annotated[Agent[Any] | str, validation.instance("an agent or its name", Agent, str)]
    | None,
    "model": validation.Unicode | None,
    "labels": validation.Texts | None,
    "instructions": validation.Text | None,
    "client_tools": Sequence[ClientTool] | None,
    "shared_state": Mapping[str, JsonValue] | None,
    "options": RequestOptions | None,
    "output_schema": dict[str, JsonValue] | None,
    "live": validation.Flag | None,
    "on_done": WebhookUrl | None,
    "on_wait": WebhookUrl | None,
    "version": Version | None,
    "budget": ABudget | None,
    "max_iterations": validation.Count | None,
    "model_retry": APolicy | None,
}

_Effect = Annotated[
    EffectRecord | str, validation.instance("what effects gives, or its id", EffectRecord, str)
]
_Delivery = Annotated[
    WebhookDelivery | str,
    validation.instance("what webhooks gives, or its id", WebhookDelivery, str),
]
V = TypeVar("V")


class Turn(DecidableTurn[T]):
    """A turn that was started, running or over.

    Attributes:
        id: The turn's id, which is also the id of its workflow.
    """

    def typed(self, output: type[V]) -> Turn[V]:
        """Return the same turn with its result read as an instance of a type."""
        turn = Turn[V](self._client, self._feeds, self.id, self._forks)
        turn._known = self._known
        turn._output = output
        return turn

    @validation.arguments("the cancel")
    async def cancel(
        self, reason: validation.Unicode = "", *, by: validation.By | None = None
    ) -> bool:
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
        run_id = await self._last_known()
        while True:  # a turn that continues in a new run meanwhile is cancelled there
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

    @validation.arguments("what is added")
    async def add_budget(
        self,
        more: ABudget | None = None,
        *,
        iterations: validation.Count | None = None,
        by: validation.By | None = None,
    ) -> Remaining:
        """Add to the budget, to the limit of iterations, or to both.

        A turn that waits for that continues. Needs a worker that runs the turn.

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
        if more is None and iterations is None:
            raise errors.InvalidRequestError(
                "nothing is added: give a Budget, iterations=…, or both"
            )
        update = BudgetUpdate(**dict(more or ()), iterations=iterations, by=by)
        return unpack(await self._ask(ADD_BUDGET, pack(update)), Remaining)

    @validation.arguments("the message")
    async def steer(
        self,
        content: Content,
        *,
        id: validation.NewMessageId | None = None,
        now: validation.Flag = False,
        deny_pending: validation.Flag = False,
        by: validation.By | None = None,
    ) -> str:
        """Send a message of the user to the running turn.

        Once this returns, the model reads the message with its next call, after the results of the
        tools that are running; or the turn ends before that, and its report lists the message under
        `unread`. If the model is done when the message comes, the turn continues. At the limit of
        iterations it makes another step, once. Nothing is added to its budget. A turn that waits
        for a person keeps waiting. Needs a worker that runs the turn.

        Args:
            content: The message: text, or a list of `Text` and `Media` with images and files. At
                most 256 KiB of text with those that are unread, and 1 MB of those with images and
                files; with an external storage, 20 MiB.
            id: The message's id: one line, at most 100 characters. The same id is the same message,
                so a call that was interrupted can be repeated. Without it, a random id.
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
        message_id = id or uuid4().hex
        text, parts = MessageContent.of(content)
        message = Steer(text=text, now=now, deny_pending=deny_pending, by=by, parts=parts)
        await self._send(STEER, updates.packed_message(self._client, message), message_id)
        return message_id

    @validation.arguments("the event")
    async def emit(
        self,
        name: validation.EventName,
        body: JsonValue = None,
        *,
        id: validation.NewMessageId | None = None,
        by: validation.By | None = None,
    ) -> str:
        """Send an event to the running turn, whose agent has the toolbox `waiting()`.

        It ends the wait of a call of `wait_for` for this name, and is the result of the call. If no
        call waits for it, the turn keeps it for the first that does. Needs a worker that runs the
        turn.

        Args:
            name: The name of the event, by which the model waits for it.
            body: What the event holds, as a JSON value: at most 48 KiB, and 256 KiB with those that
                are kept.
            id: The event's id: one line, at most 100 characters. The same id is the same event, so
                a call that was interrupted can be repeated. Without it, a random id.
            by: The person or program that sends it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked.

        Returns:
            The id of the event.

        Raises:
            TurnOverError: The turn is over or about to end. `report` is the report of a turn that
                is over.
            TooLargeError: The body is too large, or the turn keeps as many events as it can.
            InvalidRequestError: An argument is not valid, or the agent cannot wait for an event.
            ServerUnreachableError: No worker accepted it within 30 s; one may still do so later.
            TurnNotFoundError: Temporal does not have the turn.
        """
        event_id = id or uuid4().hex
        event = Emit(name=name, body=json_body(body), by=by)
        await self._send(EMIT, updates.packed_message(self._client, event), event_id)
        return event_id

    async def _send(self, update: str, payload: RawValue, update_id: str) -> None:
        """Send an update that has an id to the running turn.

        Raises:
            TurnOverError: The turn is over or about to end.
            PerdureError: It refused the update, or cannot be reached.
        """
        runs = (await self._feed()).runs
        try:
            await updates.ask(self._client, access.TURN, runs, self.id, update, payload, update_id)
        except errors.TurnOverError as error:
            error.report = await self._report_if_over()
            raise

    async def _report_if_over(self) -> AgentReport[Any] | None:
        """Return the report of a turn that is over; None if it runs, or cannot be read."""
        try:
            if not (await self._last_run(await self._last_known())).HasField("close_time"):
                return None
            return await self.result()
        except errors.PerdureError as error:
            return error.report

    @keywords.shows(ForkOptions, UNCHANGED)
    @validation.arguments("the fork")
    async def fork(
        self,
        at_step: validation.CountOrZero | None = None,
        *,
        id: validation.Text | None = None,
        by: validation.By | None = None,
        **given: Unpack[ForkOptions],
    ) -> Turn[Any]:
        """Start a new turn that continues from a complete step of this turn, which is not changed.

        The new turn begins with the messages of this turn up to that step. It has its own steps
        from 1, and nothing that this turn spent counts for it. Task and allowed tools are the same;
        so is everything else that is not given, such as agent, model, output type and limits.
        Its agent is the agent that is deployed now; after a handoff, the agent that had the turn at
        that step, with its own model. It is started on the task queue of this turn.

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
            id: The new turn's id; the same id is the same turn. Without it, the first free id among
                `<id>~1`, `<id>~2` and so on.
            labels: The labels of the new turn, in place of this turn's.
            instructions: The caller's instructions, in place of those of this turn.
            client_tools: Tools that the caller runs, in place of those of this turn.
            shared_state: The shared state that it begins with, in place of that of this turn at
                the step.
            options: Temperature, output limit and the like. Each option overrides the one that this
                turn was given.
            output_schema: The JSON schema of the answer, in place of that of this turn.
            live: Whether `Turn.text` of the new turn yields text while the model generates it.
            on_done: The URL of the webhook about its end, as for `AgentClient.start`. That of this
                turn is not taken over.
            on_wait: The URL of webhooks about its waits, likewise.
            version: The version of the agent of the new turn. Without it, one that this turn was
                started with by name is kept, unless the agent is another one.
            by: The person or program that forks it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked, in `forked_from` of the new turn.

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
        validation.check("the fork", options, _FORK, errors.InvalidRequestError)
        if id is not None:
            access.TURN.new_id(id)
        point = await self._forks.point(self.id, await self._last_known(), at_step)
        changes: dict[str, Any] = {name: value for name, value in options.items() if name != "say"}
        turn = await self._forks.start(point, options["say"] or "", id, by=by, **changes)
        agent = options["agent"]
        output, request = self._output, point.state.request
        if agent is not None and request is not None and request.output_schema is None:
            output = start_request.type_of(agent, None)
        return turn.typed(output)

    @validation.arguments("the resume")
    async def resume(
        self,
        budget: ABudget | None = None,
        *,
        max_iterations: validation.Count | None = None,
        model_retry: APolicy | None = None,
        id: validation.Text | None = None,
        by: validation.By | None = None,
        start: validation.Flag = True,
    ) -> Turn[T]:
        """Let a turn continue that ended without an answer, or that waits for a provider.

        A turn that is over continues as a new turn, a fork from its last step after which a model
        can be asked (see `resume_step`). A last answer that the turn gave because its budget was
        spent, or that was not valid, is left out. A turn that waits for a provider, or is paused
        because a provider was unavailable, asks its model again at once: its `ModelRetryPolicy`
        starts over. This needs a worker that runs the turn, and takes no arguments but `by`.

        Args:
            budget: The limits of what the new turn may spend. Each limit overrides the one that
                this turn was given; what this turn spent does not count.
            max_iterations: The largest number of steps of the new turn, instead of this turn's.
            model_retry: The retries of the new turn while a provider is unavailable, instead of
                this turn's.
            id: The new turn's id, as for `fork`.
            by: The person or program that resumes it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked: in the event of a turn that waits, and
                in `forked_from` of a new turn.
            start: Whether a new turn may be started. With False, only a turn that waits continues.

        Returns: The new turn; for a turn that waits, this turn.

        Raises:
            InvalidRequestError: The turn completed, runs, or waits for something else; it is over
                and may not start a new one; it waits for a provider and arguments are given; or an
                argument is not valid.
            PerdureError: As `fork` raises it for a turn that is over.
            ServerUnreachableError: Temporal does not answer, or no worker accepted it within 30 s;
                one may still do so later.
            TurnNotFoundError: Temporal does not have the turn.
        """
        new_limits = {
            "budget": budget,
            "max_iterations": max_iterations,
            "model_retry": model_retry,
        }
        if id is not None:
            access.TURN.new_id(id)
        point = await self._forks.resume_point(self.id, await self._last_known())
        if point is None:
            return await self._ask_again({**new_limits, "id": id}, by)
        if not start:
            raise errors.InvalidRequestError(
                f"turn {self.id!r} is over and goes on only as a new turn, which was not asked for",
                context={"turn_id": self.id},
            )
        turn = await self._forks.start(point, "", id, by=by, act="resume", **new_limits)
        return turn.typed(self._output)

    @validation.arguments("the undo")
    async def undo(self, call: _Effect, *, by: validation.By | None = None) -> Turn[str]:
        """Take back the effect of a call, by a turn that calls what its tool has in `undo=`.

        This turn, and the turn that it is a delegate of, must be over. A call is taken back once:
        if that was asked before, this returns the same turn, unless it failed. If that turn does
        not know whether it has taken the effect back, its call has to be settled first.

        Args:
            call: The call, from `effects` or `report.undoable`, or its id; also a delegate's call.
            by: The person or program that asks for it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked.

        Returns: The turn, which may wait for approval. It completes when the effect was taken back,
            and otherwise fails with `EffectNotUndoneError`.

        Raises:
            InvalidRequestError: The turn runs, it has no such call, nothing takes its effect back,
                or `by` is not valid.
            TurnNotFoundError: Temporal does not have the turn.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
            ServerUnreachableError: Temporal does not answer.
        """
        run_id = await self._last_known()
        started = await undoing.start(self._client, self._forks.starter, self.id, run_id, call, by)
        return self._forks.turn_of(started)

    @validation.arguments("the delivery")
    async def send_webhook(self, delivery: _Delivery) -> None:
        """Begin the delivery of a webhook again that has failed, with the same message.

        Args:
            delivery: The delivery, from `webhooks`, or its id.

        Raises:
            InvalidRequestError: The turn has no such delivery, or it has not failed.
            TurnNotFoundError: Temporal does not have the turn.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
            ServerUnreachableError: Temporal does not answer.
        """
        delivery_id = delivery if isinstance(delivery, str) else delivery.id
        await deliveries.send_again(self._client, self.id, delivery_id)

    async def _ask_again(self, options: Mapping[str, object], by: str | None) -> Turn[T]:
        names = [name for name, value in options.items() if value is not None]
        if names:
            raise errors.InvalidRequestError(
                f"turn {self.id!r} waits for a provider and goes on as itself, so it takes no"
                f" {' and no '.join(names)}; add to its limits with add_budget",
                context={"turn_id": self.id},
            )
        await self._ask(RESUME, pack(Resume(by=by)))
        return self
