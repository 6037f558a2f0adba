"""What the server does for the commands of a workflow task, besides writing their events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from temporalio.api.common.v1 import Payload

from perdure.testing.simulation.server.attempts import SimulatedAttempts
from perdure.testing.simulation.server.commands import WrittenEvent, variant
from perdure.testing.simulation.server.history import Fields
from perdure.testing.simulation.server.runs import SimulatedChild, SimulatedRun
from perdure.testing.simulation.server.sdk import BegunRun
from perdure.testing.simulation.server.server import SimulatedServer

_ABANDON, _REQUEST_CANCEL = 2, 3
"""The parent close policies with which a child is left alone, or cancelled with its parent."""

_AUTO_UPGRADE = 1
"""The versioning behavior with which a new run begins on the build that is current then."""

REJECT_DUPLICATE = 3
"""The policy with which an id is used once."""


class Effects:
    """Timers, children, signals, answers to updates, and the ends of runs."""

    def __init__(self, server: SimulatedServer, attempts: SimulatedAttempts) -> None:
        self._server = server
        self._attempts = attempts
        self._do: dict[str, Callable[[SimulatedRun, Any, int], None]] = {
            "schedule_activity": attempts.schedule,
            "request_cancel_activity": self._cancel_activity,
            "start_timer": self._start_timer,
            "cancel_timer": self._cancel_timer,
            "start_child_workflow_execution": self._start_child,
            "cancel_child_workflow_execution": self._cancel_child,
            "request_cancel_external_workflow_execution": self._cancel_other,
            "signal_external_workflow_execution": self._signal,
            "complete_workflow_execution": self._complete,
            "fail_workflow_execution": self._fail,
            "cancel_workflow_execution": self._cancel,
            "continue_as_new_workflow_execution": self._continue,
        }
        server.on_command.append(self.do)

    def do(self, run: SimulatedRun, made: WrittenEvent, event_id: int) -> None:
        """Do what a command says, once its event is written."""
        if made.command is None:
            return
        name, content = variant(made.command)
        if name in self._do:
            self._do[name](run, content, event_id)

    def _soon(self, happens: Callable[[], None]) -> None:
        self._server.clock.later(self._server.choices.pick((0, 0, 0.01, 1)), happens)

    def _begun(self, run: SimulatedRun, kind: str, number: int) -> int:
        assert run.core is not None
        return run.core.ids[kind, number]

    def _cancel_activity(self, run: SimulatedRun, content: Any, event_id: int) -> None:
        self._attempts.cancel(run, self._begun(run, "activity", content.seq))

    def _start_timer(self, run: SimulatedRun, content: Any, event_id: int) -> None:
        seconds = content.start_to_fire_timeout.ToNanoseconds() / 1e9
        self.fire_after(run, event_id, str(content.seq), seconds)

    def fire_after(self, run: SimulatedRun, event_id: int, timer_id: str, seconds: float) -> None:
        """Let a timer fire after this time, unless it is cancelled."""
        run.timers.add(event_id)

        def fire() -> None:
            if event_id in run.timers:
                run.timers.remove(event_id)
                fields: Fields = {"started_event_id": event_id, "timer_id": timer_id}
                self._server.deliver(run, "TIMER_FIRED", fields)

        self._server.clock.after(seconds, fire)

    def _cancel_timer(self, run: SimulatedRun, content: Any, event_id: int) -> None:
        started = self._begun(run, "timer", content.seq)
        run.timers.discard(started)
        run.buffered = [
            (name, fields)
            for name, fields in run.buffered
            if name != "TIMER_FIRED" or fields["started_event_id"] != started
        ]

    def _start_child(self, run: SimulatedRun, content: Any, event_id: int) -> None:
        child = SimulatedChild(
            content.workflow_id,
            event_id,
            content.workflow_type,
            content.parent_close_policy,
            is_once=content.workflow_id_reuse_policy == REJECT_DUPLICATE,
        )
        run.children[event_id] = child
        self.begin_child(run, child, list(content.input), tuple(dict(content.memo).items()))

    def begin_child(
        self,
        run: SimulatedRun,
        child: SimulatedChild,
        payloads: list[object],
        memo: tuple[tuple[str, Payload], ...],
    ) -> None:
        """Start a child soon, unless its id is taken."""
        event_id = child.event_id

        def begin() -> None:
            fields: Fields = {
                "initiated_event_id": event_id,
                "workflow_type": {"name": child.type},
            }
            if self._is_used(child):
                run.children.pop(event_id, None)
                fields["workflow_id"] = child.workflow_id
                self._server.deliver(run, "START_CHILD_WORKFLOW_EXECUTION_FAILED", fields)
            elif not run.closed or child.policy == _ABANDON:
                run_id = self._server.new_run_id()
                begun = BegunRun(
                    child.workflow_id,
                    run_id,
                    run_id,
                    child.type,
                    0,
                    parent=(run.id, run.begun.run_id),
                    memo=memo,
                    task_timeout=run.begun.task_timeout,
                    build=run.begun.build,
                )
                fields["workflow_execution"] = {"workflow_id": child.workflow_id, "run_id": run_id}
                self._server.start(begun, payloads, (run, event_id))
                self._server.deliver(run, "CHILD_WORKFLOW_EXECUTION_STARTED", fields)

        self._soon(begin)

    def _is_used(self, child: SimulatedChild) -> bool:
        """Return whether the id of a child is in use."""
        if self._server.run_of(child.workflow_id) is not None:
            return True
        return child.is_once and any(run.id == child.workflow_id for run in self._server.runs)

    def _cancel_child(self, run: SimulatedRun, content: Any, event_id: int) -> None:
        child = run.children.get(self._begun(run, "child", content.child_workflow_seq))
        workflow_id = child.workflow_id if child else ""
        self.request_cancel(run, workflow_id, content.reason, event_id, is_child=True)

    def _cancel_other(self, run: SimulatedRun, content: Any, event_id: int) -> None:
        workflow_id = content.workflow_execution.workflow_id
        said = f"Cancel requested by workflow with run id {run.begun.run_id}"
        reason = f"{said} with reason: {content.reason}" if content.reason else said
        self.request_cancel(run, workflow_id, reason, event_id)

    def request_cancel(
        self,
        run: SimulatedRun,
        workflow_id: str,
        reason: str,
        event_id: int,
        *,
        is_child: bool = False,
    ) -> None:
        """Cancel another workflow, soon; with `is_child`, only if this run has started it."""

        def send() -> None:
            other = self._reached(run, workflow_id, is_child=is_child)
            if other is not None:
                self._server.cancel(other, reason)
            name = "EXTERNAL_WORKFLOW_EXECUTION_CANCEL_REQUESTED"
            if other is None:
                name = "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_FAILED"
            self._server.deliver(run, name, {"initiated_event_id": event_id})

        self._soon(send)

    def _signal(self, run: SimulatedRun, content: Any, event_id: int) -> None:
        child_id = content.child_workflow_id
        workflow_id = child_id or content.workflow_execution.workflow_id
        name, is_child = content.signal_name, bool(child_id)
        self.send_signal(run, workflow_id, name, content.args, event_id, is_child=is_child)

    def _reached(
        self, run: SimulatedRun, workflow_id: str, *, is_child: bool
    ) -> SimulatedRun | None:
        """Return the run that another one reaches by its id.

        A child is reached by the run that has started it alone, and not by a run that a reset has
        made, to which it reports nevertheless.
        """
        other = self._server.run_of(workflow_id)
        if other is None or not is_child:
            return other
        if other.begun.parent == (run.id, run.begun.run_id):
            return other
        self._server.counts["children of a run before a reset"] += 1
        return None

    def send_signal(
        self,
        run: SimulatedRun,
        workflow_id: str,
        name: str,
        payloads: Iterable[Payload],
        event_id: int,
        *,
        is_child: bool = False,
    ) -> None:
        """Send a signal to another workflow, soon; with `is_child`, only to a child of this run."""
        run.signals += 1
        fields: Fields = {"signal_name": name, "input": {"payloads": list(payloads)}}

        def send() -> None:
            run.signals -= 1
            other = self._reached(run, workflow_id, is_child=is_child)
            is_sent = other is not None and self._server.deliver(
                other, "WORKFLOW_EXECUTION_SIGNALED", fields
            )
            outcome = (
                "EXTERNAL_WORKFLOW_EXECUTION_SIGNALED"
                if is_sent
                else "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED"
            )
            self._server.deliver(run, outcome, {"initiated_event_id": event_id})

        self._soon(send)

    def _complete(self, run: SimulatedRun, content: Any, event_id: int) -> None:
        self._close(run, "COMPLETED", {"result": {"payloads": [content.result]}})

    def _fail(self, run: SimulatedRun, content: Any, event_id: int) -> None:
        self._close(run, "FAILED", {"failure": content.failure})

    def _cancel(self, run: SimulatedRun, content: Any, event_id: int) -> None:
        self._close(run, "CANCELED", {})

    def _close(self, run: SimulatedRun, how: str, fields: Fields) -> None:
        self._server.close(run, f"WORKFLOW_EXECUTION_{how}")
        self.cancel_children(run)
        if run.parent is not None:
            parent, event_id = run.parent
            parent.children.pop(event_id, None)
            ended: Fields = {
                "initiated_event_id": event_id,
                "workflow_execution": {"workflow_id": run.id, "run_id": run.begun.run_id},
                "workflow_type": {"name": run.begun.type},
            }
            self._server.deliver(parent, f"CHILD_WORKFLOW_EXECUTION_{how}", {**ended, **fields})

    def cancel_children(self, run: SimulatedRun) -> None:
        """Cancel the children of a run that is over, as their parent close policy says."""
        for child in run.children.values():
            if child.policy == _REQUEST_CANCEL:
                self._soon(lambda child=child: self._cancel_orphan(run, child))  # type: ignore[misc]

    def _cancel_orphan(self, run: SimulatedRun, child: SimulatedChild) -> None:
        orphan = self._reached(run, child.workflow_id, is_child=True)
        if orphan is not None:
            self._server.cancel(orphan, "")

    def terminate(self, run: SimulatedRun) -> None:
        """Terminate a run, as an operator does."""
        self._server.terminate(run, "by an operator")
        self._close(run, "TERMINATED", {})

    def _continue(self, run: SimulatedRun, content: Any, event_id: int) -> None:
        run_id = self._server.new_run_id()
        closing = run.history.events[event_id - 1]
        closing.workflow_execution_continued_as_new_event_attributes.new_execution_run_id = run_id
        self._server.close(run, "WORKFLOW_EXECUTION_CONTINUED_AS_NEW")
        moves = content.initial_versioning_behavior == _AUTO_UPGRADE
        begun = BegunRun(
            run.id,
            run_id,
            run.begun.first_run_id,
            content.workflow_type or run.begun.type,
            0,
            continued=run.begun.run_id,
            parent=run.begun.parent,
            memo=tuple(dict(content.memo).items()),
            task_timeout=run.begun.task_timeout,
            search_attributes=run.begun.search_attributes,
            account=run.begun.account,
            build=self._server.build if moves else run.begun.build,
        )
        self._server.counts["moves"] += begun.build != run.begun.build
        self._server.start(begun, list(content.arguments), run.parent)
