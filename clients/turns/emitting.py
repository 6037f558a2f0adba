"""Events by key: they are sent to the workflow that keeps them, which the first one starts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from pydantic import JsonValue
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import RawValue
from temporalio.service import RPCError

from perdure import errors, limits, validation
from perdure.clients.turns import updates
from perdure.temporal import access, keyed_events
from perdure.temporal.acts import sources
from perdure.temporal.names import EMIT
from perdure.temporal.payloads import pack
from perdure.temporal.recent import Recent
from perdure.temporal.unretried import unretried
from perdure.turn import event_keys
from perdure.turn.call_waits import json_body
from perdure.turn.wait_values import Emit

_FULL_S = 1.0
"""How long a refusal for lack of room holds for other events of the same key in this process."""
_KNOWN_FULL = 1_000

_under_way: Counter[str] = Counter()
_full = Recent[str, tuple[float, errors.TooManyRequestsError]](_KNOWN_FULL)


class EventSender:
    """The part of `AgentClient` that sends events by key."""

    _client: Client
    _task_queue: str

    @validation.arguments("the event")
    async def emit(
        self,
        name: validation.EventName,
        *,
        key: event_keys.EventKey,
        body: JsonValue = None,
        id: validation.NewMessageId | None = None,
        by: validation.By | None = None,
    ) -> str:
        """Send an event to all turns that wait for its name and key.

        Their agents have the toolbox `waiting()`, and the event is the result of a call of
        `wait_for`. It is kept for an hour, for turns that begin to wait later; a turn gets it once.
        An event for one turn alone is sent by `Turn.emit`. Needs a worker.

        Args:
            name: The name of the event, such as `build_finished`.
            key: What it is about, such as the number of the build: one line, at most 200
                characters. For the turns of a tenant, it begins with `@tenant/`.
            body: What the event holds, as a JSON value: at most 48 KiB.
            id: The event's id: one line, at most 100 characters. The same id is the same event, so
                a call that was interrupted can be repeated. Without it, a random id.
            by: The person or program that sends it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked.

        Returns:
            The id of the event.

        Raises:
            TooLargeError: The body is too large.
            TooManyRequestsError: A hundred events of this name and key, or 256 KiB of them, are
                kept that no turn has got, or too many are being sent.
            InvalidRequestError: An argument is not valid.
            ServerUnreachableError: No worker accepted it within 30 s; one may still do so later.
        """
        event_id = id or uuid4().hex
        event = sources.marked(pack(Emit(name=name, body=json_body(body), by=by), "the event"))
        start = keyed_events.start_of(name, key, self._task_queue)
        with _noticing_full(start["id"]), _counted(start["id"], name):
            await _until_taken(self._client, start, event, event_id)
        return event_id


@contextlib.contextmanager
def _noticing_full(workflow_id: str) -> Iterator[None]:
    """Refuse an event of a key that has just had no room, and note that it has none.

    So a flood of events is refused here, and costs the workers one refusal in a second.
    """
    until, error = _full.get(workflow_id) or (0.0, None)
    if error is not None and time.monotonic() < until:
        raise errors.TooManyRequestsError(error.message, context=error.context)
    try:
        yield
    except errors.TooManyRequestsError as refusal:
        if "events" in refusal.context:
            _full.put(workflow_id, (time.monotonic() + _FULL_S, refusal))
        raise


@contextlib.contextmanager
def _counted(workflow_id: str, name: str) -> Iterator[None]:
    """Refuse an event if this process sends too many of its key already.

    Raises:
        TooManyRequestsError: It does.
    """
    if _under_way[workflow_id] >= limits.EVENT_SENDERS:
        raise errors.TooManyRequestsError(
            f"{limits.EVENT_SENDERS} events {name!r} of this key are being sent, which is the most;"
            " send fewer at once, and this one again",
            context={"limit": limits.EVENT_SENDERS},
        )
    _under_way[workflow_id] += 1
    try:
        yield
    finally:
        _under_way[workflow_id] -= 1
        if not _under_way[workflow_id]:
            del _under_way[workflow_id]


async def _until_taken(
    client: Client, start: dict[str, Any], event: RawValue, event_id: str
) -> None:
    """Send an event until it is recorded. The same id counts once.

    Raises:
        PerdureError: The workflow refused it, or cannot be reached.
    """
    caller, once, is_refused = asyncio.current_task(), unretried(client), True
    cancels = caller.cancelling() if caller else 0
    try:
        async with asyncio.timeout(updates.WAIT.total_seconds()), updates.places(start["id"]):
            while True:
                try:
                    await updates.in_time(updates.answered(_sent(once, start, event, event_id)))
                    return
                except updates.TooMany:
                    is_refused = True
                    await updates.pause_at_random()
                except (updates.Busy, updates.Over):
                    is_refused = False
                    await asyncio.sleep(updates.PAUSE_S)
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
        if caller is not None and caller.cancelling() > cancels:  # the SDK has one error for both
            raise asyncio.CancelledError from None
        raise _not_taken(is_refused=is_refused) from error
    except RPCError as error:
        raise access.EVENT.translated("", error) from error


def _not_taken(*, is_refused: bool) -> errors.PerdureError:
    within = f"within {updates.WAIT.total_seconds():g} s"
    if is_refused:
        return errors.TooManyRequestsError(
            f"the event was not taken {within}: too many of its key are under way; send fewer at"
            " once, and this one again"
        )
    return errors.ServerUnreachableError(f"no worker took in the event {within}; is one running?")


async def _sent(once: Client, start: dict[str, Any], event: RawValue, event_id: str) -> RawValue:
    operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(**start)
    try:
        answer: RawValue = await once.execute_update_with_start_workflow(
            EMIT, event, start_workflow_operation=operation, id=event_id, result_type=RawValue
        )
    finally:
        handle = operation._workflow_handle  # noqa: SLF001 - or asyncio logs that nobody asked
        if handle.done() and not handle.cancelled():
            handle.exception()
    return answer
