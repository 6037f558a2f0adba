"""A deterministic server: virtual time, workflow tasks, and everything that it may do late.

Events of one moment happen in an order that the choices decide. A workflow task takes time; what
happens meanwhile is buffered, and written when the task ends, as Temporal's server does. A worker
may be lost with the task, or have forgotten the workflow before it: then its history is replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.api.update.v1 import Request
from temporalio.common import RawValue

from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.server.clock import VirtualClock
from perdure.testing.simulation.server.commands import WrittenEvent, before_end, ends_run, variant
from perdure.testing.simulation.server.core import Core, NotDeterministicError
from perdure.testing.simulation.server.history import (
    COMPLETED,
    SCHEDULED,
    STARTED,
    Fields,
    WorkflowTask,
    is_reset,
    name_of,
    tasks,
)
from perdure.testing.simulation.server.runs import RunStage, SimulatedRun, Update, UpdateResponse
from perdure.testing.simulation.server.sdk import Activates, BegunRun, TaskFailedError, encoded

_OF_TASKS = (SCHEDULED, STARTED, COMPLETED, "WORKFLOW_TASK_FAILED", "WORKFLOW_TASK_TIMED_OUT")


class BrokenError(Exception):
    """A promise was broken.

    Attributes:
        promise: The name of the promise.
        run: The run that broke it; None if no single run did.
    """

    def __init__(self, promise: str, message: str, run: SimulatedRun | None = None) -> None:
        super().__init__(f"{promise}: {message}")
        self.promise = promise
        self.run = run


class SimulatedServer:
    """The part of Temporal's server that keeps histories and hands out workflow tasks.

    Attributes:
        runs: All runs, in the order of their start.
        counts: How often what happened.
        on_event: Called after each event that is written.
        on_task: Called after each completed task, when history has what the workflow knows, but for
            the end of the run.
        on_command: Called with each command that a task has written, and its event.
        build: The current build of the workers. A run of another one is told so with each task.
        locally: Performs a local activity within a workflow task, by the content of its command.
        activates: Returns whether the workers have a patch; None if they have all.
    """

    locally: Callable[[SimulatedRun, Any], tuple[Payload | Failure, float]]

    def __init__(self, choices: Choices, clock: VirtualClock) -> None:
        self.choices = choices
        self._drawn: set[int] = set()
        self.clock = clock
        self.build = 0
        self.runs: list[SimulatedRun] = []
        self.counts = Counter[str]()
        self.on_event: list[Callable[[SimulatedRun], None]] = []
        self.on_task: list[Callable[[SimulatedRun], None]] = []
        self.on_command: list[Callable[[SimulatedRun, WrittenEvent, int], None]] = []
        self.activates: Activates | None = None
        self._open: dict[str, SimulatedRun] = {}

    def run_of(self, workflow_id: str) -> SimulatedRun | None:
        """Return the open run of a workflow; None if there is none."""
        return self._open.get(workflow_id)

    def last_run_of(self, workflow_id: str) -> SimulatedRun | None:
        """Return the last run of a workflow, open or closed; None if there is none."""
        return next((run for run in reversed(self.runs) if run.id == workflow_id), None)

    def new_run_id(self) -> str:
        """Return the id of a new run."""
        number, drawn = len(self.runs) + 1, self.choices.below(2**16)
        while drawn and drawn in self._drawn:  # it is the seed of the run's randomness
            drawn += 1
        self._drawn.add(drawn)
        return f"{number:08x}-0000-4000-8000-{drawn:012x}"

    def start(
        self,
        begun: BegunRun,
        payloads: list[object],
        parent: tuple[SimulatedRun, int] | None = None,
    ) -> SimulatedRun:
        """Start a workflow."""
        is_new = parent is None and not begun.continued
        build = self.build if is_new else begun.build
        run = SimulatedRun(replace(begun, at_ns=self.clock.written_ns, build=build), parent)
        self.open(run)
        fields: Fields = {
            "workflow_type": {"name": begun.type},
            "workflow_id": begun.workflow_id,
            "input": {"payloads": payloads},
            "first_execution_run_id": begun.first_run_id,
            "original_execution_run_id": begun.run_id,
            "continued_execution_run_id": begun.continued,
            "memo": {"fields": dict(begun.memo)},
            "search_attributes": encoded(begun.search_attributes),
        }
        self.write(run, "WORKFLOW_EXECUTION_STARTED", fields)
        self.need_task(run)
        return run

    def open(self, run: SimulatedRun) -> None:
        """Take in a new run."""
        self.runs.append(run)
        self._open[run.id] = run

    def end(self, run: SimulatedRun, name: str, fields: Fields) -> None:
        """Close a run at once, also while it has a workflow task."""
        run.stage, run.current = RunStage.NONE, None
        for buffered, content in run.buffered:
            self.write(run, buffered, content)
        self.write(run, name, fields)
        self.close(run, name)

    def deliver(self, run: SimulatedRun, name: str, fields: Fields) -> bool:
        """Let an event happen to a run; return whether the run was open."""
        if run.closed:
            return False
        if run.stage is RunStage.RUNS:
            run.buffered.append((name, fields))
            return True
        if run.stage is RunStage.FOR_UPDATES:
            self.write(run, SCHEDULED, {"attempt": run.attempt})
            run.stage = RunStage.WAITS
        self.write(run, name, fields)
        if name != "ACTIVITY_TASK_STARTED":
            self.need_task(run)
        return True

    def cancel(self, run: SimulatedRun, reason: str) -> bool:
        """Request the cancellation of a run, once; return whether that was new."""
        if run.is_cancelled or run.closed:
            return False
        run.is_cancelled = True
        return self.deliver(run, "WORKFLOW_EXECUTION_CANCEL_REQUESTED", {"cause": reason})

    def terminate(self, run: SimulatedRun, reason: str) -> None:
        """Write that a run was terminated; what its workflow task has made is dropped."""
        self.write(run, "WORKFLOW_EXECUTION_TERMINATED", {"reason": reason})

    def update(self, run: SimulatedRun, update_id: str, name: str, content: RawValue) -> Update:
        """Send an update to a run; an update that it has accepted before is the same."""
        known = run.updates.get(update_id)
        if known is not None and known.answer is not UpdateResponse.REJECTED:
            return known
        request = Request()
        request.meta.update_id, request.meta.identity = update_id, "person"
        request.input.name = name
        request.input.args.payloads.append(content.payload)
        update = Update(update_id, request)
        run.updates[update_id] = update
        if run.closed:
            update.answer = UpdateResponse.RUN_CLOSED
        elif run.stage is RunStage.NONE:
            run.stage = RunStage.FOR_UPDATES
            self._hand_out(run)
        return update

    def write(self, run: SimulatedRun, name: str, fields: Fields) -> int:
        """Write an event, and return its number."""
        event = run.history.add(self.clock, name, fields)
        self.counts["events"] += 1
        for hook in self.on_event:
            hook(run)
        return event.event_id

    def _take_back(self, run: SimulatedRun, count: int) -> None:
        run.history.take_back(count)
        run.read_events = min(run.read_events, len(run.history))

    def need_task(self, run: SimulatedRun) -> None:
        """Hand out a workflow task, unless the run has one."""
        if run.stage is RunStage.NONE:
            self.write(run, SCHEDULED, {"attempt": run.attempt})
            run.stage = RunStage.WAITS
            self._hand_out(run)

    def _hand_out(self, run: SimulatedRun) -> None:
        self.clock.later(self.choices.pick((0, 0, 0, 0.01, 0.2, 3)), lambda: self._begin_task(run))

    def _begin_task(self, run: SimulatedRun) -> None:
        if run.closed:
            return
        if run.stage is RunStage.FOR_UPDATES:
            self.write(run, SCHEDULED, {"attempt": run.attempt})
        sent = {update.id: update.request for update in run.unanswered}
        for update in run.unanswered:
            update.is_sent = True
        size_bytes = run.history.size_bytes
        moves = {"target_worker_deployment_version_changed": run.begun.build != self.build}
        self.write(run, STARTED, {"history_size_bytes": size_bytes, **moves})
        is_for_updates, run.stage = run.stage is RunStage.FOR_UPDATES, RunStage.RUNS
        news = [
            event
            for event in run.history.events[run.seen :]
            if name_of(event) not in _OF_TASKS or is_reset(event)
        ]
        task = WorkflowTask(news, run.history.events[-1], size_bytes=size_bytes)
        run.current = task, self._worked(run, task, sent)
        self._finish(run, is_for_updates)

    def _finish(self, run: SimulatedRun, is_for_updates: bool) -> None:
        """Let a task end after some time, or be lost with its worker."""
        takes_s = self.choices.pick((0, 0, 0, 0.005, 0.1, 2))
        if self.choices.happens(80):
            self._lose_task(run, run.begun.task_timeout.total_seconds())
        else:
            self.clock.later(takes_s, lambda: self._end_task(run, is_for_updates))

    def _lose_task(self, run: SimulatedRun, timeout_s: float) -> None:
        self.counts["lost tasks"] += 1
        self.clock.later(timeout_s, lambda: self._fail_task(run, "TIMED_OUT"))

    def _worked(
        self, run: SimulatedRun, task: WorkflowTask, sent: dict[str, Request]
    ) -> list[WrittenEvent]:
        """Let a worker do a task, which may have to replay the history first."""
        if run.core is not None and self._forgets():
            self.counts["evicted"] += 1
            run.evict()
        try:
            if run.core is None:
                run.core = self.replayed(run)
            self.counts["activations"] += 1
            return run.core.do(task, sent, lambda content: self.locally(run, content))
        except TaskFailedError as error:
            raise BrokenError("no task fails", str(error), run) from error

    def _forgets(self) -> bool:
        """Return whether a worker has forgotten a workflow before a task."""
        return self.choices.happens(15)

    def replayed(self, run: SimulatedRun, *, refuses: bool = False) -> Core:
        """Return a new workflow object that has done a history again, as `Core.replay` does."""
        core = Core(run.begun, self.activates)
        try:
            for task in tasks(run.history.events):
                core.replay(task, exactly=True, refuses=refuses)
        except (NotDeterministicError, TaskFailedError) as error:
            core.evict()
            raise BrokenError("every history replays", str(error), run) from error
        self.counts["replays"] += run.seen > 0
        return core

    def _fail_task(self, run: SimulatedRun, how: str) -> None:
        """Lose a task: its commands never reach the server, and a worker does it again."""
        if run.closed:  # it was terminated
            return
        run.evict()
        run.current = None
        for update in run.unanswered:
            update.is_sent = False
        names = [name_of(event) for event in run.history.events[-2:]]
        if run.attempt > 1 and names == [SCHEDULED, STARTED]:
            self._take_back(run, 2)  # of further attempts, only the last is in history
        else:
            self.write(run, f"WORKFLOW_TASK_{how}", {})
        run.attempt += 1
        run.stage = RunStage.NONE
        self._flush(run)
        self.need_task(run)

    def _end_task(self, run: SimulatedRun, is_for_updates: bool) -> None:
        if run.closed:  # it was terminated
            return
        assert run.current is not None
        assert run.core is not None
        _, made = run.current
        closes = ends_run(made)
        late = [update for update in run.unanswered if not update.is_sent]
        if closes and (run.buffered or late):
            self.counts["rejected closes"] += 1
            self._fail_task(run, "FAILED")
            return
        run.current, run.attempt, run.stage = None, 1, RunStage.NONE
        rejected = {update.id: update for update in run.unanswered if update.is_sent}
        for update_id, failure in run.core.rejected.items():
            rejected[update_id].answer = UpdateResponse.REJECTED
            rejected[update_id].failure = failure
        if is_for_updates and not made and not run.buffered:
            self.counts["tasks of rejected updates"] += 1
            self._take_back(run, 2)  # nothing of such a task is kept
            run.core.take_back()
        else:
            self.write(run, COMPLETED, {"sdk_metadata": {"lang_used_flags": run.core.used_flags}})
            self._do(run, made)
        if not run.closed:
            self._flush(run)
        if not run.closed and (run.unanswered and run.stage is RunStage.NONE):
            run.stage = RunStage.FOR_UPDATES
            self._hand_out(run)

    def _do(self, run: SimulatedRun, made: list[WrittenEvent]) -> None:
        """Write the events of commands, then do what the commands say."""
        plain = before_end(made)
        run.is_closing = len(plain) < len(made)
        events = [(one, self._command(run, one)) for one in plain]
        for hook in self.on_task:
            hook(run)
        events += [(one, self._command(run, one)) for one in made[len(plain) :]]
        run.seen = len(run.history)
        for one, event_id in events:
            for tell in self.on_command:
                tell(run, one, event_id)

    def _command(self, run: SimulatedRun, made: WrittenEvent) -> int:
        event_id = self.write(run, made.name, made.fields)
        assert run.core is not None
        run.core.written(made, run.history.events[-1])
        if made.command is not None and variant(made.command)[0] == "update_response":
            run.note_answer(variant(made.command)[1])
        return event_id

    def _flush(self, run: SimulatedRun) -> None:
        buffered, run.buffered = run.buffered, []
        for name, fields in buffered:
            self.deliver(run, name, fields)

    def close(self, run: SimulatedRun, name: str) -> None:
        """Close a run. Its activities, timers and signals are of no interest from now on."""
        run.closed = name
        self.counts[f"closed: {name.removeprefix('WORKFLOW_EXECUTION_').lower()}"] += 1
        if self._open.get(run.id) is run:
            del self._open[run.id]
        for update in run.updates.values():
            if update.answer in (UpdateResponse.NONE, UpdateResponse.ACCEPTED):
                update.answer = UpdateResponse.RUN_CLOSED
        run.activities.clear()
        run.timers.clear()
        run.buffered.clear()
        run.evict()
