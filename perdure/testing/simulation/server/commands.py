"""The events that the server writes for the commands of a workflow task."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

from perdure.temporal.names import MEMO
from perdure.testing.simulation.server.history import Fields, attributes, name_of
from perdure.testing.simulation.server.sdk import NAMESPACE, Command

PATCH, LOCAL = "core_patch", "core_local_activity"
"""The names of the markers of patches and of local activities."""

Ids = Mapping[tuple[str, int], int]
"""The event of what was begun, by its kind and by the number that the SDK has given it."""


@dataclass(frozen=True)
class WrittenEvent:
    """An event that a command writes.

    Attributes:
        name: The name of its type.
        fields: Its attributes.
        begins: The kind and the number of what the command begins; None if it begins nothing.
        command: The command.
    """

    name: str
    fields: Fields
    begins: tuple[str, int] | None = None
    command: Command | None = None


def variant(command: Command) -> tuple[str, Any]:
    """Return the kind of a command, and its content."""
    name = command.WhichOneof("variant") or ""
    return name, getattr(command, name)


def written(
    command: Command, ids: Ids, requests: Mapping[str, Any], admitted: Container[str] = ()
) -> list[WrittenEvent]:
    """Return the events of a command; none for an update that was rejected.

    `requests` has the accepted updates, by their ids; `admitted` are those that history had before.
    """
    name, content = variant(command)
    if name == "update_response":
        return _answered(command, content, requests, admitted)
    if name == "set_patch_marker":
        return _patch(content.patch_id)
    return [_PLAIN[name](command, content, ids)]


def _patch(patch_id: str) -> list[WrittenEvent]:
    """Return the marker of a patch, and the search attribute that goes with it."""
    about = {"id": patch_id, "deprecated": False}
    details = {"patch-data": Payloads(payloads=[_json(about)])}
    patches = {"indexed_fields": {"TemporalChangeVersion": _json([patch_id])}}
    return [
        WrittenEvent("MARKER_RECORDED", {"marker_name": PATCH, "details": details}),
        WrittenEvent("UPSERT_WORKFLOW_SEARCH_ATTRIBUTES", {"search_attributes": patches}),
    ]


def local_marker(content: Any, ended: Payload | Failure, ended_ns: int) -> WrittenEvent:
    """Return the event of a local activity that has ended, at this time since 1970."""
    seconds, nanos = divmod(ended_ns, 10**9)
    about = {
        "seq": content.seq,
        "activity_id": content.activity_id,
        "activity_type": content.activity_type,
        "attempt": 1,
        "complete_time": {"seconds": seconds, "nanos": nanos},
    }
    details = {"data": Payloads(payloads=[_json(about)])}
    if isinstance(ended, Failure):
        fields: Fields = {"marker_name": LOCAL, "details": details, "failure": ended}
        return WrittenEvent("MARKER_RECORDED", fields)
    details["result"] = Payloads(payloads=[ended])
    return WrittenEvent("MARKER_RECORDED", {"marker_name": LOCAL, "details": details})


def local_type(event: HistoryEvent) -> str:
    """Return the type of the local activity that an event records; empty for all others."""
    if name_of(event) != "MARKER_RECORDED" or attributes(event).marker_name != LOCAL:
        return ""
    [about] = attributes(event).details["data"].payloads
    return str(json.loads(about.data)["activity_type"])


def _json(value: object) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())


def _activity(command: Command, content: Any, ids: Ids) -> WrittenEvent:
    fields = {
        "activity_id": content.activity_id,
        "activity_type": {"name": content.activity_type},
        "task_queue": {"name": content.task_queue},
        "input": Payloads(payloads=content.arguments),
    }
    for timeout in (
        "schedule_to_close_timeout",
        "start_to_close_timeout",
        "heartbeat_timeout",
        "retry_policy",
    ):
        if content.HasField(timeout):
            fields[timeout] = getattr(content, timeout)
    return WrittenEvent("ACTIVITY_TASK_SCHEDULED", fields, ("activity", content.seq), command)


def _cancelled_activity(command: Command, content: Any, ids: Ids) -> WrittenEvent:
    scheduled = ids.get(("activity", content.seq), 0)
    fields = {"scheduled_event_id": scheduled}
    return WrittenEvent("ACTIVITY_TASK_CANCEL_REQUESTED", fields, command=command)


def _timer(command: Command, content: Any, ids: Ids) -> WrittenEvent:
    fields = {
        "timer_id": str(content.seq),
        "start_to_fire_timeout": content.start_to_fire_timeout,
    }
    return WrittenEvent("TIMER_STARTED", fields, ("timer", content.seq), command)


def _cancelled_timer(command: Command, content: Any, ids: Ids) -> WrittenEvent:
    started = ids.get(("timer", content.seq), 0)
    fields = {"timer_id": str(content.seq), "started_event_id": started}
    return WrittenEvent("TIMER_CANCELED", fields, command=command)


def _child(command: Command, content: Any, ids: Ids) -> WrittenEvent:
    fields = {
        "namespace": NAMESPACE,
        "workflow_id": content.workflow_id,
        "workflow_type": {"name": content.workflow_type},
        "input": Payloads(payloads=content.input),
        "parent_close_policy": content.parent_close_policy,
        "workflow_id_reuse_policy": content.workflow_id_reuse_policy,
        "memo": {"fields": dict(content.memo)},
    }
    name = "START_CHILD_WORKFLOW_EXECUTION_INITIATED"
    return WrittenEvent(name, fields, ("child", content.seq), command)


def _cancelled_child(command: Command, content: Any, ids: Ids) -> WrittenEvent:
    fields = {
        "namespace": NAMESPACE,
        "child_workflow_only": True,
        "control": str(ids.get(("child", content.child_workflow_seq), 0)),
        "reason": content.reason,
    }
    name = "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED"
    return WrittenEvent(name, fields, command=command)


def _signal(command: Command, content: Any, ids: Ids) -> WrittenEvent:
    child_id = content.child_workflow_id
    fields = {
        "namespace": NAMESPACE,
        "workflow_execution": {"workflow_id": child_id or content.workflow_execution.workflow_id},
        "child_workflow_only": bool(child_id),
        "signal_name": content.signal_name,
        "input": Payloads(payloads=content.args),
    }
    name = "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED"
    return WrittenEvent(name, fields, ("signal", content.seq), command)


def _memo(command: Command, content: Any, ids: Ids) -> WrittenEvent:
    fields = {"upserted_memo": content.upserted_memo}
    return WrittenEvent("WORKFLOW_PROPERTIES_MODIFIED", fields, command=command)


def _search_attributes(command: Command, content: Any, ids: Ids) -> WrittenEvent:
    fields = {"search_attributes": content.search_attributes}
    return WrittenEvent("UPSERT_WORKFLOW_SEARCH_ATTRIBUTES", fields, command=command)


def _completed(command: Command, content: Any, ids: Ids) -> WrittenEvent:
    fields = {"result": Payloads(payloads=[content.result])}
    return WrittenEvent("WORKFLOW_EXECUTION_COMPLETED", fields, command=command)


def _failed(command: Command, content: Any, ids: Ids) -> WrittenEvent:
    return WrittenEvent("WORKFLOW_EXECUTION_FAILED", {"failure": content.failure}, command=command)


def _cancelled(command: Command, content: Any, ids: Ids) -> WrittenEvent:
    return WrittenEvent("WORKFLOW_EXECUTION_CANCELED", {}, command=command)


def _continued(command: Command, content: Any, ids: Ids) -> WrittenEvent:
    fields = {
        "workflow_type": {"name": content.workflow_type},
        "input": Payloads(payloads=content.arguments),
        "memo": {"fields": dict(content.memo)},
    }
    return WrittenEvent("WORKFLOW_EXECUTION_CONTINUED_AS_NEW", fields, command=command)


_PLAIN: dict[str, Callable[[Command, Any, Ids], WrittenEvent]] = {
    "schedule_activity": _activity,
    "request_cancel_activity": _cancelled_activity,
    "start_timer": _timer,
    "cancel_timer": _cancelled_timer,
    "start_child_workflow_execution": _child,
    "cancel_child_workflow_execution": _cancelled_child,
    "signal_external_workflow_execution": _signal,
    "modify_workflow_properties": _memo,
    "upsert_workflow_search_attributes": _search_attributes,
    "complete_workflow_execution": _completed,
    "fail_workflow_execution": _failed,
    "cancel_workflow_execution": _cancelled,
    "continue_as_new_workflow_execution": _continued,
}

CLOSES = frozenset(
    {
        *("complete_workflow_execution", "fail_workflow_execution"),
        *("cancel_workflow_execution", "continue_as_new_workflow_execution"),
    }
)
"""The commands that end a run."""


def _answered(
    command: Command, content: Any, requests: Mapping[str, Any], admitted: Container[str]
) -> list[WrittenEvent]:
    """Return the event of an answer to an update; none if it was rejected before its acceptance."""
    update_id, answer = content.protocol_instance_id, content.WhichOneof("response")
    if update_id not in requests:
        return []
    if answer == "accepted":
        fields: Fields = {"protocol_instance_id": update_id}
        if update_id not in admitted:
            fields["accepted_request"] = requests[update_id]
        return [WrittenEvent("WORKFLOW_EXECUTION_UPDATE_ACCEPTED", fields, command=command)]
    meta = {"update_id": update_id}
    if answer == "completed":
        outcome: Fields = {"success": Payloads(payloads=[content.completed])}
    else:
        outcome = {"failure": content.rejected}
    fields = {"meta": meta, "outcome": outcome}
    return [WrittenEvent("WORKFLOW_EXECUTION_UPDATE_COMPLETED", fields, command=command)]


def gist(event: HistoryEvent) -> tuple[str, ...]:
    """Return what the SDK compares of an event when it replays a history."""
    name, content = name_of(event), attributes(event)
    match name:
        case "ACTIVITY_TASK_SCHEDULED":
            return name, content.activity_id, content.activity_type.name
        case "ACTIVITY_TASK_CANCEL_REQUESTED":
            return name, str(content.scheduled_event_id)
        case "TIMER_STARTED" | "TIMER_CANCELED":
            return name, content.timer_id
        case "MARKER_RECORDED":
            return name, content.marker_name
        case "START_CHILD_WORKFLOW_EXECUTION_INITIATED":
            return name, content.workflow_id, content.workflow_type.name
        case "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED":
            return name, content.workflow_execution.workflow_id, content.signal_name
        case "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
            return name, content.protocol_instance_id
        case "WORKFLOW_EXECUTION_UPDATE_COMPLETED":
            return name, content.meta.update_id
        case _:
            return (name,)


def ends_run(made: Iterable[WrittenEvent]) -> bool:
    """Return whether a command of a task ends the run."""
    return any(map(_closes, made))


def _closes(made: WrittenEvent) -> bool:
    return made.command is not None and variant(made.command)[0] in CLOSES


def before_end(made: list[WrittenEvent]) -> list[WrittenEvent]:
    """Return the events of a task up to those that show and make the end of the run."""
    if not made or not _closes(made[-1]):
        return made
    count = len(made) - 1
    while count and _shows_end(made[count - 1]):
        count -= 1
    return made[:count]


_BESIDE_THE_END = (
    "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES",
    "WORKFLOW_EXECUTION_UPDATE_COMPLETED",
    "TIMER_CANCELED",
)


def _shows_end(made: WrittenEvent) -> bool:
    """Return whether an event shows the end of a turn, which a reader takes for a wait's.

    The answer to an update that the end has cut short may stand between these events, and so may
    the end of a timer of a call that has waited.
    """
    if made.name in _BESIDE_THE_END:
        return made.command is not None
    return (
        made.name == "WORKFLOW_PROPERTIES_MODIFIED" and MEMO in made.fields["upserted_memo"].fields
    )
