"""The attempts of activities, and what may go wrong with them: before, during and after them.

The effect of an attempt and its result are two things: a worker may be lost between them, or
continue after the server has given it up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from temporalio.activity import ActivityCancellationDetails
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure

from perdure.activities import heartbeats
from perdure.testing.simulation.choices import CLOCKS, LOSSES, PAUSES
from perdure.testing.simulation.server.history import Fields
from perdure.testing.simulation.server.runs import Activity, SimulatedRun
from perdure.testing.simulation.server.sdk import failure_of
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.worker.supervision.lost_work import failure_of_lost

_DURATIONS_S = (0.05, 0.05, 0.05, 0.5, 3, 3, 40)
_LOCAL_S = (0, 0.01, 0.4)
_HEARS_S = (0.1, 2, 15)
_MOST_DOUBLINGS = 100
"""After so many, a pause is as long as it gets."""

SOUND = 36
"""Of so many attempts, six go wrong in one of the six ways."""
_FATES = (
    *("sound",) * (SOUND - 6),
    *("lost before its effect", "lost after its effect", "frozen", "shut down", "too slow"),
    "done twice",
)
_LOSSES = (*("sound",) * 4, *("lost after its effect", "shut down") * 2, "lost before its effect")


class Worker(Protocol):
    """What does the work of an attempt."""

    def execute(self, activity: Activity) -> Payload | Failure:
        """Do the work, with its effects, and return the result or the failure."""


class SimulatedAttempts:
    """Runs activities.

    Attributes:
        on_effect: Called before each attempt that may have an effect.
    """

    def __init__(self, server: SimulatedServer, worker: Worker) -> None:
        self.on_effect: list[Callable[[Activity], None]] = []
        self._server = server
        self._worker = worker
        server.locally = self.perform

    def schedule(self, run: SimulatedRun, content: Any, event_id: int) -> None:
        """Put an activity on its queue."""
        self.schedule_as(run, content, content.activity_type, content.arguments, event_id)

    def schedule_as(
        self,
        run: SimulatedRun,
        content: Any,
        kind: str,
        arguments: Iterable[Payload],
        event_id: int,
    ) -> None:
        """Put an activity of a type on its queue, with this input."""
        [payload] = arguments
        timeout_s = content.start_to_close_timeout.ToNanoseconds() / 1e9
        longest_ns = content.schedule_to_close_timeout.ToNanoseconds()
        activity = Activity(
            run,
            event_id,
            content.activity_id,
            kind,
            payload,
            content.retry_policy,
            heartbeat_s=content.heartbeat_timeout.ToNanoseconds() / 1e9,
            timeout_s=timeout_s or None,
            until_ns=self._server.clock.now_ns + longest_ns if longest_ns else None,
        )
        run.activities[event_id] = activity
        self._server.counts["activities"] += 1
        self._queue(activity)

    def _queue(self, activity: Activity) -> None:
        """Let an attempt begin when a worker has time for it."""
        delay_s = self._server.choices.pick((0, 0, 0.001, 0.2))
        self._server.clock.later(delay_s, lambda: self._begin(activity))

    def perform(self, run: SimulatedRun, content: Any) -> tuple[Payload | Failure, float]:
        """Make the only attempt of a local activity, within a workflow task.

        Returns: The result or the failure, and the seconds that it has taken.
        """
        self._server.counts["local activities"] += 1
        [payload] = content.arguments
        activity = Activity(
            run,
            len(run.history) + 1,
            content.activity_id,
            content.activity_type,
            payload,
            content.retry_policy,
            heartbeat_s=0,
            timeout_s=content.schedule_to_close_timeout.ToNanoseconds() / 1e9,
        )
        choices = self._server.choices
        takes_s = choices.pick(_LOCAL_S, beside=CLOCKS) if choices.has(CLOCKS) else 0
        return self._work(activity), takes_s

    def hand_out_again(self, run: SimulatedRun, content: Any, event_id: int) -> None:
        """Hand out an activity again that was open where its run was reset.

        A worker refuses it if it may have one attempt only: the attempt before may still run.
        """
        self.schedule_as(run, content, content.activity_type.name, content.input.payloads, event_id)
        activity = run.activities[event_id]
        activity.is_again = True
        if activity.retries.maximum_attempts == 1:
            activity.is_started = True
            takes_s = self._server.choices.pick(_DURATIONS_S)
            result = self._work(activity)
            self._server.clock.later(takes_s, lambda: self._return(activity, 1, result))

    def pause(self, activity: Activity) -> None:
        """Pause an activity, as an operator does: no attempt begins until it goes on.

        One that runs is stopped when its worker hears of it, with its next heartbeat.
        """
        activity.is_paused = True
        if activity.is_started:
            self._stop(activity, ActivityCancellationDetails(paused=True))
        else:
            activity.handed_out += 1  # its task on the queue is worth nothing any more

    def unpause(self, activity: Activity) -> None:
        """Let an activity go on that an operator has paused; one that still runs just goes on."""
        if activity.is_paused and self._is_open(activity):
            activity.is_paused = False
            self._hand_out_now(activity)

    def reset(self, activity: Activity) -> None:
        """Let the attempts of an activity begin anew; one that runs is stopped first.

        A paused activity goes on, unless an attempt still runs.
        """
        if not self._is_open(activity):
            return
        activity.attempt = 1
        if activity.is_started:
            self._stop(activity, ActivityCancellationDetails(reset=True))
        else:
            activity.is_paused = False
            self._hand_out_now(activity)

    def _hand_out_now(self, activity: Activity) -> None:
        """Put an activity on its queue again, unless an attempt runs."""
        if not activity.is_started:
            activity.handed_out += 1
            activity.is_again = True
            self._server.clock.later(0, partial(self._begin, activity, activity.handed_out))

    def _stop(self, activity: Activity, details: ActivityCancellationDetails) -> None:
        """Let a running attempt hear of what an operator has done; some do not stop."""
        choices, number = self._server.choices, activity.handed_out
        if not choices.happens(4, beside=PAUSES):
            delay_s = choices.pick(_HEARS_S, beside=PAUSES)
            self._server.clock.later(delay_s, partial(self._hear, activity, number, details))

    def _hear(self, activity: Activity, number: int, details: ActivityCancellationDetails) -> None:
        """End an attempt as its worker does, unless it goes on meanwhile."""
        if activity.is_paused or details.reset:
            self._lose(activity, number, failure_of(heartbeats.ended_by(details)))

    def cancel(self, run: SimulatedRun, event_id: int) -> None:
        """Cancel an activity: at once if no worker has it, and otherwise when its worker hears."""
        activity = run.activities.get(event_id)
        if activity is None:
            return
        activity.is_cancelled = True
        if not activity.is_started:
            self._server.clock.later(0, lambda: self._end(activity, "CANCELED", {}))
        elif not self._server.choices.happens(4):  # or it does not hear of it, or does not stop
            delay_s = self._server.choices.pick((0, 0.1, 2, 15, 30))
            self._server.clock.later(delay_s, lambda: self._end(activity, "CANCELED", {}))

    def _begin(self, activity: Activity, number: int = 1) -> None:
        """Begin an attempt, unless what was put on the queue is worth nothing any more."""
        if not self._awaits(activity, number):
            return
        activity.is_started = True
        choices, later = self._server.choices, self._server.clock.later
        is_lossy = choices.aims_at(LOSSES) and not activity.run.takes_back
        fates = _LOSSES if is_lossy else _FATES
        fate, takes_s = choices.pick(fates), choices.pick(_DURATIONS_S)
        told = replace(activity)
        heartbeat_s = activity.heartbeat_s or 15
        if fate != "sound":
            self._server.counts[fate] += 1
        match fate:
            case "lost before its effect":
                later(heartbeat_s, lambda: self._lose(activity, number, heartbeat()))
            case "lost after its effect":
                self._work(activity)
                later(heartbeat_s, lambda: self._lose(activity, number, heartbeat()))
            case "frozen":  # and continues when the server has given it up
                later(heartbeat_s, lambda: self._lose(activity, number, heartbeat()))
                later(heartbeat_s + takes_s, lambda: self._act(told))
            case "shut down":
                if choices.happens(2):
                    self._work(activity)
                later(takes_s, lambda: self._lose(activity, number, failure_of_lost()))
            case "too slow" if activity.timeout_s is not None:
                self._work(activity)
                failure = timed_out(1, "start to close")
                later(activity.timeout_s, lambda: self._lose(activity, number, failure))
            case _:
                result = self._work(activity)
                later(takes_s, lambda: self._return(activity, number, result))
                if fate == "done twice":  # the server may hear of an end twice
                    later(takes_s, lambda: self._return(activity, number, result))

    def _act(self, activity: Activity) -> None:
        """Do the work of an attempt whose result nobody takes any more."""
        self._work(activity)

    def _work(self, activity: Activity) -> Payload | Failure:
        for hook in self.on_effect:
            hook(activity)
        return self._worker.execute(activity)

    def _awaits(self, activity: Activity, number: int) -> bool:
        """Return whether an activity is on its queue, and has not been put there again since."""
        is_idle = not (activity.is_cancelled or activity.is_started)
        return is_idle and self._is_open(activity) and activity.handed_out == number

    def _is_open(self, activity: Activity) -> bool:
        return activity.run.activities.get(activity.event_id) is activity

    def _return(self, activity: Activity, number: int, result: Payload | Failure) -> None:
        if activity.handed_out != number:
            return
        if isinstance(result, Payload):
            self._end(activity, "COMPLETED", {"result": {"payloads": [result]}})
        elif self._retries(activity, result):
            self._again(activity, result)
        else:
            self._end(activity, "FAILED", {"failure": result})

    def _lose(self, activity: Activity, number: int, failure: Failure) -> None:
        if activity.handed_out != number or not self._is_open(activity):
            return
        if self._retries(activity, failure):
            self._again(activity, failure)
        else:
            how = "TIMED_OUT" if failure.HasField("timeout_failure_info") else "FAILED"
            self._end(activity, how, {"failure": failure})

    def _retries(self, activity: Activity, failure: Failure) -> bool:
        """Return whether another attempt follows one that fails.

        A pause of no time that the failure asks for is no time left.
        """
        info = failure.application_failure_info
        asked = info.next_retry_delay
        if info.non_retryable or (info.HasField("next_retry_delay") and not asked.ToNanoseconds()):
            return False
        most, until_ns = activity.retries.maximum_attempts, activity.until_ns
        is_late = until_ns is not None and self._server.clock.now_ns >= until_ns
        has_attempts = not most or activity.attempt < most or activity.is_paused
        return has_attempts and not is_late and not activity.is_cancelled

    def _again(self, activity: Activity, failure: Failure) -> None:
        pause_s = _pause_s(activity, failure)
        activity.attempt += 1
        activity.handed_out += 1
        activity.is_again = True
        activity.is_started = False
        if activity.is_paused:
            return  # until an operator lets it go on
        number = activity.handed_out
        self._server.clock.later(pause_s, lambda: self._begin(activity, number))

    def _end(self, activity: Activity, how: str, fields: Fields) -> None:
        if not self._is_open(activity):
            return
        run = activity.run
        del run.activities[activity.event_id]
        scheduled: Fields = {"scheduled_event_id": activity.event_id}
        if activity.is_started:
            self._server.deliver(run, "ACTIVITY_TASK_STARTED", scheduled)
        self._server.deliver(run, f"ACTIVITY_TASK_{how}", {**scheduled, **fields})


def _pause_s(activity: Activity, failure: Failure) -> float:
    """Return the pause between an attempt that has failed and the next, in seconds."""
    policy, asked = activity.retries, failure.application_failure_info.next_retry_delay
    if asked.ToNanoseconds():
        return float(asked.ToNanoseconds() / 1e9)
    first_s = policy.initial_interval.ToNanoseconds() / 1e9
    longest_s = policy.maximum_interval.ToNanoseconds() / 1e9
    doublings = min(activity.attempt - 1, _MOST_DOUBLINGS)
    return float(min(first_s * policy.backoff_coefficient**doublings, longest_s))


def heartbeat() -> Failure:
    """Return the failure of an attempt whose worker sends no heartbeats any more."""
    return timed_out(4, "heartbeat")


def timed_out(kind: int, name: str) -> Failure:
    """Return the failure of an attempt that ran out of time."""
    failure = Failure(message=f"activity {name} timeout", source="Server")
    failure.timeout_failure_info.timeout_type = kind  # type: ignore[assignment]
    return failure
