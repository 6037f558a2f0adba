"""Deliveries of messages to receivers over HTTP: the activity, its attempts, and how it ended."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
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
from perdure.delivery.webhook import Delivered, Notification
from perdure.errors import PerdureError
from perdure.temporal import failures
from perdure.temporal.encryption import hiding
from perdure.temporal.names import MEMO_WEBHOOK, NOTIFY, WEBHOOK_FAILED
from perdure.temporal.payloads import pack, unpack
from perdure.text import described, one_line, word
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


async def read(activity: str, arg: BaseModel, summary: str) -> RawValue:
    """Read the history of a turn, for as long as the server or the worker are away."""
    return await _perform(activity, arg, limits.CARRY_CALL, _UNTIL_READ, summary)


async def deliver(sent: Notification, summary: str) -> Delivered:
    """Send a message until it is delivered.

    Raises:
        ActivityError: The receiver refused it, or took too long to accept it.
    """
    timeout = limits.WEBHOOK_CALL + _SLACK
    return unpack(await _perform(NOTIFY, sent, timeout, _UNTIL_DELIVERED, summary), Delivered)


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


@contextlib.contextmanager
def failing(turn_id: str) -> Iterator[None]:
    """Fail the workflow of a delivery typed, and record the failure of an activity.

    Raises:
        ApplicationError: The block has failed; the error says why.
    """
    try:
        yield
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        failure = _failure(error)
        record(turn_id, "failed", error=failure.message)
        raise failure from error
    except PerdureError as error:
        raise failures.of_activity(error) from error
    except Exception as error:  # a bug must not make the workflow task fail for ever
        workflow.logger.exception("a delivery failed unexpectedly")
        raise failures.of_activity(PerdureError(described(error))) from error


def _failure(error: ActivityError) -> ApplicationError:
    """Return the failure of a delivery: the failure of the last attempt."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        message, kind = cause.message, cause.type
    else:
        message, kind = f"the webhook is not delivered: {described(cause or error)}", None
    benign = ApplicationErrorCategory.BENIGN
    return ApplicationError(message, type=kind or WEBHOOK_FAILED, category=benign)


def record(turn_id: str, state: str, **fields: str | int) -> None:
    """Record the end of a delivery in the memo and in the log."""
    workflow.upsert_memo({MEMO_WEBHOOK: {"turn_id": turn_id, "state": state, **fields}})
    if workflow.unsafe.is_replaying():
        return
    extra = {"task": turn_id, **fields}
    if hiding.encrypts():
        extra.pop("error", None)  # it may quote what is encrypted in the memo
    if "error" in extra:
        extra["error"] = one_line(str(extra["error"]), _ERROR_CHARACTERS)
    event = f"webhook_{state}"
    line = " ".join(f"{name}={word(str(value))}" for name, value in extra.items())
    level = logging.INFO if state == "delivered" else logging.WARNING
    logger.log(level, "%s %s", event, line, extra={"perdure": {"event": event, **extra}})
