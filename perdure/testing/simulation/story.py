"""A simulated turn as a story: what happened, when, and to whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temporalio.api.history.v1 import HistoryEvent

from perdure.testing.simulation.server.clock import START
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.server import BrokenError, SimulatedServer
from perdure.text import one_line

_SILENT = (
    "WORKFLOW_TASK_SCHEDULED",
    "WORKFLOW_TASK_STARTED",
    "ACTIVITY_TASK_STARTED",
    "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES",
)
_WIDTH = 160


def story(server: SimulatedServer, broken: BrokenError | None) -> str:
    """Return the events of all runs in their order, and the broken promise.

    Each event has the time at which it happened, and by how much the clock was wrong then.
    """
    begun_ns = int(START.timestamp()) * 10**9
    lines: list[tuple[float, int, str]] = []
    for number, run in enumerate(server.runs):
        keys: dict[int, str] = {}
        for event, moment_ns in run.history.timed:
            told = _told(event, keys)
            seconds = (moment_ns - begun_ns) / 1e9
            wrong_s = (event.event_time.ToNanoseconds() - moment_ns) / 1e9
            if told and not (run.base and event.event_id < run.base[1]):
                name = f"{run.id}, run {number + 1}"
                name += f" (clock {wrong_s:+g} s)" if wrong_s else ""
                lines.append((seconds, number, f"{seconds:9.3f} s  {name}: {told}"))
    lines.sort(key=lambda line: line[0])
    text = [line for *_, line in lines]
    if broken is not None:
        text.append(f"BROKEN in {broken.run.id if broken.run else 'the whole'}: {broken}")
    return "\n".join(text)


def _told(event: HistoryEvent, keys: dict[int, str]) -> str:
    """Return an event in words; empty for an event that says nothing."""
    name, content = name_of(event), attributes(event)
    if name in _SILENT:
        return ""
    words = name.removeprefix("WORKFLOW_EXECUTION_").lower().replace("_", " ")
    if name == "ACTIVITY_TASK_SCHEDULED":
        keys[event.event_id] = content.activity_id
    about = _about(name, content, keys)
    return one_line(f"{words} {about}".strip(), _WIDTH)


def _about(name: str, content: Any, keys: dict[int, str]) -> str:
    if name.startswith("ACTIVITY_TASK"):
        scheduled = getattr(content, "scheduled_event_id", 0)
        return f"{keys.get(scheduled) or content.activity_id} {_end(content)}"
    return _ABOUT[name](content) if name in _ABOUT else ""


def _end(content: Any) -> str:
    """Return the result or the failure of an event that has either."""
    if hasattr(content, "result"):
        return _text(content.result)
    return str(content.failure.message) if hasattr(content, "failure") else ""


def _text(payloads: Any) -> str:
    return ", ".join(payload.data.decode() for payload in payloads.payloads)


def _memo(content: Any) -> str:
    fields = content.upserted_memo.fields
    return ", ".join(f"{name}={value.data.decode()}" for name, value in fields.items())


def _accepted(content: Any) -> str:
    request = content.accepted_request.input
    return f"{content.protocol_instance_id}: {request.name} {_text(request.args)}"


_ABOUT: dict[str, Callable[[Any], str]] = {
    "WORKFLOW_EXECUTION_STARTED": lambda content: _text(content.input),
    "WORKFLOW_EXECUTION_COMPLETED": _end,
    "WORKFLOW_EXECUTION_FAILED": _end,
    "WORKFLOW_EXECUTION_CANCEL_REQUESTED": lambda content: str(content.cause),
    "WORKFLOW_EXECUTION_SIGNALED": lambda one: f"{one.signal_name} {_text(one.input)}",
    "WORKFLOW_EXECUTION_UPDATE_ADMITTED": lambda one: str(one.request.meta.update_id),
    "WORKFLOW_EXECUTION_UPDATE_ACCEPTED": _accepted,
    "WORKFLOW_EXECUTION_UPDATE_COMPLETED": lambda content: str(content.meta.update_id),
    "WORKFLOW_PROPERTIES_MODIFIED": _memo,
    "START_CHILD_WORKFLOW_EXECUTION_INITIATED": lambda content: str(content.workflow_id),
    "TIMER_STARTED": lambda one: f"of {one.start_to_fire_timeout.ToNanoseconds() / 1e9:g} s",
}
