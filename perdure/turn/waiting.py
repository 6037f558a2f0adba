"""The wait of a turn: for a person, or for a provider. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from perdure.values.approvals import PendingApproval

PEOPLE = ("approval", "budget", "iterations", "resume")
"""The kinds of waits that only a person can end."""

_OF_CALLS = {
    "timer": "waits",
    "event": "waits for an event,",
    "job": "waits for the result of a job,",
    "client": "waits for its client to run a tool,",
}
"""The kinds of waits of calls, in words before `until`."""

PROVIDER = "provider"
DELAY = "delay"
TIMER = "timer"
EVENT = "event"
JOB = "job"
CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The wait of a turn, by its kind.

    `retry`: the model is asked again after a short pause. `provider`: it is asked after a longer
    pause, `until` that moment, as attempt number `attempt`; the first attempt failed at `since`.
    This wait lasts until a model answers; with `limit`, the provider's limit is used up until that
    moment, and the wait ends then. `delay`: the turn begins at the moment `until`. `budget` and
    `iterations`: a person has to raise that limit. `approval`: a person has to decide about the
    `pending` calls. `resume`: the agent's limit for retrying the model is reached. `timer` and
    `event`: calls of the model wait, the first of them `until` that moment; other calls may run.
    `job`: likewise, for the result of a job that a tool has started. `client`: for the client of
    the turn to run its tools, while nothing else runs.
    """

    kind: str
    reason: str
    pending: tuple[PendingApproval, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    attempt: int = 0
    limit: bool = False

    @property
    def is_told(self) -> bool:
        """Whether the list, the card and the memo show the wait."""
        return self.kind != "retry"

    @property
    def is_of_calls(self) -> bool:
        """Whether calls of the model wait, so that other calls may run meanwhile."""
        return self.kind in _OF_CALLS

    @property
    def of_calls_in_words(self) -> str:
        """What the calls wait for, before `until`; empty for other waits."""
        return _OF_CALLS.get(self.kind, "")

    @property
    def is_timed(self) -> bool:
        """Whether the wait counts towards the time of the turn."""
        return self.kind not in (*PEOPLE, DELAY) and not self.limit
