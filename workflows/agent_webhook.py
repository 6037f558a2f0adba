"""The delivery of a turn's webhook, which may take longer than the turn's caller wants to wait.

It is a workflow of its own (docs/decisions/0101). Its status in Temporal is that of the delivery.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from pydantic import BaseModel
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ApplicationErrorCategory,
    is_cancelled_exception,
)

from perdure import limits
from perdure.errors import PerdureError
from perdure.temporal import failures
from perdure.temporal.names import END_OF_TURN, MEMO_WEBHOOK, NOTIFY, WEBHOOK, WEBHOOK_FAILED
from perdure.temporal.payloads import NOTHING, pack, unpack
from perdure.text import described, one_line, word
from perdure.turn.webhook import Delivered, Notification, WebhookCall, WebhookMessage
from perdure.workflows import heartbeats

logger = logging.getLogger("perdure.turns")

_UNTIL_READ = RetryPolicy(maximum_interval=limits.BENCH)
_UNTIL_DELIVERED = RetryPolicy(
    initial_interval=limits.WEBHOOK_FIRST_PAUSE,
    backoff_coefficient=4.0,
    maximum_interval=limits.WEBHOOK_LONGEST_PAUSE,
    maximum_attempts=limits.WEBHOOK_ATTEMPTS,
)
_SLACK = timedelta(seconds=15)
_ERROR_CHARACTERS = 300


@workflow.defn(name=WEBHOOK, sandboxed=False, failure_exception_types=[PerdureError])
class AgentWebhook:
    """The workflow that delivers one message."""

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> RawValue:
        """Deliver the message.

        Raises:
            ApplicationError: It is not delivered; the error says why.
        """
        turn_id = ""
        try:
            call = unpack(start, WebhookCall)
            turn_id = call.turn_id
            delivered = await _deliver(call)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            failure = _failure(error)
            _record(turn_id, "failed", error=failure.message)
            raise failure from error
        except PerdureError as error:
            raise failures.of_activity(error) from error
        except Exception as error:  # a bug must not make the workflow task fail for ever
            workflow.logger.exception("a webhook failed unexpectedly")
            raise failures.of_activity(PerdureError(described(error))) from error
        told = {"status": delivered.status, "attempts": delivered.attempts}
        _record(turn_id, "delivered", **told)
        return pack(delivered)


async def _deliver(call: WebhookCall) -> Delivered:
    """Wait for the end of the turn, and send the message until it is delivered."""
    raw = await _perform(
        END_OF_TURN, call, limits.CARRY_CALL, _UNTIL_READ, f"the end of {call.turn_id}"
    )
    message = unpack(raw, WebhookMessage)
    sent = Notification(id=call.id, url=call.url, message=message)
    timeout = limits.WEBHOOK_CALL + _SLACK
    return unpack(await _perform(NOTIFY, sent, timeout, _UNTIL_DELIVERED, message.type), Delivered)


async def _perform(
    activity: str, arg: BaseModel, timeout: timedelta, retry: RetryPolicy, summary: str
) -> RawValue:
    result: RawValue = await workflow.execute_activity(
        activity,
        pack(arg, f"the input of {activity}"),
        result_type=RawValue,
        start_to_close_timeout=timeout,
        heartbeat_timeout=heartbeats.timeout(),
        retry_policy=retry,
        summary=one_line(summary, 200),
    )
    return result


def _failure(error: ActivityError) -> ApplicationError:
    """Return the failure of the delivery: that of the last attempt."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        words, kind = cause.message, cause.type
    else:
        words, kind = f"the webhook is not delivered: {described(cause or error)}", None
    benign = ApplicationErrorCategory.BENIGN
    return ApplicationError(words, type=kind or WEBHOOK_FAILED, category=benign)


def _record(turn_id: str, state: str, **fields: str | int) -> None:
    """Record the end of the delivery in the memo and in the log."""
    workflow.upsert_memo({MEMO_WEBHOOK: {"turn_id": turn_id, "state": state, **fields}})
    if workflow.unsafe.is_replaying():
        return
    said = {"task": turn_id, **fields}
    if "error" in said:
        said["error"] = one_line(str(said["error"]), _ERROR_CHARACTERS)
    event = f"webhook_{state}"
    line = " ".join(f"{name}={word(str(value))}" for name, value in said.items())
    level = logging.INFO if state == "delivered" else logging.WARNING
    logger.log(level, "%s %s", event, line, extra={"perdure": {"event": event, **said}})
