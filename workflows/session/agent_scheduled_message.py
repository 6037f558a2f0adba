"""A message of a schedule to a session: a schedule of Temporal can only start a workflow."""

from __future__ import annotations

import contextlib

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from perdure import errors, limits
from perdure.errors import PerdureError
from perdure.session.scheduled import (
    IF_BUSY,
    MessageCall,
    MessageDelivery,
    message_of,
    session_of,
)
from perdure.temporal import failures
from perdure.temporal.names import SCHEDULED_MESSAGE, SEND_MESSAGE
from perdure.temporal.payloads import NOTHING, pack, unpack
from perdure.temporal.search_attributes import SCHEDULED_FOR
from perdure.text import described
from perdure.turn.slot import Slot
from perdure.turn.wire import TurnRequest
from perdure.workflows import heartbeats


@workflow.defn(name=SCHEDULED_MESSAGE, sandboxed=False, failure_exception_types=[PerdureError])
class AgentScheduledMessage:
    """The workflow that sends one message. Its id is the id of the message."""

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> RawValue:
        """Send the message, for as long as it takes until a worker of the session takes it in.

        Raises:
            ApplicationError: The session refuses it; the error says why.
        """
        try:
            return await self._send(_call(start))
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            refused = errors.from_info(failures.error_in(error.cause or error))
            raise failures.of_activity(refused) from error
        except PerdureError as error:
            raise failures.of_activity(error) from error
        except Exception as error:  # a bug must not make the workflow task fail for ever
            workflow.logger.exception("a message of a schedule failed unexpectedly")
            raise failures.of_activity(PerdureError(described(error))) from error

    async def _send(self, call: MessageCall) -> RawValue:
        result: RawValue = await workflow.execute_activity(
            SEND_MESSAGE,
            pack(call, "the message"),
            result_type=RawValue,
            start_to_close_timeout=limits.CARRY_CALL,
            heartbeat_timeout=heartbeats.timeout(),
            retry_policy=RetryPolicy(maximum_interval=limits.BENCH),
            summary="the message",
        )
        return result


def _call(start: RawValue) -> MessageCall:
    """Return the message to send.

    Raises:
        InvalidRequestError: It is not the input of a message.
    """
    request, info = unpack(start, TurnRequest), workflow.info()
    if request.session is None or request.schedule is None:
        raise errors.InvalidRequestError("a message of a schedule needs a session and a schedule")
    at = info.typed_search_attributes.get(SCHEDULED_FOR)
    message = message_of(request, None if at is None else Slot(at=at))
    text, parts = ("", message.parts) if message.media else (message.text, ())
    return MessageCall(
        session_id=request.session,
        request=session_of(request),
        id=info.workflow_id,
        text=text,
        parts=parts,
        if_busy=IF_BUSY[request.schedule.if_running or "queue"],
        by=f"schedule {request.schedule.id}",
        last=_last() if request.schedule.pauses else "",
        fairness=info.priority.fairness_key,
    )


def _last() -> str:
    """Return the id of the message before, unless it has paused the schedule already."""
    if not workflow.has_last_completion_result():
        return ""
    last = workflow.get_last_completion_result(RawValue)
    with contextlib.suppress(PerdureError):  # the schedule has started turns before
        done = unpack(last, MessageDelivery) if last is not None else None
        if done is not None and done.id != _told():
            return done.id
    return ""


def _told() -> object:
    """Return the id of the message whose failed turn has paused the schedule already."""
    failure = workflow.get_last_failure()
    return failure and failures.error_in(failure).context.get("message_id")
