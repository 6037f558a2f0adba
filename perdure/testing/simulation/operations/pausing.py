"""The operators who pause, unpause and reset single activities, with Temporal's command line.

The server hands out such an activity again, although the workflow has asked for one attempt. It may
have had its effect before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from perdure.testing.simulation.choices import PAUSES
from perdure.testing.simulation.server.attempts import SimulatedAttempts
from perdure.testing.simulation.server.history import name_of
from perdure.testing.simulation.server.runs import Activity, SimulatedRun
from perdure.testing.simulation.server.server import SimulatedServer

_SOON_S = (0.1, 0, 0.4, 2)
_GOES_ON_S = (1, 0.05, 20, 90)


class Pausing:
    """Pauses or resets some activities, each of which goes on later."""

    def __init__(self, server: SimulatedServer, attempts: SimulatedAttempts) -> None:
        self._server = server
        self._attempts = attempts
        self._left = server.choices.pick((4, 2, 8, 12), beside=PAUSES)
        server.on_event.append(self._watch)

    def _watch(self, run: SimulatedRun) -> None:
        """Do something with an activity some time after it was scheduled."""
        is_new = name_of(run.history.events[-1]) == "ACTIVITY_TASK_SCHEDULED"
        if is_new and self._left and self._server.choices.happens(2, beside=PAUSES):
            self._left -= 1
            event_id = run.history.events[-1].event_id
            self._later(_SOON_S, lambda: self._act(run.activities.get(event_id)))

    def _later(self, pauses_s: tuple[float, ...], does: Callable[[], None]) -> None:
        self._server.clock.later(self._server.choices.pick(pauses_s, beside=PAUSES), does)

    def _act(self, activity: Activity | None) -> None:
        """Pause or reset an activity that has not ended."""
        if activity is None:
            return
        if self._server.choices.happens(4, beside=PAUSES):
            self._reset(activity)
            return
        self._server.counts["paused activities"] += 1
        self._attempts.pause(activity)
        goes_on = self._server.choices.pick((self._attempts.unpause, self._reset), beside=PAUSES)
        self._later(_GOES_ON_S, partial(goes_on, activity))

    def _reset(self, activity: Activity) -> None:
        self._server.counts["reset activities"] += 1
        self._attempts.reset(activity)
        if activity.is_paused:  # an attempt still runs
            self._later(_GOES_ON_S, partial(self._attempts.unpause, activity))
