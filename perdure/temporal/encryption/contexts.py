"""Which key encrypts what is written: that of the data subject of a workflow, or none of a subject.

The worker of a workflow knows it from the input of the workflow, and an activity from its own
input, so what follows is under the same key: results, delegates, later runs. A client says it when
it starts something for a data subject, and looks it up for what it sends to a workflow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any

from temporalio.converter import (
    ActivitySerializationContext,
    SerializationContext,
    WorkflowSerializationContext,
)


@dataclass(frozen=True)
class KeyedWorkflow(WorkflowSerializationContext):
    """The context of a workflow whose data key is known; empty for the key of no subject."""

    data_key: str = ""


@dataclass(frozen=True)
class KeyedActivity(ActivitySerializationContext):
    """The context of an activity of a workflow whose data key is known."""

    data_key: str = ""


@dataclass(frozen=True)
class Writing:
    """The data key of what a client sends.

    Attributes:
        data_key: Its id; empty for the key of no subject.
        starts: Whether it holds for workflows that exist, too, because they are started anew.
    """

    data_key: str
    starts: bool


WRITING: ContextVar[Writing | None] = ContextVar("perdure_writing", default=None)
ACTIVITY: ContextVar[str | None] = ContextVar("perdure_activity_data_key", default=None)
"""The data key of the activity that runs here; None before its input is decrypted."""


@contextlib.contextmanager
def writing(data_key: str, *, starts: bool) -> Iterator[None]:
    """Encrypt what a client sends in a block with a data key."""
    token = WRITING.set(Writing(data_key, starts))
    try:
        yield
    finally:
        WRITING.reset(token)


def keyed(context: SerializationContext | None, data_key: str) -> SerializationContext | None:
    """Return a context of a worker with the data key of its workflow."""
    match context:
        case KeyedWorkflow() | KeyedActivity():
            return context
        case WorkflowSerializationContext():
            return KeyedWorkflow(**_values(context), data_key=data_key)
        case ActivitySerializationContext():
            return KeyedActivity(**_values(context), data_key=data_key)
        case _:
            return context


def _values(context: WorkflowSerializationContext | ActivitySerializationContext) -> dict[str, Any]:
    return {field.name: getattr(context, field.name) for field in fields(context)}
