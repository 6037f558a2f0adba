"""Starts turns, or finds existing turns with their ids.

It returns where a turn is and makes no `Turn`, so a `Turn` can use it as well as the client.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from temporalio.client import Client
from temporalio.common import (
    Priority,
    RawValue,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from perdure import errors, limits, validation
from perdure.clients.reading.recorded import failed_unknown, runs_of
from perdure.temporal import access, start_request, trace_ids
from perdure.temporal.acts import sources
from perdure.temporal.histories.fetching import first_request
from perdure.temporal.names import TURN
from perdure.temporal.payloads import pack
from perdure.temporal.search_marks import Marks
from perdure.turn.wire import TurnRequest
from perdure.values.messages import media_weight
from perdure.values.tasks import opening
from perdure.values.turn_options import TurnOptions

IfExists = Literal["attach", "restart", "error"]


class StartOptions(TurnOptions, total=False):
    """The options of `AgentClient.start`, which describes them."""

    id: str | None
    live: bool
    if_exists: IfExists
    priority: int | None
    fairness: str | None
    weight: float | None
    by: str | None


class Started(NamedTuple):
    """Where a turn is.

    Attributes:
        turn_id: The turn's id.
        runs: Temporal's ids of its runs so far, in order.
    """

    turn_id: str
    runs: tuple[str, ...]


class Starter:
    """Starts turns on one task queue."""

    def __init__(self, client: Client, task_queue: str, marks: Marks) -> None:
        self._client = client
        self._task_queue = task_queue
        self._marks = marks

    @validation.arguments("the turn")
    async def start(
        self,
        request: TurnRequest,
        turn_id: str | None = None,
        *,
        if_exists: IfExists = "attach",
        priority: Priority = Priority.default,
        by: str | None = None,
        act: str | None = None,
    ) -> Started:
        """Start a turn, or find the existing turn.

        Args:
            request: The input of the turn.
            turn_id: The turn's id. Without it, `<agent>/<12 random characters>`.
            if_exists: As for `AgentClient.start`.
            priority: Temporal's priority.
            by: Who starts it.
            act: What the start is for who starts it, if that is no start, such as `resume`.

        Raises:
            TurnConflictError: A turn of this id has another input.
            TurnExistsError: A turn of this id exists and `if_exists` is `error`.
            TooLargeError: The input is too large.
            InvalidRequestError: The id is empty or too long, there is no task, the deadline has
                passed, or an option is not valid.
            ServerUnreachableError: Temporal does not answer.
        """
        validation.check_by("the turn", by)
        start_request.refuse_silence(request)
        turn_id = access.TURN.new_id(
            f"{request.agent}/{secrets.token_hex(6)}" if turn_id is None else turn_id
        )
        try:
            request.check_moments(datetime.now(UTC))
        except errors.InvalidRequestError as error:
            return await self._begun_before(turn_id, request, if_exists, error)
        started_by = sources.memo(by, act=act)
        run_id = await self._start(turn_id, request, priority, if_exists, started_by)
        if run_id is None:
            return await self._existing(turn_id, request, if_exists)
        return Started(turn_id, (run_id,))

    async def _start(
        self,
        turn_id: str,
        request: TurnRequest,
        priority: Priority,
        if_exists: IfExists,
        started_by: Mapping[str, Any],
    ) -> str | None:
        """Start a new turn, also in place of one that failed because no worker knew its agent.

        Returns:
            Temporal's id of its run; None if a turn with the id exists.
        """
        start_if = functools.partial(
            self._start_if,
            turn_id=turn_id,
            request=request,
            priority=priority,
            started_by=started_by,
        )
        if if_exists == "restart":
            return await start_if(WorkflowIDReusePolicy.ALLOW_DUPLICATE)
        run_id = await start_if(WorkflowIDReusePolicy.REJECT_DUPLICATE)
        if run_id is None and if_exists != "error" and await failed_unknown(self._client, turn_id):
            return await start_if(WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY)
        return run_id

    async def start_or_find(
        self, request: TurnRequest, turn_id: str, priority: Priority, *, again: bool
    ) -> Started:
        """Start a turn with a derived id, which may be long, or find it.

        With `again`, it is also started in place of one that has ended.

        Raises:
            PerdureError: As `start` does.
        """
        reuse = (
            WorkflowIDReusePolicy.ALLOW_DUPLICATE
            if again
            else WorkflowIDReusePolicy.REJECT_DUPLICATE
        )
        run_id = await self._start_if(reuse, turn_id, request, priority, replaces=False)
        runs = await runs_of(self._client, turn_id) if run_id is None else (run_id,)
        return Started(turn_id, runs)

    async def _start_if(
        self,
        reuse: WorkflowIDReusePolicy,
        turn_id: str,
        request: TurnRequest,
        priority: Priority,
        *,
        started_by: Mapping[str, Any] | None = None,
        replaces: bool = True,
    ) -> str | None:
        """Start a turn if the policy allows it, and return Temporal's id of its run.

        With a policy that allows every turn, one that runs is terminated, if it `replaces` that.
        """
        restart = replaces and reuse is WorkflowIDReusePolicy.ALLOW_DUPLICATE
        return await access.start(
            self._client,
            access.TURN,
            TURN,
            packed(self._client, request),
            id=turn_id,
            marks=(self._marks, request),
            task_queue=self._task_queue,
            id_reuse_policy=reuse,
            id_conflict_policy=(
                WorkflowIDConflictPolicy.TERMINATE_EXISTING
                if restart
                else WorkflowIDConflictPolicy.FAIL
            ),
            **start_request.introduced(request, trace_ids.memo_of_caller()),
            started_by=started_by,
            priority=priority,
            request_eager_start=True,  # by a worker on this connection, if any
        )

    async def _begun_before(
        self,
        turn_id: str,
        request: TurnRequest,
        if_exists: IfExists,
        error: errors.InvalidRequestError,
    ) -> Started:
        """Find the existing turn of a request whose deadline has passed since the turn was started.

        Raises:
            InvalidRequestError: There is no such turn; this is `error`.
        """
        if if_exists != "attach":
            raise error
        try:
            await runs_of(self._client, turn_id)
        except errors.TurnNotFoundError:
            raise error from None
        return await self._existing(turn_id, request, if_exists)

    async def _existing(self, turn_id: str, request: TurnRequest, if_exists: IfExists) -> Started:
        """Find the existing turn with this id, if it has the same input."""
        if if_exists == "error":
            raise errors.TurnExistsError(
                f"a turn {turn_id!r} exists already", context={"turn_id": turn_id}
            )
        try:
            runs = await runs_of(self._client, turn_id)
        except errors.TurnNotFoundError as error:
            raise errors.TurnConflictError(
                f"{error.message}; choose another id", context={"turn_id": turn_id}
            ) from error
        differs = "task, context or history"
        with access.TURN.asking(turn_id), contextlib.suppress(errors.InvalidRequestError):
            there, digest = await first_request(self._client, turn_id, runs[0])
            if digest == request.digest():
                return Started(turn_id, runs)
            if there.agent != request.agent:
                differs = f"agent, {there.agent!r}"
            elif there.subject != request.subject:
                differs = "data subject"
            elif there.origin != request.origin:
                differs = "step to go on from, or another message"
        instead = (
            "choose another id, or start a new turn in its place with if_exists='restart' (perdure"
            " run: --if-exists restart)"
        )
        raise errors.TurnConflictError(
            f"a turn {turn_id!r} exists with another {differs}; {instead}",
            context={"turn_id": turn_id},
        )


def packed(client: Client, request: TurnRequest) -> RawValue:
    """Return the input of a turn. It may be larger if payloads are stored out of history.

    Raises:
        TooLargeError: The input is too large; the message says what to make smaller.
        InvalidRequestError: It cannot be written as JSON.
    """
    if client.data_converter.external_storage is not None:
        return pack(request, "the input of the turn", most_bytes=limits.STORED_BYTES)
    try:
        return pack(request, "the input of the turn")
    except errors.TooLargeError as error:
        hint = _what_is_large(request)
        if not hint:
            raise
        raise errors.TooLargeError(f"{error.message}; {hint}", context=error.context) from None


def _what_is_large(request: TurnRequest) -> str:
    """Return hints on how to make an input smaller that is too large; empty if there are none."""
    hints = []
    if request.history:
        bytes_ = sum(len(message.model_dump_json()) for message in request.history)
        hints.append(
            f"{bytes_} bytes of that are history: give fewer of its messages, or a summary of them"
        )
    if media_weight(opening(request.task, None)):
        hints.append("give images and files as addresses")
    return ", ".join(hints) and f"{', '.join(hints)}, or Temporal's client an external storage"
