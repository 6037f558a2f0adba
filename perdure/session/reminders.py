"""What a reminder may be. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from perdure import errors, limits, validation
from perdure.session.wire import Reminder
from perdure.text import size
from perdure.values.content import check_message
from perdure.values.moments import in_words


def check(reminders: Sequence[Reminder], reminder: Reminder, now: datetime) -> None:
    """Refuse a reminder that is not valid, or does not fit beside the open ones.

    Raises:
        InvalidRequestError: Its text is empty, or its time is not in the next ten years.
        TooLargeError: Its text is too large, or too many reminders are open.
    """
    check_message({"id": reminder.id, "text": reminder.text, "by": None}, ())
    if reminder.at.utcoffset() is None or not now < reminder.at <= now + validation.LONGEST:
        raise errors.InvalidRequestError(
            f"a reminder comes later, within ten years: it is {in_words(now)}"
        )
    if (bytes_ := size(reminder.text)) > limits.REMINDER_BYTES:
        raise errors.TooLargeError(
            f"the text of the reminder is {bytes_} bytes, more than {limits.REMINDER_BYTES}",
            context={"bytes": bytes_, "limit": limits.REMINDER_BYTES},
        )
    if len(reminders) >= limits.REMINDERS:
        raise errors.TooLargeError(
            f"{len(reminders)} reminders are open, which is the most; give one up first",
            context={"reminders": len(reminders), "limit": limits.REMINDERS},
        )
