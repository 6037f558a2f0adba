"""What is recorded of calls that wait, and of the events that they wait for."""

from __future__ import annotations

from datetime import datetime
from operator import not_
from typing import Literal

from pydantic import Field

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
        event_key: The key of the event, without a tenant; empty for an event of the turn alone.
        is_job: Whether it waits for the result of a job, which its tool has started.
        digest: The digest of the call in its token, if it waits for the client of the turn.
        proof: The digest of that token.
    """

    key: str
    note: str
    since: datetime
    until: datetime
    event: str = ""
    event_key: str = ""
    is_job: bool = False
    digest: str = Field(default="", exclude_if=not_)
    proof: str = Field(default="", exclude_if=not_)

    @property
    def is_of_client(self) -> bool:
        """Whether it waits for the client of the turn."""
        return bool(self.digest)


class Woken(Wire):
    """The end of a wait.

    Attributes:
        key: The text of the key of the call.
        by: What ended it: the `time` is over, an `event`, a `message` of the user or the `result`
            of a job has come, or the call was `refused`, and nothing was waited for.
        waited_s: How long it has waited, in seconds.
        event_id: The id of the event that ended it.
        event: The name of the event, if it has a key.
        event_key: The key of the event, without a tenant.
        reason: Why it was refused.
    """

    key: str
    by: WokenBy
    waited_s: float = 0
    event_id: str = ""
    event: str = ""
    event_key: str = ""
    reason: str = ""


class TurnEvent(Wire):
    """An event that was sent to a turn, or by a key to all turns that wait for it.

    Attributes:
        id: Its id.
        name: Its name.
        body: What it holds, as JSON text; empty for an event without a body.
        key: Its key, without a tenant; empty for an event that was sent to the turn alone.
        at: The moment at which an event by key was taken in: no two events of a name and a key have
            the same.
        refusal: Why the turn cannot wait for events of this name and key. It is no event then.
    """

    id: str
    name: str
    body: str = ""
    key: str = Field(default="", exclude_if=not_)
    at: datetime | None = Field(default=None, exclude_if=not_)
    refusal: str = Field(default="", exclude_if=not_)


class LastEvent(Wire):
    """The last event of a name and a key that a turn has got, by the moment of the event."""

    name: str
    key: str
    at: datetime


class EmitByKey(Wire):
    """An event by key, to a turn that waits for it: the signal of the workflow that keeps it.

    Attributes:
        id: Its id.
        name: Its name.
        key: Its key, without the tenant of the turn.
        at: The moment at which it was taken in, or at which the wait is refused.
        body: JSON text, empty for an event without a body.
        by: Who has sent it.
        refusal: Why the turn cannot wait for such events. There is no event then.
    """

    id: str
    name: str
    key: str
    at: datetime
    body: str = ""
    by: str | None = None
    refusal: str = ""


class Emit(Wire):
    """An event to the running turn. Its id is the id of the update; `body` is JSON text."""

    name: str
    body: str = ""
    by: str | None = None
