"""What is recorded of calls that wait, and of the events that they wait for."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from perdure.base import Wire

WokenBy = Literal["time", "event", "message", "refused", "result"]


class CallWait(Wire):
    """A call that waits.

    Attributes:
        key: The text of the key of the call.
        note: What it waits for, in the words of the model.
        since: The start of the wait.
        until: The moment at which it ends at the latest.
        event: The name of the event that it waits for; empty for a wait for the time alone.
        is_job: Whether it waits for the result of a job, which its tool has started.
    """

    key: str
    note: str
    since: datetime
    until: datetime
    event: str = ""
    is_job: bool = False


class Woken(Wire):
    """The end of a wait.

    Attributes:
        key: The text of the key of the call.
        by: What ended it: the `time` is over, an `event`, a `message` of the user or the `result`
            of a job has come, or the call was `refused`, and nothing was waited for.
        waited_s: How long it has waited, in seconds.
        event_id: The id of the event that ended it.
        reason: Why it was refused.
    """

    key: str
    by: WokenBy
    waited_s: float = 0
    event_id: str = ""
    reason: str = ""


class TurnEvent(Wire):
    """An event that was sent to a turn. `body` is JSON text, empty for an event without a body."""

    id: str
    name: str
    body: str = ""


class Emit(Wire):
    """An event to the running turn. Its id is the id of the update; `body` is JSON text."""

    name: str
    body: str = ""
    by: str | None = None
