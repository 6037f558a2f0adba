"""A reset of a run, as an operator does it: a new run goes on from a workflow task of the old one.

The history of the new run begins with that of the old run up to the start of the task. The server
ends the task, delivers again what came to the old run since then, and does again what had not ended
at that point: timers go on, activities are handed out again, and delegates that run report to the
new run, which can neither signal nor cancel them as its children. The old run is terminated; its
other delegates go on. Its parent hears of the new run.

A run that was continued can be reset, too. Then the last run of the chain is terminated, and its
children are cancelled; signals and updates of the later runs are delivered to the new run as well.
A cancel of a later run is not. All of this was measured with Temporal's server 1.32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from temporalio.api.history.v1 import HistoryEvent

from perdure.testing.simulation.server.attempts import SimulatedAttempts
from perdure.testing.simulation.server.effects import REJECT_DUPLICATE, Effects
from perdure.testing.simulation.server.history import (
    COMMANDS,
    COMPLETED,
    RESET,
    Fields,
    attributes,
    name_of,
)
from perdure.testing.simulation.server.runs import (
    SimulatedChild,
    SimulatedRun,
    Update,
    UpdateResponse,
)
from perdure.testing.simulation.server.server import SimulatedServer

_TERMINATED = "WORKFLOW_EXECUTION_TERMINATED"
_CONTINUED = "WORKFLOW_EXECUTION_CONTINUED_AS_NEW"
_SIGNALED, _CANCEL = "WORKFLOW_EXECUTION_SIGNALED", "WORKFLOW_EXECUTION_CANCEL_REQUESTED"
_ADMITTED, _ACCEPTED = "WORKFLOW_EXECUTION_UPDATE_ADMITTED", "WORKFLOW_EXECUTION_UPDATE_ACCEPTED"
_UPDATED = "WORKFLOW_EXECUTION_UPDATE_COMPLETED"
INITIATED = "START_CHILD_WORKFLOW_EXECUTION_INITIATED"
_CHILD_STARTED = "CHILD_WORKFLOW_EXECUTION_STARTED"
_BEGINS = {
    "ACTIVITY_TASK_SCHEDULED": "activity",
    "TIMER_STARTED": "timer",
    INITIATED: "child",
    "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED": "signal",
    "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED": "cancel",
}
_ENDS = (
    *("ACTIVITY_TASK_COMPLETED", "ACTIVITY_TASK_FAILED", "ACTIVITY_TASK_TIMED_OUT"),
    *("ACTIVITY_TASK_CANCELED", "TIMER_FIRED", "TIMER_CANCELED"),
    *("START_CHILD_WORKFLOW_EXECUTION_FAILED", "CHILD_WORKFLOW_EXECUTION_COMPLETED"),
    *("CHILD_WORKFLOW_EXECUTION_FAILED", "CHILD_WORKFLOW_EXECUTION_CANCELED"),
    *("CHILD_WORKFLOW_EXECUTION_TERMINATED", "EXTERNAL_WORKFLOW_EXECUTION_SIGNALED"),
    *("SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED", "EXTERNAL_WORKFLOW_EXECUTION_CANCEL_REQUESTED"),
    "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_FAILED",
)


class Resets:
    """Resets runs."""

    def __init__(
        self, server: SimulatedServer, attempts: SimulatedAttempts, effects: Effects
    ) -> None:
        self._server = server
        self._attempts = attempts
        self._effects = effects

    def points(self, run: SimulatedRun) -> list[int]:
        """Return the completed workflow tasks to which a run can be reset, the last one first.

        A delegate that ended after the end of the run would never report to the new run.
        """
        found = [one.event_id for one in run.history.events if name_of(one) == COMPLETED]
        if run.closed:
            ended = {_begun_by(one) for one in run.history.events if name_of(one) in _ENDS}
            found = [
                event_id
                for event_id in found
                if all(
                    name_of(one) != INITIATED or number in ended
                    for number, one in _open(run.history.events[: event_id - 1]).items()
                )
            ]
        return found[::-1]

    def reset(
        self,
        base: SimulatedRun,
        event_id: int,
        *,
        leaves_out: Collection[str] = (),
        has_account: bool = True,
    ) -> SimulatedRun:
        """Reset a run to the end of a workflow task, and return the new run.

        `leaves_out` has what is not delivered again: signals, updates, or both. With `has_account`,
        what is billed from now on is noted apart from what was billed before.
        """
        server = self._server
        server.counts["resets"] += 1
        later = self._later(base)
        self._end(base)
        run_id = server.new_run_id()
        origin = base.begun.origin or base.begun.run_id
        earlier = (*base.begun.earlier, base.begun.run_id)
        begun = replace(base.begun, run_id=run_id, origin=origin, earlier=earlier)
        begun = replace(begun, account=run_id) if has_account else begun
        run = SimulatedRun(begun, base.parent, base=(base, event_id))
        run.history.copy(base.history, event_id - 1)
        run.seen = _seen(run.history.events)
        run.is_cancelled = any(name_of(one) == _CANCEL for one in run.history.events)
        run.updates = _updates(base, run.history.events)
        server.open(run)
        failed: Fields = {"cause": RESET, "base_run_id": base.begun.run_id, "new_run_id": run_id}
        server.write(run, "WORKFLOW_TASK_FAILED", failed)
        open_events = _open(run.history.events)
        self._deliver_again(base, run, open_events, leaves_out)
        for one in later:
            self._deliver_later(one, run, leaves_out)
        server.need_task(run)
        for number, event in _open(run.history.events).items():
            self._begin_again(base, run, number, event)
        return run

    def _later(self, base: SimulatedRun) -> list[SimulatedRun]:
        """Return the runs that continue a run, in their order."""
        found: list[SimulatedRun] = []
        before = base
        while name_of(before.history.events[-1]) == _CONTINUED:
            run_id = attributes(before.history.events[-1]).new_execution_run_id
            before = next(run for run in self._server.runs if run.begun.run_id == run_id)
            found.append(before)
        return found

    def _end(self, base: SimulatedRun) -> None:
        """Terminate what is open, and note that another run goes on instead."""
        server = self._server
        replaced = [base]
        for run in server.runs:
            is_later = run.begun.continued in [one.begun.run_id for one in replaced]
            if run.id == base.id and (is_later or (run.base and run.base[0] in replaced)):
                replaced.append(run)
        for run in replaced:
            if not run.closed:
                server.end(run, _TERMINATED, {"reason": "reset"})
                if run is not base:
                    self._effects.cancel_children(run)
            run.is_replaced = True

    def _deliver_later(
        self, later: SimulatedRun, run: SimulatedRun, leaves_out: Collection[str]
    ) -> None:
        """Write the signals and updates that came to a run that continued the old one."""
        for event in later.history.events:
            self._deliver_sent(later, run, event, leaves_out)

    def _deliver_sent(
        self,
        base: SimulatedRun,
        run: SimulatedRun,
        event: HistoryEvent,
        leaves_out: Collection[str],
    ) -> None:
        """Write the signal or the update of an event; nothing for all others."""
        name, content = name_of(event), attributes(event)
        if name == _SIGNALED and "signals" not in leaves_out:
            fields = {"signal_name": content.signal_name, "input": content.input}
            self._server.write(run, name, fields)
        elif name in (_ADMITTED, _ACCEPTED) and "updates" not in leaves_out:
            self._admit(base, run, event)

    def _deliver_again(
        self,
        base: SimulatedRun,
        run: SimulatedRun,
        open_events: dict[int, HistoryEvent],
        leaves_out: Collection[str],
    ) -> None:
        """Write what came to the old run after the point: signals, updates, ends of delegates."""
        assert run.base is not None
        for event in base.history.events[run.base[1] - 1 :]:
            name, content = name_of(event), attributes(event)
            self._deliver_sent(base, run, event, leaves_out)
            if name == _CANCEL and not run.is_cancelled:
                run.is_cancelled = True
                self._server.write(run, name, {"cause": content.cause})
            elif (
                (name in _ENDS or name == _CHILD_STARTED)
                and hasattr(content, "initiated_event_id")
                and content.initiated_event_id in open_events
                and name_of(open_events[content.initiated_event_id]) == INITIATED
            ):
                fields = {one.name: value for one, value in content.ListFields()}
                self._server.write(run, name, fields)

    def _admit(self, base: SimulatedRun, run: SimulatedRun, event: HistoryEvent) -> None:
        """Deliver an update again, unless the event of its acceptance refers to an earlier one."""
        content, is_admitted = attributes(event), name_of(event) == _ADMITTED
        update_id = content.request.meta.update_id if is_admitted else content.protocol_instance_id
        if update_id in run.updates:
            return
        request = base.updates[update_id].request
        run.updates[update_id] = Update(update_id, request, is_admitted=True)
        self._server.write(run, _ADMITTED, {"request": request, "origin": 1})

    def _begin_again(
        self, base: SimulatedRun, run: SimulatedRun, number: int, event: HistoryEvent
    ) -> None:
        """Do again what the prefix has begun and not ended."""
        content = attributes(event)
        match _BEGINS[name_of(event)]:
            case "activity":
                self._attempts.hand_out_again(run, content, number)
            case "timer":
                begun_ns = event.event_time.ToNanoseconds()
                due_ns = begun_ns + content.start_to_fire_timeout.ToNanoseconds()
                left_s = max((due_ns - self._server.clock.written_ns) / 1e9, 0)
                self._effects.fire_after(run, number, content.timer_id, left_s)
            case "signal":
                to, is_child = content.workflow_execution.workflow_id, content.child_workflow_only
                name, payloads = content.signal_name, content.input.payloads
                self._effects.send_signal(run, to, name, payloads, number, is_child=is_child)
            case "cancel":
                to, is_child = _cancelled(run, content), content.child_workflow_only
                self._effects.request_cancel(run, to, content.reason, number, is_child=is_child)
            case _:
                self._adopt(base, run, number, event)

    def _adopt(
        self, base: SimulatedRun, run: SimulatedRun, number: int, event: HistoryEvent
    ) -> None:
        """Let a delegate that runs report to the new run, or start it if it had not begun."""
        content = attributes(event)
        child = SimulatedChild(
            content.workflow_id,
            number,
            content.workflow_type.name,
            content.parent_close_policy,
            is_once=content.workflow_id_reuse_policy == REJECT_DUPLICATE,
        )
        run.children[number] = child
        running = self._server.run_of(child.workflow_id)
        if running is not None and running.parent in ((base, number), *_earlier(base, number)):
            running.parent = (run, number)
            return
        memo = tuple(dict(content.memo.fields).items())
        self._effects.begin_child(run, child, list(content.input.payloads), memo)


def _earlier(base: SimulatedRun, number: int) -> Iterable[tuple[SimulatedRun, int]]:
    """Yield the runs before a reset whose delegate this may be."""
    while base.base is not None:
        base = base.base[0]
        yield base, number


def _cancelled(run: SimulatedRun, content: Any) -> str:
    """Return the workflow that a run has asked to stop; of a child, the event has its beginning."""
    if not content.child_workflow_only:
        return str(content.workflow_execution.workflow_id)
    return str(attributes(run.history.events[int(content.control) - 1]).workflow_id)


def _begun_by(event: HistoryEvent) -> int:
    """Return the event that began what this event ends."""
    content = attributes(event)
    for name in ("scheduled_event_id", "initiated_event_id", "started_event_id"):
        if number := getattr(content, name, 0):
            return int(number)
    return 0


def _open(events: Iterable[HistoryEvent]) -> dict[int, HistoryEvent]:
    """Return what was begun and has not ended, by the number of its event."""
    found: dict[int, HistoryEvent] = {}
    for event in events:
        name = name_of(event)
        if name in _BEGINS:
            found[event.event_id] = event
        elif name in _ENDS:
            found.pop(_begun_by(event), None)
    return found


def _seen(events: list[HistoryEvent]) -> int:
    """Return the number of events that the completed tasks have seen or written."""
    last = max((at for at, one in enumerate(events) if name_of(one) == COMPLETED), default=-1)
    if last < 0:
        return 0
    seen = last + 1
    while seen < len(events) and name_of(events[seen]) in COMMANDS:
        seen += 1
    return seen


def _updates(base: SimulatedRun, events: Iterable[HistoryEvent]) -> dict[str, Update]:
    """Return the updates of a prefix, with what had become of them there."""
    found: dict[str, Update] = {}
    for event in events:
        name, content = name_of(event), attributes(event)
        if name == _ADMITTED:
            update_id = content.request.meta.update_id
            found[update_id] = Update(update_id, content.request, is_admitted=True)
        elif name == _ACCEPTED:
            update_id = content.protocol_instance_id
            known = found.setdefault(update_id, Update(update_id, base.updates[update_id].request))
            known.answer = UpdateResponse.ACCEPTED
        elif name == _UPDATED:
            known, before = found[content.meta.update_id], base.updates[content.meta.update_id]
            known.answer, known.failure = before.answer, before.failure
    return found
