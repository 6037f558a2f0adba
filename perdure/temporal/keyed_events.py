"""How the workflow that keeps the events of a name and a key is started."""

from __future__ import annotations

from typing import Any

from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from perdure import limits
from perdure.keyed_events.wire import KeyedEvents
from perdure.temporal.names import KEYED_EVENTS
from perdure.temporal.payloads import pack
from perdure.temporal.priorities import priority_of
from perdure.text import markdown, one_line
from perdure.turn import event_keys


def start_of(name: str, key: str, task_queue: str) -> dict[str, Any]:
    """Return the arguments that start the workflow, unless it runs.

    Args:
        name: The name of the events.
        key: Their complete key.
        task_queue: The queue of the workers that run it, if it does not run yet.
    """
    summary = f"event {markdown(name)} of {markdown(key)}"
    tenant = event_keys.tenant_prefix(key).strip("@/")
    return {
        "workflow": KEYED_EVENTS,
        "arg": pack(KeyedEvents(name=name, key=key)),
        "id": event_keys.workflow_id(name, key),
        "task_queue": task_queue,
        "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
        "id_reuse_policy": WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        "task_timeout": limits.TASK_TIMEOUT,
        "priority": priority_of(fairness=tenant or None),
        "static_summary": one_line(summary, 200),
    }
