"""What `sdk-core` does between a history and a workflow object: activations, and their commands.

These are its rules as far as Perdure's workflows need them. They are the same for a new task and
for a replay, so the stored histories of a real server show whether they are right
(`tests/unit/test_simulation_histories.py`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Request

from perdure.temporal.names import WEBHOOK
from perdure.testing.simulation.server import jobs, local_activities
from perdure.testing.simulation.server.commands import (
    CLOSES,
    LOCAL,
    PATCH,
    WrittenEvent,
    gist,
    variant,
    written,
)
from perdure.testing.simulation.server.history import (
    WorkflowTask,
    attributes,
    event_of,
    name_of,
)
from perdure.testing.simulation.server.local_activities import SCHEDULES, TRY_CANCEL, Locally
from perdure.testing.simulation.server.sdk import Activates, BegunRun, Command, Instance, Job

_BEGINS = {
    "schedule_activity": "activity",
    "start_timer": "timer",
    "start_child_workflow_execution": "child",
    "signal_external_workflow_execution": "signal",
    "request_cancel_external_workflow_execution": "cancel",
}
_CANCELS = {
    "request_cancel_activity": "activity",
    "cancel_timer": "timer",
    "cancel_child_workflow_execution": "child",
    "cancel_signal_workflow": "signal",
}
_FIRST = ("signal_workflow", "do_update")
_ABANDON = 0
"""The cancellation type of children that a cancel of their parent does not reach."""


class NotDeterministicError(Exception):
    """A replay gave other commands than the history has."""


class Core:
    """A workflow object with what its worker knows of the history.

    Attributes:
        instance: The workflow object.
        ids: The events of what it has begun, by kind and number.
        used_flags: The flags of the SDK that the last task used for the first time.
        rejected: The updates that the last task rejected, and why.
    """

    def __init__(self, begun: BegunRun, activates: Activates | None = None) -> None:
        self.instance = Instance(begun, activates)
        self._begun = begun
        self.ids: dict[tuple[str, int], int] = {}
        self._numbers: dict[int, int] = {}
        self._types: dict[int, int] = {}
        self._given_up: set[int] = set()
        self._abandoned: set[int] = set()
        self._requests: dict[str, Any] = {}
        self._admitted: dict[str, Any] = {}
        self._flags: list[int] = []
        self._now_ns = 0
        self._before_ns = 0
        self.used_flags: list[int] = []
        self.rejected: dict[str, Failure] = {}

    def do(
        self, task: WorkflowTask, updates: Mapping[str, Any], locally: Locally
    ) -> list[WrittenEvent]:
        """Do a new task, in which the `updates` arrive; return the events of its commands.

        `locally` performs its local activities.
        """
        self.used_flags, self.rejected = [], {}
        self._admit(task)
        told = [
            jobs.update(update_id, request, is_new=True) for update_id, request in updates.items()
        ]
        return self._run(task, told, updates, locally)

    def replay(self, task: WorkflowTask, *, exactly: bool, refuses: bool = False) -> None:
        """Do a task of a history again, and compare its commands with the events there.

        They are compared `exactly`, or as far as the SDK does. With `refuses`, the workflow refuses
        an update in the task besides, which leaves no trace.

        Raises:
            NotDeterministicError: They differ.
        """
        self._flags += task.flags
        self._admit(task)
        accepted = {
            update_id: self._admitted.get(update_id, attributes(event).accepted_request)
            for event in task.written
            if name_of(event) == "WORKFLOW_EXECUTION_UPDATE_ACCEPTED"
            for update_id in [attributes(event).protocol_instance_id]
        }
        told = [_patch_of(event) for event in task.written]
        told += [
            jobs.update(update_id, request, is_new=False) for update_id, request in accepted.items()
        ]
        told += [jobs.update("refused", Request(), is_new=True)] if refuses else []
        made = self._run(task, [job for job in told if job], accepted, None)
        self._compare(made, [event for event in task.written if not _is_local(event)], exactly)

    def written(self, made: WrittenEvent, event: HistoryEvent) -> None:
        """Note which event a command has written."""
        if made.begins is not None:
            self.ids[made.begins] = event.event_id
            self._numbers[event.event_id] = made.begins[1]

    def take_back(self) -> None:
        """Let the time be as before the last task, of which nothing is kept.

        The SDK does not do that, so that a replay has another time if the clock was set back since.
        """
        self._now_ns = self._before_ns

    def evict(self) -> None:
        """Remove the workflow object from memory."""
        self.instance.evict()

    def _run(
        self,
        task: WorkflowTask,
        told: Iterable[Job | None],
        updates: Mapping[str, Any],
        locally: Locally | None,
    ) -> list[WrittenEvent]:
        """Return the events of the commands of a task; without `locally`, of a replay."""
        markers = deque(attributes(event) for event in task.written if _is_local(event))
        pending = self._in_order([*self._news(task), *(job for job in told if job)])
        commands: list[Command] = []
        made: list[WrittenEvent] = []
        performed: dict[int, WrittenEvent] = {}
        self._before_ns = self._now_ns
        self._go_on_to(task.started.event_time.ToNanoseconds())
        while pending:
            new, used = self.instance.activate(
                pending,
                now_ns=self._now_ns,
                is_replaying=locally is None,
                length=task.started.event_id,
                size_bytes=task.size_bytes,
                flags=self._flags,
                moves=attributes(task.started).target_worker_deployment_version_changed,
            )
            self._use(used)
            commands += new
            pending = self._settle(commands)
            pending += local_activities.cancel(commands, performed, locally, self._now_ns)
            if not pending and locally is None:
                pending = self._end_locally(commands, markers)
            elif not pending and locally is not None:
                pending, ended_ns = local_activities.perform(
                    commands, performed, locally, self._now_ns
                )
                self._go_on_to(ended_ns)
        self._accept(commands, updates)
        for command in _closed_last(commands):
            name, content = variant(command)
            if name == SCHEDULES:
                made.append(performed[content.seq])
            else:
                made += written(command, self.ids, self._requests, self._admitted)
        return made

    def _admit(self, task: WorkflowTask) -> None:
        """Note the updates that are in history before they are accepted."""
        for event in task.news:
            if name_of(event) == "WORKFLOW_EXECUTION_UPDATE_ADMITTED":
                request = attributes(event).request
                self._admitted[request.meta.update_id] = request

    def _news(self, task: WorkflowTask) -> list[Job]:
        made: list[Job] = []
        for event in task.news:
            scheduled = getattr(attributes(event), "scheduled_event_id", 0)
            if self._numbers.get(scheduled) in self._given_up:
                continue
            if name_of(event) == "WORKFLOW_EXECUTION_STARTED":
                made.append(jobs.init(event, self._begun.workflow_id, self._begun.seed))
            elif (job := jobs.of(event, self._numbers)) is not None:
                made.append(job)
        return made

    def _in_order(self, unsorted: Sequence[Job]) -> list[Job]:
        """Return jobs in the order of an activation: the start, patches, messages, the rest."""

        def place(job: Job) -> int:
            kind = job.WhichOneof("variant")
            if kind == "initialize_workflow":
                return 0
            return 1 if kind == "notify_has_patch" else 2 if kind in _FIRST else 3

        return sorted(unsorted, key=place)

    def _use(self, flags: Iterable[int]) -> None:
        new = [flag for flag in dict.fromkeys(flags) if flag not in self._flags]
        self.used_flags += new
        self._flags += new

    def _settle(self, commands: list[Command]) -> list[Job]:
        """Drop what was cancelled before it was sent. Returns jobs that tell of it."""
        told: list[Job] = []
        for command in list(commands):
            name, content = variant(command)
            if name == "schedule_activity":
                self._types[content.seq] = content.cancellation_type
            if name == "start_child_workflow_execution" and content.cancellation_type == _ABANDON:
                self._abandoned.add(content.seq)
            kind = _CANCELS.get(name)
            if kind is None:
                continue
            number = content.child_workflow_seq if kind == "child" else content.seq
            begun = next((one for one in commands if _begins(one) == (kind, number)), None)
            if begun is not None:
                commands.remove(begun)
                told += [] if kind == "timer" else [jobs.never_began(kind, number)]
            is_abandoned = kind == "child" and number in self._abandoned
            if begun is not None or kind == "signal" or is_abandoned:
                commands.remove(command)  # a signal that was sent cannot be cancelled
            elif kind == "activity" and self._types.get(number) == TRY_CANCEL:
                told += [] if number in self._given_up else [jobs.never_began(kind, number)]
                self._given_up.add(number)
        return told

    def _end_locally(self, commands: list[Command], markers: deque[Any]) -> list[Job]:
        """End the next local activity that the history of this task has the end of."""
        if not markers:
            return []
        number = _number_of(markers[0])
        for command in commands:
            name, content = variant(command)
            if name == SCHEDULES and content.seq == number:
                commands.remove(command)
                self._go_on_to(_end_of(markers[0]))
                return [jobs.local(number, markers.popleft())]
        return []

    def _go_on_to(self, now_ns: int) -> None:
        """Let the time of the workflow be this one, unless it is later: it never goes back."""
        self._now_ns = max(self._now_ns, now_ns)

    def _accept(self, commands: Iterable[Command], updates: Mapping[str, Any]) -> None:
        """Note which updates are accepted, and which are rejected before that."""
        for command in commands:
            name, content = variant(command)
            answer = content.WhichOneof("response") if name == "update_response" else ""
            if answer == "accepted":
                update_id = content.protocol_instance_id
                self._requests[update_id] = updates[update_id]
            elif answer == "rejected" and content.protocol_instance_id not in self._requests:
                self.rejected[content.protocol_instance_id] = content.rejected

    def _compare(
        self, made: Sequence[WrittenEvent], events: Sequence[HistoryEvent], exactly: bool
    ) -> None:
        for command, event in zip(made, events, strict=False):
            self.written(command, event)
            if name_of(event) == "WORKFLOW_EXECUTION_CONTINUED_AS_NEW":  # the server's addition
                new_run = attributes(event).new_execution_run_id
                command.fields["new_execution_run_id"] = new_run
        again = [event_of(0, command.name, command.fields) for command in made]
        compared = self._content if exactly else gist
        for one, other in zip_longest(again, events):
            if one is None or other is None or compared(one) != compared(other):
                raise NotDeterministicError(_difference(one, other))

    def _content(self, event: HistoryEvent) -> Any:
        """Return the content of an event; after a reset, that of any of the runs before it.

        What was begun before the reset has the id of the run before. The message of a webhook has
        tokens that are made of it, and is not compared.
        """
        content = attributes(event)
        if not self._begun.earlier:
            return content
        is_child = name_of(event) == "START_CHILD_WORKFLOW_EXECUTION_INITIATED"
        if is_child and content.workflow_type.name == WEBHOOK:
            return gist(event)
        written_as = content.SerializeToString(deterministic=True)
        for run_id in self._begun.earlier:
            written_as = written_as.replace(run_id.encode(), self._begun.run_id.encode())
        return written_as


def _begins(command: Command) -> tuple[str, int] | None:
    name, content = variant(command)
    return (_BEGINS[name], content.seq) if name in _BEGINS else None


def _closed_last(commands: Sequence[Command]) -> list[Command]:
    """Return the commands up to and with the first that ends the run."""
    closing = [command for command in commands if variant(command)[0] in CLOSES]
    return [*(command for command in commands if command not in closing), *closing[:1]]


def _is_local(event: HistoryEvent) -> bool:
    return name_of(event) == "MARKER_RECORDED" and attributes(event).marker_name == LOCAL


def _number_of(marker: Any) -> int:
    return int(_about(marker)["seq"])


def _end_of(marker: Any) -> int:
    """Return when a local activity has ended, in nanoseconds since 1970."""
    ended = _about(marker)["complete_time"]
    return int(ended["seconds"]) * 10**9 + int(ended["nanos"])


def _about(marker: Any) -> dict[str, Any]:
    [about] = marker.details["data"].payloads
    return cast("dict[str, Any]", json.loads(about.data))


def _patch_of(event: HistoryEvent) -> Job | None:
    """Return the job about the patch that an event records; None if it records none."""
    if name_of(event) != "MARKER_RECORDED" or attributes(event).marker_name != PATCH:
        return None
    [about] = attributes(event).details["patch-data"].payloads
    return jobs.patch(json.loads(about.data)["id"])


def _difference(again: HistoryEvent | None, event: HistoryEvent | None) -> str:
    """Describe a difference between the commands of a replay and the history."""

    def told(one: HistoryEvent | None) -> str:
        return "nothing" if one is None else f"{gist(one)}: {attributes(one)}"[:1500]

    return f"the replay makes {told(again)}\nand the history has {told(event)}"
